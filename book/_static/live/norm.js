/* What a norm keeps of four numbers (chapter 9): drag them, add to all, double all, and see what stays the same. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, text, rect, circle, line, handle } = lessons.live;
  const EXAMPLE = { x: [1, 3, 3, 9], most: 20 };
  const KINDS = { layer: "LayerNorm", rms: "RMSNorm" };
  const [ZERO, UNIT, LARGE, BAR, STEP] = [124, 5, 46, 34, 62]; // a 1 is UNIT high on the left, LARGE on the right
  const x0 = (i) => 74 + STEP * i; // the middle of column i

  /* Mean (0 for RMSNorm), spread and output, as the package's norms have them before scale and shift. */
  function normalised(x, kind) {
    const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;
    const mean = kind === "rms" ? 0 : average(x);
    const spread = Math.sqrt(average(x.map((value) => (value - mean) ** 2)) + 1e-5);
    return { mean, spread, y: x.map((value) => (value - mean) / spread) };
  }

  /* Axis and bars; answers what shows values, and writes them beside the bars if asked for `digits`. */
  function bars(svg, title, role, unit, ticks, digits) {
    text(svg, 170, 8, title, { bold: true });
    for (const tick of ticks) {
      line(svg, "rule", { dashed: tick !== 0 })([38, ZERO - unit * tick], [296, ZERO - unit * tick]);
      text(svg, 32, ZERO - unit * tick, number(tick, 0), { role: "soft", small: true, align: "end" });
    }
    const columns = [0, 1, 2, 3].map((i) => [
      rect(svg, x0(i) - BAR / 2, ZERO, BAR, 0, { fill: role, tint: 0.45, role }),
      text(svg, x0(i), ZERO, "", { small: true }),
    ]);
    return (values) =>
      columns.forEach(([bar, said], i) => {
        const height = unit * values[i];
        set(bar, { y: ZERO - Math.max(height, 0), height: Math.abs(height) });
        set(said, { y: ZERO - height + (height < 0 ? 13 : -5) });
        said.textContent = digits ? number(values[i], digits) : "";
      });
  }

  function make(figure, about) {
    const { x: first, most } = { ...EXAMPLE, ...about };
    let [x, kind] = [[...first], "layer"];
    const left = figure.panel(246, "Four numbers");
    const band = rect(left, 38, ZERO, 258, 0, { fill: "key", tint: 0.13 });
    const showX = bars(left, "x", "residual", UNIT, [-20, -10, 0, 10, 20]);
    const meanLine = line(left, "key", { width: 2 });
    const told = text(left, 170, 240, "", { role: "key", small: true });
    const showY = bars(figure.panel(246, "What the norm makes of them"), "what is left", "value", LARGE, [-2, -1, 0, 1, 2], 2);
    const fits = (values) => values.every((value) => Math.abs(value) <= most);
    const put = (values) => {
      if (fits(values)) x = values;
      show(fits(values) ? "" : ` More than ±${most} does not fit here.`);
    };
    const knobs = x.map((_, i) => {
      const go = (value) => put(x.with(i, Math.min(most, Math.max(-most, Math.round(value)))));
      const knob = handle(figure, left, {
        name: `number ${i + 1}`,
        min: -most,
        max: most,
        to: (_x, y) => go((ZERO - y) / UNIT),
        by: (right, up) => go(x[i] + right + up),
        home: () => go(first[i]),
      });
      circle(knob, 0, 0, 10.5, "residual", { fill: "paper" });
      return { knob, said: text(knob, 0, 0, "", { small: true }) };
    });
    const button = (name, change) => element("button", { type: "button", onclick: () => put(change()) }, name);
    figure.controls(
      choices("Norm", KINDS, kind, (chosen) => {
        kind = chosen;
        show();
      }),
      button("Add 2 to all", () => x.map((value) => value + 2)),
      button("Double all", () => x.map((value) => 2 * value)),
      button("Flip all signs", () => x.map((value) => -value)),
      button("Back", () => [...first]),
    );
    figure.hint("Drag the numbers, or move them with the arrow keys. RMSNorm (9.6) leaves the mean in.");

    function show(warning = "") {
      const { mean, spread, y } = normalised(x, kind);
      showX(x);
      showY(y);
      set(band, { y: ZERO - UNIT * (mean + spread), height: 2 * UNIT * spread });
      meanLine([38, ZERO - UNIT * mean], [296, ZERO - UNIT * mean]);
      const sizes = kind === "rms" ? `root mean square ${number(spread)}` : `mean ${number(mean)}, spread ${number(spread)}`;
      told.textContent = sizes;
      knobs.forEach(({ knob, said }, i) => {
        said.textContent = number(x[i], 0);
        knob.put([x0(i), ZERO - UNIT * x[i]], x[i], number(x[i], 0));
      });
      const list = (values, digits) => values.map((value) => number(value, digits)).join(", ");
      figure.say(`${KINDS[kind]} of ${list(x, 0)}: ${sizes}. What is left: ${list(y)}.${warning}`);
    }
    show();
  }

  lessons.norm = { normalised, EXAMPLE };
  begin("norm", make);
})(globalThis.lessons);
