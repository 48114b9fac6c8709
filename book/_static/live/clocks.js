/* Positions as clock hands (chapter 5): two words, each turns the hands; the angle between knows only the distance. */
"use strict";

(function (lessons) {
  const { begin, add, set, number, text, pill, line, circle, arrow, handle, player } = lessons.live;
  const EXAMPLE = { words: ["twenty", "one"], at: [3, 4], width: 128, pairs: [0, 4, 8, 16], longest: 30 };
  const ROLES = ["query", "key"];
  const [LEFT, STEP, TRACK] = [20, 10, 54]; // of the line of positions
  const [RADIUS, MIDDLE] = [30, 214]; // of the clocks
  const PLOT = { left: 23, right: 330, top: 48, bottom: 222 };

  /* Radians that pair i turns with each position. */
  const speed = (pair, width) => 10000 ** ((-2 * pair) / width);
  /* Degrees by which the second hand is ahead. */
  const angle = (pair, width, [a, b]) => ((((b - a) * speed(pair, width) * 180) / Math.PI) % 360) + 0;
  /* PE(a) · PE(b) = Σ cos((b − a) ω): where the two stand has dropped out. */
  const product = (width, distance) =>
    Array.from({ length: width / 2 }, (_, pair) => Math.cos(distance * speed(pair, width))).reduce(
      (sum, one) => sum + one,
      0,
    );

  function dials(svg, { width, pairs }) {
    const clocks = pairs.map((pair, column) => {
      const x = 43 + 84 * column;
      text(svg, x, 142, `clock ${pair}`, { bold: true });
      text(svg, x, 157, `${number((2 * Math.PI) / speed(pair, width), 0)} words`, { role: "soft", small: true });
      circle(svg, x, MIDDLE, RADIUS, "rule", { fill: "paper" });
      const sector = add(svg, "path", { fill: "var(--weight)", "fill-opacity": 0.35 });
      const hands = ROLES.map((role) => arrow(svg, role));
      return { pair, x, sector, hands, said: text(svg, x, MIDDLE + RADIUS + 14, "", { bold: true }) };
    });
    text(svg, 170, 122, "each clock is two numbers; one turn takes", { role: "soft", small: true });
    text(svg, 43, MIDDLE - RADIUS - 8, "cos", { role: "soft", small: true });
    text(svg, 43 + RADIUS + 3, MIDDLE, "sin", { role: "soft", small: true, align: "start" });
    text(svg, 170, MIDDLE + RADIUS + 32, "how far the second hand is ahead of the first", { role: "soft", small: true });
    return (at) =>
      clocks.forEach(({ pair, x, sector, hands, said }) => {
        const tip = (position, far) => {
          const turned = position * speed(pair, width);
          return [x + far * Math.sin(turned), MIDDLE - far * Math.cos(turned)];
        };
        hands.forEach((draw, i) => draw([x, MIDDLE], tip(at[i], i ? 19 : 28)));
        const between = angle(pair, width, at);
        const flags = `${Number(Math.abs(between) > 180)} ${Number(between > 0)}`;
        set(sector, { d: `M${[x, MIDDLE]}L${tip(at[0], 14)}A14 14 0 ${flags} ${tip(at[1], 14)}Z` });
        said.textContent = `${number(between, 0)}°`;
      });
  }

  function curve(svg, { width, longest }) {
    const { left, right, top, bottom } = PLOT;
    const most = width / 2;
    const x = (distance) => left + (distance / longest) * (right - left);
    const y = (value) => bottom - (value / most) * (bottom - top);
    for (const value of [0, most / 2, most]) {
      line(svg, "rule", { width: 0.8 })([left, y(value)], [right, y(value)]);
      text(svg, left - 5, y(value), value, { role: "soft", small: true, align: "end" });
    }
    for (let distance = 0; distance <= longest; distance += 10) {
      text(svg, x(distance), bottom + 13, distance, { role: "soft", small: true });
    }
    text(svg, 0, 14, "dot product of the two vectors", { role: "soft", small: true, align: "start" });
    text(svg, (left + right) / 2, bottom + 31, "distance of the two words", { role: "soft", small: true });
    line(svg, "ink", { width: 1.8 })(
      ...Array.from({ length: 4 * longest + 1 }, (_, i) => [x(i / 4), y(product(width, i / 4))]),
    );
    const down = line(svg, "soft", { dashed: true });
    const mark = circle(svg, 0, 0, 5, "query", { fill: "weight" });
    const said = text(svg, 0, 0, "", { bold: true });
    return (distance) => {
      const value = product(width, distance);
      down([x(distance), bottom], [x(distance), y(value)]);
      set(mark, { cx: x(distance), cy: y(value) });
      set(said, { x: Math.min(x(distance) + 22, right - 12), y: y(value) - 10 });
      said.textContent = number(value, 1);
    };
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    const { words, width, pairs, longest } = given;
    let at = [...given.at];
    const svg = figure.panel(280, "Two words on a line of positions, and the clock hands of both");
    const x = (position) => LEFT + STEP * position * (30 / longest);
    line(svg, "soft")([x(0), TRACK], [x(longest), TRACK]);
    for (let position = 0; position <= longest; position += 5) {
      line(svg, "soft")([x(position), TRACK - 3], [x(position), TRACK + 3]);
      text(svg, x(position), TRACK + 14, position, { role: "soft", small: true });
    }
    text(svg, x(longest), TRACK - 14, "position", { role: "soft", small: true, align: "end" });
    const between = line(svg, "ink", { width: 3 });
    const turned = dials(svg, given);
    const shown = curve(figure.panel(262, "The dot product of the two position vectors, by their distance"), given);
    const go = (i, position) => {
      at[i] = Math.min(longest, Math.max(0, Math.round(position)));
      show();
    };
    const knobs = words.map((word, i) => {
      const knob = handle(figure, svg, {
        name: word,
        min: 0,
        max: longest,
        to: (left) => go(i, ((left - LEFT) / STEP) * (longest / 30)),
        by: (right, up) => go(i, at[i] + right + up),
        home: () => go(i, 0),
      });
      circle(knob, 0, 0, 4, ROLES[i]);
      const side = i ? 36 : -30;
      line(knob, ROLES[i])([0, i ? 22 : -4], [0, i ? 26 : -20]);
      pill(knob, -29, side, word, ROLES[i], 58);
      return knob;
    });
    const walk = player(figure, "Move both on", "Stop", 450, () => {
      const end = Math.max(...at) === longest;
      const step = end ? -Math.min(...at) : 1;
      at = at.map((position) => position + step);
      show();
      return Math.max(...at) < longest;
    });
    figure.controls(walk);
    figure.hint("Drag the two words, or move them with the arrow keys.");

    function show() {
      const distance = Math.abs(at[1] - at[0]);
      between([x(at[0]), TRACK], [x(at[1]), TRACK]);
      turned(at);
      shown(distance);
      knobs.forEach((knob, i) => knob.put([x(at[i]), TRACK], at[i], `position ${at[i]}`));
      const angles = pairs.map((pair) => `${number(angle(pair, width, at), 0)}°`).join(", ");
      const where = words.map((word, i) => `${word} at ${at[i]}`).join(", ");
      figure.say(
        `${where}: distance ${distance}. The hands of the second are ahead by ${angles}; the dot product is ${number(product(width, distance), 1)}.`,
      );
    }
    show();
  }

  lessons.clocks = { speed, angle, product, EXAMPLE };
  begin("clocks", make);
})(globalThis.lessons);
