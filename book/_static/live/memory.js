/* A table as a memory (chapter 18): write values under keys of one's choice, by three rules, and ask. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, text, rect, circle, line, arrow, matrix, handle, add } = lessons.live;
  const EXAMPLE = { key: [0.6, 0.8], written: ["A", "B"], rule: "sum" };
  const VALUES = { A: [1, 0], B: [0, 1] };
  const RULES = { sum: "Sum", decay: "Decay, α = ½", delta: "Delta rule" };
  const MOST = 12; // writings
  const [X, Y, RADIUS, BAR, ZERO] = [170, 128, 80, 70, 120]; // the circle of keys; a bar of 1, and where bars start

  const ask = (table, key) => [0, 1].map((column) => key[0] * table[0][column] + key[1] * table[1][column]);

  /* What each writing adds and the table after it (18.9). */
  function tables(writings, rule) {
    let table = [[0, 0], [0, 0]];
    return writings.map(({ key, value }) => {
      if (rule === "decay") table = table.map((row) => row.map((entry) => entry / 2));
      const known = rule === "delta" ? ask(table, key) : [0, 0];
      const added = VALUES[value].map((part, i) => part - known[i]);
      table = table.map((row, r) => row.map((entry, c) => entry + key[r] * added[c]));
      return { added, table };
    });
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    const home = Math.round((Math.atan2(given.key[1], given.key[0]) * 180) / Math.PI);
    let [angle, key, rule] = [home, [...given.key], given.rule];
    let writings = given.written.map((value) => ({ key: [...given.key], value }));
    const circleOf = figure.panel(246, "Keys of length 1: the one at hand, and those written");
    text(circleOf, 0, 10, "the key: drag it", { role: "key", bold: true, align: "start" });
    circle(circleOf, X, Y, RADIUS, "rule", { fill: "none" });
    const old = add(circleOf, "g");
    const shaft = arrow(circleOf, "key");
    const at = ([x, y], far = 1) => [X + RADIUS * far * x, Y - RADIUS * far * y];
    const go = (degrees) => {
      angle = (Math.round(degrees) + 360) % 360;
      const turn = (angle * Math.PI) / 180;
      key = angle === home ? [...given.key] : [Math.cos(turn), Math.sin(turn)];
      show();
    };
    const knob = handle(figure, circleOf, {
      name: "direction of the key in degrees",
      min: 0,
      max: 359,
      to: (x, y) => go((Math.atan2(Y - y, x - X) * 180) / Math.PI),
      by: (right, up) => go(angle + 5 * (up - right)),
      home: () => go(home),
    });
    circle(knob, 0, 0, 9, "key", { tint: 0.3 });
    const side = figure.panel(246, "The table, and what it answers");
    text(side, 80, 10, "the table S", { bold: true });
    const table = matrix(side, 30, 26, 2, 2, "residual", { cell: [50, 26], digits: 2 });
    const last = text(side, 140, 52, "", { role: "soft", small: true, align: "start" });
    text(side, 0, 118, "asked with this key, it answers", { bold: true, align: "start" });
    const bars = ["A", "B"].map((name, i) => {
      const y = 148 + 34 * i;
      text(side, 14, y, name, { role: "value", bold: true });
      line(side, "rule")([ZERO, y - 14], [ZERO, y + 14]);
      const bar = rect(side, ZERO, y, 0, 18, { fill: "value", tint: 0.45, role: "value" });
      return { bar, said: text(side, 0, y, "", { small: true }) };
    });
    const write = (value) => () => {
      if (writings.length < MOST) writings = [...writings, { key, value }];
      show();
    };
    const empty = () => {
      writings = [];
      show();
    };
    const button = (name, onclick) => element("button", { type: "button", onclick }, name);
    figure.controls(
      choices("Rule", RULES, rule, (chosen) => {
        rule = chosen;
        show();
      }),
      button("Write A", write("A")),
      button("Write B", write("B")),
      button("Empty", empty),
    );
    figure.hint("Turn the key, write under it, and ask with other keys; the rule can be changed afterwards.");

    function show() {
      const steps = tables(writings, rule);
      const now = steps.at(-1)?.table ?? [[0, 0], [0, 0]];
      const answer = ask(now, key);
      shaft([X, Y], at(key, 0.93));
      old.replaceChildren();
      writings.forEach((one) => {
        const same = writings.filter((other) => String(other.key) === String(one.key));
        const nth = same.indexOf(one);
        if (nth > 2) return; // no room: the third place says how many more
        line(old, "soft", { dashed: true })([X, Y], at(one.key));
        const [x, y] = at(one.key, 1.24 + 0.15 * nth);
        text(old, x, y, nth === 2 && same.length > 3 ? `+${same.length - 2}` : one.value, { role: "value", bold: true });
      });
      table.show(now);
      const added = steps.at(-1)?.added;
      last.textContent = added ? `${writings.at(-1).value} came last; it added key × (${added.map((part) => number(part)).join(", ")})` : "";
      bars.forEach(({ bar, said }, i) => {
        const length = BAR * Math.max(-1.4, Math.min(1.9, answer[i]));
        set(bar, { x: ZERO + Math.min(length, 0), width: Math.abs(length) });
        set(said, { x: ZERO + Math.max(length, 0) + 20 });
        said.textContent = number(answer[i]) + (answer[i] > 1.9 || answer[i] < -1.4 ? " ▸" : ""); // longer than is drawn
      });
      knob.put(at(key), angle, `${angle} degrees`);
      const list = writings.map(({ value }) => value).join(", ") || "nothing";
      const full = writings.length < MOST ? "" : " The table is full here: press Empty.";
      const asked = `For the key (${key.map((part) => number(part)).join(", ")}) the table answers`;
      figure.say(`${RULES[rule]}; written: ${list}. ${asked} A ${number(answer[0])}, B ${number(answer[1])}.${full}`);
    }
    show();
  }

  lessons.memory = { tables, ask, EXAMPLE };
  begin("memory", make);
})(globalThis.lessons);
