/* What scrolls by itself can be scrolled with the keyboard too: it gets the focus, as long as it is too wide. */
"use strict";

(function () {
  const mark = () =>
    document.querySelectorAll(".bd-article .math").forEach((one) => {
      if (one.scrollWidth > one.clientWidth + 1 && one.clientWidth) one.tabIndex = 0;
      else one.removeAttribute("tabindex");
    });
  addEventListener("load", () => {
    const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
    typeset.then(() => {
      mark();
      addEventListener("resize", mark);
    });
  });
})();
