/* A smoothed target (chapter 13): drag what the model expects, and let it learn; its gradient is p − q. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, set, number, softmax, text, rect, circle, pill, line, handle, player } = lessons.live;
  const EXAMPLE = { p: [0.125, 0.125, 0.5, 0.125, 0.125], right: 2, smoothing: 0.1 }; // token 0 is padding
  const [LEFT, BAR, RATE, CLOSE] = [[70, 200], 88, 1, 0.004]; // where bars start; a bar of 1; of learning
  const names = (n) => Array.from({ length: n }, (_, i) => (i ? `token ${i}` : "PAD"));
  const y = (i) => 40 + 28 * i;

  /* The target (13.3), the loss of these logits, the least that is possible, and the gradient of the logits. */
  function judged(logits, right, smoothing) {
    const p = softmax(logits);
    const share = smoothing / (logits.length - 1);
    const q = logits.map((_, i) => (i ? share : 0) + (i === right ? 1 - smoothing : 0));
    const entropy = (of) => q.reduce((sum, part, i) => (part ? sum - part * Math.log(of[i]) : sum), 0);
    return { p, q, loss: entropy(p), least: entropy(q), gradient: p.map((part, i) => part - q[i]) };
  }

  function make(figure, about) {
    const { p: first, right, smoothing: start } = { ...EXAMPLE, ...about };
    let [logits, smoothing] = [first.map(Math.log), start];
    const svg = figure.panel(204, "The target, and what the model expects");
    text(svg, LEFT[0], 10, "target q", { bold: true, align: "start" });
    text(svg, LEFT[1], 10, "model's p: drag it", { bold: true, align: "start" });
    const side = figure.panel(204, "The gradient of the loss");
    text(side, 170, 10, "gradient of the logits, p − q", { bold: true });
    line(side, "rule")([170, 26], [170, 166]);
    const told = text(side, 170, 190, "", { role: "soft" });
    const rows = names(first.length).map((name, i) => {
      pill(svg, 0, y(i), name, i ? "decoder" : "mask", 60, 20);
      text(side, 30, y(i), name, { small: true, role: "soft" });
      const bars = LEFT.map((x, which) => ({
        bar: rect(svg, x, y(i), 0, 14, { fill: which ? "weight" : "value" }),
        said: text(svg, x, y(i), "", { small: true, align: "start" }),
      }));
      const pull = rect(side, 170, y(i), 0, 14, { fill: "key", tint: 0.5, role: "key" });
      const knob = handle(figure, svg, {
        name: `what the model gives to ${name}`,
        min: 0.01,
        max: 0.97,
        to: (x) => go(i, (x - LEFT[1]) / BAR),
        by: (far, up) => go(i, softmax(logits)[i] + 0.02 * (far + up)),
        home: () => go(i, first[i]),
      });
      circle(knob, 0, 0, 6, "weight", { fill: "paper" });
      return { bars, pull, knob, said: text(side, 0, y(i), "", { small: true }) };
    });
    /* Give p to one token; the others keep their proportions. */
    function go(token, p) {
      const wanted = Math.min(0.97, Math.max(0.01, p));
      const others = logits.reduce((sum, logit, i) => (i === token ? sum : sum + Math.exp(logit)), 0);
      logits = logits.map((logit, i) => (i === token ? Math.log((wanted / (1 - wanted)) * others) : logit));
      show();
    }
    const step = () => {
      const { gradient } = judged(logits, right, smoothing);
      logits = logits.map((logit, i) => logit - RATE * gradient[i]);
      show();
      return gradient.some((part) => Math.abs(part) > CLOSE);
    };
    const back = () => {
      logits = first.map(Math.log);
      show();
    };
    figure.controls(
      choices("Smoothing", { 0: "ε = 0", 0.1: "ε = 0.1", 0.4: "ε = 0.4" }, String(start), (chosen) => {
        smoothing = Number(chosen);
        show();
      }),
      element("button", { type: "button", onclick: step }, "One step"),
      player(figure, "Learn", "Pause", 60, step),
      element("button", { type: "button", onclick: back }, "Back"),
    );
    figure.hint("Drag the model's chances, or let it learn: each step subtracts the gradient from the logits.");

    function show() {
      const { p, q, loss, least, gradient } = judged(logits, right, smoothing);
      rows.forEach(({ bars, pull, knob, said }, i) => {
        [q[i], p[i]].forEach((share, which) => {
          set(bars[which].bar, { width: BAR * share });
          set(bars[which].said, { x: LEFT[which] + BAR * share + (which ? 10 : 5) });
          bars[which].said.textContent = i || which ? number(share, 3) : "never";
        });
        const [width, isLarge] = [80 * Math.abs(gradient[i]), gradient[i] > 0];
        set(pull, { x: isLarge ? 170 : 170 - width, width });
        set(said, { x: isLarge ? 170 + width + 24 : 170 - width - 24 });
        said.textContent = number(gradient[i], 3);
        knob.put([LEFT[1] + BAR * p[i], y(i)], number(p[i], 3), number(p[i], 3));
      });
      told.textContent = `loss ${number(loss)}, least possible ${number(least)}`;
      const [far, token] = gradient.map((part, i) => [Math.abs(part), i]).sort((a, b) => b[0] - a[0])[0];
      const worst = `${names(p.length)[token]} gets ${number(p[token], 3)} and should get ${number(q[token], 3)}`;
      const rest = far > CLOSE ? `Farthest off: ${worst}.` : `No token is off by more than ${number(far, 3)}.`;
      figure.say(`Loss ${number(loss)}; the least possible is ${number(least)}. ${rest}`);
    }
    show();
  }

  lessons.smoothing = { judged, EXAMPLE };
  begin("smoothing", make);
})(globalThis.lessons);
