/* Splitting into heads (§3.2.2): where each number of a projection goes under view, transpose, and the wrong order. */
"use strict";

(function (lessons) {
  const { element, slider, choices, walk, keeping, begin } = lessons.page;
  const WAYS = {
    joined: "x",
    right: "x.view(length, heads, d_k).transpose(0, 1)",
    wrong: "x.view(heads, length, d_k)",
  };

  /* parts[head][row][column]: which number of x stands there, as its place in memory: position · d_model + dimension.
   * As one part with "joined". */
  function arranged({ length, heads, width }, way) {
    const range = (number) => Array.from({ length: number }, (_, n) => n);
    const model = heads * width;
    if (way === "joined") return [range(length).map((position) => range(model).map((one) => position * model + one))];
    return range(heads).map((head) =>
      range(length).map((row) =>
        range(width).map((column) =>
          way === "right" ? row * model + head * width + column : (head * length + row) * width + column,
        ),
      ),
    );
  }

  class Heads {
    constructor(place) {
      Object.assign(this, { length: 4, heads: 2, width: 3, way: "right" });
      const set = keeping(this, () => this._show());
      this.parts = element("div", { class: "x-pair" });
      this.said = element("p", { role: "status" });
      this.readout = element("output", { class: "x-readout" }, "Point at a number to see where it comes from.");
      place.replaceChildren(
        choices("How it is read", WAYS, this.way, set("way")),
        slider("length", { min: 1, max: 6, step: 1, value: this.length }, String, set("length")),
        slider("heads", { min: 1, max: 4, step: 1, value: this.heads }, String, set("heads")),
        slider("d_k", { min: 1, max: 4, step: 1, value: this.width }, String, set("width")),
        this.said,
        this.parts,
        this.readout,
      );
      this._show();
    }

    _show() {
      const { length, heads, width, way } = this;
      const model = heads * width;
      const parts = arranged(this, way);
      const mixed = parts.filter((part) =>
        part.some((row, position) => row.some((number) => Math.floor(number / model) !== position)),
      ).length;
      this.said.textContent = {
        joined: `x has a row for each of ${length} positions, with ${model} numbers: ${width} for each of ${heads} heads.`,
        right: "Each head has a row for each position, and in it that position’s own numbers.",
        wrong: mixed
          ? `The shape is right, but in ${mixed} of ${heads} heads rows hold numbers of other positions: a head would ` +
            "compare a position with itself, and a causal mask would hide the wrong things."
          : "Here both are the same; with more heads and positions they are not.",
      }[way];
      const names = (head) => (way === "joined" ? "x" : `head ${head}`);
      this.parts.replaceChildren(...parts.map((part, head) => this._part(names(head), part, model)));
    }

    _part(name, part, model) {
      const body = element("tbody");
      part.forEach((row, number) => {
        const line = element("tr", {}, element("th", { scope: "row" }, `row ${number}`));
        row.forEach((one, column) => {
          const [position, dimension] = [Math.floor(one / model), one % model];
          const say = () => {
            const head = Math.floor(dimension / this.width);
            this.readout.textContent =
              `x[${position}, ${dimension}]: position ${position}, made by the projection of head ${head}` +
              (position === number || this.way === "joined" ? "." : `, but it stands in row ${number}.`);
          };
          const about = {
            class: `x-cell x-position-${position}`,
            tabindex: number || column ? -1 : 0,
            onpointerenter: say,
            onfocus: say,
            onkeydown: (event) => walk(event, body, number, column),
          };
          line.append(element("td", about, `${position}.${dimension}`));
        });
        body.append(line);
      });
      const table = element("table", { class: "x-numbers" }, element("caption", {}, name), body);
      return element("div", { class: "x-scroll" }, table);
    }
  }

  lessons.heads = { arranged };
  begin("heads", (place) => new Heads(place));
})(globalThis.lessons);
