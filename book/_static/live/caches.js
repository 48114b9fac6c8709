/* Five released models (chapter 20): what a text leaves in each of their layers, and what it would leave without their savings. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { begin, set, text, rect, rail } = lessons.live;
  const EXAMPLE = { power: 17, how: "released" };
  const HOWS = { released: "as released", full: "all layers full", own: "… and keys for each head" };
  const repeated = (count, ...kinds) => Array.from({ length: count }, (_, i) => kinds[i % kinds.length]);
  const [W, F] = ["window", "full"];
  // Numbers that a token leaves in a layer, as released and with keys and values for each head of queries; tokens in a window;
  // numbers in a state. From their configurations, as the chapter's table names them.
  const MODELS = {
    "DeepSeek-V3": { layers: repeated(61, "latent"), kept: 512 + 64, own: 2 * 128 * 128 },
    "gpt-oss-120b": { layers: repeated(36, W, F), kept: 2 * 8 * 64, own: 2 * 64 * 64, window: 128 },
    "Gemma 3 1B": { layers: repeated(26, W, W, W, W, W, F), kept: 2 * 256, own: 2 * 4 * 256, window: 512 },
    "SmolLM3-3B": { layers: repeated(36, F, F, F, "none"), kept: 2 * 4 * 128, own: 2 * 16 * 128 },
    "Qwen3-Next": { layers: repeated(48, "delta", "delta", "delta", F), kept: 2 * 2 * 256, own: 2 * 16 * 256, state: 32 * 128 * 128 },
  };
  const KINDS = { full: ["query", "full"], window: ["key", "window"], none: ["value", "no positions"], delta: ["residual", "state"], latent: ["decoder", "latent"] };
  const [STEP, WIDTH, HIGH] = [54, 340 / 61, 26];

  /* The bytes that each layer of a model keeps of a text, two for each number. */
  function bytes({ layers, kept, own, window, state }, tokens, how) {
    const released = { window: kept * Math.min(tokens, window), delta: state };
    const full = (how === "own" ? own : kept) * tokens;
    return layers.map((kind) => 2 * (how === "released" ? (released[kind] ?? full) : full));
  }

  const sum = (values) => values.reduce((a, b) => a + b, 0);

  function size(count) {
    const [unit, name] = count < 1e9 ? [1e6, "MB"] : count < 1e12 ? [1e9, "GB"] : [1e12, "TB"];
    return `${(count / unit).toPrecision(count / unit < 100 ? 2 : 3)} ${name}`;
  }

  function make(figure, about) {
    const now = { ...EXAMPLE, ...about };
    const svg = figure.panel(30 + STEP * 5 + 64, "What a text leaves in the layers of five models");
    const title = text(svg, 0, 8, "", { bold: true, align: "start" });
    const rows = Object.entries(MODELS).map(([name, model], i) => {
      const base = 24 + STEP * (i + 1);
      text(svg, 0, base - HIGH - 11, name, { align: "start" });
      const bars = model.layers.map((kind, j) => rect(svg, WIDTH * j, base, WIDTH - 0.8, 0, { fill: KINDS[kind][0], tint: 0.55 }));
      return { name, model, base, bars, told: text(svg, 340, base - HIGH - 11, "", { bold: true, align: "end" }) };
    });
    let x = 0;
    for (const [role, words] of Object.values(KINDS)) {
      rect(svg, x, 44 + STEP * 5, 6, 10, { fill: role, tint: 0.55 });
      text(svg, x + 10, 44 + STEP * 5, words, { small: true, align: "start" });
      x += 30 + 5.6 * words.length;
    }
    const powers = { min: 7, max: 20, step: 1, start: now.power, digits: 0 };
    const put = rail(figure, svg, 78 + STEP * 5, "power of 2", powers, (power) => {
      now.power = power;
      show();
    });
    const chosen = (how) => {
      now.how = how;
      show();
    };
    figure.controls(choices("Savings", HOWS, now.how, chosen));
    figure.hint("Drag the knob for longer texts, and take the savings away. Heights are relative to the tallest layer.");

    function show() {
      const tokens = 2 ** now.power;
      const found = rows.map(({ model }) => bytes(model, tokens, now.how));
      const most = Math.max(...found.flat());
      title.textContent = `what ${tokens.toLocaleString("en")} tokens leave`;
      rows.forEach(({ base, bars, told }, i) => {
        told.textContent = size(sum(found[i]));
        bars.forEach((bar, j) => {
          const height = Math.max(1.2, (HIGH * found[i][j]) / most);
          set(bar, { y: base - height, height });
        });
      });
      put(now.power);
      const all = rows.map(({ name, told }) => `${told.textContent} in ${name}`);
      figure.say(`A text of ${tokens.toLocaleString("en")} tokens leaves ${all.join(", ")}.`);
    }
    show();
  }

  lessons.caches = { bytes, MODELS };
  begin("caches", make);
})(globalThis.lessons);
