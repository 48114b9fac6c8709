/* The softmax tile by tile (chapter 17): three running numbers, corrected whenever a larger score arrives. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { add, begin, set, number, softmax, text, rect, matrix, player } = lessons.live;
  // The exponentials of the scores, so that everything can be done by hand, and the values.
  const EXAMPLE = { powers: [1, 2, 5, 1, 10, 4], values: [8, 4, 16, 2, 6, 10], keys: 3, block: 2 };
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
    const { powers, values, ...first } = { ...EXAMPLE, ...about };
    const all = powers.map(Math.log);
    const name = (power) => (power === 1 ? "0" : `ln ${Math.round(power)}`);
    let [{ keys, block }, count] = [first, 1];
    let steps = online(all.slice(0, keys), values, block);
    const svg = figure.panel(188, "Keys: bars are the exponentials relative to the largest score so far");
    text(svg, 0, 10, "e^(score − m) of the keys read so far", { role: "soft", small: true, align: "start" });
    const columns = powers.map((power, i) => {
      const [x, place] = [LEFT + CELL * i, add(svg, "g")];
      const bar = rect(place, x + 8, BASE, CELL - 16, 0, { fill: "weight" });
      text(place, x + CELL / 2, 132, name(power), { role: "key" });
      matrix(place, x, 149, 1, 1, "value", { cell: [CELL, 22], digits: 0 }).show([[values[i]]]);
      return { place, bar, said: text(place, x + CELL / 2, BASE, "", { small: true }) };
    });
    text(svg, 0, 132, "score", { role: "key", small: true, align: "start" });
    text(svg, 0, 160, "value", { role: "value", small: true, align: "start" });
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
    const again = () => {
      steps = online(all.slice(0, keys), values, block);
      count = 1;
      show();
    };
    figure.controls(
      choices("Keys", { 3: "3 keys", 6: "6 keys" }, String(keys), (chosen) => {
        keys = Number(chosen);
        again();
      }),
      choices("Tile", { 1: "1 in a tile", 2: "2 in a tile", 3: "3 in a tile" }, String(block), (chosen) => {
        block = Number(chosen);
        again();
      }),
      go,
      player(figure, "Play", "Pause", 1200, forward),
    );
    figure.hint("Choose how many keys there are, and how many are in a tile.");

    function show() {
      const [now, old] = [steps[count], steps[count - 1]];
      columns.forEach(({ place, bar, said }, i) => {
        const height = i < now.seen ? HIGH * Math.exp(all[i] - now.m) : 0;
        place.style.visibility = i < keys ? "" : "hidden";
        set(bar, { y: BASE - height, height });
        set(said, { y: BASE - height - 4 });
        said.textContent = height ? number(height / HIGH) : "";
      });
      frame.style.display = old ? "" : "none";
      if (old) set(frame, { x: LEFT + CELL * old.seen, width: CELL * (now.seen - old.seen) });
      const factor = number(now.correction);
      const sum = (which, i) =>
        `${which} = ${count > 1 ? `${number(old[which])} · ${factor} + ${number(now.added[i])} = ` : ""}${number(now[which])}`;
      const told = [
        old ? `m = ${name(Math.exp(now.m))}` : "l = 0, o = 0",
        count > 1 ? `old sums times e^(old m − m) = ${factor}` : "",
        old ? sum("l", 0) : "",
        old ? sum("o", 1) : "",
        old ? `o / l = ${number(now.o / now.l)}` : "",
      ];
      lines.forEach((one, i) => (one.textContent = told[i]));
      go.textContent = count < steps.length - 1 ? "Next tile" : "Again";
      figure.say(sentence(now, old));
    }

    function sentence(now, old) {
      if (!old) return "Nothing has been read yet.";
      const start = `Tile ${count} of ${steps.length - 1}: `;
      const shrink = `the old sums are multiplied by ${number(now.correction)}, because the largest score is now ${name(Math.exp(now.m))}`;
      const change = count === 1 ? "the sums begin" : now.correction < 1 ? shrink : "no score is larger, so the old sums stay";
      const output = `o/l is ${number(now.o / now.l)}`;
      if (now.seen < keys) return `${start}${change}; ${output}.`;
      const whole = softmax(all.slice(0, keys)).reduce((sum, weight, i) => sum + weight * values[i], 0);
      return `${start}${change}; ${output}. The softmax of all scores at once gives ${number(whole)}.`;
    }
    show();
  }

  lessons.tiles = { online, EXAMPLE };
  begin("tiles", make);
})(globalThis.lessons);
