/* The course's Transformer in plain JavaScript: what transformer_lessons/model.py computes, for one sentence, without
 * training. Its inputs are the scripts that `lessons export --format web` writes; tests/site compares the two, number by
 * number.
 *
 * A sequence of vectors is an array of Float32Array, one a position. Sums run in double precision, as all of
 * JavaScript's numbers do, and are rounded to single when they are stored.
 */
"use strict";

globalThis.lessons = globalThis.lessons || {};

(function (lessons) {
  const EPSILON = 1e-5; // of LayerNorm

  /* ---- Small functions on vectors ------------------------------------------------------------------------------ */

  /* y = W x + b, with W of shape (rows, columns), row by row. */
  function linear(x, weight, bias) {
    const [rows, columns] = weight.shape;
    const values = weight.values;
    const y = new Float32Array(rows);
    for (let i = 0, at = 0; i < rows; i++) {
      let sum = bias ? bias.values[i] : 0;
      for (let j = 0; j < columns; j++, at++) sum += values[at] * x[j];
      y[i] = sum;
    }
    return y;
  }

  const add = (a, b) => a.map((value, i) => value + b[i]);

  function layerNorm(x, weight, bias) {
    let mean = 0;
    for (const value of x) mean += value;
    mean /= x.length;
    let variance = 0;
    for (const value of x) variance += (value - mean) ** 2;
    const scale = 1 / Math.sqrt(variance / x.length + EPSILON);
    return x.map((value, i) => (value - mean) * scale * weight.values[i] + bias.values[i]);
  }

  /* Probabilities from scores; the largest is taken off first, so that nothing overflows. */
  function softmax(scores, temperature = 1) {
    const largest = Math.max(...scores);
    const powers = Array.from(scores, (score) => Math.exp((score - largest) / temperature));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }

  function logSoftmax(scores) {
    const largest = Math.max(...scores);
    let sum = 0;
    for (const score of scores) sum += Math.exp(score - largest);
    return Array.from(scores, (score) => score - largest - Math.log(sum));
  }

  const argmax = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

  /* PE[t, 2i] = sin(t / 10000^(2i/d)), PE[t, 2i+1] = cos of the same (§3.5). */
  function positionalEncoding(position, width) {
    const vector = new Float32Array(width);
    for (let i = 0; i < width; i += 2) {
      const angle = position / 10000 ** (i / width);
      vector[i] = Math.sin(angle);
      if (i + 1 < width) vector[i + 1] = Math.cos(angle);
    }
    return vector;
  }

  /* Attention of one head of one query: weights over the keys, and their mean of the values (§3.2.1). */
  function attend(query, keys, values, from, width) {
    const scores = keys.map((key) => {
      let sum = 0;
      for (let i = from; i < from + width; i++) sum += query[i] * key[i];
      return sum / Math.sqrt(width);
    });
    const weights = softmax(scores);
    const output = new Float32Array(width);
    weights.forEach((weight, position) => {
      for (let i = 0; i < width; i++) output[i] += weight * values[position][from + i];
    });
    return { weights, output };
  }

  /* ---- The model ----------------------------------------------------------------------------------------------- */

  class Transformer {
    /* `exported`: what `lessons export --format web` wrote. */
    constructor(exported) {
      this.config = exported.config;
      this.sourceTokens = exported.source_tokens;
      this.targetTokens = exported.target_tokens;
      this.parameters = parametersOf(exported);
      this.off = new Set(); // heads that are switched off: "encoder.0.3", "self.1.0", "cross.1.2"
      this.headWidth = this.config.d_model / this.config.num_heads;
    }

    /* The encoder's output for a list of ids, and what each head looked at: maps[layer][head][query][key]. */
    encode(ids) {
      let x = ids.map((id, position) => this._embed("source_embedding.token.weight", id, position));
      const maps = [];
      for (let layer = 0; layer < this.config.num_encoder_layers; layer++) {
        const name = `encoder_layers.${layer}`;
        maps.push(heads(this.config.num_heads));
        x = this._around(`${name}.add_norm_self`, x, (y) => {
          const keys = y.map((one) => this._linear(`${name}.self_attention.W_k`, one));
          const values = y.map((one) => this._linear(`${name}.self_attention.W_v`, one));
          return y.map((one) =>
            this._attention(`${name}.self_attention`, `encoder.${layer}`, one, keys, values, maps[layer]),
          );
        });
        x = this._around(`${name}.add_norm_feed_forward`, x, (y) => this._feedForward(name, y));
      }
      return { memory: this.config.norm_first ? x.map((one) => this._norm("encoder_norm", one)) : x, maps };
    }

    /* Where decoding begins: for each layer the memory's keys and values, and none of the target's yet. */
    start(memory) {
      return Array.from({ length: this.config.num_decoder_layers }, (_, layer) => {
        const name = `decoder_layers.${layer}.cross_attention`;
        return {
          keys: [],
          values: [],
          memoryKeys: memory.map((one) => this._linear(`${name}.W_k`, one)),
          memoryValues: memory.map((one) => this._linear(`${name}.W_v`, one)),
        };
      });
    }

    /* One step: the scores of all tokens that could follow `id`, the state for the next step, and what each head
     * looked at: self[layer][head][key], cross[layer][head][source]. The state given stays as it is. */
    step(state, id) {
      const position = state[0].keys.length;
      let x = [this._embed("target_embedding.token.weight", id, position)];
      const next = [];
      const self = [];
      const cross = [];
      state.forEach((before, layer) => {
        const name = `decoder_layers.${layer}`;
        const now = { ...before };
        self.push(heads(this.config.num_heads));
        cross.push(heads(this.config.num_heads));
        x = this._around(`${name}.add_norm_self`, x, ([y]) => {
          now.keys = [...before.keys, this._linear(`${name}.self_attention.W_k`, y)];
          now.values = [...before.values, this._linear(`${name}.self_attention.W_v`, y)];
          return [
            this._attention(`${name}.self_attention`, `self.${layer}`, y, now.keys, now.values, self[layer]),
          ];
        });
        x = this._around(`${name}.add_norm_cross`, x, ([y]) => [
          this._attention(
            `${name}.cross_attention`,
            `cross.${layer}`,
            y,
            now.memoryKeys,
            now.memoryValues,
            cross[layer],
          ),
        ]);
        x = this._around(`${name}.add_norm_feed_forward`, x, (y) => this._feedForward(name, y));
        next.push(now);
      });
      if (this.config.norm_first) x = [this._norm("decoder_norm", x[0])];
      const logits = linear(x[0], this.parameters.get("output.weight"));
      const first = (maps) => maps.map((layer) => layer.map(([row]) => row));
      return { logits, state: next, self: first(self), cross: first(cross) };
    }

    _embed(name, id, position) {
      const { shape, values } = this.parameters.get(name);
      const width = shape[1];
      if (!(id >= 0 && id < shape[0])) throw new RangeError(`id: expected 0 to ${shape[0] - 1}, got ${id}`);
      const vector = values.slice(id * width, (id + 1) * width).map((value) => value * Math.sqrt(width));
      return add(vector, positionalEncoding(position, width));
    }

    /* A sub-layer with its residual connection and its norm, before or after (§3.1). */
    _around(name, x, sublayer) {
      const norm = (one) => this._norm(`${name}.norm`, one);
      if (this.config.norm_first) {
        const y = sublayer(x.map(norm));
        return x.map((one, i) => add(one, y[i]));
      }
      const y = sublayer(x);
      return x.map((one, i) => norm(add(one, y[i])));
    }

    /* All heads of one query; their weights are added to maps[head]. */
    _attention(name, place, x, keys, values, maps) {
      const query = this._linear(`${name}.W_q`, x);
      const joined = new Float32Array(query.length);
      for (let head = 0; head < this.config.num_heads; head++) {
        const from = head * this.headWidth;
        const { weights, output } = attend(query, keys, values, from, this.headWidth);
        maps[head].push(weights);
        if (!this.off.has(`${place}.${head}`)) joined.set(output, from);
      }
      return this._linear(`${name}.W_o`, joined);
    }

    _feedForward(layer, x) {
      return x.map((one) => {
        const inner = this._linear(`${layer}.feed_forward.W_1`, one).map((value) => Math.max(0, value));
        return this._linear(`${layer}.feed_forward.W_2`, inner);
      });
    }

    _linear(name, x) {
      return linear(x, this.parameters.get(`${name}.weight`), this.parameters.get(`${name}.bias`));
    }

    _norm(name, x) {
      return layerNorm(x, this.parameters.get(`${name}.weight`), this.parameters.get(`${name}.bias`));
    }
  }

  const heads = (number) => Array.from({ length: number }, () => []);

  /* Name → {shape, values}, with matrices of whole numbers multiplied by their rows' scales. */
  function parametersOf(exported) {
    const text = atob(exported.data);
    const bytes = new Uint8Array(text.length); // loops, as a function call a byte would take ten times as long
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const read = ({ shape, dtype, offset }) => {
      const kind = { int8: Int8Array, float32: Float32Array }[dtype];
      return new kind(bytes.buffer, offset, shape.reduce((a, b) => a * b, 1));
    };
    const parameters = new Map();
    for (const [name, about] of Object.entries(exported.tensors)) {
      const values = read(about);
      const scale = exported.tensors[`${name}.scale`];
      parameters.set(name, { shape: about.shape, values: scale ? scaled(values, read(scale)) : values });
    }
    for (const [name, first] of Object.entries(exported.tied)) parameters.set(name, parameters.get(first));
    return parameters;
  }

  function scaled(steps, scales) {
    const values = new Float32Array(steps.length);
    const columns = steps.length / scales.length;
    for (let row = 0, i = 0; row < scales.length; row++) {
      for (const scale = scales[row], end = i + columns; i < end; i++) values[i] = steps[i] * scale;
    }
    return values;
  }

  /* ---- From scores to sentences -------------------------------------------------------------------------------- */

  /* One token after the other, each chosen by `choose(logits)`; without it the likeliest. Every step is kept. */
  function translate(model, ids, { choose = argmax, maxLength = 24 } = {}) {
    const { memory, maps } = model.encode(ids);
    const steps = [];
    let state = model.start(memory);
    let id = model.config.bos_id;
    while (steps.length < maxLength && !(steps.length && id === model.config.eos_id)) {
      const found = model.step(state, id);
      const before = id;
      id = choose(found.logits);
      state = found.state;
      steps.push({ input: before, token: id, logits: found.logits, self: found.self, cross: found.cross });
    }
    return { ids, tokens: steps.map((step) => step.token), encoder: maps, steps };
  }

  /* A choice at random, for `translate`: at temperature T with probability softmax(logits / T); at 0 the likeliest.
   * `random`: gives a number from 0 to below 1. */
  function sampler(temperature, random = Math.random) {
    if (temperature <= 0) return argmax;
    return (logits) => {
      let left = random();
      const chances = softmax(logits, temperature);
      const drawn = chances.findIndex((chance) => (left -= chance) < 0);
      return drawn < 0 ? argmax(logits) : drawn;
    };
  }

  /* Beam search as in transformer_lessons/decoding.py (§6.1), with all that it looked at: a tree of nodes
   * {parent, token, logP, depth, fate}, whose fates are "open" (goes on), "cut" and "end". */
  function beam(model, ids, { beams = 4, lengthPenalty = 0.6, maxLength = 24 } = {}) {
    const { memory } = model.encode(ids);
    const penalised = (logP, length) => logP / ((5 + length) / 6) ** lengthPenalty;
    const root = { parent: null, token: model.config.bos_id, logP: 0, depth: 0, fate: "open" };
    const nodes = [root];
    let alive = [{ node: root, state: model.start(memory) }];
    let best = { node: null, score: -Infinity };
    const finish = (node) => {
      const score = penalised(node.logP, node.depth);
      if (score > best.score) best = { node, score };
    };
    for (let length = 1; length <= maxLength; length++) {
      const found = [];
      for (const { node, state } of alive) {
        const { logits, state: next } = model.step(state, node.token);
        logSoftmax(logits).forEach((logP, token) =>
          found.push({ node: { parent: node, token, logP: node.logP + logP, depth: length, fate: "cut" }, next }),
        );
      }
      found.sort((a, b) => b.node.logP - a.node.logP);
      const top = found.slice(0, 2 * beams); // at most `beams` of these end: enough are left to go on
      const ends = (one) => one.node.token === model.config.eos_id;
      const shown = top.slice(0, beams);
      shown.filter(ends).forEach((one) => {
        one.node.fate = "end";
        finish(one.node);
      });
      alive = top.filter((one) => !ends(one)).slice(0, beams).map((one) => ({ node: one.node, state: one.next }));
      alive.forEach((one) => (one.node.fate = "open"));
      nodes.push(...new Set([...shown, ...alive].map((one) => one.node)));
      const attainable = penalised(alive[0].node.logP, maxLength); // if all that follows cost nothing
      if (attainable <= best.score) break;
      if (length === maxLength) alive.forEach((one) => finish(one.node));
    }
    const path = [];
    for (let node = best.node; node.parent; node = node.parent) path.unshift(node);
    return { tokens: path.map((node) => node.token), score: best.score, path, nodes };
  }

  /* ---- The models of a page ------------------------------------------------------------------------------------ */

  const exportedModels = new Map();
  const madeModels = new Map();

  lessons.addModel = (name, exported) => exportedModels.set(name, exported);

  /* A model by name, made when it is first asked for; undefined if its script is not there. */
  lessons.model = (name) => {
    if (!madeModels.has(name) && exportedModels.has(name)) {
      madeModels.set(name, new Transformer(exportedModels.get(name)));
    }
    return madeModels.get(name);
  };

  Object.assign(lessons, { Transformer, translate, beam, sampler, softmax, logSoftmax, positionalEncoding, linear });
})(globalThis.lessons);
