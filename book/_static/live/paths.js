/* Three sub-layers as eight paths (chapter 10): silence one, or cut the way around it, and see which paths are left. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { add, begin, number, text, rect, circle, line, arrow } = lessons.live;
  const EXAMPLE = { value: 24, shares: [2, 3, 4] }; // f₁ answers with a half of its input, f₂ a third, f₃ a quarter
  const THROUGH = [[], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]; // the sub-layers of each path
  const [STREAM, SHARE, FAINT] = [110, ["half", "third", "quarter"], 0.15];
  const name = (j) => `f${"₁₂₃"[j]}`;
  const WAYS = { both: (f) => `x + ${f}`, silent: (f) => `without ${f}`, cut: (f) => `${f} alone` };

  /* The stream after each sub-layer, and what each path carries; null for a path that is cut. */
  function carried({ value, shares }, ways) {
    const stream = [value];
    shares.forEach((share, j) => {
      const before = stream.at(-1);
      stream.push((ways[j] === "cut" ? 0 : before) + (ways[j] === "silent" ? 0 : before / share));
    });
    const isCut = (through) => ways.some((way, j) => way === (through.includes(j) ? "silent" : "cut"));
    const along = (through) => through.reduce((left, j) => left / shares[j], value);
    return { stream, paths: THROUGH.map((through) => (isCut(through) ? null : along(through))) };
  }

  const whole = (value) => number(value, Number.isInteger(value) ? 0 : 1);
  const fade = (parts, isGone) => parts.forEach((part) => (part.style.opacity = isGone ? FAINT : 1));

  /* The stream with its sub-layers, upwards; answers what shows values and what is cut. */
  function drawStream(svg, count) {
    text(svg, 0, 8, "One stream, three sub-layers", { bold: true, align: "start" });
    const told = [text(svg, 92, 284, "", { bold: true, align: "end" })];
    line(svg, "residual")([STREAM, 290], [STREAM, 262]);
    const parts = Array.from({ length: count }, (_, j) => {
      const y = 262 - 78 * j;
      const [branch, around] = [add(svg, "g"), add(svg, "g")];
      line(branch, "residual")([STREAM, y], [234, y], [234, y - 18]);
      rect(branch, 178, y - 32, 112, 26, { role: "ink", radius: 3 });
      text(branch, 234, y - 32, `${name(j)}: one ${SHARE[j]}`);
      arrow(branch, "residual", 1.3)([234, y - 45], [234, y - 63]);
      arrow(branch, "residual", 1.3)([234, y - 64], [119, y - 64]);
      line(around, "residual")([STREAM, y], [STREAM, y - 56]);
      circle(svg, STREAM, y - 64, 8, "residual", { fill: "none" });
      text(svg, STREAM, y - 64, "+", { bold: true });
      if (j < count - 1) line(svg, "residual")([STREAM, y - 72], [STREAM, y - 78]);
      else arrow(svg, "residual", 1.3)([STREAM, y - 72], [STREAM, y - 78]);
      told.push(text(svg, 92, y - 76, "", { bold: true, align: "end" }));
      return { branch, around };
    });
    return (values, ways) => {
      told.forEach((one, j) => (one.textContent = whole(values[j])));
      parts.forEach(({ branch, around }, j) => {
        fade([branch], ways[j] === "silent");
        fade([around], ways[j] === "cut");
      });
    };
  }

  /* A row for each path; answers what shows what they carry, and their sum. */
  function drawPaths(svg) {
    text(svg, 0, 8, "The same as eight paths", { bold: true, align: "start" });
    const rows = THROUGH.map((through, i) => {
      const [row, y] = [add(svg, "g"), 44 + 29 * i];
      const points = [[6, y]];
      for (const j of [0, 1, 2]) {
        const x = 34 + 74 * j;
        if (through.includes(j)) {
          line(row, "residual")(...points, [x, y]);
          rect(row, x, y, 44, 18, { role: "ink", radius: 3 });
          text(row, x + 22, y, name(j));
          points.splice(0, points.length, [x + 44, y]);
        } else points.push([x - 4, y], [x + 4, y - 12], [x + 40, y - 12], [x + 48, y]);
      }
      line(row, "residual")(...points, [256, y]);
      arrow(row, "residual", 1.3)([250, y], [262, y]);
      return [row, text(row, 300, y, "", { bold: true, align: "end" })];
    });
    line(svg, "rule")([268, 264], [306, 264]);
    text(svg, 250, 280, "in total", { role: "soft", small: true, align: "end" });
    const total = text(svg, 300, 280, "", { bold: true, align: "end" });
    return (values, sum) => {
      total.textContent = whole(sum);
      rows.forEach(([row, said], i) => {
        fade([row], values[i] === null);
        said.textContent = values[i] === null ? "0" : whole(values[i]);
      });
    };
  }

  function make(figure, about) {
    const example = { ...EXAMPLE, ...about };
    const ways = example.shares.map(() => "both");
    const showStream = drawStream(figure.panel(306, "The stream"), ways.length);
    const showPaths = drawPaths(figure.panel(306, "The paths"));
    figure.controls(
      ...ways.map((way, j) => {
        const words = Object.entries(WAYS).map(([key, said]) => [key, said(name(j))]);
        return choices(name(j), Object.fromEntries(words), way, (chosen) => {
          ways[j] = chosen;
          show();
        });
      }),
    );
    figure.hint("Leave out a sub-layer, or the way around it.");

    function show() {
      const { stream, paths } = carried(example, ways);
      showStream(stream, ways);
      showPaths(paths, stream.at(-1));
      const left = paths.filter((one) => one !== null);
      const chosen = ways.map((way, j) => WAYS[way](name(j))).join(", ");
      const sum = `${left.map(whole).join(" + ")} = ${whole(stream.at(-1))}`;
      figure.say(`${chosen}: ${left.length} of 8 paths ${left.length === 1 ? "is" : "are"} left, ${sum}.`);
    }
    show();
  }

  lessons.paths = { carried, EXAMPLE };
  begin("paths", make);
})(globalThis.lessons);
