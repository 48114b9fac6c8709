/* Attention by hand: a query and some keys in the plane, to be dragged; scores, weights and output follow. */
"use strict";

(function (lessons) {
  const { element, section, slider, keeping, begin } = lessons.page;
  const { softmax } = lessons;
  const SIDE = 3; // the plane reaches from −3 to 3
  const STEP = 0.25; // of an arrow key
  const TURN = Math.PI / 4; // radians a position

  /* Weights of one query over the keys: content q · k, plus what positions say, over √2 and the temperature.
   * A key at position i gets strength · cos((t − back − i) π/4): most where i is `back` before the query's t. */
  function weightsOf({ query, keys, temperature, strength, back }) {
    const t = keys.length;
    const scores = keys.map((key, i) => {
      const content = query[0] * key[0] + query[1] * key[1];
      const position = strength * Math.cos((t - back - i) * TURN);
      return (content + position) / Math.SQRT2;
    });
    return { scores, weights: softmax(scores, temperature) };
  }

  /* The mean of the values, which here are the keys' own places. */
  const outputOf = (weights, keys) =>
    [0, 1].map((axis) => weights.reduce((sum, weight, i) => sum + weight * keys[i][axis], 0));

  class Hand {
    constructor(place) {
      this.state = {
        query: [1.5, 0.75],
        keys: [[2, 1], [-1.5, 1.5], [0.5, -2], [-2, -1.25]],
        temperature: 1,
        strength: 0,
        back: 1,
      };
      const set = keeping(this.state, () => this._show());
      this.plane = element("svg:svg", {
        viewBox: `${-SIDE} ${-SIDE} ${2 * SIDE} ${2 * SIDE}`,
        class: "x-plane",
        role: "group",
        "aria-label": "The plane: arrow keys move the point that has the focus",
      });
      this.bars = element("ol", { class: "x-bars" });
      this.said = element("p", { role: "status" });
      place.replaceChildren(
        element("div", { class: "x-pair" }, this.plane, element("div", { class: "x-beside" }, this.bars, this.said)),
        section(
          "What else counts",
          slider("temperature", { min: 0.05, max: 4, step: 0.05, value: 1 }, (value) => value.toFixed(2), set("temperature")),
          slider("strength of positions", { min: 0, max: 12, step: 0.5, value: 0 }, String, set("strength")),
          slider("look back by", { min: 1, max: 4, step: 1, value: 1 }, String, set("back")),
        ),
      );
      this._draw();
      this._show();
    }

    _draw() {
      const { query, keys } = this.state;
      const axis = (about) => element("svg:line", { ...about, class: "x-axis" });
      this.arrows = keys.map(() => element("svg:line", { class: "x-weight" }));
      this.output = element("svg:circle", { r: 0.14, class: "x-output" });
      this.plane.append(
        axis({ x1: -SIDE, x2: SIDE, y1: 0, y2: 0 }),
        axis({ x1: 0, x2: 0, y1: -SIDE, y2: SIDE }),
        ...this.arrows,
        this.output,
      );
      this.points = [
        this._point("query", query, "x-query"),
        ...keys.map((key, i) => this._point(`key ${i}`, key, "x-key")),
      ];
      this.plane.append(...this.points.map((one) => one.shape));
    }

    /* A point that pointer and arrow keys can move. */
    _point(name, at, kind) {
      const label = element("svg:text", { x: 0.22, y: 0.08 }, name);
      const shape = element("svg:g", { class: kind, tabindex: 0, role: "button" }, element("svg:circle", { r: 0.16 }), label);
      const move = (x, y) => {
        const inside = (value) => Math.max(-SIDE, Math.min(SIDE, value));
        [at[0], at[1]] = [inside(x), inside(y)];
        this._show();
      };
      shape.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        shape.setPointerCapture(event.pointerId);
        shape.focus();
      });
      shape.addEventListener("pointermove", (event) => {
        if (!shape.hasPointerCapture(event.pointerId)) return;
        const box = this.plane.getBoundingClientRect();
        const scale = (2 * SIDE) / box.width;
        move((event.clientX - box.left) * scale - SIDE, SIDE - (event.clientY - box.top) * scale);
      });
      shape.addEventListener("keydown", (event) => {
        const by = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
        if (!by) return;
        event.preventDefault();
        move(at[0] + STEP * by[0], at[1] + STEP * by[1]);
      });
      return { name, at, shape };
    }

    _show() {
      const { keys } = this.state;
      const { scores, weights } = weightsOf(this.state);
      const output = outputOf(weights, keys);
      for (const { name, at, shape } of this.points) {
        shape.setAttribute("transform", `translate(${at[0]} ${-at[1]})`);
        shape.setAttribute("aria-label", `${name} at ${at.map((value) => value.toFixed(2)).join(", ")}`);
      }
      const place = { cx: output[0], cy: -output[1] };
      Object.entries(place).forEach(([key, value]) => this.output.setAttribute(key, value));
      this.arrows.forEach((arrow, i) => {
        const ends = { x1: keys[i][0], y1: -keys[i][1], x2: output[0], y2: -output[1] };
        Object.entries(ends).forEach(([key, value]) => arrow.setAttribute(key, value));
        arrow.style.strokeWidth = 0.02 + 0.14 * weights[i];
      });
      const bar = (weight, i) =>
        element(
          "li",
          {},
          element("span", { class: "x-name" }, `key ${i}: ${scores[i].toFixed(2)}`),
          element("span", { class: "x-bar", style: `--weight: ${weight.toFixed(4)}` }),
          element("span", { class: "x-share" }, weight.toFixed(3)),
        );
      this.bars.replaceChildren(...weights.map(bar));
      const most = weights.indexOf(Math.max(...weights));
      this.said.textContent =
        `The output is at ${output.map((value) => value.toFixed(2)).join(", ")}` +
        (weights[most] > 0.99 ? `: key ${most} alone, as argmax would have it.` : `, most of it from key ${most}.`);
    }
  }

  lessons.hand = { weightsOf, outputOf };
  begin("hand", (place) => (place.hand = new Hand(place)));
})(globalThis.lessons);
