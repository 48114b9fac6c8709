/* Equations are typeset as they come near the screen, one by one, but before the reader moves only those in view;
 * the rest when the page has been open for a while, for printing and searching. MathJax is a megabyte, and a
 * chapter's equations at once would stop a phone for seconds.
 */
"use strict";

(function () {
  const MATHJAX = new URL("vendor/mathjax/startup.js", document.currentScript.src).href;
  const IN_VIEW = "0px";
  const NEAR = "100% 0px"; // a screen above, a screen below
  const SOON = 2000; // milliseconds: who prints at once needs MathJax, and printing does not wait for it
  const A_WHILE = 10000;
  const whenIdle = window.requestIdleCallback ?? setTimeout;

  let mathjax = null;
  let last = Promise.resolve();

  const load = () =>
    (mathjax ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.addEventListener("load", () => MathJax.startup.promise.then(done));
      script.addEventListener("error", () => {
        mathjax = null; // who needs it next tries again
        failed(new Error(`not loaded: ${MATHJAX}`));
      });
      script.src = MATHJAX;
      document.head.append(script);
    }));

  const isTypeset = (place) => place.querySelector("mjx-container") !== null;
  const all = () => [...document.querySelectorAll(".math")];

  /* What scrolls by itself can be scrolled with the keyboard too: it gets the focus, as long as it is too wide. */
  function markWide(place) {
    if (place.clientWidth && place.scrollWidth > place.clientWidth + 1) place.tabIndex = 0;
    else place.removeAttribute("tabindex");
  }

  async function typeset(place, pause) {
    if (isTypeset(place)) return;
    await new Promise((done) => pause(done)); // taps and scrolling come in between
    await MathJax.typesetPromise([place]);
    markWide(place);
  }

  /* Loads MathJax and does this, after all that was asked for before, even where that failed. */
  const next = (work) => (last = last.catch(() => {}).then(load).then(work));

  function inTurn(places, pause) {
    if (!places.length) return;
    next(async () => {
      for (const place of places) await typeset(place, pause);
    });
  }

  function watch(rootMargin) {
    const observer = new IntersectionObserver(
      (entries) => {
        const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
        for (const place of near) observer.unobserve(place);
        inTurn(near, setTimeout);
      },
      { rootMargin },
    );
    for (const place of all()) observer.observe(place);
  }

  function begin() {
    watch(IN_VIEW);
    addEventListener("scroll", () => watch(NEAR), { once: true, passive: true });
    addEventListener("load", () => setTimeout(() => whenIdle(load), SOON));
    setTimeout(() => inTurn(all(), whenIdle), A_WHILE);
    addEventListener("online", () => inTurn(all(), whenIdle));
    addEventListener("resize", () => all().filter(isTypeset).forEach(markWide));
    addEventListener("beforeprint", () => window.MathJax?.typeset?.(all().filter((place) => !isTypeset(place))));
  }

  /* For a printer, which needs the whole page as it will be: all at once, which lays the page out once. */
  window.typesetEquations = () =>
    next(() => MathJax.typesetPromise(all().filter((place) => !isTypeset(place))).then(() => all().forEach(markWide)));

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
