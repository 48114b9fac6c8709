/* Who may look at whom (§3.2.3): padding, causality, both, and what the softmax makes of it. */
"use strict";

(function (lessons) {
  const { element, section, slider, choices, map, keeping, begin } = lessons.page;
  const { softmax } = lessons;
  const KINDS = { none: "nothing hidden", padding: "padding", causal: "causal", both: "both" };
  const LARGEST = 8;

  /* visible[query][key]: True where a query may look. The last query stands at the last key, as in a decoder that
   * has kept keys of earlier steps. */
  function visible({ queries, keys, real, kind }) {
    return Array.from({ length: queries }, (_, query) =>
      Array.from({ length: keys }, (_, key) => {
        const isReal = key < real || kind === "none" || kind === "causal";
        const isPast = key <= query + keys - queries || kind === "none" || kind === "padding";
        return isReal && isPast;
      }),
    );
  }

  /* Softmax over what is visible; a query that sees nothing gets zeros. */
  function weights(scores, mask) {
    return scores.map((row, query) => {
      if (!mask[query].some(Boolean)) return row.map(() => 0);
      return softmax(row.map((score, key) => (mask[query][key] ? score : -Infinity)));
    });
  }

  /* Scores to look at: the same for a query and a key, however many there are. */
  const scores = (queries, keys) =>
    Array.from({ length: queries }, (_, query) =>
      Array.from({ length: keys }, (_, key) => 2 * Math.sin(1.7 * query + 2.9 * key + 0.6 * query * key)),
    );

  class Masks {
    constructor(place) {
      Object.assign(this, { queries: 6, keys: 6, real: 4, kind: "both" });
      const set = keeping(this, () => this._show());
      this.said = element("p", { role: "status" });
      this.code = element("code");
      this.maps = element("div", { class: "x-pair" });
      place.replaceChildren(
        choices("What is hidden", KINDS, this.kind, set("kind")),
        slider("queries", { min: 1, max: LARGEST, step: 1, value: this.queries }, String, set("queries")),
        slider("keys", { min: 1, max: LARGEST, step: 1, value: this.keys }, String, set("keys")),
        slider("of these real", { min: 0, max: LARGEST, step: 1, value: this.real }, String, set("real")),
        element("pre", {}, this.code),
        this.said,
        section("Scores that survive, and the weights they become", this.maps),
      );
      this._show();
    }

    _show() {
      const { queries, keys, kind } = this;
      const real = Math.min(this.real, keys);
      this.code.textContent = this._program(real);
      if (keys < queries && (kind === "causal" || kind === "both")) {
        this.said.textContent = `causal_mask refuses ${queries} queries over ${keys} keys: the first would stand before all.`;
        this.maps.replaceChildren();
        return;
      }
      const mask = visible({ queries, keys, real, kind });
      const raw = scores(queries, keys);
      const found = weights(raw, mask);
      const number = mask.flat().filter(Boolean).length;
      const blind = mask.filter((row) => !row.some(Boolean)).length;
      this.said.textContent =
        `${number} of ${queries * keys} scores survive.` +
        (blind ? ` ${blind} of the queries may look at nothing: their weights are zeros, not NaN.` : "");
      const names = (letter, length) => Array.from({ length }, (_, n) => `${letter}${n}`);
      const [rows, columns] = [names("q", queries), names("k", keys)];
      const hide = (values) => values.map((row, q) => row.map((value, k) => (mask[q][k] ? value : NaN)));
      const why = (q, k) => (k >= real && kind !== "causal" ? "padding" : "the future");
      const one = (caption, values, say) =>
        map({
          caption,
          rows,
          columns,
          weights: hide(values),
          say: (q, k) => (mask[q][k] ? say(q, k) : `q${q} may not look at k${k}: it is ${why(q, k)}.`),
        });
      this.maps.replaceChildren(
        one(
          "scores, from −2 (light) to 2 (dark)",
          raw.map((row) => row.map((score) => (score + 2) / 4)),
          (q, k) => `q${q} · k${k} / √d_k = ${raw[q][k].toFixed(2)}`,
        ),
        one("weights: each row sums to 1", found, (q, k) => `q${q} takes ${found[q][k].toFixed(3)} of k${k}’s value.`),
      );
    }

    /* The same in the package. */
    _program(real) {
      const { queries, keys, kind } = this;
      const ids = `[[${Array.from({ length: keys }, (_, n) => (n < real ? 5 + n : 0)).join(", ")}]]`;
      const padding = `padding_mask(torch.tensor(${ids}), pad_id=0)`;
      const causal = keys === queries ? `causal_mask(${queries})` : `causal_mask(${queries}, ${keys})`;
      return {
        none: "mask = None",
        padding: `mask = ${padding}`,
        causal: `mask = ${causal}`,
        both: `mask = combine(\n    ${padding},\n    ${causal},\n)`,
      }[kind];
    }
  }

  lessons.masks = { visible, weights, scores };
  begin("masks", (place) => new Masks(place));
})(globalThis.lessons);
