/* Beam search (chapter 14), step by step: each beginning is extended by each token, and the best k go on. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { add, begin, set, number, text, pill, player } = lessons.live;
  // Of the trained translator, writing 800,048: after each beginning, the six likeliest tokens and their log p.
  const EXAMPLE = {
    right: "achthunderttausendachtundvierzig",
    k: 2,
    next: {
      "": "acht -0.1033 achtzehn -5.3817 zwölf -5.4952 ein -5.573 sieben -5.5888 vierzehn -5.5986",
      "acht": "hundert -0.1054 und -5.2505 acht -5.3062 EOS -5.3878 achtzehn -5.5611 zwölf -5.6047",
      "achtzehn": "hundert -0.6353 tausend -1.6829 acht -3.9755 und -4.1549 achtzehn -4.2806 fünf -4.4009",
      "zwölf": "tausend -0.179 EOS -3.6286 zwölf -5.0093 vierzig -5.1338 dreißig -5.2031 acht -5.205",
      "acht acht": "hundert -0.1103 EOS -5.117 und -5.1178 acht -5.3983 tausend -5.5762 achtzehn -5.593",
      "acht hundert": "acht -1.1264 tausend -1.1934 vierzig -2.4271 vierzehn -3.9464 dreizehn -4.0025 zwölf -4.0387",
      "acht und": "vierzig -0.6179 hundert -2.4005 acht -3.5635 tausend -3.6109 neunzig -3.9095 zwölf -3.929",
      "acht hundert acht": "tausend -0.9101 und -1.0293 vierzig -4.055 acht -4.391 ein -4.5253 dreizehn -4.6028",
      "acht hundert tausend": "acht -0.0691 eins -5.2196 sechzehn -5.3211 EOS -5.586 vierzig -5.6515 zwölf -5.8938",
      "acht hundert vierzig": "tausend -0.1118 EOS -4.4276 vierzig -5.3994 dreißig -5.4601 zehn -5.5233 neun -5.6113",
      "acht hundert acht tausend": "acht -0.0723 EOS -4.8906 eins -5.2972 sechzehn -5.457 vierzig -5.4919 zwölf -5.8144",
      "acht hundert acht und": "vierzig -0.1485 tausend -3.5833 vierzehn -5.047 sechzig -5.1146 zehn -5.2791 eins -5.2886",
      "acht hundert tausend acht": "und -0.1498 EOS -4.0047 vierzig -4.8212 hundert -5.0862 acht -5.1623 elf -5.3091",
      "acht hundert acht tausend acht": "und -0.1557 EOS -3.8805 vierzig -4.7174 hundert -5.0613 acht -5.1299 elf -5.2929",
      "acht hundert acht und vierzig": "tausend -0.2249 EOS -3.0813 vierzig -4.9056 dreißig -4.9463 zehn -5.0132 acht -5.1335",
      "acht hundert tausend acht und": "vierzig -0.1482 EOS -4.0384 eins -4.8883 null -5.0404 siebzehn -5.1061 elf -5.1216",
      "acht hundert acht tausend acht und": "vierzig -0.1971 EOS -3.3289 eins -4.6496 null -4.8839 elf -4.8976 siebzehn -4.9565",
      "acht hundert acht und vierzig tausend": "acht -0.117 EOS -3.8223 eins -4.6883 sechzehn -4.9859 vierzig -5.0129 vierzehn -5.4417",
      "acht hundert tausend acht und vierzig": "EOS -0.0951 eins -5.3 vierzig -5.5891 sechzehn -5.6684 acht -5.6773 zwölf -5.7173",
      "acht hundert acht tausend acht und vierzig": "EOS -0.0911 eins -5.3265 vierzig -5.6207 acht -5.7196 sechzehn -5.7236 zwölf -5.7655",
      "acht hundert acht und vierzig tausend acht": "und -0.7527 EOS -1.1857 vierzig -4.3287 acht -4.4697 eins -4.5971 elf -4.6198",
      "acht hundert tausend acht und vierzig eins": "EOS -0.0912 eins -5.1115 vierzig -5.6221 sechzehn -5.6233 zwölf -5.7475 dreißig -5.7881",
    },
  };
  const [ALPHA, LONGEST, SHOWN] = [0.6, 24, 4]; // as in the chapter; SHOWN candidates a step
  const [LEFT, STEP, WIDTH, TOP, ROW] = [6, 84, 48, 14, 35]; // where they are
  const lp = (n) => ((5 + n) / 6) ** ALPHA;

  /* The steps of the package's `beam`: in each, the candidates in order (`goesOn`, or `score` where a sentence ends), the
   * best sentence so far, and what the likeliest beginning can still reach. */
  function search(next, k) {
    let [alive, best, steps] = [[{ words: [], total: 0 }], null, []];
    for (let n = 1; n <= LONGEST; n += 1) {
      const longer = alive.flatMap((parent) => {
        const likeliest = next[parent.words.join(" ")].matchAll(/(\S+) (\S+)/g);
        return [...likeliest].map(([, word, logP]) => {
          return { parent, word, words: [...parent.words, word], total: parent.total + Number(logP) };
        });
      });
      longer.sort((a, b) => b.total - a.total);
      for (const one of longer.slice(0, k).filter(({ word }) => word === "EOS")) {
        one.score = one.total / lp(n);
        if (!best || one.score > best.score) best = one;
      }
      alive = longer.filter(({ word }) => word !== "EOS").slice(0, k);
      alive.forEach((one) => (one.goesOn = true));
      steps.push({ longer, alive, best, reach: alive[0].total / lp(LONGEST) });
      if (best && best.score >= steps.at(-1).reach) break;
    }
    return steps;
  }

  function told({ alive, best, reach }, n, isLast, right) {
    const said = alive.map(({ word, total }) => `${word} (${number(total)})`).join(", ");
    const start = `Step ${n}: ${said} ${alive.length > 1 ? "go" : "goes"} on.`;
    if (!best) return start;
    if (!isLast) return `${start} Best sentence so far: ${number(best.score)}; a beginning can still reach ${number(reach)}.`;
    const answer = best.words.slice(0, -1).join("");
    const verdict = answer === right ? "right" : `not ${right}`;
    return `Step ${n}: nothing can beat ${number(best.score)} any more. ${answer} is ${verdict}.`;
  }

  function make(figure, about) {
    const { right, next, k: first } = { ...EXAMPLE, ...about };
    let k = first;
    let steps = search(next, k);
    let count = steps.length;
    const svg = figure.panel(TOP + 9 * ROW - 12, "The search: a row for each step, the likeliest beginnings on the left");
    const drawn = add(svg, "g");
    const go = element("button", { type: "button" }, "Step");
    const forward = () => {
      count = count < steps.length ? count + 1 : 0;
      show();
      return count < steps.length;
    };
    go.onclick = forward;
    const beams = choices("Beams", { 1: "1 beam", 2: "2 beams", 3: "3 beams" }, String(k), (chosen) => {
      k = Number(chosen);
      steps = search(next, k);
      count = 0;
      show();
    });
    figure.controls(beams, go, player(figure, "Play", "Pause", 900, forward));
    figure.hint("Choose the number of beams, and step; in the end the winner is green.");

    function join(parent, place, role) {
      const [from, to] = [parent.y + 9.5, place.y - 9.5];
      const middle = (from + to) / 2;
      const d = `M${parent.x} ${from}C${parent.x} ${middle} ${place.x} ${middle} ${place.x} ${to}`;
      const dashed = role === "mask" ? { "stroke-width": 1.3, "stroke-dasharray": "3 2.5" } : { "stroke-width": 2 };
      add(drawn, "path", { d, fill: "none", stroke: `var(--${role})`, ...dashed });
    }

    function show() {
      drawn.replaceChildren();
      const places = new Map();
      const put = (one, rank, n, role) => {
        places.set(one, { x: LEFT + STEP * rank + WIDTH / 2, y: TOP + ROW * n });
        pill(drawn, LEFT + STEP * rank, TOP + ROW * n, one?.word ?? "BOS", role, WIDTH, 19);
      };
      const winner = count === steps.length ? steps.at(-1).best : null;
      const isOnTheWay = (one) => winner && winner.words.join(" ").startsWith(one.words.join(" "));
      put(undefined, 0, 0, "decoder");
      steps.slice(0, count).forEach(({ longer }, i) => {
        const goingOn = longer.filter((one) => one.goesOn || one.score);
        const dropped = longer.filter((one) => !goingOn.includes(one)).slice(0, SHOWN - goingOn.length);
        longer.filter((one) => goingOn.includes(one) || dropped.includes(one)).forEach((one, rank) => {
          const end = one.score && (winner ? "mask" : "value");
          const role = isOnTheWay(one) ? "value" : end || (one.goesOn ? "decoder" : "mask");
          put(one, rank, i + 1, role);
          const above = places.get(i ? one.parent : undefined);
          if (above) join(above, places.get(one), role);
          const [x, y] = [LEFT + STEP * rank, TOP + ROW * (i + 1)];
          text(drawn, x + WIDTH + 3, y, number(one.total), { small: true, align: "start" });
          if (one.score) text(drawn, x + WIDTH / 2, y + 15.5, `score ${number(one.score)}`, { role: "value", small: true });
        });
      });
      go.textContent = count < steps.length ? "Step" : "Again";
      figure.say(count ? told(steps[count - 1], count, count === steps.length, right) : "Only BOS is there, with log p = 0.");
    }
    show();
  }

  lessons.beam = { search, EXAMPLE };
  begin("beam", make);
})(globalThis.lessons);
