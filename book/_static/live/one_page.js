/* Chapter 0's drawing, step by step: of the layers in one_page.data.js (made by book/live_data.py), those of the
 * sentence, the step and the row that are chosen lie on the base. Arrow keys: left and right step, up and down walk through parts or rows. */
"use strict";

const pages = new URL("../../chapters/", document.currentScript.src);
lessons.live.begin("one_page", (figure) => {
  const { add, set, colour } = lessons.live;
  const { element, isShortcut } = lessons.page;
  const { base, runs, parts, chapters } = lessons.onePage;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const host = figure.place.parentElement;
  host.classList.add("one-page");
  const names = ["The encoder, from words down to memory", "The decoder, from the words so far down to the next word"];
  const state = { run: runs[0], at: 2, look: 2, pinned: null, moving: null }; // as in the still drawing

  const panels = figure.still.map((one, side) => {
    const panel = figure.panel(one.viewBox.baseVal.height, names[side]);
    add(panel, "g", { "aria-hidden": true }).innerHTML = base[side];
    return { panel, moving: add(panel, "g", { "aria-hidden": true }), hot: add(panel, "g", {}), top: add(panel, "g", {}) };
  });

  // ---- Below: where it stands, and what is pointed at ------------------------------------------------------------
  const button = (text, go, more) => element("button", { type: "button", onclick: go, ...more }, text);
  const back = button("← Back", () => go(state.at - 1));
  const next = button("", () => go(state.at + 1), { class: "next" });
  const written = element("b");
  const choose = element("div", { class: "choose", role: "group", "aria-label": "Number" });
  for (const run of runs) {
    const about = { "aria-label": `${run.n.toLocaleString("en")}, ${run.words.join(" ")}` };
    choose.append(button(run.n.toLocaleString("en"), () => change({ run }), about));
  }
  figure.buttons.append(back, written, next);
  const dock = element("div", { class: "dock" });
  figure.buttons.before(dock);
  dock.append(figure.buttons, figure.said);
  figure.place.prepend(choose);
  figure.hint("Step with the buttons or the arrow keys, point at a part, or choose a German word in cross-attention.");

  const link = (chapter) => element("a", { href: new URL(chapters[chapter][0], pages) }, `Chapter ${Number(chapter)}`);
  function say(part = state.pinned) {
    const { run, at, look } = state;
    for (const one of parts) set(one.box, { "aria-pressed": one === state.pinned });
    if (!part) return figure.say(`Step ${at + 1} of 6. ${run.looks[look]} ${look === at ? run.states[at] : ""}`.trim());
    figure.say(`${part.name}: ${part.does} Shape: ${part.shape.replaceAll("{m}", at + 1)}. `);
    part.chapters.filter((chapter) => chapters[chapter]).forEach((chapter) => figure.said.append(link(chapter), " "));
  }

  // ---- What can be pointed at: of each kind one can be reached by Tab, its neighbours by the arrow keys ------------
  function choosable(shape, group, press) {
    shape.addEventListener("click", press);
    shape.addEventListener("keydown", (event) => {
      if (isShortcut(event)) return;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Enter" || event.key === " ") press();
      else if (step) {
        const all = group();
        const other = all[(all.indexOf(shape) + step + all.length) % all.length];
        all.forEach((one) => set(one, { tabindex: one === other ? 0 : -1 }));
        other.focus();
      } else return;
      event.preventDefault();
    });
  }
  parts.forEach((part, i) => {
    const [side, x, y, width, height] = part.at;
    const about = { class: "hot", role: "button", tabindex: i ? -1 : 0, "aria-label": `${part.name}, ${side ? "decoder" : "encoder"}` };
    part.box = add(panels[side].hot, "rect", { x, y, width, height, rx: 5, ...about });
    const pin = () => {
      state.pinned = state.pinned === part ? null : part;
      say();
    };
    choosable(part.box, () => parts.map((one) => one.box), pin);
    part.box.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && say(part));
    part.box.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && say());
    part.box.addEventListener("focus", () => part.box.matches(":focus-visible") && say(part));
  });
  for (const { panel, top } of panels) {
    for (const text of panel.querySelectorAll("g:first-of-type text")) { // the chapters' numbers are links
      if (!chapters[text.textContent]) continue;
      const { x, y, width, height } = text.getBBox();
      const [page, title] = chapters[text.textContent];
      const href = new URL(page, pages);
      const around = { x: x + width / 2 - 12, y: y + height / 2 - 12, width: 24, height: 24, rx: 4 };
      const a = add(top, "a", { href, tabindex: -1, "aria-label": `Chapter ${title}`, class: "chip" });
      add(a, "title", {}, title);
      add(a, "rect", around);
    }
  }
  const rows = panels[1].panel.insertBefore(element("svg:g"), panels[1].top);
  state.run.said.forEach((_, k) => {
    const row = add(rows, "rect", { class: "hot row", x: 150, y: 578 + 24 * k, width: 66, height: 24, rx: 12, role: "button" });
    choosable(row, () => [...rows.children].slice(0, state.at + 1), () => change({ look: k }));
    row.addEventListener("focus", () => row.matches(":focus-visible") && figure.say(state.run.looks[k]));
  });

  // ---- One step ---------------------------------------------------------------------------------------------------
  function draw(isNew) {
    const { run, at, look } = state;
    const { sentence, rows: all, steps, looks } = run.layers;
    const shown = all.slice(0, at + 1).map((row, k) => (isNew && k === at ? `<g class="fresh">${row}</g>` : row));
    panels[0].moving.innerHTML = sentence[0];
    panels[1].moving.innerHTML = [sentence[1], ...shown, steps[at], looks[look]].join("");
    [...rows.children].forEach((row, k) => {
      set(row, { "aria-label": run.looks[k], "aria-pressed": k === look, tabindex: k === look ? 0 : -1 });
      if (k > at && row === document.activeElement) rows.children[look].focus(); // what hides would lose it
      row.style.display = k > at ? "none" : "";
    });
    [...choose.children].forEach((one, i) => one.setAttribute("aria-pressed", runs[i] === run));
    written.textContent = run.said.slice(1, at + 1).join(" ") || "nothing yet";
    const isDone = at === run.next.length - 1;
    set(back, { "aria-disabled": at === 0 }); // not `disabled`, which would take the focus away
    set(next, { "aria-disabled": isDone }).textContent = isDone ? "EOS: done" : `Write ${run.next[at]} →`;
    say();
  }
  function change(what, isNew) {
    state.moving?.cancel();
    Object.assign(state, { moving: null, pinned: null }, what);
    if (what.run) state.look = state.at;
    draw(isNew);
  }
  function go(to) {
    if (state.moving || to < 0 || to >= state.run.next.length) return;
    const arrive = () => change({ at: to, look: to }, to > state.at);
    if (to < state.at || still.matches) return arrive();
    const dot = add(panels[1].top, "circle", { r: 6, fill: colour("decoder"), "aria-hidden": true }); // goes back in
    const y = 58 + 21 * (state.at + 1);
    const path = [[26, 940, 0], [6, 940, 0.08], [6, y, 0.92], [18, y, 1]];
    const frames = path.map(([left, top, offset]) => ({ transform: `translate(${left}px, ${top}px)`, offset }));
    state.moving = dot.animate(frames, { duration: 750, easing: "ease-in-out" });
    state.moving.onfinish = arrive;
    state.moving.finished.catch(() => {}).then(() => dot.remove());
  }
  host.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || isShortcut(event)) return;
    event.preventDefault();
    go(state.at + step);
  });

  host.append(
    element(
      "style",
      {},
      `@media screen {
figure.one-page > .lessons-live { display: contents }
.one-page :is(.choose, .live-panels, .dock) { flex: 1 0 100%; min-width: 0 }
.one-page .choose { display: flex; flex-wrap: wrap; gap: .5rem; justify-content: center }
.one-page .live-panels { column-gap: 0 }
.one-page figcaption { order: 1 }
.one-page .dock { order: 2; padding: .6rem 0 .4rem; background: var(--paper); border-top: 1px solid var(--rule) }
@media (min-height: 34rem) { .one-page .dock { position: sticky; bottom: 0; z-index: 2 } } /* in less, it would hide the drawing */
.one-page .dock .live-buttons { gap: .2rem; align-items: center; margin: 0 }
.one-page .dock b { flex: 1; text-align: center; font-size: .95rem; line-height: 1.25 }
.one-page .dock button { padding-inline: .6rem; white-space: nowrap }
.one-page .dock button.next { background: var(--ink); color: var(--paper); border-color: var(--ink) }
.one-page button[aria-disabled=true] { opacity: .5 }
.one-page .live-said { min-height: 4.5em; margin-top: .5rem; padding: 0; color: var(--ink); font-size: .875rem }
.one-page .live-said a { white-space: nowrap }
.one-page :is(.hot, .chip rect) { fill: transparent; cursor: pointer; outline: none }
.one-page :is(.hot:is(:hover, :focus-visible, [aria-pressed=true]:not(.row)), .chip:is(:hover, :focus-visible) rect) { stroke: var(--ink); stroke-width: 1.6; fill: var(--ink); fill-opacity: .04 }
}
@media (prefers-reduced-motion: no-preference) { .one-page .fresh { animation: fresh .7s } @keyframes fresh { from { opacity: 0 } } }`,
    ),
  );
  draw();
});
