/* Live figures: a chapter's drawing that answers to the reader's hand.
 *
 * In the chapter, right below the cell that draws the still figure (a `Drawing`):
 *
 *   <div class="lessons-live" data-live="attention" id="live-attention">On the course's site, this figure moves.</div>
 *
 * Only that page then loads live.css, explorables/page.js, this script, attention.data.js if there is one, and
 * attention.js, which ends in `begin("attention", (figure, about) => …)`. The div moves into the figure above it, in the
 * still's place, under the same number and caption; its own words go. Paper, and a page without scripts, show the still.
 * `about` is what the div says in data-about='{"words": […]}' (JSON), or {}.
 *
 *   const svg = figure.panel(272, "A query among keys");  340 units wide, as in drawing.py; several stand side by side
 *   figure.controls(choices(…), player(figure, …));       below them; of page.js, or element("button", …)
 *   figure.hint("Drag the query.");                       one more sentence for the caption
 *   figure.say("The output is (7.3, 1.8).");              seen and heard: the state in one sentence
 *   figure.still                                          the still's panels, to be cloned by who draws on top of them
 *
 * Shapes are drawing.py's. Their first argument is where they go (a panel or a group), y is the middle. What moves is
 * drawn once; what `line`, `arrow` and `matrix` answer changes it. Colours are roles, drawing.py's variables. */
"use strict";

