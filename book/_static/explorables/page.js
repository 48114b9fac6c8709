/* What all explorables are made of: elements, sliders, maps that the arrow keys walk through. */
"use strict";

globalThis.lessons = globalThis.lessons || {};

(function (lessons) {
  const SVG = "http://www.w3.org/2000/svg";
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  let sliders = 0;

  /* element("p", { class: "said" }, "text", child, …). "svg:path" is one of a drawing; functions become listeners
   * (onclick: () => …); what is false or undefined is left out. */
  function element(name, attributes = {}, ...children) {
    const isDrawn = name.startsWith("svg:");
    const made = isDrawn ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (typeof value === "function") made.addEventListener(key.slice(2), value);
      else if (value !== false && value !== undefined) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  function section(title, ...children) {
    return element("section", { class: "x-part" }, element("h2", {}, title), ...children);
  }

  /* A slider with its name and, beside it, what `said(value)` answers; `changed(value)` is called when it moves. */
  function slider(name, about, said, changed) {
    const id = `slider-${(sliders += 1)}`;
    const output = element("output", { for: id }, said(about.value));
    const input = element("input", { id, type: "range", ...about });
    input.addEventListener("input", () => {
      output.textContent = said(Number(input.value));
      changed(Number(input.value));
    });
    return element("p", { class: "x-slider" }, element("label", { for: id }, name), input, output);
  }

  /* One of several buttons is pressed: choices(label, { key: text }, chosen, (key) => …). */
  function choices(label, texts, chosen, changed) {
    const group = element("div", { class: "x-places", role: "group", "aria-label": label });
    const press = (key) => {
      group
        .querySelectorAll("button")
        .forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.key === key)));
    };
    for (const [key, text] of Object.entries(texts)) {
      const pressed = () => {
        press(key);
        changed(key);
      };
      group.append(element("button", { type: "button", "data-key": key, onclick: pressed }, text));
    }
    press(chosen);
    return group;
  }

  /* A table of weights from 0 to 1, dark where they are large; NaN is a cell that is hidden.
   *
   * about: { caption, rows: names, columns: names, weights, say: (row, column) => text, point: (row) => … }; what
   * `say` answers of the cell under the pointer, or with the focus, stands below. */
  function map({ caption, rows, columns, weights, say, point = () => {}, now = -1 }) {
    const output = element("output", { class: "x-readout" }, "Point at a cell, or walk with the arrow keys.");
    const read = (row, column) => {
      output.textContent = say(row, column);
      point(row);
    };
    const body = element("tbody");
    rows.forEach((row, r) => {
      const line = element("tr", { class: r === now && "x-now" }, element("th", { scope: "row" }, row));
      columns.forEach((_, c) => {
        const isHidden = Number.isNaN(weights[r][c]);
        const cell = {
          tabindex: r || c ? -1 : 0,
          style: !isHidden && `--weight: ${weights[r][c].toFixed(4)}`,
          class: isHidden && "x-hidden",
          "aria-label": isHidden ? "hidden" : weights[r][c].toFixed(2),
          onpointerenter: () => read(r, c),
          onfocus: () => read(r, c),
          onkeydown: (event) => walk(event, body, r, c),
        };
        line.append(element("td", cell));
      });
      body.append(line);
    });
    const head = element("tr", {}, element("td", { class: "x-corner" }));
    columns.forEach((column) => head.append(element("th", { scope: "col" }, element("span", {}, column))));
    const table = element("table", { "aria-label": caption }, element("thead", {}, head), body);
    return element(
      "div",
      { class: "x-map" },
      element("p", {}, caption),
      element("div", { class: "x-scroll" }, table),
      output,
    );
  }

  /* Ctrl+−, Alt+← and the like are the browser's: figures leave them alone. */
  const isShortcut = ({ altKey, ctrlKey, metaKey }) => altKey || ctrlKey || metaKey;

  /* In a table of which one cell can have the focus: the arrow keys give it to a neighbour. */
  function walk(event, body, row, column) {
    if (isShortcut(event) || !(event.key in STEPS)) return;
    const [down, right] = STEPS[event.key];
    const next = body.rows[row + down]?.querySelectorAll("td")[column + right];
    if (!next) return;
    event.preventDefault();
    event.currentTarget.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  /* Call `make(place)` for each place of this explorable or live figure, as soon as the page is there. */
  function begin(name, make) {
    const places = `[data-explorable="${name}"], [data-live="${name}"]`;
    const all = () => document.querySelectorAll(places).forEach(make);
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
    else all();
  }

  lessons.page = { element, section, slider, choices, map, isShortcut, begin };
})(globalThis.lessons);
