/* Equations one by one, those on the screen first: all at once would stop a phone for seconds. */
"use strict";

(function () {
  const isOnScreen = (place) => {
    const { top, bottom } = place.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };

  async function typeset() {
    const places = [...document.querySelectorAll(".math")];
    const first = places.filter(isOnScreen);
    if (first.length) await MathJax.typesetPromise(first);
    for (const place of places.filter((one) => !first.includes(one))) {
      await new Promise((done) => setTimeout(done)); // taps and scrolling come in between
      await MathJax.typesetPromise([place]);
    }
  }

  /* Whoever waits for MathJax waits for all equations. Pages without any do not load it. */
  function begin() {
    if (window.MathJax?.startup) MathJax.startup.promise = MathJax.startup.promise.then(typeset);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
