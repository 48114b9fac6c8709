/* A mask drawn over words (chapter 4): who may look at whom, and what the weights of each row become. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, text, rect, pill, line, matrix, label, paint, softmax } = lessons.live;
  const EXAMPLE = {
    words: ["BOS", "ein", "und", "zwanzig", "PAD"],
    // Of the trained translator, writing 21: head 4 of the self-attention in the decoder's second layer, without a mask.
    scores: [
      [-0.1, -1.3, -2.7, -2.5, -1.6],
      [0.6, -0.8, 0.6, 1.0, 1.4],
      [3.0, -2.2, -1.9, 0.2, 0.3],
      [-0.3, -0.8, 1.8, 1.3, 1.3],
      [-0.7, -0.8, 1.2, 0.7, 1.0],
    ],
    kind: "both",
    row: 3,
  };
  const KINDS = { none: "none", padding: "padding", causal: "causal", both: "both" };
  const CELL = [52, 28];

  /* visible[query][key]: true where a query may look. */
  const maskOf = (kind, words) =>
    words.map((_, query) =>
      words.map((word, key) => {
        const isReal = word !== "PAD" || kind === "none" || kind === "causal";
        return isReal && (key <= query || kind === "none" || kind === "padding");
      }),
    );
  const weightsOf = (scores, visible) => scores.map((row, query) => softmax(row, visible[query]));

  /* The same mask, in the package; `ids` are those of the words. */
  function program(kind, n) {
    const [padding, causal] = ["padding_mask(ids, pad_id=0)", `causal_mask(${n})`];
    const made = { none: "None", padding, causal, both: `combine(${padding}, ${causal})` }[kind];
    return made ? `mask = ${made}` : "# drawn by hand";
  }

  /* Words below look at words above; answers what shows it. */
  function wires(svg, words) {
    const n = words.length;
    const step = 340 / n;
    const middle = (i) => step * (i + 0.5);
    const role = (word) => (word === "PAD" ? "mask" : "decoder");
    text(svg, 170, 8, "keys: who is seen", { role: "soft", small: true });
    text(svg, 170, 198, "queries: who looks", { role: "soft", small: true });
    const rows = words.map((_, query) =>
      words.map((_, key) => [line(svg, "soft"), line(svg, "weight"), middle(query), middle(key)]),
    );
    words.forEach((word, i) => {
      pill(svg, middle(i) - 29, 32, word, role(word), 58);
      pill(svg, middle(i) - 29, 174, word, role(word), 58);
    });
    const frame = rect(svg, 0, 174, 62, 24, { role: "query", line: 2.2, radius: 12 });
    return (weights, visible, row) => {
      set(frame, { x: middle(row) - 31 });
      rows.forEach((keys, query) =>
        keys.forEach((lines, key) =>
          lines.slice(0, 2).forEach((draw, isWeight) => {
            const shape = draw([lines[2], 163], [lines[3], 43]);
            const width = visible[query][key] ? Math.max(8 * weights[query][key], 0.8) : 0;
            set(shape, {
              "stroke-width": isWeight === Number(query === row) ? width : 0,
              opacity: isWeight ? 1 : 0.25,
            });
          }),
        ),
      );
    };
  }

  function make(figure, about) {
    const { words, scores, kind, row: first } = { ...EXAMPLE, ...about };
    const n = words.length;
    let [visible, row] = [maskOf(kind, words), first];
    const svg = figure.panel(
      60 + CELL[1] * n + 4,
      "Mask and weights: a row for each word that looks, a column for each that is seen",
    );
    const roles = ["decoder", "decoder"];
    const grid = matrix(svg, 80, 60, n, n, "query", { cell: CELL, weights: true });
    label(svg, 80, 60, CELL, words, words, roles);
    const frame = rect(svg, 80, 60, CELL[0] * n, CELL[1], { role: "query", line: 2.2 });
    frame.style.pointerEvents = "none";
    const wired = wires(figure.panel(206, "Who looks at whom: a line as thick as the weight"), words);
    const code = element("code");
    const buttons = choices("Masks", KINDS, kind, (chosen) => {
      visible = maskOf(chosen, words);
      show();
    });
    figure.controls(buttons);
    figure.said.after(element("p", { class: "live-code" }, code));
    figure.hint("Click a cell to hide or show it, or move with the arrow keys and press the space bar. Lines are as thick as weights.");

    const put = (query, key, value) => {
      visible[query][key] = value;
      row = query;
      show();
    };
    const look = (query) => {
      row = query;
      show();
    };
    paint(grid, put, look, (query, key) => visible[query][key]);

    function show() {
      const weights = weightsOf(scores, visible);
      const now = Object.keys(KINDS).find((one) => String(maskOf(one, words)) === String(visible));
      grid.show(weights, visible);
      grid.cells.forEach(({ place, row: query, column: key }) => {
        const said = visible[query][key] ? `weight ${number(weights[query][key])}` : "hidden";
        set(place, {
          "aria-checked": visible[query][key],
          "aria-label": `${words[query]} looks at ${words[key]}: ${said}`,
        });
      });
      set(frame, { y: 60 + CELL[1] * row });
      wired(weights, visible, row);
      buttons
        .querySelectorAll("button")
        .forEach((button) => set(button, { "aria-pressed": button.dataset.key === now }));
      code.textContent = program(now, n);
      const left = visible.flat().filter(Boolean).length;
      const takes = words
        .map((word, key) => visible[row][key] && `${number(weights[row][key])} of ${word}`)
        .filter(Boolean);
      const blind = words.filter((_, query) => !visible[query].some(Boolean));
      const looks = takes.length ? ` ${words[row]} takes ${takes.join(", ")}.` : "";
      const none = blind.length ? ` ${new Intl.ListFormat("en").format(blind)} may look at nothing: the weights are zeros, not NaN.` : "";
      figure.say(`${left} of ${n * n} scores ${left === 1 ? "is" : "are"} left.${looks}${none}`);
    }
    show();
  }

  lessons.masks = { maskOf, weightsOf, EXAMPLE };
  begin("masks", make);
})(globalThis.lessons);
