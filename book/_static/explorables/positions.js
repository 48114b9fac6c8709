/* Sinusoidal positions (§3.5): what a position's vector is, and why a shift is a rotation. */
"use strict";

(function (lessons) {
  const { element, section, slider, keeping, begin } = lessons.page;
  const { positionalEncoding } = lessons;
  const POSITIONS = 64; // rows of the map
  const DIALS = 6;
  const FARTHEST = 48; // the largest shift
  const [WIDE, HIGH] = [560, 150]; // of the curve

  /* Radians that pair i turns with each position: 1 / 10000^(2i/d). */
  const frequency = (pair, width) => 10000 ** ((-2 * pair) / width);

  /* PE(t) · PE(t + k) = Σ cos(k ω_i): the position t has dropped out. */
  function product(width, t, k) {
    const [a, b] = [positionalEncoding(t, width), positionalEncoding(t + k, width)];
    return a.reduce((sum, value, i) => sum + value * b[i], 0);
  }

  /* Each pair (sin, cos) of position t turned by k ω_i, which is the vector of position t + k. */
  function turned(width, t, k) {
    const before = positionalEncoding(t, width);
    const after = new Float32Array(width);
    for (let pair = 0; pair < width / 2; pair++) {
      const angle = k * frequency(pair, width);
      const [sine, cosine] = [before[2 * pair], before[2 * pair + 1]];
      after[2 * pair] = sine * Math.cos(angle) + cosine * Math.sin(angle);
      after[2 * pair + 1] = cosine * Math.cos(angle) - sine * Math.sin(angle);
    }
    return after;
  }

  class Positions {
    constructor(place) {
      this.width = 64;
      this.t = 10;
      this.k = 5;
      const set = keeping(this, () => this._show());
      this.canvas = element("canvas", { class: "x-canvas", role: "img" });
      this.wave = element("p", { class: "x-readout" });
      this.dials = element("div", { class: "x-dials" });
      this.curve = element("div", { class: "x-scroll" });
      this.said = element("p", { role: "status" });
      place.replaceChildren(
        slider("d_model", { min: 8, max: 128, step: 2, value: this.width }, String, set("width")),
        slider("position t", { min: 0, max: POSITIONS - 1, step: 1, value: this.t }, String, set("t")),
        slider("shift k", { min: 0, max: FARTHEST, step: 1, value: this.k }, String, set("k")),
        section("All vectors", this.canvas, this.wave),
        section("A shift turns each pair", this.dials),
        section("So likeness depends on the distance alone", this.curve, this.said),
      );
      new MutationObserver(() => this._show()).observe(document.documentElement, {
        attributeFilter: ["data-theme"],
      });
      this._show();
    }

    _show() {
      this._showMap();
      this._showDials();
      this._showCurve();
    }

    /* A row a position, a column a dimension: one colour for above zero, the other for below. */
    _showMap() {
      const { width, t, k } = this;
      const style = getComputedStyle(this.canvas);
      const [above, below, ink] = ["--x-heat", "--x-cold", "--x-ink"].map((name) => style.getPropertyValue(name));
      [this.canvas.width, this.canvas.height] = [width * 8, POSITIONS * 5];
      const pen = this.canvas.getContext("2d");
      for (let row = 0; row < POSITIONS; row++) {
        positionalEncoding(row, width).forEach((value, column) => {
          pen.globalAlpha = Math.abs(value);
          pen.fillStyle = value > 0 ? above : below;
          pen.fillRect(column * 8, row * 5, 8, 5);
        });
      }
      pen.globalAlpha = 1;
      pen.strokeStyle = ink;
      for (const row of [t, t + k]) pen.strokeRect(0.5, row * 5 + 0.5, width * 8 - 1, 4);
      const about = `Vectors of positions 0 to ${POSITIONS - 1}, ${width} numbers each; framed are ${t} and ${t + k}.`;
      this.canvas.setAttribute("aria-label", about);
      const longest = (2 * Math.PI) / frequency(width / 2 - 1, width);
      this.wave.textContent =
        `Rows are positions, columns dimensions. The first pair repeats after ${(2 * Math.PI).toFixed(1)} positions, ` +
        `the last after ${Math.round(longest).toLocaleString("en")}.`;
    }

    _showDials() {
      const { width, t, k } = this;
      const last = width / 2 - 1;
      const number = Math.min(DIALS, width / 2);
      this.dials.replaceChildren();
      for (let dial = 0; dial < number; dial++) {
        const pair = Math.round((dial * last) / (number - 1));
        const hand = (position, kind) => {
          const vector = positionalEncoding(position, width);
          const [sine, cosine] = [vector[2 * pair], vector[2 * pair + 1]];
          return element("svg:line", { x1: 0, y1: 0, x2: 40 * cosine, y2: -40 * sine, class: kind });
        };
        const turn = (((k * frequency(pair, width) * 180) / Math.PI) % 360).toFixed(1);
        const drawing = element(
          "svg:svg",
          { viewBox: "-46 -46 92 92", role: "img", "aria-label": `Pair ${pair}: turned by ${turn} degrees` },
          element("svg:circle", { r: 42 }),
          hand(t, "x-before"),
          hand(t + k, "x-after"),
        );
        this.dials.append(element("figure", {}, drawing, element("figcaption", {}, `pair ${pair}: ${turn}°`)));
      }
    }

    _showCurve() {
      const { width, t, k } = this;
      const most = width / 2;
      const at = (shift) => {
        const y = ((most - product(width, t, shift)) / (1.5 * most)) * (HIGH - 20) + 10;
        return [20 + (shift / FARTHEST) * (WIDE - 40), y];
      };
      const points = Array.from({ length: FARTHEST + 1 }, (_, shift) => at(shift).join(","));
      const [x, y] = at(k);
      const value = product(width, t, k);
      const text = `PE(${t}) · PE(${t + k}) = ${value.toFixed(2)}, the same for every t. Move t: nothing here changes.`;
      const zero = ((most - 0) / (1.5 * most)) * (HIGH - 20) + 10;
      const drawing = element(
        "svg:svg",
        { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `Dot product by shift. ${text}` },
        element("svg:line", { x1: 20, x2: WIDE - 20, y1: zero, y2: zero, class: "x-axis" }),
        element("svg:polyline", { points: points.join(" ") }),
        element("svg:circle", { cx: x, cy: y, r: 6 }),
      );
      this.curve.replaceChildren(drawing);
      this.said.textContent = text;
    }
  }

  lessons.positions = { frequency, product, turned };
  begin("positions", (place) => new Positions(place));
})(globalThis.lessons);
