/* The logit lens (chapter 15): what the output layer reads from a row of the decoder's stream after each of its parts.
 * lens.data.js has the readings: [{ n, english, german, words: a row: six words, chances: a row, a part, a word: 0 to 1e4 }]. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { begin, add, set, number, text, rect, circle, pill, line, matrix, handle, player } = lessons.live;
  const PARTS = [
    "the embedding",
    ...[1, 2].flatMap((n) => ["self-attention", "cross-attention", "feed-forward"].map((name) => `layer ${n}’s ${name}`)),
  ];
  const COLUMNS = ["embed.", "self", "cross", "feed-f.", "self", "cross", "feed-f."];
  const [LEFT, TOP, WIDTH, TALL] = [51, 58, 39, 154]; // the map: its place, how wide a column is, how tall all rows are
  const [BAR, BARS, STEP, LONG] = [80, 64, 25, 204]; // the bars: where they start, their distance, a chance of 1

  const sure = (chance) => number(chance / 1e4);
  const best = (chances) => chances.indexOf(Math.max(...chances));
  const right = ({ german }, row) => german[row + 1] ?? "EOS";
  const written = ({ german }, row) => german.slice(row ? 1 : 0, row + 1).join(" ");

  /* Which word leads, how the right one stands, and whether that changes here. */
  function told(run, row, part) {
    const [words, chances, wanted] = [run.words[row], run.chances[row], right(run, row)];
    const [place, leads] = [words.indexOf(wanted), chances.map((reading) => words[best(reading)])];
    const first = leads[part] === wanted ? "" : `${leads[part]} ${sure(Math.max(...chances[part]))}, `;
    const before = part ? ` (before: ${sure(chances[part - 1][place])})` : "";
    return `Row ${run.german[row]}, after ${PARTS[part]}: ${first}${wanted} ${sure(chances[part][place])}${before}. ${verdict()}.`;

    function verdict() {
      const [led, leadsNow] = [leads[part - 1] === wanted, leads[part] === wanted];
      if (leadsNow) return led ? "The right word leads" : "The right word takes the lead";
      if (led) return "The right word loses the lead";
      return leads[part] === run.german[row] ? `An echo: right is ${wanted}` : `Right is ${wanted}`;
    }
  }

  /* Bars for six words and for all others; answers what shows a reading. */
  function bars(svg) {
    const title = text(svg, 0, 9, "", { bold: true, align: "start" });
    const asked = text(svg, 0, 32, "", { small: true, align: "start" });
    const drawn = add(svg, "g");
    text(svg, 0, TOP + TALL + 40, "filled: read here; dashed: before this part", { role: "soft", small: true, align: "start" });
    return (run, row, part) => {
      const wanted = right(run, row);
      title.textContent = `after ${PARTS[part]}`;
      asked.textContent = `${written(run, row)} → ${wanted}`;
      drawn.replaceChildren();
      const whole = (chances) => [...chances, 1e4 - chances.reduce((a, b) => a + b, 0)];
      const [now, before] = [part, part - 1].map((at) => run.chances[row][at] && whole(run.chances[row][at]));
      [...run.words[row], "others"].forEach((word, i) => {
        const [y, length, isRight] = [BARS + STEP * i, (LONG * now[i]) / 1e4, word === wanted];
        pill(drawn, 0, y, word, isRight ? "value" : word === "others" ? "mask" : "decoder", 72);
        rect(drawn, BAR, y, length, 15, { fill: isRight ? "value" : "weight", tint: isRight ? 0.6 : word === "others" ? 0.4 : 1 });
        const old = before ? (LONG * before[i]) / 1e4 : 0;
        if (old > 2) line(drawn, "ink", { dashed: true })([BAR, y - 8], [BAR + old, y - 8], [BAR + old, y + 8], [BAR, y + 8]);
        const look = { small: true, align: "start", bold: i === best(now.slice(0, -1)), role: isRight ? "value" : "ink" };
        text(drawn, BAR + Math.max(length, old) + 5, y, isRight ? `${sure(now[i])} right` : sure(now[i]), look);
      });
    };
  }

  function make(figure, about) {
    const runs = lessons.lensData;
    const start = { run: 1, row: 2, part: 4, ...about };
    const state = { ...start };
    const svg = figure.panel(258, "The likeliest word of each row after each part");
    const map = add(svg, "g");
    const frame = rect(svg, 0, 0, WIDTH, 0, { role: "query", line: 2.4 });
    frame.style.pointerEvents = "none";
    const showBars = bars(figure.panel(258, "The chances of some words"));
    const tall = () => TALL / runs[state.run].german.length;
    const by = (right, up) => go(state.row - up, state.part + right);
    const home = () => go(start.row, start.part);
    const [rows, parts] = [
      { name: "row", max: 5, to: (_, y) => go(Math.floor((y - TOP) / tall()), state.part) },
      { name: "part", max: PARTS.length, to: (x) => go(state.row, Math.floor((x - LEFT) / WIDTH)) },
    ].map((one) => {
      const knob = handle(figure, svg, { ...one, min: 1, by, home });
      circle(knob, 0, 0, 6, "query", { tint: 0.35 });
      return knob;
    });

    function go(row, part) {
      const run = runs[state.run];
      state.row = Math.min(Math.max(row, 0), run.german.length - 1);
      state.part = Math.min(Math.max(part, 0), PARTS.length - 1);
      const [x, y] = [LEFT + WIDTH * state.part, TOP + tall() * (state.row + 0.5)];
      set(frame, { x, y: y - tall() / 2, height: tall() });
      set(rows, { "aria-valuemax": run.german.length });
      rows.put([LEFT + WIDTH * PARTS.length + 9, y], state.row + 1, run.german[state.row]);
      parts.put([x + WIDTH / 2, TOP + TALL + 14], state.part + 1, PARTS[state.part]);
      showBars(run, state.row, state.part);
      figure.say(told(run, state.row, state.part));
    }

    function show() {
      const run = runs[state.run];
      map.replaceChildren();
      text(map, 0, 9, run.english.join(" ").replace(" ,", ","), { bold: true, align: "start" });
      [1, 2].forEach((n) => {
        const x = LEFT + WIDTH * (3 * n - 2);
        text(map, x + 1.5 * WIDTH, 28, `decoder layer ${n}`, { role: "soft", small: true });
        line(map, "soft", { width: 0.8 })([x + 3, 37], [x + 3 * WIDTH - 3, 37]);
      });
      COLUMNS.forEach((name, j) => text(map, LEFT + WIDTH * (j + 0.5), 48, name, { role: "soft", small: true }));
      const grid = matrix(map, LEFT, TOP, run.german.length, PARTS.length, "rule", { cell: [WIDTH, tall()], weights: true });
      grid.show(run.chances.map((row) => row.map((chances) => Math.max(...chances) / 1e4)));
      for (const { row, column, place, said } of grid.cells) {
        said.textContent = run.words[row][best(run.chances[row][column])];
        said.style.fontSize = "8.5px";
        place.onclick = () => go(row, column);
        place.style.cursor = "pointer";
        if (said.textContent !== right(run, row)) continue;
        rect(place, LEFT + WIDTH * column + 1, TOP + tall() * (row + 1) - 2.5, WIDTH - 2, 3, { fill: "value" });
      }
      run.german.forEach((word, i) => pill(map, 0, TOP + tall() * (i + 0.5), word, "decoder", 48, 18));
      go(state.row, state.part);
    }
    text(svg, 0, TOP + TALL + 40, "green edge: the right word leads", { role: "soft", small: true, align: "start" });

    const named = ({ n, english }) => n.toLocaleString("en") + (english.includes(",") ? ", comma" : "");
    figure.controls(
      choices("Number", Object.fromEntries(runs.map((run, i) => [i, named(run)])), String(state.run), (i) => {
        state.run = Number(i);
        show();
      }),
      player(figure, "Walk", "Pause", 1200, () => {
        go(state.row, (state.part + 1) % PARTS.length);
        return state.part < PARTS.length - 1;
      }),
    );
    figure.hint("Choose a cell with a click, or move the dots with the arrow keys. Bluer: a larger chance.");
    show();
  }

  begin("lens", make);
})(globalThis.lessons);
