/* Heads by hand (chapter 6): choose queries and keys, small whole numbers in a plane, until the map is the wanted one. */
"use strict";

(function (lessons) {
  const { element, choices, isShortcut } = lessons.page;
  const { begin, set, number, text, rect, pill, line, circle, arrow, matrix, label, softmax } = lessons.live;
  const EXAMPLE = { letters: ["b", "a", "d", "c", "e"], keys: [[3, 0], [1, 3], [-3, 2], [-3, -2], [1, -3]] };
  const MOST = 3; // numbers go from −3 to 3
  const [SMALL, CELL] = [[29, 28], [52, 28]];
  const [X0, Y0, UNIT] = [257, 104, 21]; // of the plane
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  /* Which share of its weight the place t shall give to the place s, of n. */
  const WANTED = {
    itself: (t, s) => Number(s === t),
    "one before": (t, s) => Number(s === Math.max(t - 1, 0)),
    mirror: (t, s, n) => Number(s === n - 1 - t),
    first: (t, s) => Number(s === 0),
    "both ends": (t, s, n) => (s === 0 || s === n - 1 ? 0.5 : 0),
  };
  const weightsOf = (queries, keys) =>
    queries.map((q) => softmax(keys.map((k) => (q[0] * k[0] + q[1] * k[1]) / Math.SQRT2)));
  /* Of each row: is every weight within 0.1 of what is wanted? */
  const rightRows = (weights, goal) =>
    weights.map((row, t) => row.every((weight, s) => Math.abs(weight - WANTED[goal](t, s, row.length)) <= 0.1));
  const place = ([x, y], far = 1) => [X0 + UNIT * x * far, Y0 - UNIT * y * far];

  /* Keys as arrows, queries as dots; answers what moves them. */
  function plane(svg, letters) {
    line(svg, "rule")([X0 - 66, Y0], [X0 + 66, Y0]);
    line(svg, "rule")([X0, Y0 - 66], [X0, Y0 + 66]);
    const keys = letters.map((letter) => {
      const group = svg.appendChild(element("svg:g"));
      return { group, draw: arrow(group, "key"), name: text(group, 0, 0, letter, { role: "key", bold: true }) };
    });
    const dots = letters.map(() => circle(svg, X0, Y0, 4, "query"));
    const now = circle(svg, X0, Y0, 8, "query", { fill: "none" });
    return (queries, ends, row) => {
      keys.forEach(({ group, draw, name }, i) => {
        const length = Math.hypot(...ends[i]);
        group.style.display = length ? "" : "none";
        if (!length) return;
        draw([X0, Y0], place(ends[i]));
        const [x, y] = place(ends[i], 1 + 16 / UNIT / length);
        set(name, { x, y: y + 4.1 });
      });
      dots.forEach((dot, i) => ((x, y) => set(dot, { cx: x, cy: y }))(...place(queries[i])));
      const [x, y] = place(queries[row]);
      set(now, { cx: x, cy: y });
    };
  }

  function make(figure, about) {
    const { letters, keys: given } = { ...EXAMPLE, ...about };
    const n = letters.length;
    const copied = (rows) => rows.map((row) => [...row]);
    let [goal, row, numbers] = ["itself", 0, [copied(given), copied(given)]]; // queries, keys
    const left = figure.panel(204, "Queries and keys, and the same in a plane");
    const right = figure.panel(204, "The resulting attention map; cells that should have weight are framed");
    letters.forEach((letter, i) => pill(left, 0, 48 + 28 * i, letter, "ink", 28));
    const sides = [["queries", "query", 36], ["keys", "key", 112]].map(([name, role, x]) => {
      text(left, x + 29, 12, name, { role, bold: true });
      return matrix(left, x, 34, n, 2, role, { cell: SMALL, digits: 0 });
    });
    const moved = plane(left, letters);
    const map = matrix(right, 80, 60, n, n, "query", { cell: CELL, weights: true });
    label(right, 80, 60, CELL, letters, letters);
    const frames = map.cells.map(({ row: t, column: s }) =>
      rect(right, 80 + CELL[0] * s, 60 + CELL[1] * (t + 0.5), ...CELL, { role: "query", line: 2.2 }),
    );
    const said = sides.map(({ cells }, side) => cells.map((cell) => cellOf(cell, side)));

    /* A cell is a button: a press makes its number one larger (after 3 comes −3), + and − change it, arrow keys walk. */
    function cellOf({ place: cell, row: t, column: axis }, side) {
      const change = (by) => {
        const turned = numbers[side][t][axis] + by + MOST;
        numbers[side][t][axis] = ((turned + 7) % 7) - MOST;
        show(t);
      };
      set(cell, { class: "live-cell", role: "button", tabindex: side || t || axis ? -1 : 0 });
      cell.onclick = (event) => change(event.shiftKey ? -1 : 1);
      cell.onfocus = () => show(t);
      cell.onkeydown = (event) => {
        if (isShortcut(event)) return;
        if (event.key === "-" || event.key === "Backspace") change(-1);
        else if (["+", "=", " ", "Enter"].includes(event.key)) change(1);
        else if (event.key in STEPS) walk(t, 2 * side + axis, STEPS[event.key]);
        else return;
        event.preventDefault();
      };
      return (value) =>
        set(cell, { "aria-label": `${["query", "key"][side]} of ${letters[t]}, ${["first", "second"][axis]} number: ${value}` });
    }
    function walk(t, column, [down, across]) {
      const [to, next] = [t + down, column + across];
      if (to < 0 || to >= n || next < 0 || next > 3) return;
      sides.forEach(({ cells }) => cells.forEach((one) => set(one.place, { tabindex: -1 })));
      set(sides[next >> 1].cells[2 * to + (next % 2)].place, { tabindex: 0 }).focus();
    }

    const names = Object.fromEntries(Object.keys(WANTED).map((name) => [name, name]));
    figure.controls(
      choices("Each place should look at", names, goal, (chosen) => {
        goal = chosen;
        // What is solved already is an example; the others begin with queries of zeros.
        numbers = [goal === "itself" ? copied(given) : letters.map(() => [0, 0]), copied(given)];
        show(0);
      }),
    );
    figure.hint("Click a number to raise it (with Shift, to lower it; after 3 comes −3), until the framed cells share all the weight.");

    function show(t) {
      row = t;
      const weights = weightsOf(...numbers);
      const rows = rightRows(weights, goal);
      sides.forEach((side, i) => side.show(numbers[i]));
      said.forEach((cells, side) => cells.forEach((say, i) => say(numbers[side][i >> 1][i % 2])));
      moved(...numbers, row);
      map.show(weights);
      frames.forEach((frame, i) => (frame.style.display = WANTED[goal](Math.floor(i / n), i % n, n) ? "" : "none"));
      const done = rows.filter(Boolean).length;
      const takes = weights[row].map((weight, s) => `${number(weight)} to ${letters[s]}`).join(", ");
      figure.say(`${done === n ? "Solved" : `${done} of ${n} rows ${done === 1 ? "is" : "are"} right`} (${goal}). ${letters[row]} gives ${takes}.`);
    }
    show(0);
  }

  lessons.hand = { weightsOf, rightRows, EXAMPLE };
  begin("hand", make);
})(globalThis.lessons);
