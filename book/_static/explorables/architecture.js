/* The whole model as a diagram (Figure 1): what goes through each block, its parameters, its code, its chapter. */
"use strict";

(function (lessons) {
  const { element, slider, choices, keeping, begin } = lessons.page;
  const PRESETS = {
    base: { d_model: 512, num_heads: 8, d_ff: 2048, layers: 6, vocabulary: 37_000 },
    big: { d_model: 1024, num_heads: 16, d_ff: 4096, layers: 6, vocabulary: 37_000 },
    words: { d_model: 128, num_heads: 4, d_ff: 512, layers: 2, vocabulary: 35 },
  };
  const NAMES = { base: "the paper’s base model", big: "the paper’s big model", words: "number words" };
  const [BATCH, SOURCE, TARGET] = [2, 5, 7]; // in the shapes that are shown

  /* Parameters of one block each; with `shared`, source, target and output have one matrix (§3.4). */
  const PARAMETERS = {
    embedding: ({ vocabulary, d_model }) => vocabulary * d_model,
    attention: ({ d_model }) => 4 * (d_model * d_model + d_model),
    norm: ({ d_model }) => 2 * d_model,
    feedForward: ({ d_model, d_ff }) => 2 * d_model * d_ff + d_ff + d_model,
  };

  function total(sizes, isShared) {
    const { attention, norm, feedForward, embedding } = PARAMETERS;
    const encoder = attention(sizes) + feedForward(sizes) + 2 * norm(sizes);
    const decoder = 2 * attention(sizes) + feedForward(sizes) + 3 * norm(sizes);
    return sizes.layers * (encoder + decoder) + (isShared ? 1 : 2) * embedding(sizes);
  }

  const shape = (...axes) => `(${axes.join(", ")})`;
  const ids = (length) => shape(BATCH, length);
  const vectors = (length, sizes) => shape(BATCH, length, sizes.d_model);
  const kept = (length) => (sizes) => [vectors(length, sizes), vectors(length, sizes)];
  const scores = (queries, keys) => (sizes) => `weights ${shape(BATCH, sizes.num_heads, queries, keys)}`;

  /* What a block says of itself: shapes that go in and out, and inside it; a line of the package, and its file. */
  const BLOCKS = {
    source: {
      title: "Source embedding",
      formula: "E[x] · √d_model",
      shapes: (s) => [ids(SOURCE), vectors(SOURCE, s)],
      parameters: "embedding",
      code: ["embeddings.py", "F.embedding(ids, self.weight) * math.sqrt(d_model)"],
      chapter: ["02_tokens_and_embeddings", "2. Tokens and embeddings"],
    },
    sourcePosition: {
      title: "+ Position",
      formula: "x + PE",
      shapes: kept(SOURCE),
      code: ["encodings.py", "add_rows(x, self.table, offset)"],
      chapter: ["05_positions", "5. Positions"],
    },
    selfAttention: {
      title: "Self-attention",
      formula: "softmax(Q Kᵀ / √d_k) V, in h heads",
      shapes: kept(SOURCE),
      inside: scores(SOURCE, SOURCE),
      parameters: "attention",
      code: ["layers.py", "self.self_attention(y, mask=mask)"],
      chapter: ["07_heads_and_cross_attention", "7. Many heads, and two sequences"],
    },
    norm: {
      title: "Add & Norm",
      formula: "LayerNorm(x + sublayer(x))",
      shapes: kept(SOURCE),
      parameters: "norm",
      code: ["layers.py", "self.norm(x + self.dropout(sublayer(x)))"],
      chapter: ["09_normalisation", "9. Normalisation"],
    },
    feedForward: {
      title: "Feed-forward",
      formula: "max(0, x W_1 + b_1) W_2 + b_2",
      shapes: kept(SOURCE),
      inside: (s) => `inner ${shape(BATCH, SOURCE, s.d_ff)}`,
      parameters: "feedForward",
      code: ["feed_forward.py", "self.W_2(self.dropout(self.activation(self.W_1(x))))"],
      chapter: ["08_feed_forward", "8. The feed-forward layer"],
    },
    target: {
      title: "Target embedding",
      formula: "E[y] · √d_model",
      shapes: (s) => [ids(TARGET), vectors(TARGET, s)],
      parameters: "embedding",
      code: ["embeddings.py", "F.embedding(ids, self.weight) * math.sqrt(d_model)"],
      chapter: ["02_tokens_and_embeddings", "2. Tokens and embeddings"],
    },
    targetPosition: {
      title: "+ Position",
      formula: "y + PE",
      shapes: kept(TARGET),
      code: ["encodings.py", "add_rows(x, self.table, offset)"],
      chapter: ["05_positions", "5. Positions"],
    },
    maskedAttention: {
      title: "Masked self-attention",
      formula: "position t sees 0 … t",
      shapes: kept(TARGET),
      inside: scores(TARGET, TARGET),
      parameters: "attention",
      code: ["layers.py", "self.self_attention(y, mask=tgt_mask, is_causal=True)"],
      chapter: ["04_masks", "4. Masks"],
    },
    crossAttention: {
      title: "Cross-attention",
      formula: "queries from the target, keys and values from the memory",
      shapes: (s) => [`${vectors(TARGET, s)} and ${vectors(SOURCE, s)}`, vectors(TARGET, s)],
      inside: scores(TARGET, SOURCE),
      parameters: "attention",
      code: ["layers.py", "self.cross_attention(y, memory, mask=src_mask)"],
      chapter: ["07_heads_and_cross_attention", "7. Many heads, and two sequences"],
    },
    output: {
      title: "Projection, softmax",
      formula: "softmax(x Eᵀ): the embedding’s matrix once more",
      shapes: (s) => [vectors(TARGET, s), shape(BATCH, TARGET, s.vocabulary)],
      code: ["model.py", "self.output(self.decode(tgt_in, memory, src_mask))"],
      chapter: ["12_the_whole_model", "12. The whole model"],
    },
  };
  const STACKS = {
    Encoder: { before: ["source", "sourcePosition"], layer: ["selfAttention", "norm", "feedForward", "norm"], after: [] },
    Decoder: {
      before: ["target", "targetPosition"],
      layer: ["maskedAttention", "norm", "crossAttention", "norm", "feedForward", "norm"],
      after: ["output"],
    },
  };

  class Architecture {
    constructor(place) {
      this.place = place;
      this.sizes = { ...PRESETS.base };
      this.chosen = "crossAttention";
      this.diagram = element("div", { class: "x-stacks" });
      this.about = element("div", { class: "x-about", role: "status" });
      this.total = element("p", { class: "x-total" });
      this.sliders = element("div");
      const preset = (key) => {
        this.sizes = { ...PRESETS[key] };
        this._sliders();
        this._show();
      };
      place.replaceChildren(
        choices("Sizes of", NAMES, "base", preset),
        this.sliders,
        this.total,
        element("div", { class: "x-pair" }, this.diagram, this.about),
      );
      this._sliders();
      this._draw();
      this._show();
    }

    _sliders() {
      const set = keeping(this.sizes, () => this._show());
      const thousands = (value) => value.toLocaleString("en");
      const power = (value) => thousands(2 ** value);
      const { d_model, d_ff, layers } = this.sizes;
      const widths = { min: 4, max: 12, step: 1 };
      this.sliders.replaceChildren(
        slider("d_model", { ...widths, value: Math.log2(d_model) }, power, set("d_model", (value) => 2 ** value)),
        slider("d_ff", { ...widths, max: 14, value: Math.log2(d_ff) }, power, set("d_ff", (value) => 2 ** value)),
        slider("layers", { min: 1, max: 24, step: 1, value: layers }, String, set("layers")),
      );
    }

    _draw() {
      for (const [name, { before, layer, after }] of Object.entries(STACKS)) {
        const blocks = (keys) => keys.map((key) => this._block(key));
        const repeated = element("div", { class: "x-layer" }, ...blocks(layer).reverse(), element("p", { class: "x-times" }));
        const stack = element("div", { class: "x-stack", role: "group", "aria-label": `${name}, from the top down to its input` });
        stack.append(...blocks(after).reverse(), repeated, ...blocks(before).reverse(), element("p", { class: "x-name" }, name));
        this.diagram.append(stack);
      }
    }

    _block(key) {
      const choose = () => {
        this.chosen = key;
        this._show();
      };
      return element("button", { type: "button", "data-block": key, onclick: choose }, BLOCKS[key].title);
    }

    _show() {
      const { sizes } = this;
      const millions = (number) => (number < 1e5 ? number.toLocaleString("en") : `${(number / 1e6).toFixed(2)} million`);
      this.total.textContent =
        `${millions(total(sizes, true))} parameters with one matrix for both vocabularies and the output, ` +
        `${millions(total(sizes, false))} with one a language.`;
      this.place.querySelectorAll(".x-times").forEach((one) => (one.textContent = `× ${sizes.layers}`));
      this.diagram.querySelectorAll("button").forEach((button) => {
        button.setAttribute("aria-pressed", String(button.dataset.block === this.chosen));
      });
      const block = BLOCKS[this.chosen];
      const [from, to] = block.shapes(sizes);
      const number = block.parameters ? PARAMETERS[block.parameters](sizes) : 0;
      const isRepeated = Object.values(STACKS).some(({ layer }) => layer.includes(this.chosen));
      const [file, chapter] = block.chapter;
      const [source, code] = block.code;
      const line = (name, ...what) => [element("dt", {}, name), element("dd", {}, ...what)];
      this.about.replaceChildren(
        element("h2", {}, block.title),
        element("p", {}, block.formula),
        element(
          "dl",
          {},
          ...line("in", from),
          ...(block.inside ? line("inside", block.inside(sizes)) : []),
          ...line("out", to),
          ...line("parameters", number ? `${number.toLocaleString("en")}${isRepeated ? " in each" : ""}` : "none"),
          ...line(source, element("code", {}, code)),
          ...line("read", element("a", { href: `../chapters/${file}.html` }, `chapter ${chapter}`)),
        ),
        element("p", { class: "x-took" }, `Shapes for ${BATCH} sentences of ${SOURCE} source and ${TARGET} target tokens.`),
      );
    }
  }

  lessons.architecture = { PRESETS, PARAMETERS, total };
  begin("architecture", (place) => new Architecture(place));
})(globalThis.lessons);
