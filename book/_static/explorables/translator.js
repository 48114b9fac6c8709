/* The live translator: the model of chapter 13, run in the page, with what it looked at and what it thought.
 *
 * Everything shown is computed by model.js from the weights; nothing is stored but these.
 */
"use strict";

(function (lessons) {
  const { numbers, softmax } = lessons;
  const { element, section, slider, choices, map, begin } = lessons.page;
  const EXAMPLES = [421, 17, 90_007, 121_212, 43_001, 999_999];
  const PLACES = {
    cross: { label: "Cross-attention", rows: "German", columns: "English", says: "looks at" },
    self: { label: "Decoder’s self-attention", rows: "German", columns: "German", says: "looks back at" },
    encoder: { label: "Encoder’s self-attention", rows: "English", columns: "English", says: "looks at" },
  };
  const LIKELIEST = 5; // tokens whose chances are shown
  const PACE = 180; // milliseconds between two tokens, unless somebody prefers less motion

  const percent = (value) => (value >= 0.9995 ? "100%" : `${(100 * value).toFixed(1)}%`);

  class Translator {
    constructor(place, model) {
      this.place = place;
      this.model = model;
      this.temperature = 0;
      this.beams = 4;
      this.shown = { place: "cross", layer: model.config.num_decoder_layers - 1, head: 0 };
      this.step = 0;
      this.timer = null;
      this._build();
      this.ask(String(EXAMPLES[0]), { animate: false });
    }

    /* ---- What happens ------------------------------------------------------------------------------------------ */

    /* Translate what was typed; a text that is no number is answered with what is wrong with it. */
    ask(text, { animate = true } = {}) {
      try {
        this.number = numbers.parse(text);
      } catch (error) {
        clearTimeout(this.timer);
        this.input.setAttribute("aria-invalid", "true");
        this.said.textContent = error.message;
        this.results.hidden = true; // they are another number's
        return;
      }
      this.input.removeAttribute("aria-invalid");
      this.input.value = text;
      this.source = numbers.englishTokens(numbers.english(this.number));
      this.run({ animate });
    }

    run({ animate = false } = {}) {
      clearTimeout(this.timer);
      const ids = this.source.map((token) => this.model.sourceTokens.indexOf(token));
      const began = performance.now();
      this.found = lessons.translate(this.model, ids, { choose: lessons.sampler(this.temperature) });
      this.took = performance.now() - began;
      this.searched = null;
      const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
      this.visible = animate && !still ? 1 : this.found.steps.length;
      this.step = this._mostTelling();
      this.results.hidden = false;
      this._show();
      this._appear();
    }

    /* Token by token; only then the answer, and what it thought and looked at. */
    _appear() {
      const isWriting = this.visible < this.found.steps.length;
      this.results.classList.toggle("x-writing", isWriting);
      this._say(isWriting);
      if (!isWriting) return;
      this.timer = setTimeout(() => {
        this.visible += 1;
        this._showTokens();
        this._appear();
      }, PACE);
    }

    /* The step to begin with: where the model was least sure. */
    _mostTelling() {
      const chances = this.found.steps.map((step) => softmax(step.logits)[step.token]);
      return chances.indexOf(Math.min(...chances));
    }

    german(tokens) {
      return tokens.map((id) => this.model.targetTokens[id]).filter((token) => !token.startsWith("<")).join("");
    }

    /* ---- What there is on the page ----------------------------------------------------------------------------- */

    _build() {
      this.input = element("input", {
        id: "translator-number",
        type: "text",
        maxlength: 100, // all numbers fit; what is wrong with a text repeats it
        autocomplete: "off",
        spellcheck: "false",
        "aria-describedby": "translator-said",
      });
      const form = element(
        "form",
        {
          class: "x-ask",
          onsubmit: (event) => {
            event.preventDefault();
            this.ask(this.input.value);
          },
        },
        element("label", { for: "translator-number" }, "A number, in digits or in English words"),
        this.input,
        element("button", { type: "submit", class: "x-main" }, "Translate"),
      );
      const examples = element("div", { class: "x-examples", role: "group", "aria-label": "Examples" });
      for (const number of EXAMPLES) {
        const text = number.toLocaleString("en");
        examples.append(element("button", { type: "button", onclick: () => this.ask(text) }, text));
      }
      const draw = () => this.ask(Math.floor(Math.random() * numbers.LIMIT).toLocaleString("en"));
      examples.append(element("button", { type: "button", onclick: draw }, "any number"));
      this.said = element("p", { id: "translator-said", class: "x-said", role: "status" });
      this.tokens = element("div", { class: "x-tokens" });
      this.chances = element("div", { class: "x-chances" });
      this.maps = element("div", { class: "x-maps" });
      this.map = element("div");
      this.tree = element("div", { class: "x-tree" });
      this.results = element(
        "div",
        { class: "x-results" },
        this.tokens,
        section("What it thought", this._temperature(), this.chances),
        section("Where it looked", this._places(), this.maps, this.map),
        section("What a beam search would do", this._beams(), this.tree),
      );
      this.place.replaceChildren(form, examples, this.said, this.results);
    }

    _temperature() {
      const said = (value) => (value === 0 ? "0: always the likeliest" : `${value.toFixed(1)}: drawn at random`);
      return slider("Temperature", { min: 0, max: 2, step: 0.1, value: 0 }, said, (value) => {
        this.temperature = value;
        this.run();
      });
    }

    _beams() {
      const said = (value) => (value === 1 ? "1: greedy" : String(value));
      return slider("Beams", { min: 1, max: 5, step: 1, value: this.beams }, said, (value) => {
        this.beams = value;
        this.searched = null;
        this._showTree();
      });
    }

    _places() {
      const texts = Object.fromEntries(Object.entries(PLACES).map(([name, { label }]) => [name, label]));
      return choices("Which attention", texts, this.shown.place, (place) => {
        this.shown = { place, layer: this._layers(place) - 1, head: 0 };
        this._showMaps();
      });
    }

    _layers(place) {
      const { num_encoder_layers: encoder, num_decoder_layers: decoder } = this.model.config;
      return place === "encoder" ? encoder : decoder;
    }

    /* ---- Showing what was found -------------------------------------------------------------------------------- */

    _show() {
      this._showTokens();
      this._showChances();
      this._showMaps();
      clearTimeout(this.later);
      this.later = setTimeout(() => this._showTree()); // five times the work of the translation: not before it
    }

    /* The answer, once it is written. */
    _say(isWriting) {
      delete this.said.dataset.right;
      if (isWriting) return this.said.replaceChildren("Writing …");
      const expected = numbers.germanTokens(this.number).join("");
      const got = this.german(this.found.tokens);
      const right = got === expected ? "which is right" : `but it should be ${expected}`;
      const off = this.model.off.size ? ` with ${this.model.off.size} of its heads off` : "";
      const word = element("strong", { lang: "de" }, got || "nothing");
      const text = element("span", {}, ` for ${this.number.toLocaleString("en")}${off}, ${right}.`);
      const took = element("span", { class: "x-took" }, ` ${this.took.toFixed(0)} ms in this browser.`);
      this.said.replaceChildren("It says ", word, text, took);
      this.said.dataset.right = got === expected;
    }

    _showTokens() {
      const source = element("ol", { class: "x-row", "aria-label": "English" });
      this.source.forEach((token) => source.append(element("li", {}, token)));
      const target = element("ol", { class: "x-row", "aria-label": "German, one step each" });
      this.found.steps.slice(0, this.visible).forEach((step, number) => {
        const choose = () => this.choose(number);
        const pressed = String(number === this.step);
        const about = { type: "button", "aria-pressed": pressed, onclick: choose, onpointerenter: choose };
        target.append(element("li", {}, element("button", about, this._target(step.token))));
      });
      this.tokens.replaceChildren(source, target);
      this._trace();
    }

    _target(id) {
      const token = this.model.targetTokens[id];
      return { "<bos>": "begin", "<eos>": "end", "<pad>": "nothing" }[token] || token;
    }

    /* Look at another step. */
    choose(number) {
      if (number === this.step) return;
      this.step = number;
      this.tokens
        .querySelectorAll("button")
        .forEach((button, n) => button.setAttribute("aria-pressed", String(n === number)));
      this._showChances();
      this._trace();
      this.map.querySelectorAll("tbody tr").forEach((row, n) => row.classList.toggle("x-now", n === number));
    }

    /* Shade the English tokens by what the chosen head of cross-attention looked at in this step. */
    _trace() {
      const { place, layer, head } = this.shown;
      const step = this.found.steps[this.step];
      const weights = place === "cross" ? step.cross[layer][head] : mean(step.cross[step.cross.length - 1]);
      this.tokens.querySelectorAll("ol:first-child li").forEach((item, n) => {
        item.style.setProperty("--weight", weights[n].toFixed(4));
      });
    }

    _showChances() {
      const step = this.found.steps[this.step];
      const chances = softmax(step.logits, this.temperature || 1);
      const order = chances.map((_, id) => id).sort((a, b) => chances[b] - chances[a]);
      const shown = order.slice(0, LIKELIEST);
      if (!shown.includes(step.token)) shown.push(step.token);
      const list = element("ol", { class: "x-bars" });
      for (const id of shown) {
        const bar = element("span", { class: "x-bar", style: `--weight: ${chances[id].toFixed(4)}` });
        const name = element("span", { class: "x-name", lang: "de" }, this._target(id));
        const about = { class: id === step.token ? "x-chosen" : "" };
        list.append(element("li", about, name, bar, element("span", { class: "x-share" }, percent(chances[id]))));
      }
      const after = this.found.steps.slice(0, this.step).map((one) => this._target(one.token));
      const what = after.length ? `After “${after.join(" ")}”` : "At the beginning";
      this.chances.replaceChildren(element("p", {}, `${what} comes, of ${chances.length} tokens:`), list);
    }

    /* Weights by query and key, and what these are. */
    _weights(place, layer, head) {
      if (place === "encoder") {
        return { rows: this.source, columns: this.source, weights: this.found.encoder[layer][head] };
      }
      const steps = this.found.steps;
      const inputs = steps.map((step) => this._target(step.input));
      const weights = steps.map((step) => step[place][layer][head]);
      if (place === "self") return { rows: inputs, columns: inputs, weights };
      return { rows: steps.map((step) => this._target(step.token)), columns: this.source, weights };
    }

    _showMaps() {
      const { place, layer: shownLayer, head: shownHead } = this.shown;
      this.maps.replaceChildren();
      for (let layer = 0; layer < this._layers(place); layer++) {
        for (let head = 0; head < this.model.config.num_heads; head++) {
          this.maps.append(this._smallMap(place, layer, head, layer === shownLayer && head === shownHead));
        }
      }
      this._showMap();
      if (this.found) this._trace();
    }

    _smallMap(place, layer, head, isShown) {
      const name = `layer ${layer + 1}, head ${head + 1}`;
      const choose = () => {
        this.shown = { place, layer, head };
        this._showMaps();
        this.maps.querySelector('[aria-pressed="true"]').focus();
      };
      const key = `${place}.${layer}.${head}`;
      const flip = (event) => {
        if (event.target.checked) this.model.off.delete(key);
        else this.model.off.add(key);
        this.run();
        this.maps.querySelector(`[data-key="${key}"]`).focus();
      };
      const on = { type: "checkbox", checked: !this.model.off.has(key), onchange: flip, "data-key": key };
      const { rows, columns, weights } = this._weights(place, layer, head);
      const about = { type: "button", "aria-pressed": String(isShown), "aria-label": `Show ${name}`, onclick: choose };
      return element(
        "div",
        { class: this.model.off.has(key) ? "x-small x-off" : "x-small" },
        element("button", about, picture(rows.length, columns.length, weights)),
        element("label", {}, element("input", on), name),
      );
    }

    _showMap() {
      const { place, layer, head } = this.shown;
      const { rows, columns, weights } = this._weights(place, layer, head);
      const about = PLACES[place];
      const say = (row, column) => {
        const weight = weights[row][column];
        return weight === undefined
          ? `“${rows[row]}” cannot see “${columns[column]}”: it comes later.`
          : `“${rows[row]}” ${about.says} “${columns[column]}” with weight ${weight.toFixed(3)}.`;
      };
      const made = map({
        caption: `${about.label}, layer ${layer + 1}, head ${head + 1}: rows are ${about.rows}, columns ${about.columns}`,
        rows,
        columns,
        weights: rows.map((_, row) => columns.map((_, column) => weights[row][column] ?? NaN)),
        say,
        point: (row) => place !== "encoder" && this.choose(row),
        now: place === "encoder" ? -1 : this.step,
      });
      this.map.replaceChildren(made);
    }

    _showTree() {
      const ids = this.source.map((token) => this.model.sourceTokens.indexOf(token));
      this.searched = this.searched || lessons.beam(this.model, ids, { beams: this.beams });
      const { tokens, nodes, score } = this.searched;
      const ends = nodes.filter((node) => node.fate === "end");
      const words = ends.map((node) => ({ word: this.german(pathTo(node)), logP: node.logP }));
      words.sort((a, b) => b.logP - a.logP);
      const list = element("ol", { class: "x-ends" });
      for (const { word, logP } of words.slice(0, LIKELIEST)) {
        list.append(element("li", {}, element("span", { lang: "de" }, word || "nothing"), ` ${percent(Math.exp(logP))}`));
      }
      const best = this.german(tokens);
      const kind = ends.length ? `Best of ${ends.length} that ended` : "None ended; the best beginning";
      const text = `${kind}: ${best}, score ${score.toFixed(3).replace("-", "−")}.`;
      const drawing = treeOf(this.searched, (id) => this._target(id), text);
      const scrolled = { class: "x-scroll", tabindex: 0, role: "group", "aria-label": "Beginnings that were kept" };
      this.tree.replaceChildren(element("div", scrolled, drawing), element("p", {}, text), list);
    }
  }

  /* ---- Parts of the page --------------------------------------------------------------------------------------- */

  /* A map so small that only its pattern counts. */
  function picture(rows, columns, weights) {
    const drawing = element("svg:svg", {
      viewBox: `0 0 ${columns} ${rows}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    });
    weights.forEach((row, y) =>
      row.forEach((weight, x) => {
        if (weight < 0.02) return;
        const place = { x, y, width: 1, height: 1, "fill-opacity": weight.toFixed(3) };
        drawing.append(element("svg:rect", place));
      }),
    );
    return drawing;
  }

  const mean = (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);

  function pathTo(node) {
    const tokens = [];
    for (; node.parent; node = node.parent) tokens.unshift(node.token);
    return tokens;
  }

  /* The beginnings that a beam search has kept, from left to right; the best sentence is drawn bold. */
  function treeOf({ nodes, path }, name, text) {
    const WIDE = 96;
    const HIGH = 30;
    const columns = new Map();
    for (const node of nodes) columns.set(node.depth, [...(columns.get(node.depth) || []), node]);
    const at = new Map();
    for (const [depth, those] of columns) {
      those.sort((a, b) => b.logP - a.logP);
      those.forEach((node, row) => at.set(node, { x: 12 + depth * WIDE, y: 20 + row * HIGH }));
    }
    const tall = Math.max(...[...columns.values()].map((those) => those.length)) * HIGH + 16;
    const wide = columns.size * WIDE + 12;
    const best = new Set([nodes[0], ...path]);
    const drawing = element("svg:svg", { width: wide, height: tall, role: "img", "aria-label": `Beam search. ${text}` });
    for (const node of nodes.slice(1)) {
      const [from, to] = [at.get(node.parent), at.get(node)];
      const middle = (from.x + 70 + to.x) / 2;
      const line = `M${from.x + 70} ${from.y} C${middle} ${from.y} ${middle} ${to.y} ${to.x - 4} ${to.y}`;
      const both = best.has(node) && best.has(node.parent);
      drawing.append(element("svg:path", { d: line, class: both ? "x-best" : "" }));
    }
    for (const [node, { x, y }] of at) {
      const kind = [best.has(node) ? "x-best" : "", `x-${node.fate}`].join(" ").trim();
      const label = element("svg:text", { x, y: y + 4, class: kind }, name(node.token));
      const chance = `${percent(Math.exp(node.logP))} so far`;
      label.append(element("svg:title", {}, chance));
      drawing.append(label);
    }
    return drawing;
  }

  /* ---- Begin --------------------------------------------------------------------------------------------------- */

  begin("translator", (place) => {
    const model = lessons.model(place.dataset.model);
    if (model) place.translator = new Translator(place, model);
  });
})(globalThis.lessons);
