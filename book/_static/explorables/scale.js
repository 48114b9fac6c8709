/* Why scores are divided by √d_k (§3.2.1): what random queries and keys make of a softmax, and of its gradient. */
"use strict";

(function (lessons) {
  const { element, section, slider, choices, keeping, begin } = lessons.page;
  const { softmax } = lessons;
  const DRAWS = 300;
  const [WIDE, HIGH] = [560, 170];
  const BINS = 41;

  /* Numbers from 0 to below 1, always the same for a seed (mulberry32, Tommy Ettinger, public domain). */
  function generator(seed) {
    return () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }

  /* Normally distributed numbers (Box and Muller 1958). */
  function normal(random) {
    return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  }

  /* One query and its keys, all of unit variance, and the dot products, divided or not. */
  function draw(next, width, keys, isScaled) {
    const query = Array.from({ length: width }, next);
    return Array.from({ length: keys }, () => {
      const score = query.reduce((sum, value) => sum + value * next(), 0);
      return isScaled ? score / Math.sqrt(width) : score;
    });
  }

  /* How much of a change of the scores comes through the softmax: Σ p (1 − p), the trace of its Jacobian, over its
   * value for equal scores, 1 − 1/n. */
  function openness(weights) {
    const trace = weights.reduce((sum, p) => sum + p * (1 - p), 0);
    return trace / (1 - 1 / weights.length);
  }

  function measured(seed, width, keys, isScaled) {
    const next = normal(generator(seed));
    const scores = Array.from({ length: DRAWS }, () => draw(next, width, keys, isScaled));
    const weights = scores.map((row) => softmax(row));
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    return {
      scores,
      variance: mean(scores.flat().map((score) => score ** 2)), // their mean is 0
      largest: mean(weights.map((row) => Math.max(...row))),
      open: mean(weights.map(openness)),
    };
  }

  class Scale {
    constructor(place) {
      Object.assign(this, { power: 6, keys: 8, seed: 1, isScaled: false });
      const set = keeping(this, () => this._show());
      const again = () => {
        this.seed += 1;
        this._show();
      };
      this.histogram = element("div", { class: "x-histogram" });
      this.example = element("ol", { class: "x-bars" });
      this.said = element("p", { role: "status" });
      place.replaceChildren(
        choices("Scores", { no: "q · k", yes: "q · k / √d_k" }, "no", (key) => set("isScaled")(key === "yes")),
        slider("d_k", { min: 0, max: 10, step: 1, value: this.power }, (value) => String(2 ** value), set("power")),
        slider("keys", { min: 2, max: 32, step: 1, value: this.keys }, String, set("keys")),
        element("p", {}, element("button", { type: "button", onclick: again }, "Draw anew")),
        this.said,
        section(`The scores of ${DRAWS} queries`, this.histogram),
        section("The weights of one of them", this.example),
      );
      this._show();
    }

    _show() {
      const width = 2 ** this.power;
      const { scores, variance, largest, open } = measured(this.seed, width, this.keys, this.isScaled);
      const percent = (value) => `${(100 * value).toFixed(0)}%`;
      this.said.textContent =
        `Variance of the scores: ${variance.toFixed(1)} (expected: ${this.isScaled ? 1 : width}). The largest of ` +
        `${this.keys} weights is ${largest.toFixed(2)} on average. Of the gradient, ${percent(open)} comes through.`;
      this._showHistogram(scores.flat());
      const weights = softmax(scores[0]);
      const order = weights.map((_, key) => key).sort((a, b) => weights[b] - weights[a]);
      const bar = (key) =>
        element(
          "li",
          {},
          element("span", { class: "x-name" }, `key ${key}: ${scores[0][key].toFixed(1)}`),
          element("span", { class: "x-bar", style: `--weight: ${weights[key].toFixed(4)}` }),
          element("span", { class: "x-share" }, weights[key].toFixed(3)),
        );
      this.example.replaceChildren(...order.slice(0, 6).map(bar));
    }

    _showHistogram(values) {
      const most = Math.max(3, 3 * Math.sqrt(2 ** this.power)); // the same axis, divided or not
      const counts = Array.from({ length: BINS }, () => 0);
      for (const value of values) {
        const bin = Math.floor(((value + most) / (2 * most)) * BINS);
        counts[Math.min(BINS - 1, Math.max(0, bin))] += 1;
      }
      const tallest = Math.max(...counts);
      const wide = (WIDE - 40) / BINS;
      const text = `From −${most.toFixed(0)} to ${most.toFixed(0)}; the tallest bar has ${tallest} of ${values.length} scores.`;
      const drawing = element("svg:svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": text });
      counts.forEach((count, bin) => {
        const height = (count / tallest) * (HIGH - 40);
        const place = { x: 20 + bin * wide, y: HIGH - 25 - height, width: wide - 1, height };
        drawing.append(element("svg:rect", place));
      });
      for (const [value, anchor] of [[-most, "start"], [0, "middle"], [most, "end"]]) {
        const x = 20 + ((value + most) / (2 * most)) * (WIDE - 40);
        drawing.append(element("svg:text", { x, y: HIGH - 6, "text-anchor": anchor }, value.toFixed(0).replace("-", "−")));
      }
      this.histogram.replaceChildren(drawing);
    }
  }

  lessons.scale = { generator, normal, draw, openness, measured };
  begin("scale", (place) => new Scale(place));
})(globalThis.lessons);
