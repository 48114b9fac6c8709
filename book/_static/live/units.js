/* Two hidden units (chapter 8): choose seven numbers, until the line meets three points. */
"use strict";

(function (lessons) {
  const { choices, isShortcut } = lessons.page;
  const { add, begin, set, number, text, rect, circle, line } = lessons.live;
  const EXAMPLE = { w: [1, -1], b: [0, 0], v: [1, 1], c: [0], goal: "1, 0, 1" };
  const GOALS = { "1, 0, 1": [1, 0, 1], "0, 1, 0": [0, 1, 0], "0, 0, 1": [0, 0, 1], "−1, 0, 1": [-1, 0, 1] };
  const [MOST, XS] = [2, [-1, 0, 1]]; // numbers go from −2 to 2
  const [X0, Y0, UNIT, HIGH] = [170, 104, 76, 38]; // of the plot
  const at = (x, y) => [X0 + UNIT * x, Y0 - HIGH * y];

  /* What each unit adds to the output for x, and the output, as equation 8.2 has it. */
  function computed({ w, b, v, c }, x, isBent) {
    const hidden = w.map((weight, i) => weight * x + b[i]).map((h) => (isBent ? Math.max(0, h) : h));
    const parts = hidden.map((h, i) => v[i] * h);
    return { parts, y: parts[0] + parts[1] + c[0] };
  }

  function make(figure, about) {
    const { goal: first, ...given } = { ...EXAMPLE, ...about };
    const numbers = Object.fromEntries(Object.entries(given).map(([name, values]) => [name, [...values]]));
    let [goal, isBent] = [first, true];
    const sums = figure.panel(214, "The layer: seven numbers to choose");
    const words = (x, y, content, more) => text(sums, x, y, content, { align: "start", ...more });
    const bends = [0, 1].map((i) => {
      const y = 44 + 46 * i;
      words(0, y, ["h₁", "h₂"][i], { bold: true });
      words(118, y, "· x  +");
      return { start: words(22, y, ""), end: words(196, y, "") };
    });
    words(0, 150, "output  =", { role: "value", bold: true });
    words(106, 150, "· h₁  +");
    words(194, 150, "· h₂  +");
    const places = { w: [[82, 44], [82, 90]], b: [[158, 44], [158, 90]], v: [[70, 150], [158, 150]], c: [[246, 150]] };
    const names = { w: "W 1", b: "b 1", v: "W 2", c: "b 2" };
    const cells = Object.entries(places).flatMap(([name, spots]) => spots.map((spot, i) => cellOf(name, i, ...spot)));

    const plot = figure.panel(214, "The output for every x");
    line(plot, "rule")([X0 - 2 * UNIT, Y0], [X0 + 2 * UNIT, Y0]);
    line(plot, "rule")([X0, Y0 - 2.4 * HIGH], [X0, Y0 + 2.4 * HIGH]);
    XS.forEach((x) => x && text(plot, X0 + UNIT * x, Y0 + 14, number(x, 0), { role: "soft", small: true }));
    text(plot, X0 + 2 * UNIT, Y0 + 14, "x", { role: "soft", small: true });
    const inside = add(plot, "svg", { style: "width:340px;height:200px;overflow:hidden" }); // cuts off what is too large
    const units = ["query", "key"].map((role) => line(inside, role, { dashed: true, width: 1.6 }));
    const whole = line(inside, "value", { width: 2.6 });
    const wanted = XS.map(() => circle(plot, 0, 0, 6, "value", { fill: "paper" }));
    text(plot, 0, 206, "dashed: what each unit adds", { role: "soft", small: true, align: "start" });

    /* A cell is a button: a press makes its number one larger (after 2 comes −2), + and − change it. */
    function cellOf(name, i, x, y) {
      const cell = add(sums, "g", { class: "live-cell", role: "button", tabindex: 0 });
      rect(cell, x, y, 30, 28, { fill: "query", tint: 0.08, role: "query", radius: 4 });
      const said = text(cell, x + 15, y, "", { bold: true });
      const change = (by) => {
        numbers[name][i] = ((numbers[name][i] + by + MOST + 5) % 5) - MOST;
        show();
      };
      cell.onclick = (event) => change(event.shiftKey ? -1 : 1);
      cell.onkeydown = (event) => {
        if (isShortcut(event)) return;
        if (event.key === "-" || event.key === "ArrowDown") change(-1);
        else if (["+", "=", " ", "Enter", "ArrowUp"].includes(event.key)) change(1);
        else return;
        event.preventDefault();
      };
      return () => {
        said.textContent = number(numbers[name][i], 0);
        set(cell, { "aria-label": `${names[name]}, ${name === "c" ? "" : `unit ${i + 1}, `}now ${numbers[name][i]}` });
      };
    }

    figure.controls(
      choices("Wanted for −1, 0, 1", Object.fromEntries(Object.keys(GOALS).map((key) => [key, key])), goal, (chosen) => {
        goal = chosen;
        show();
      }),
      choices("Activation", { relu: "with ReLU", none: "without" }, "relu", (chosen) => {
        isBent = chosen === "relu";
        show();
      }),
    );
    figure.hint("Choose other points, and click the numbers (after 2 comes −2) until the green line meets them.");

    function show() {
      cells.forEach((one) => one());
      bends.forEach(({ start, end }) => {
        start.textContent = isBent ? "= max(0," : "=";
        end.textContent = isBent ? ")" : "";
      });
      const xs = Array.from({ length: 81 }, (_, i) => -2 + i / 20);
      const curves = xs.map((x) => computed(numbers, x, isBent));
      units.forEach((draw, i) => draw(...xs.map((x, j) => at(x, curves[j].parts[i]))));
      whole(...xs.map((x, j) => at(x, curves[j].y)));
      const found = XS.map((x) => computed(numbers, x, isBent).y);
      const met = found.map((y, i) => y === GOALS[goal][i]);
      wanted.forEach((dot, i) => {
        const [cx, cy] = at(XS[i], GOALS[goal][i]);
        set(dot, { cx, cy, fill: `var(--${met[i] ? "value" : "paper"})` });
      });
      const count = met.filter(Boolean).length;
      const start = count === 3 ? "Solved" : `${count} of 3 points ${count === 1 ? "is" : "are"} met`;
      figure.say(`${start} (wanted: ${goal}). −1, 0, 1 turn into ${found.map((y) => number(y, 0)).join(", ")}.`);
    }
    show();
  }

  lessons.units = { computed, EXAMPLE };
  begin("units", make);
})(globalThis.lessons);