(function (lessons) {
  const { element, isShortcut } = lessons.page;
  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const noMotion = matchMedia("(prefers-reduced-motion: reduce)");

  /* As drawing.py writes it: a true minus, no minus zero. */
  const number = (value, digits = 2) =>
    (Math.round(value * 10 ** digits) / 10 ** digits + 0).toFixed(digits).replace("-", "−");
  const colour = (role) => (role === "none" ? role : `var(--${role})`);

  const add = (parent, name, attributes = {}) => parent.appendChild(element(`svg:${name}`, attributes));

  function set(shape, attributes) {
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    return shape;
  }

  /* Weights of the scores that are visible; where none is, zeros. */
  function softmax(scores, visible = scores.map(() => true)) {
    const largest = Math.max(...scores.filter((_, i) => visible[i]));
    const powers = scores.map((score, i) => (visible[i] ? Math.exp(score - largest) : 0));
    const sum = powers.reduce((a, b) => a + b, 0) || 1;
    return powers.map((power) => power / sum);
  }

  /* text(svg, 20, 30, "d_k", { role: "key", align: "start", small: true, bold: true, turn: true }); a real subscript */
  function text(parent, x, y, content, { role = "ink", align = "middle", small, bold, turn } = {}) {
    const down = 0.36 * (small ? 10 : 11.5);
    const place = turn ? { transform: `translate(${x + down} ${y}) rotate(-90)` } : { x, y: y + down };
    const look = { class: `${small ? "small" : ""} ${bold ? "bold" : ""}`, style: `fill:${colour(role)}` };
    return write(add(parent, "text", { ...place, ...look, "text-anchor": align }), content);
  }

  function write(made, content) {
    const [word, low, ...rest] = String(content).split(/(?<=[A-Za-z])_([a-z]+)/);
    made.replaceChildren(word);
    if (low) made.append(element("svg:tspan", { dy: 2.5, "font-size": "82%" }, low), element("svg:tspan", { dy: -2.5 }, ...rest));
    return made;
  }

  function rect(parent, x, y, width, height, { fill = "none", tint = 1, role = "none", line = 1.3, radius = 0 } = {}) {
    const look = { fill: colour(fill), "fill-opacity": tint, stroke: colour(role), "stroke-width": line, rx: radius };
    return add(parent, "rect", { x, y: y - height / 2, width, height, ...look });
  }

  function circle(parent, x, y, r, role, { fill = role, tint = 1 } = {}) {
    const look = { fill: colour(fill), "fill-opacity": tint, stroke: colour(role), "stroke-width": 1.3 };
    return add(parent, "circle", { cx: x, cy: y, r, ...look });
  }

  /* A word; x is its left end. */
  function pill(parent, x, y, word, role, width, height = 20) {
    const made = add(parent, "g");
    rect(made, x, y, width, height, { fill: "paper", radius: height / 2 });
    rect(made, x, y, width, height, { fill: role, tint: 0.06, role, radius: height / 2 });
    text(made, x + width / 2, y, word, { small: true });
    return made;
  }

  /* Answers ([x, y], …) => shape, which draws it through these points. */
  function line(parent, role, { width = 1.3, dashed = false, alpha = 1 } = {}) {
    const look = { fill: "none", stroke: colour(role), "stroke-width": width, opacity: alpha };
    const shape = add(parent, "path", { ...look, "stroke-dasharray": dashed && "3 2.5" });
    return (...points) => set(shape, { d: `M${points.join("L")}` });
  }

  /* Answers (from, to) => …, which draws it. */
  function arrow(parent, role, width = 2.2) {
    const [shaft, head] = [line(parent, role, { width }), add(parent, "path", { fill: colour(role) })];
    return (from, to) => {
      const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
      const [dx, dy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
      const at = (back, side) => [to[0] - back * dx + side * dy, to[1] - back * dy - side * dx];
      shaft(from, at(Math.min(7, length), 0));
      set(head, { d: `M${to}L${at(9, 4.5)}L${at(9, -4.5)}Z` });
    };
  }

  /* Cells, and show(values, visible): as full as the value with `weights`; what is not visible is crossed out. */
  function matrix(parent, x, y, rows, columns, role, { cell: [w, h] = [28, 22], digits = 2, weights, tint = 0.14 } = {}) {
    const one = (_, i) => {
      const [column, row] = [i % columns, Math.floor(i / columns)];
      const [left, middle, place] = [x + column * w, y + (row + 0.5) * h, add(parent, "g")];
      const box = rect(place, left, middle, w, h, { role: "rule", line: 0.8 });
      const cross = add(place, "path", { d: `M${left + w / 2 - 4} ${middle - 4}l8 8m0 -8l-8 8`, class: "live-cross" });
      return { row, column, place, box, cross, said: text(place, left + w / 2, middle, "", { small: true }) };
    };
    const cells = Array.from({ length: rows * columns }, one);
    rect(parent, x, y + (rows * h) / 2, w * columns, h * rows, { role }).style.pointerEvents = "none";
    const show = (values, visible) =>
      cells.forEach(({ row, column, box, cross, said }) => {
        const [value, hidden] = [values[row][column], visible && !visible[row][column]];
        const fill = colour(hidden ? "mask" : weights ? "weight" : role);
        set(box, { fill, "fill-opacity": hidden ? 0.12 : weights ? value.toFixed(3) : tint });
        cross.style.display = hidden ? "" : "none";
        said.textContent = hidden ? "" : number(value, digits);
      });
    return { cells, show };
  }

  /* Names for a matrix at x, y: a pill a row and a column, and what the axes are. */
  function label(parent, x, y, [w, h], rows, columns, roles = ["ink", "ink"], names = ["queries", "keys"]) {
    const [role, soft] = [(word, other) => (word === "PAD" ? "mask" : other), { role: "soft", small: true }];
    rows.forEach((word, i) => pill(parent, x - 60, y + (i + 0.5) * h, word, role(word, roles[0]), 55));
    columns.forEach((word, j) => pill(parent, x + j * w + 0.5, y - 16, word, role(word, roles[1]), w - 1));
    text(parent, x - 72, y + (rows.length * h) / 2, `${names[0]} · ${rows.length}`, { ...soft, turn: true });
    text(parent, x + (columns.length * w) / 2, y - 38, `${names[1]} · ${columns.length}`, soft);
  }

  /* Cells of a square matrix that a click, the space bar, or a mouse held down changes: `put(row, column, value)`. Arrow keys
   * walk; `look(row, column)` is called of the cell that has the focus, `isOn(row, column)` is what it holds. */
  function paint({ cells }, put, look, isOn) {
    const n = Math.sqrt(cells.length);
    let painting = null; // what a mouse that is held down makes of the cells that it comes to
    addEventListener("pointerup", () => setTimeout(() => (painting = null)));
    for (const { place, row, column } of cells) {
      set(place, { class: "live-cell", role: "checkbox", tabindex: row || column ? -1 : 0 });
      place.onpointerdown = () => (painting = { at: [row, column], value: !isOn(row, column), moved: false });
      place.onpointerenter = ({ buttons, pointerType }) => {
        if (!painting || buttons !== 1 || pointerType === "touch") return;
        if (!painting.moved) put(...painting.at, painting.value);
        painting.moved = true;
        put(row, column, painting.value);
      };
      place.onclick = () => painting?.moved || put(row, column, !isOn(row, column));
      place.onkeydown = (event) => {
        if (isShortcut(event)) return;
        const [right, up] = STEPS[event.key] ?? [];
        const [y, x] = [row - up, column + right];
        if (event.key === " " || event.key === "Enter") put(row, column, !isOn(row, column));
        else if (!(event.key in STEPS)) return;
        else if (Math.min(x, y) >= 0 && Math.max(x, y) < n) cells[y * n + x].place.focus();
        event.preventDefault();
      };
      place.onfocus = () => {
        cells.forEach((one) => set(one.place, { tabindex: one.place === place ? 0 : -1 }));
        look(row, column);
      };
    }
  }

  /* A group around 0, 0 that a pointer drags and arrow keys move (with Shift five steps; Home: back to the start);
   * `put([x, y], now, said)` says where it is now, to eyes and to ears.
   * about: { name, min, max, to: (x, y) => … in units of the panel, by: (right, up) => … in steps, home } */
  function handle(figure, parent, { name, min, max, to, by, home }) {
    const limits = { "aria-valuemin": min, "aria-valuemax": max };
    const knob = add(parent, "g", { class: "live-handle", tabindex: 0, role: "slider", "aria-label": name, ...limits });
    let [place, off] = [[0, 0], [0, 0]];
    const less = (event, [x, y]) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(parent.getScreenCTM().inverse());
      return [at.x - x, at.y - y];
    };
    add(knob, "circle", { r: 22, fill: "transparent" });
    knob.addEventListener("touchstart", (event) => event.preventDefault()); // the page scrolls beside it only
    knob.onpointerdown = (event) => {
      off = less(event, place);
      knob.setPointerCapture(event.pointerId);
      figure.hush(true);
    };
    knob.onpointermove = (event) => knob.hasPointerCapture(event.pointerId) && to(...less(event, off));
    knob.onlostpointercapture = () => figure.hush(false);
    knob.onkeydown = (event) => {
      const step = STEPS[event.key];
      if (isShortcut(event) || !(step || event.key === "Home")) return;
      event.preventDefault();
      return step ? by(...step.map((part) => part * (event.shiftKey ? 5 : 1))) : home();
    };
    knob.put = (at, now, said) => {
      place = at;
      set(knob, { transform: `translate(${at})`, "aria-valuenow": now, "aria-valuetext": said });
    };
    return knob;
  }

  /* A rail with a knob for a number, which stands at its end; `changed(value)` is called when the knob moves. Answers what
   * puts the knob. about: { min, max, step, start, digits } */
  function rail(figure, parent, y, name, { min, max, step, start, digits }, changed) {
    const [left, length] = [84, 200];
    text(parent, 0, y, name, { align: "start" });
    line(parent, "rule", { width: 3 })([left, y], [left + length, y]);
    const said = text(parent, 340, y, "", { align: "end", bold: true });
    let now = start;
    const go = (value) => {
      const steps = Math.round((Math.min(max, Math.max(min, value)) - min) / step);
      changed(Number((min + step * steps).toFixed(4)));
    };
    const knob = handle(figure, parent, {
      name,
      min,
      max,
      to: (x) => go(min + ((x - left) / length) * (max - min)),
      by: (right, up) => go(now + step * (right + up)),
      home: () => go(start),
    });
    circle(knob, 0, 0, 8, "query", { tint: 0.3 });
    return (value) => {
      now = value;
      said.textContent = number(value, digits);
      knob.put([left + (length * (value - min)) / (max - min), y], value, said.textContent);
    };
  }

  /* A button: `step()` again and again until it is pressed again, or answers false. Without motion, one step a press. */
  function player(figure, name, pause, wait, step) {
    let timer = 0;
    const button = element("button", { type: "button" }, name);
    const stop = () => {
      [timer, button.textContent] = [clearInterval(timer), name];
      figure.hush(false);
    };
    button.onclick = () => {
      if (timer) return stop();
      if (step() === false || noMotion.matches) return;
      button.textContent = pause;
      figure.hush(true);
      timer = setInterval(() => step() === false && stop(), wait);
    };
    return button;
  }

  function figureAt(place) {
    const isAbove = (one) => place.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_PRECEDING;
    const host = [...document.querySelectorAll("figure.drawing")].filter(isAbove).at(-1);
    const caption = host?.querySelector("figcaption");
    const still = [...(host?.querySelectorAll(":scope > svg") ?? [])];
    const [panels, buttons] = ["live-panels", "live-buttons"].map((name) => element("div", { class: name }));
    const said = element("p", { class: "live-said", role: "status" });
    place.replaceChildren(panels, buttons, said);
    still.forEach((one) => one.classList.add("live-still"));
    caption?.before(place);
    const panel = (height, name) =>
      add(panels, "svg", { viewBox: `0 0 340 ${height}`, role: "group", "aria-label": name });
    const hint = (sentence) => caption?.append(element("span", { class: "live-hint" }, ` ${sentence}`));
    const say = (sentence) => sentence !== said.textContent && said.replaceChildren(sentence);
    /* While something moves, a voice is silent; when it lies still, the voice says where. */
    const hush = (moves) => {
      said.ariaLive = moves ? "off" : null;
      said.replaceChildren(said.textContent);
    };
    return { place, panels, buttons, said, caption, still, panel, controls: (...made) => buttons.append(...made), hint, say, hush };
  }

  const begin = (name, make) =>
    lessons.page.begin(name, (place) => make(figureAt(place), JSON.parse(place.dataset.about ?? "{}")));

  const shapes = { add, set, text, write, rect, circle, pill, line, arrow, matrix, label, paint };
  lessons.live = { begin, number, colour, softmax, handle, rail, player, ...shapes };
})(globalThis.lessons);
