/* Speculative decoding (chapter 19): a draft proposes words, and what is kept or drawn instead has the model's own chances. */
"use strict";

(function (lessons) {
  const { begin, set, number, text, rect, line, rail, player } = lessons.live;
  const EXAMPLE = { q: 0.9, p: 0.5 }; // the draft's and the model's chance of word 1, of two
  const [STEP, BAR, BASE, HIGH] = [116, 32, 160, 110]; // of the three pairs of bars
  const [MOST, EACH] = [500, 5]; // how many words are drawn, and at a time
  const TITLES = ["proposed: q", "kept: min(p, q)", "in the end: p"];

  /* Equation 19.3: what is kept, rejected, and missing, of each word. */
  function shares(q, p) {
    const kept = q.map((part, i) => Math.min(part, p[i]));
    return { kept, rejected: q.map((part, i) => part - kept[i]), missing: p.map((part, i) => part - kept[i]) };
  }

  /* The word that the rule writes, and whether it was the draft's, from two random numbers between 0 and 1. */
  function write(q, p, first, second) {
    const word = Number(first >= q[0]);
    const { missing } = shares(q, p);
    if (second < p[word] / q[word]) return { word, isKept: true };
    return { word: Number(missing[0] === 0), isKept: false }; // of two words, one is missing
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    const chances = { q: given.q, p: given.p };
    let counts = { kept: [0, 0], instead: [0, 0] };
    const svg = figure.panel(190, "Two words: proposed by the draft, kept, and in the end");
    const bars = TITLES.map((title, j) => {
      text(svg, 40 + STEP * j, 10, title, { bold: true });
      line(svg, "rule")([STEP * j, BASE], [80 + STEP * j, BASE]);
      return [0, 1].map((i) => {
        const x = 4 + STEP * j + 40 * i;
        text(svg, x + BAR / 2, BASE + 12, `word ${i + 1}`, { role: "soft", small: true });
        const below = rect(svg, x, BASE, BAR, 0, { fill: j ? "weight" : "key" });
        const above = j === 1 ? rect(svg, x, BASE, BAR, 0, { role: "mask" }) : rect(svg, x, BASE, BAR, 0, { fill: "value" });
        if (j === 1) set(above, { "stroke-dasharray": "3 2.5" });
        return { x, below, above, drawn: line(svg, "decoder", { width: 3 }), said: text(svg, x + BAR / 2, 0, "", { small: true }) };
      });
    });
    const side = figure.panel(190, "The chances of word 1, and what was drawn");
    const turned = (name) => (value) => {
      chances[name] = value;
      counts = { kept: [0, 0], instead: [0, 0] };
      show();
    };
    text(side, 0, 10, "chance of word 1", { role: "soft", small: true, align: "start" });
    const knob = { min: 0.05, max: 0.95, step: 0.05, digits: 2 };
    const rails = ["q", "p"].map((name, i) => {
      const title = i ? "model: p" : "draft: q";
      return [name, rail(figure, side, 36 + 38 * i, title, { ...knob, start: given[name] }, turned(name))];
    });
    const told = [112, 136, 160].map((y) => text(side, 0, y, "", { align: "start" }));
    const sum = ([a, b]) => a + b;
    const total = () => sum(counts.kept) + sum(counts.instead);
    const both = (one) => [one, 1 - one];
    figure.controls(
      player(figure, "Draw", "Pause", 120, () => {
        if (total() >= MOST) counts = { kept: [0, 0], instead: [0, 0] };
        for (let n = 0; n < EACH; n += 1) {
          const { word, isKept } = write(both(chances.q), both(chances.p), Math.random(), Math.random());
          counts[isKept ? "kept" : "instead"][word] += 1;
        }
        show();
        return total() < MOST;
      }),
    );
    figure.hint("Choose both chances, and draw: the pink lines are the shares of the words so far.");

    function show() {
      const [q, p] = [both(chances.q), both(chances.p)];
      const { kept, rejected, missing } = shares(q, p);
      const layers = [[q, [0, 0]], [kept, rejected], [kept, missing]];
      const drawn = total();
      bars.forEach((pair, j) =>
        pair.forEach(({ x, below, above, drawn: shape, said }, i) => {
          const [low, high] = layers[j].map((part) => HIGH * part[i]);
          set(below, { y: BASE - low, height: low });
          set(above, { y: BASE - low - high, height: high, visibility: high > 0.5 ? "visible" : "hidden" });
          const share = (counts.kept[i] + counts.instead[i]) / (drawn || 1);
          const level = BASE - HIGH * share;
          shape([x - 3, level], [x + BAR + 3, level]).style.visibility = j === 2 && drawn ? "visible" : "hidden";
          set(said, { y: BASE - Math.max(low + high, j === 2 ? HIGH * share : 0) - 5 });
          said.textContent = number(layers[j][0][i] + (j === 2 ? missing[i] : 0));
        }),
      );
      rails.forEach(([name, put]) => put(chances[name]));
      const instead = number(sum(missing));
      told[0].textContent = `kept: ${number(sum(kept))}, drawn instead: ${instead}`;
      told[1].textContent = drawn ? `drawn: ${drawn}` : "";
      told[2].textContent = drawn ? `of which ${sum(counts.kept)} kept, ${sum(counts.instead)} instead` : "";
      const start = `The draft gives word 1 a chance of ${number(q[0])}, the model ${number(p[0])}.`;
      const end = drawn ? ` Drawn: ${drawn}.` : "";
      figure.say(`${start} With chance ${number(sum(kept))} the proposal is kept, with ${instead} another word is drawn, and word 1 gets ${number(p[0])}.${end}`);
    }
    show();
  }

  lessons.speculation = { shares, write, EXAMPLE };
  begin("speculation", make);
})(globalThis.lessons);
