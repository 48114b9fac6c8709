/* The softmax tile by tile (chapter 17): three running numbers, corrected whenever a larger score arrives. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, softmax, text, rect, matrix, player } = lessons.live;
  // The exponentials of the scores, so that everything can be done by hand, and the values.
  const EXAMPLE = { powers: [1, 2, 5, 1, 10, 4], values: [8, 4, 16, 2, 6, 10], block: 2 };
  const [LEFT, CELL, BASE, HIGH] = [58, 46, 112, 74];

  /* (m, l, o) before the first tile and after each one (17.2), with the correction of the old sums. */
  function online(scores, values, block) {
    const steps = [{ m: -Infinity, l: 0, o: 0, seen: 0, correction: 0 }];
    for (let start = 0; start < scores.length; start += block) {
      const [old, tile] = [steps.at(-1), scores.slice(start, start + block)];
      const m = Math.max(old.m, ...tile);
      const [correction, e] = [Math.exp(old.m - m), tile.map((score) => Math.exp(score - m))];
      const l = old.l * correction + e.reduce((a, b) => a + b);
      const o = old.o * correction + e.reduce((sum, one, i) => sum + one * values[start + i], 0);
      steps.push({ m, l, o, seen: start + tile.length, correction, added: [l - old.l * correction, o - old.o * correction] });
    }
    return steps;
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    const [scores, n] = [given.powers.map(Math.log), given.powers.length];
    const name = (power) => (power === 1 ? "0" : `ln ${Math.round(power)}`);
    let [block, count] = [given.block, 1];
    let steps = online(scores, given.values, block);
    const svg = figure.panel(188, "Six keys: bars are the exponentials relative to the largest score so far");
    text(svg, 0, 10, "e^(score − m) of the keys read so far", { role: "soft", small: true, align: "start" });
    const bars = given.powers.map((power, i) => {
      const x = LEFT + CELL * i;
      const bar = rect(svg, x + 8, BASE, CELL - 16, 0, { fill: "weight" });
      text(svg, x + CELL / 2, 132, name(power), { role: "key" });
      return { bar, said: text(svg, x + CELL / 2, BASE, "", { small: true }) };
    });
    text(svg, 0, 132, "score", { role: "key", small: true, align: "start" });
    text(svg, 0, 160, "value", { role: "value", small: true, align: "start" });
    matrix(svg, LEFT, 149, 1, n, "value", { cell: [CELL, 22], digits: 0 }).show([given.values]);
    const frame = rect(svg, LEFT, 146, CELL, 56, { role: "query", line: 2.2, radius: 4 });
    const sums = figure.panel(188, "The three running numbers");
    const lines = [18, 54, 92, 130, 168].map((y) => text(sums, 0, y, "", { align: "start" }));
    const go = element("button", { type: "button" }, "Next tile");
    const forward = () => {
      count = count < steps.length - 1 ? count + 1 : 0;
      show();
      return count < steps.length - 1;
    };
    go.onclick = forward;
    const sizes = choices("Tile", { 1: "1 key a tile", 2: "2 keys", 3: "3 keys", 6: "all" }, String(block), (chosen) => {
      block = Number(chosen);
      steps = online(scores, given.values, block);
      count = Math.min(count, 1);
      show();
    });
    figure.controls(sizes, go, player("Play", "Pause", 1200, forward));
    figure.hint("Choose the size of a tile, and go on from tile to tile.");

    function show() {
      const [now, old] = [steps[count], steps[count - 1]];
      bars.forEach(({ bar, said }, i) => {
        const share = i < now.seen ? Math.exp(scores[i] - now.m) : 0;
        set(bar, { y: BASE - HIGH * share, height: HIGH * share });
        set(said, { y: BASE - HIGH * share - 4 });
        said.textContent = share ? number(share) : "";
      });
      const start = old ? old.seen : 0;
      set(frame, { x: LEFT + CELL * start, width: CELL * Math.max(now.seen - start, 0), visibility: old ? "visible" : "hidden" });
      const factor = number(now.correction);
      const told = old
        ? [
            `m = ${name(Math.exp(now.m))}`,
            `old sums times e^(old m − m) = ${factor}`,
            `l = ${number(old.l)} · ${factor} + ${number(now.added[0])} = ${number(now.l)}`,
            `o = ${number(old.o)} · ${factor} + ${number(now.added[1])} = ${number(now.o)}`,
            `o / l = ${number(now.o / now.l)}`,
          ]
        : ["no key has been read: l = 0, o = 0", "", "", "", ""];
      lines.forEach((one, i) => (one.textContent = told[i]));
      go.textContent = count < steps.length - 1 ? "Next tile" : "Again";
      figure.say(sentence(now, old));
    }

    function sentence(now, old) {
      if (!old) return "Nothing has been read yet.";
      const start = `Tile ${count} of ${steps.length - 1}: `;
      const shrink = `the old sums shrink by ${number(now.correction)}, because the largest score is now ${name(Math.exp(now.m))}`;
      const change = count === 1 ? "the sums begin" : now.correction < 1 ? shrink : "no score is larger, so the old sums stay";
      const output = `o/l is ${number(now.o / now.l)}`;
      if (now.seen < n) return `${start}${change}; ${output}.`;
      const whole = softmax(scores).reduce((sum, weight, i) => sum + weight * given.values[i], 0);
      return `${start}${change}; ${output}. The softmax of all scores at once gives ${number(whole)}.`;
    }
    show();
  }

  lessons.tiles = { online, EXAMPLE };
  begin("tiles", make);
})(globalThis.lessons);
