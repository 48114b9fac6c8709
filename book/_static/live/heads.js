/* The four heads of a trained attention (chapter 7): where each of them looks, word by word, in a sentence of one's choice.
 * heads.data.js has the maps: [{ n, english, german, maps: { cross: a layer, a head, a row, a column: 0 to 100 } }]. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { begin, add, set, number, text, rect, circle, pill, matrix, handle } = lessons.live;
  const [LEFT, TOP, STEP, WIDTH, HEIGHT] = [68, 80, 142, 130, 22]; // where the maps are, and how large
  const KINDS = { cross: "cross", encoder: "encoder, self", decoder: "decoder, self" };
  const LAYERS = { 0: "layer 1", 1: "layer 2" };

  /* Rows and columns of a kind of attention; in cross-attention a row is named by the word that comes next. */
  function axes({ english, german }, kind) {
    if (kind === "encoder") return { rows: english, columns: english, roles: ["encoder", "encoder"], names: ["queries", "keys"] };
    if (kind === "decoder") return { rows: german, columns: german, roles: ["decoder", "decoder"], names: ["queries", "keys"] };
    return { rows: [...german.slice(1), "EOS"], columns: english, roles: ["decoder", "encoder"], names: ["about to write", "looks at"] };
  }

  /* A word that stands there twice needs its place. */
  const named = (words, j) => (words.indexOf(words[j]) === words.lastIndexOf(words[j]) ? words[j] : `${words[j]} (word ${j + 1})`);
  const best = (row) => row.indexOf(Math.max(...row));

  function looks(run, { kind, layer, row }) {
    const { rows, columns } = axes(run, kind);
    const heads = run.maps[kind][layer].map((map) => map[row]);
    const said = heads.map((weights, i) => `head ${i + 1} at “${named(columns, best(weights))}” (${number(weights[best(weights)] / 100)})`);
    const places = new Set(heads.map(best)).size;
    const asks = kind === "cross" ? `About to write “${rows[row]}”` : `“${rows[row]}” looks`;
    return `${asks}: ${said.join(", ")}. ${places === 1 ? "All look at the same place" : `${places} different places`}.`;
  }

  function make(figure, about) {
    const runs = lessons.headsData;
    const start = { kind: "cross", layer: 0, row: 2, ...about };
    const state = { run: 0, ...start };
    const panels = ["Heads 1 and 2", "Heads 3 and 4"].map((name) => figure.panel(230, name));
    const drawn = panels.map((svg) => add(svg, "g"));
    const frames = panels.flatMap((svg) => [0, 1].map((place) => rect(svg, LEFT + STEP * place, 0, WIDTH, HEIGHT, { role: "query", line: 2.2 })));
    frames.forEach((frame) => (frame.style.pointerEvents = "none"));
    const knob = handle(figure, panels[0], {
      name: "the word that looks",
      min: 1,
      max: 6,
      to: (_, y) => go(Math.floor((y - TOP) / HEIGHT)),
      by: (right, up) => go(state.row + right - up),
      home: () => go(start.row),
    });
    circle(knob, 0, 0, 6, "query", { tint: 0.35 });

    function go(row) {
      const { rows } = axes(runs[state.run], state.kind);
      state.row = Math.min(Math.max(row, 0), rows.length - 1);
      point();
    }

    function point() {
      const run = runs[state.run];
      const { rows } = axes(run, state.kind);
      const y = TOP + HEIGHT * (state.row + 0.5);
      frames.forEach((frame) => set(frame, { y: y - HEIGHT / 2 }));
      set(knob, { "aria-valuemax": rows.length });
      knob.put([LEFT + WIDTH + (STEP - WIDTH) / 2, y], state.row + 1, rows[state.row]);
      figure.say(looks(run, state));
    }

    /* One head's map, and what stands around it. */
    function map(svg, place, head) {
      const run = runs[state.run];
      const { rows, columns, roles, names } = axes(run, state.kind);
      const [x, width] = [LEFT + STEP * place, WIDTH / columns.length];
      text(svg, x + WIDTH / 2, 9, `head ${head + 1}`, { bold: true });
      columns.forEach((word, j) => text(svg, x + width * (j + 0.5), TOP - 6, word, { small: true, turn: true, align: "start" }));
      const visible = state.kind === "decoder" ? rows.map((_, i) => columns.map((_, j) => j <= i)) : null;
      const grid = matrix(svg, x, TOP, rows.length, columns.length, "query", { cell: [width, HEIGHT], weights: true });
      grid.show(run.maps[state.kind][state.layer][head].map((row) => row.map((weight) => weight / 100)), visible);
      for (const { row, place: cell, said } of grid.cells) {
        if (columns.length > 5) said.textContent = ""; // too narrow for two digits; the sentence below has them
        cell.onclick = () => go(row);
        cell.style.cursor = "pointer";
      }
      text(svg, x + WIDTH / 2, TOP + HEIGHT * rows.length + 10, `${names[1]} · ${columns.length}`, { role: "soft", small: true });
      if (place) return;
      rows.forEach((word, i) => pill(svg, 14, TOP + HEIGHT * (i + 0.5), word, roles[0], 50, 18));
      text(svg, 6, TOP + (HEIGHT * rows.length) / 2, `${names[0]} · ${rows.length}`, { role: "soft", small: true, turn: true });
    }

    function show() {
      drawn.forEach((svg, i) => {
        svg.replaceChildren();
        [0, 1].forEach((place) => map(svg, place, 2 * i + place));
      });
      go(state.row);
    }

    const choose = (key, make) => (value) => {
      state[key] = make(value);
      show();
    };
    const numbers = Object.fromEntries(runs.map(({ n }, i) => [i, n.toLocaleString("en")]));
    figure.controls(
      choices("Number", numbers, "0", choose("run", Number)),
      choices("Attention", KINDS, state.kind, choose("kind", String)),
      choices("Layer", LAYERS, String(state.layer), choose("layer", Number)),
    );
    figure.hint("Choose a row with a click, or move the dot with the arrow keys.");
    show();
  }

  lessons.heads = { looks, axes };
  begin("heads", make);
})(globalThis.lessons);
