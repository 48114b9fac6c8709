/* Which question finds which mistake (chapter 21): a patient whose answers are known, and the suspects that are left.
 * The chapter's div has the table: a row of "1" (found), "0" (not found), "?" (not to be compared) for each name. */
"use strict";

(function (lessons) {
  const { element } = lessons.page;
  const { add, begin, rect, set, text } = lessons.live;
  const EXAMPLE = { questions: ["first\nloss", "\noracle"], found: { "a bad start": "10", "a percent": "01", "it eats": "00" } };
  const [LEFT, TOP, HEIGHT, WIDTH, FAINT] = [126, 44, 20, 213, 0.18];

  /* Whether a row is compatible with the answers so far; null is a question that was not asked. */
  const fits = (row, answers) =>
    answers.every((answer, j) => answer === null || answer === "?" || row[j] === "?" || row[j] === answer);

  const verdict = { 0: "passes", 1: "fails", "?": "can’t be compared" };

  function make(figure, about) {
    const { questions, found } = { ...EXAMPLE, ...about };
    const [names, titles] = [Object.keys(found), questions.map((words) => words.replace("\n", " ").trim())];
    const width = WIDTH / questions.length;
    const svg = figure.panel(TOP + HEIGHT * names.length + 28, "Suspects and questions");
    questions.forEach((words, j) =>
      words.split("\n").forEach((word, k) => {
        const head = text(svg, LEFT + width * (j + 0.5), 18 + 12 * k, word, { role: "soft" });
        head.style.fontSize = "8.5px"; // as in the still
      }),
    );
    const rows = names.map((name, i) => {
      const [row, y] = [add(svg, "g"), TOP + HEIGHT * (i + 0.5)];
      text(row, LEFT - 6, y, name, { small: true, align: "end" });
      [...found[name]].forEach((cell, j) => {
        const [x, fill] = [LEFT + width * j, { 0: "none", 1: "weight", "?": "mask" }[cell]];
        rect(row, x, y, width, HEIGHT, { fill, tint: cell === "?" ? 0.12 : 1, role: "rule", line: 0.8 });
        if (cell === "?") add(row, "path", { d: `M${x + width / 2 - 4} ${y - 4}l8 8m0 -8l-8 8`, class: "live-cross" });
      });
      return row;
    });
    const answers = questions.map((_, j) =>
      text(svg, LEFT + width * (j + 0.5), TOP + HEIGHT * names.length + 14, "", { small: true, bold: true }),
    );
    let [patient, asked, isTold] = [10 % names.length, questions.map(() => null), false];

    const ask = (j) => {
      asked[j] = asked[j] === null ? found[names[patient]][j] : null;
      show();
    };
    const buttons = titles.map((title, j) => element("button", { type: "button", onclick: () => ask(j) }, title));
    const tell = () => {
      isTold = true;
      show();
    };
    const next = () => {
      [patient, asked, isTold] = [(patient + 7) % names.length, questions.map(() => null), false];
      show();
    };
    const group = (label, ...made) => element("div", { role: "group", "aria-label": label }, ...made);
    figure.controls(
      group("Questions", ...buttons),
      group("Patients", element("button", { type: "button", onclick: tell }, "Who is it?"), element("button", { type: "button", onclick: next }, "Next patient")),
    );
    figure.hint("One of these projects is ill, and you do not know which. Ask; suspects that do not fit fade.");

    function show() {
      const left = names.filter((name) => fits(found[name], asked));
      rows.forEach((row, i) => (row.style.opacity = left.includes(names[i]) ? 1 : FAINT));
      buttons.forEach((button, j) => set(button, { "aria-pressed": asked[j] !== null }));
      answers.forEach((one, j) => (one.textContent = asked[j] === null ? "" : { 0: "ok", 1: "fails", "?": "?" }[asked[j]]));
      const told = titles.flatMap((title, j) => (asked[j] === null ? [] : [`${title}: ${verdict[asked[j]]}`]));
      const who = left.length <= 5 ? `: ${left.map((name) => `“${name}”`).join(", ")}` : "";
      const many = `${left.length} of ${names.length} suspects ${left.length === 1 ? "is" : "are"} left${who}`;
      const end = isTold ? ` It is “${names[patient]}”.` : "";
      figure.say(`${told.length ? told.join("; ") : "A new patient"}. ${many}.${end}`);
    }
    show();
  }

  begin("clinic", make);
})(globalThis.lessons);
