/* One query among three keys in a plane (chapter 3): scores as shadows, weights, the mix of values; √d_k and not. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, write, text, rect, pill, line, circle, arrow, matrix, handle, softmax } = lessons.live;
  const EXAMPLE = {
    words: ["and", "twenty", "one"],
    keys: [
      [-1, 2],
      [0, 1],
      [1, 1],
    ],
    values: [
      [0, 0],
      [0, 10],
      [10, 0],
    ],
    query: [2, 1],
    widths: [2, 32],
  };
  const [UNIT, X0, Y0] = [88, 142, 222]; // of the plane
  const [LEFT, RIGHT, LOW, HIGH] = [-1.4, 2.1, -1, 2.3]; // as far as the query can go
  const [SCORES, BARS, BAR] = [80, [114, 196], 40]; // where the table's columns are, and how long a weight of 1

  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  const mixed = (weights, values) =>
    values[0].map((_, axis) => weights.reduce((sum, w, i) => sum + w * values[i][axis], 0));

  /* In d_k numbers, products of random vectors are √(d_k / 2) times as large as in two: so are these. */
  function computed({ keys, values }, query, width) {
    const scores = keys.map((key) => Math.sqrt(width / 2) * dot(key, query));
    const ways = [scores, scores.map((score) => score / Math.sqrt(width))].map((row) => softmax(row));
    return { scores, ways, outputs: ways.map((weights) => mixed(weights, values)) };
  }

  const place = ([x, y]) => [X0 + UNIT * x, Y0 - UNIT * y];

  /* The plane; answers (query, scores) => …, which moves what moves. */
  function plane(svg, { words: names, keys }) {
    line(svg, "rule")([6, Y0], [334, Y0]);
    line(svg, "rule")([X0, 318], [X0, 8]);
    text(svg, 334, Y0 + 12, "first number", { role: "soft", small: true, align: "end" });
    text(svg, X0 + 6, 8, "second number", { role: "soft", small: true, align: "start" });
    const along = line(svg, "query", { dashed: true, alpha: 0.6 });
    const shadows = keys.map(() => [line(svg, "key", { dashed: true }), circle(svg, 0, 0, 4, "query")]);
    const said = keys.map((key, i) => {
      arrow(svg, "key")([X0, Y0], place(key));
      const [x, y] = place(key);
      text(svg, x + 9, y - 21, names[i], { role: "key", bold: true, align: "start" });
      return text(svg, x + 9, y - 7, "", { small: true, align: "start" });
    });
    const pointed = arrow(svg, "query", 2.6);
    return (query) => {
      const length = Math.hypot(...query) || 1e-9;
      const at = (far) => place(query.map((part) => (part / length) * far));
      const feet = keys.map((key) => dot(key, query) / length);
      along(at(Math.min(-0.5, ...feet)), at(Math.max(1.4, length, ...feet)));
      pointed([X0, Y0], place(query));
      keys.forEach((key, i) => {
        const foot = at(feet[i]);
        shadows[i][0](place(key), foot);
        set(shadows[i][1], { cx: foot[0], cy: foot[1] });
        said[i].textContent = `q · k = ${number(dot(key, query), 1)}`;
      });
    };
  }

  /* The table; answers what shows numbers in it. */
  function table(svg, { words: names, values }) {
    const head = (x, y, content, about) => text(svg, x, y, content, { bold: true, ...about });
    const soft = { role: "soft", small: true };
    const scale = text(svg, SCORES + 18, 10, "", { ...soft, align: "end" });
    head(SCORES, 26, "q · k");
    BARS.forEach((x, way) => {
      text(svg, x, 10, "softmax of", { ...soft, align: "start" });
      head(x, 26, way ? "q · k / √d_k" : "q · k", { align: "start" });
    });
    head(310, 26, "value", { role: "value" });
    const rows = names.map((name, i) => {
      const y = 58 + 30 * i;
      pill(svg, 0, y, name, "encoder", 56);
      const bars = BARS.map((x) => {
        const bar = rect(svg, x, y, 1, 16, { fill: "weight" });
        return { x, bar, said: text(svg, x, y, "", { align: "start", small: true }) };
      });
      const value = matrix(svg, 280, y - 11, 1, 2, "value", { cell: [30, 22], digits: 0 });
      return { score: text(svg, SCORES, y, ""), bars, value };
    });
    const bottom = 58 + 30 * names.length + 12;
    head(0, bottom - 7, "output", { role: "value", align: "start" });
    text(svg, 0, bottom + 8, "Σ weight × value", { ...soft, align: "start" });
    const outputs = BARS.map((x) =>
      matrix(svg, x, bottom - 11, 1, 2, "value", { cell: [34, 22], digits: 1, tint: 0.3 }),
    );
    return ({ scores, ways, outputs: found }, width) => {
      const larger = Math.sqrt(width / 2);
      write(scale, larger === 1 ? `d_k = ${width}` : `d_k = ${width}: × ${number(larger, larger % 1 ? 1 : 0)}`);
      rows.forEach(({ score, bars, value }, i) => {
        score.textContent = number(scores[i], 1);
        bars.forEach(({ x, bar, said }, way) => {
          set(bar, { width: Math.max(BAR * ways[way][i], 1) });
          set(said, { x: x + BAR * ways[way][i] + 4 });
          said.textContent = number(ways[way][i]);
        });
        value.show([values[i]]);
        value.cells.forEach(({ box }) => set(box, { "fill-opacity": 0.06 + 0.34 * ways[1][i] }));
      });
      outputs.forEach((cells, way) => cells.show([found[way]]));
    };
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    let [query, width] = [[...given.query], given.widths[0]];
    const svg = figure.panel(324, "A query among keys, in a plane");
    const moved = plane(svg, given);
    const told = table(figure.panel(190, "Scores, weights and the output"), given);
    const go = (x, y) => {
      query = [Math.min(RIGHT, Math.max(LEFT, x)), Math.min(HIGH, Math.max(LOW, y))];
      show();
    };
    const knob = handle(figure, svg, {
      name: "query",
      min: LEFT,
      max: RIGHT,
      to: (x, y) => go((x - X0) / UNIT, (Y0 - y) / UNIT),
      by: (right, up) => go(query[0] + right / 10, query[1] + up / 10),
      home: () => go(...given.query),
    });
    circle(knob, 0, 0, 9, "query", { tint: 0.25 });
    const buttons = choices("Width", Object.fromEntries(given.widths.map((d) => [d, ""])), String(width), (d) => {
      width = Number(d);
      show();
    });
    for (const button of buttons.children) button.append("d", element("sub", {}, "k"), ` = ${button.dataset.key}`);
    figure.controls(buttons);
    const wide = given.widths.at(-1);
    const larger = number(Math.sqrt(wide / 2), 0);
    figure.hint(
      `Drag the query, or move it with the arrow keys. With ${wide} numbers, dot products are typically ${larger} times as large as with 2.`,
    );

    function show() {
      const found = computed(given, query, width);
      const at = query.map((part) => number(part, 1)).join(", ");
      const list = ([a, b]) => `(${number(a, 1)}, ${number(b, 1)})`;
      moved(query);
      told(found, width);
      knob.put(place(query), query[0].toFixed(1), at);
      const weights = given.words.map((word, i) => `“${word}” ${number(found.ways[1][i])}`).join(", ");
      const undivided = found.ways[0].map((w) => number(w)).join(", ");
      const [other, output] = found.outputs.map(list);
      figure.say(`Query (${at}): ${weights}; output ${output}. Undivided: ${undivided}; output ${other}.`);
    }
    show();
  }

  lessons.attention = { computed, EXAMPLE };
  begin("attention", make);
})(globalThis.lessons);
