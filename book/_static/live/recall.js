/* One capital letter, then chatter (chapter 1): what a state that is handed on keeps of it, and what a look-up finds. */
"use strict";

(function (lessons) {
  const { begin, set, number, softmax, text, rect, pill, line, rail } = lessons.live;
  const EXAMPLE = { letters: [..."Cfbeagdhbfcae"], loud: 8, after: 3, kept: 0.5, score: 2 };
  const KNOBS = {
    after: { name: "letters after", min: 1, max: 12, step: 1, digits: 0 },
    kept: { name: "kept", min: 0.25, max: 1.25, step: 0.01, digits: 2 },
    score: { name: "score of C", min: 0, max: 6, step: 0.1, digits: 1 },
  };
  const [BASE, HIGH, STEP, BAR] = [128, 92, 26, 20]; // HIGH: a state of 8, a weight of 1

  /* The states after each letter, the weights of the look-up, and its answer. */
  function recall({ loud }, { after, kept, score }) {
    const inputs = Array.from({ length: after + 1 }, (_, i) => (i ? 0 : loud));
    const states = inputs.map((_, i) => loud * kept ** i);
    const weights = softmax(inputs.map((_, i) => (i ? 0 : score)));
    return { states, weights, answer: weights[0] * loud };
  }

  /* A bar for each letter; answers what shows values, and one sentence below. */
  function bars(svg, title, letters, role) {
    text(svg, 170, 9, title, { bold: true });
    line(svg, "rule")([0, BASE], [340, BASE]);
    const columns = letters.map((letter, i) => [
      rect(svg, 3 + STEP * i, BASE, BAR, 0, { fill: role, tint: 0.5 }),
      text(svg, 3 + STEP * i + BAR / 2, BASE, "", { small: true }),
      pill(svg, 2 + STEP * i, BASE + 15, letter, "encoder", BAR + 2),
    ]);
    const told = text(svg, 340, BASE + 44, "", { bold: true, align: "end" });
    return (values, most, sentence) => {
      columns.forEach(([bar, said, name], i) => {
        const value = values[i] ?? 0;
        const height = HIGH * Math.min(1.06, value / most); // what grows leaves the picture
        set(bar, { y: BASE - height, height });
        set(said, { y: BASE - height - 4 });
        said.textContent = i in values ? number(value, value < 0.995 ? 2 : value < 10 ? 1 : 0) : "";
        name.style.visibility = i in values ? "" : "hidden";
      });
      told.textContent = sentence;
    };
  }

  function make(figure, about) {
    const example = { ...EXAMPLE, ...about };
    const { letters, loud, after, kept, score } = example;
    const now = { after, kept, score };
    const [showStates, showWeights] = [
      bars(figure.panel(184, "The state, letter by letter"), "hand it on", letters, "value"),
      bars(figure.panel(184, "The weights of a look-up"), "look it up", letters, "weight"),
    ];
    const rails = figure.panel(112, "Letters, what is kept, and the score");
    const put = Object.entries(KNOBS).map(([key, knob], i) => {
      const turn = (value) => {
        now[key] = value;
        show();
      };
      return [key, rail(figure, rails, 20 + 36 * i, knob.name, { ...knob, start: now[key] }, turn)];
    });
    figure.hint("Drag the knobs, or move them with the arrow keys.");

    function show() {
      const { states, weights, answer } = recall(example, now);
      put.forEach(([key, one]) => one(now[key]));
      const [left, high] = [states.at(-1), number(Math.exp(now.score), 1)];
      const end = number(left, left < 0.995 ? 3 : 1);
      const power = String(now.after).replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
      showStates(states, loud, `left of the ${loud}: ${loud} × ${number(now.kept)}${power} = ${end}`);
      showWeights(weights, 1, `answer: ${loud} × ${high} / (${high} + ${now.after}) = ${number(answer, 1)}`);
      const found = `Looked up, it has the weight ${number(weights[0])}, and the answer is ${number(answer, 1)}.`;
      const count = now.after === 1 ? "1 letter" : `${now.after} letters`;
      figure.say(`${letters[0]}, then ${count}. Handed on, ${end} ${now.kept > 1 ? "has come" : "is left"} of the ${loud}. ${found}`);
    }
    show();
  }

  lessons.recall = { recall, EXAMPLE };
  begin("recall", make);
})(globalThis.lessons);
