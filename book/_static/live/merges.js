/* Byte-pair encoding, one merge at a time (chapter 2): the words, their pairs counted, and the ladder of one word. */
"use strict";

(function (lessons) {
  const { element, choices } = lessons.page;
  const { begin, add, set, text, rect } = lessons.live;
  const EXAMPLE = { words: ["six", "seven", "sixteen", "seventeen", "sixty", "seventy"], often: "seven", followed: 3, merges: 9 };

  /* Each pair of neighbours as [left, right, count], the most frequent first, of several the one with the smallest ids:
   * letters in their order, then what was made, in its order. */
  function pairsOf(words, counts, made) {
    const id = (piece) => (piece.length === 1 ? piece.charCodeAt() : 256 + made.indexOf(piece));
    const found = new Map();
    words.forEach((pieces, i) =>
      pieces.slice(1).forEach((right, j) => {
        const key = `${pieces[j]} ${right}`;
        found.set(key, (found.get(key) ?? 0) + counts[i]);
      }),
    );
    const all = [...found].map(([key, count]) => [...key.split(" "), count]);
    return all.sort((a, b) => b[2] - a[2] || id(a[0]) - id(b[0]) || id(a[1]) - id(b[1]));
  }

  function merged(pieces, [left, right]) {
    const now = [];
    for (const piece of pieces) {
      if (now.at(-1) === left && piece === right) now[now.length - 1] += piece;
      else now.push(piece);
    }
    return now;
  }

  /* What there is after 0, 1, … merges: { words, pairs, made }, `made` being the newest token. */
  function learn(words, counts, merges) {
    const made = [];
    let pieces = words.map((word) => [...word]);
    const steps = [{ words: pieces, pairs: pairsOf(pieces, counts, made) }];
    for (const _ of Array(merges)) {
      const best = steps.at(-1).pairs[0];
      if (!best) break;
      pieces = pieces.map((one) => merged(one, best));
      made.push(best[0] + best[1]);
      steps.push({ words: pieces, pairs: pairsOf(pieces, counts, made), made: made.at(-1) });
    }
    return steps;
  }

  function strip(parent, x, y, pieces, unit, made) {
    for (const piece of pieces) {
      const width = unit * piece.length;
      const look = { fill: "encoder", tint: piece === made ? 0.34 : 0.06, role: "encoder", radius: 4 };
      rect(parent, x, y, width, 18, { fill: "paper", radius: 4 });
      rect(parent, x, y, width, 18, look);
      text(parent, x + width / 2, y, piece, { small: true });
      x += width;
    }
  }

  function make(figure, about) {
    const { words, often, followed, merges } = { ...EXAMPLE, ...about };
    const [soft, start] = [{ role: "soft", small: true }, { align: "start", bold: true }];
    const left = add(figure.panel(276, "The words in their tokens, and the most frequent pairs of neighbours"), "g");
    const right = figure.panel(276, `The merges, and ${words[followed]} after each`);
    const ladder = add(right, "g");
    const frame = rect(right, 115, 0, 222, 22, { role: "ink", line: 2.2 });
    let [steps, counts, now] = [[], [], 0];

    const go = (step) => {
      now = Math.min(Math.max(step, 0), steps.length - 1);
      show();
    };
    const button = (name, by) => element("button", { type: "button", onclick: () => go(now + by) }, name);
    const [back, on] = [button("Back", -1), button("Merge", 1)];
    const kinds = { once: "each word once", often: `${often} ten times` };
    figure.controls(back, on, choices("Corpus", kinds, "once", corpus));
    figure.hint("Press Merge for the next merge.");

    function corpus(kind) {
      counts = words.map((word) => (kind === "often" && word === often ? 10 : 1));
      steps = learn(words, counts, merges);
      ladder.replaceChildren();
      text(ladder, 0, 10, "merge · count", start);
      text(ladder, 118, 10, words[followed], start);
      steps.forEach((step, i) => {
        const y = 36 + 24 * i;
        strip(ladder, 118, y, step.words[followed], 24, step.made);
        if (!i) return;
        const [a, b, count] = steps[i - 1].pairs[0];
        text(ladder, 0, y, i, { ...soft, align: "start" });
        text(ladder, 18, y, `${a} + ${b}`, { small: true, align: "start" });
        text(ladder, 96, y, count, { ...soft, align: "end" });
      });
      go(0);
    }

    function show() {
      const { words: pieces, pairs, made } = steps[now];
      const [most, best] = [pairs[0]?.[2] ?? 0, pairs[0]];
      left.replaceChildren();
      text(left, 0, 10, now ? `after merge ${now}` : "before the first merge", start);
      pieces.forEach((one, i) => {
        const [x, y] = [160 * (i % 2), 36 + 25 * Math.floor(i / 2)];
        strip(left, x, y, one, 17, made);
        if (counts[i] > 1) text(left, x + 17 * words[i].length + 6, y, `× ${counts[i]}`, { ...soft, align: "start" });
      });
      text(left, 0, 128, "pairs of neighbours, counted", start);
      pairs.slice(0, 6).forEach(([a, b, count], i) => {
        const [y, width] = [150 + 22 * i, (150 * count) / Math.max(most, 5)];
        strip(left, 4, y, [a, b], 14);
        rect(left, 140, y, width, 14, { fill: "weight" });
        text(left, 146 + width, y, count, { small: true, align: "start" });
      });
      set(frame, { y: 25 + 24 * now });
      const isLast = now === steps.length - 1;
      set(back, { "aria-disabled": now === 0 });
      set(on, { "aria-disabled": isLast });
      const said = now ? `Merge ${now} made ${made}. ` : "Every letter is a token. ";
      const equal = pairs.filter((pair) => pair[2] === most).length - 1;
      const rule = equal ? `, as often as ${equal} ${equal === 1 ? "other" : "others"}, but with smaller ids` : "";
      figure.say(said + (isLast ? `The six words are ${pieces.flat().length} tokens now.` : `Next: ${best[0]} + ${best[1]}, ${most} times${rule}.`));
    }
    corpus("once");
  }

  lessons.merges = { learn, EXAMPLE };
  begin("merges", make);
})(globalThis.lessons);
