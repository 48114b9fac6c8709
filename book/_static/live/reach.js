/* Layers of one mask (chapter 11): draw who may look at whom, and see after how many layers a word knows of which other. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { begin, set, text, rect, matrix, paint } = lessons.live;
  const EXAMPLE = { n: 9, kind: "one" };
  const KINDS = { one: "one neighbour", two: "two neighbours", back: "the last three", causal: "causal", none: "nobody" };
  const [CELL, LEFT, TOP] = [30, 42, 46];
  const TESTS = {
    one: (back) => Math.abs(back) <= 1,
    two: (back) => Math.abs(back) <= 2,
    back: (back) => back >= 0 && back <= 2,
    causal: (back) => back >= 0,
    none: () => false,
  };

  const square = (n, value) => Array.from({ length: n }, (_, row) => Array.from({ length: n }, (_, column) => value(row, column)));
  const maskOf = (kind, n) => square(n, (row, column) => TESTS[kind](row - column));

  /* After how many layers a row knows of a column: itself after none, Infinity if never. */
  function layersUntil(visible) {
    let after = square(visible.length, (row, column) => (row === column ? 0 : Infinity));
    for (let depth = 1; depth < visible.length; depth++) {
      const heard = (row, column) => visible[row].some((isSeen, by) => isSeen && after[by][column] < depth);
      after = after.map((one, row) => one.map((known, column) => (known < depth ? known : heard(row, column) ? depth : Infinity)));
    }
    return after;
  }

  const layers = (count) => `${count} ${count === 1 ? "layer" : "layers"}`;

  /* A named square with numbered rows and columns; answers its cells. */
  function numbered(svg, title, n, role, options) {
    text(svg, LEFT, 9, title, { bold: true, align: "start" });
    for (let i = 0; i < n; i++) {
      text(svg, LEFT - 12, TOP + CELL * (i + 0.5), i + 1, { small: true });
      text(svg, LEFT + CELL * (i + 0.5), TOP - 12, i + 1, { small: true });
    }
    text(svg, 10, TOP + (CELL * n) / 2, "the word that looks", { role: "soft", small: true, turn: true });
    return matrix(svg, LEFT, TOP, n, n, role, { cell: [CELL, CELL], ...options });
  }

  function make(figure, about) {
    const { n, kind } = { ...EXAMPLE, ...about };
    let [visible, row] = [maskOf(kind, n), 0];
    const panels = ["The mask of each layer", "After how many layers"].map((name) => figure.panel(TOP + CELL * n + 4, name));
    const grid = numbered(panels[0], "who may look at whom", n, "query", { weights: true });
    const known = numbered(panels[1], "knows of it after … layers", n, "residual", { digits: 0 });
    const frames = panels.map((svg) => rect(svg, LEFT, 0, CELL * n, CELL, { role: "query", line: 2.2 }));
    frames.forEach((frame) => (frame.style.pointerEvents = "none"));
    const buttons = choices("Masks", KINDS, kind, (chosen) => {
      visible = maskOf(chosen, n);
      show();
    });
    const look = (query) => {
      row = query;
      show();
    };
    const put = (query, key, value) => {
      visible[query][key] = value;
      look(query);
    };
    paint(grid, put, look, (query, key) => visible[query][key]);
    figure.controls(buttons);
    figure.hint("Click a cell of the mask to hide or show it, or move with the arrow keys and press the space bar.");

    function show() {
      const after = layersUntil(visible);
      const ever = after.map((one) => one.map(Number.isFinite));
      const now = Object.keys(KINDS).find((one) => String(maskOf(one, n)) === String(visible));
      grid.show(visible.map((one) => one.map(Number)), visible);
      grid.cells.forEach(({ place, said, row: query, column: key }) => {
        said.textContent = "";
        const looks = visible[query][key] ? "may look" : "may not look";
        set(place, { "aria-checked": visible[query][key], "aria-label": `Word ${query + 1} ${looks} at word ${key + 1}` });
      });
      known.show(after, ever);
      known.cells.forEach(({ box, row: query, column: key }) => {
        if (ever[query][key]) set(box, { "fill-opacity": (0.5 / (1 + after[query][key])).toFixed(3) });
      });
      frames.forEach((frame) => set(frame, { y: TOP + CELL * row }));
      buttons
        .querySelectorAll("button")
        .forEach((button) => set(button, { "aria-pressed": button.dataset.key === now }));
      const [scores, lost] = [visible.flat().filter(Boolean).length, ever.flat().filter((one) => !one).length];
      const deepest = Math.max(...after.flat().filter(Number.isFinite));
      const all = lost ? `${lost} cells stay crossed out at any depth` : `all know of all after ${layers(deepest)}`;
      const [first, ...later] = Array.from({ length: Math.max(deepest, 1) }, (_, i) => after[row].filter((one) => one <= i + 1).length);
      const then = later.length ? `, then ${later.join(", ")}` : "";
      figure.say(`${scores} of ${n * n} scores: ${all}. Counting itself, word ${row + 1} knows ${first} after one layer${then}.`);
    }
    show();
  }

  begin("reach", make);
})(globalThis.lessons);
