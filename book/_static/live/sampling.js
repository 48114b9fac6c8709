/* Temperature, top-k and top-p (chapter 14): three knobs on the chances of the next token, and tokens drawn from them. */
"use strict";

(function (lessons) {
  const { add, begin, set, number, softmax, text, rect, pill, line, rail, player } = lessons.live;
  // Of the trained translator, writing 800,048, after "acht hundert".
  const EXAMPLE = {
    words: [
      ..."PAD BOS EOS null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn".split(" "),
      ..."fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig sechzig siebzig".split(" "),
      ..."achtzig neunzig hundert tausend und ein".split(" "),
    ],
    logits: [
      -4.12, 0.0, -1.65, -0.02, 0.46, 0.03, 0.47, 0.45, -0.23, 0.47, 0.27, 3.77, 0.12, -0.34, 0.2, 0.86, 0.9, 0.95,
      0.22, -0.41, 0.43, 0.17, 0.25, -0.31, -0.69, 2.47, 0.33, 0.53, -0.33, 0.11, 0.0, 0.1, 3.71, -0.59, 0.28,
    ],
  };
  const KNOBS = {
    temperature: { min: 0.1, max: 3, step: 0.1, start: 1, digits: 1 },
    top_k: { min: 1, max: 35, step: 1, start: 35, digits: 0 },
    top_p: { min: 0.05, max: 1, step: 0.05, start: 1, digits: 2 },
  };
  const [SHOWN, STEP, BAR, BASE, HIGH] = [6, 48, 34, 186, 150]; // columns and their places; HIGH is a chance of 1
  const [MOST, EACH] = [500, 5]; // how many are drawn, and at a time

  /* The chances of all tokens behind the knobs, as the package's `sample` has them. */
  function chances(logits, { temperature, top_k, top_p }) {
    const scaled = logits.map((logit) => logit / temperature);
    const whole = softmax(scaled);
    const falling = whole.map((_, token) => token).sort((a, b) => whole[b] - whole[a]);
    const visible = logits.map(() => false);
    let before = 0;
    falling.forEach((token, rank) => {
      visible[token] = rank < top_k && before < top_p;
      before += whole[token];
    });
    return softmax(scaled, visible);
  }

  function draw(all) {
    let left = Math.random();
    return Math.max(all.findIndex((chance) => (left -= chance) < 0), 0);
  }

  /* Bars for the likeliest tokens and one for all others; answers what shows chances and shares of what was drawn. */
  function bars(svg, names, first) {
    text(svg, 0, 10, "filled: the chances now", { role: "soft", small: true, align: "start" });
    text(svg, 128, 10, "dashed: without the knobs", { role: "soft", small: true, align: "start" });
    const drawn = text(svg, 340, 24, "", { role: "decoder", small: true, align: "end" });
    const columns = names.map((name, j) => {
      const x = 6 + STEP * j;
      const bar = rect(svg, x, BASE, BAR, 0, { fill: "weight" });
      const level = BASE - HIGH * first[j];
      line(svg, "soft", { dashed: true })([x, BASE], [x, level], [x + BAR, level], [x + BAR, BASE]);
      const share = line(svg, "decoder", { width: 3 });
      const cross = add(svg, "path", { d: `M${x + 13} ${BASE - 14}l8 8m0 -8l-8 8`, class: "live-cross" });
      pill(svg, x - 6, BASE + 17, name, j < SHOWN ? "decoder" : "mask", STEP - 2);
      return { x, bar, share, cross, said: text(svg, x + BAR / 2, BASE, "", { small: true }) };
    });
    line(svg, "rule")([0, BASE], [340, BASE]);
    return (now, shares, count) => {
      drawn.textContent = count ? `line: ${count} drawn` : "";
      columns.forEach(({ x, bar, share, cross, said }, j) => {
        const height = HIGH * now[j];
        set(bar, { y: BASE - height, height });
        cross.style.display = now[j] ? "none" : "";
        const at = BASE - HIGH * shares[j];
        share([x - 3, at], [x + BAR + 3, at]).style.display = count ? "" : "none";
        said.textContent = now[j] ? number(now[j]) : "";
        set(said, { y: BASE - HIGH * Math.max(now[j], first[j], shares[j]) - 4 });
      });
    };
  }

  function make(figure, about) {
    const { words, logits } = { ...EXAMPLE, ...about };
    const knobs = Object.fromEntries(Object.entries(KNOBS).map(([name, { start }]) => [name, start]));
    const plain = chances(logits, knobs);
    const likeliest = plain.map((_, token) => token).sort((a, b) => plain[b] - plain[a]).slice(0, SHOWN);
    const names = [...likeliest.map((token) => words[token]), "others"];
    const columns = (all) => {
      const shown = likeliest.map((token) => all[token]);
      const rest = all.reduce((sum, part, token) => (likeliest.includes(token) ? sum : sum + part), 0);
      return [...shown, rest];
    };
    let counts = words.map(() => 0);
    const shown = bars(figure.panel(214, "The chances of the next token"), names, columns(plain));
    const rails = figure.panel(112, "Temperature, top-k and top-p");
    const changed = () => {
      counts = words.map(() => 0);
      show();
    };
    const put = Object.entries(KNOBS).map(([name, knob], i) => {
      const turn = (value) => {
        knobs[name] = value;
        changed();
      };
      return [name, rail(figure, rails, 20 + 36 * i, name.replace("_", "-"), knob, turn)];
    });
    const total = () => counts.reduce((a, b) => a + b, 0);
    figure.controls(
      player(figure, "Draw", "Pause", 120, () => {
        const all = chances(logits, knobs);
        if (total() >= MOST) counts = words.map(() => 0);
        for (let n = 0; n < EACH; n += 1) counts[draw(all)] += 1;
        show();
        return total() < MOST;
      }),
    );
    figure.hint("Drag the knobs, or move them with the arrow keys; then draw, and see how often each token comes.");

    function show() {
      const all = chances(logits, knobs);
      const [now, drawn] = [columns(all), total()];
      put.forEach(([name, one]) => one(knobs[name]));
      shown(now, columns(counts.map((count) => count / (drawn || 1))), drawn);
      const left = all.filter((chance) => chance > 0).length;
      const list = names.map((name, j) => `${name} ${number(now[j])}`).filter((_, j) => now[j] > 0);
      const told = drawn ? ` Drawn: ${drawn}.` : "";
      figure.say(`${left} of ${words.length} tokens can be drawn: ${list.join(", ")}.${told}`);
    }
    show();
  }

  lessons.sampling = { chances, EXAMPLE };
  begin("sampling", make);
})(globalThis.lessons);
