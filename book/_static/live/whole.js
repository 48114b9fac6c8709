/* The whole model (chapter 12): choose a box, and the lines of the cell above that make and use it light up, there and
 * below the drawing; choose a line of the cell, and its box lights up. */
"use strict";

(function (lessons) {
  const { element } = lessons.page;
  const { begin, rect, set } = lessons.live;
  const CODE = "class Transformer(nn.Module)";
  const PARTS = [
    // panel, x, y, width, height, role, name, and what its lines contain
    [0, 0, 70, 340, 50, "encoder", "source_embedding", "self.source_embedding =", "= self.source_embedding("],
    [0, 62, 148, 278, 206, "encoder", "encoder_layers", "encoder_layers", "EncoderLayer(c)", "layer(x, src_mask)"],
    [0, 0, 368, 340, 34, "encoder", "encoder_norm", "self.encoder_norm", "last = "],
    [0, 0, 408, 340, 32, "encoder", "memory", "memory = self.encode"],
    [0, 0, 504, 340, 88, "ink", "forward", "def forward", "src_mask = ", "memory = self.encode", "return self.output(self.decode"],
    [1, 16, 70, 324, 50, "decoder", "target_embedding", "self.target_embedding =", "= self.target_embedding("],
    [1, 78, 148, 262, 286, "decoder", "decoder_layers", "decoder_layers", "DecoderLayer(c)", "layer(x, memory"],
    [1, 16, 448, 324, 34, "decoder", "decoder_norm", "self.decoder_norm", "last = "],
    [1, 16, 502, 324, 50, "decoder", "output", "self.output", "if c.tie_embeddings"],
  ];

  /* The lines of the cell as elements of their own; [] where the page has no such cell. */
  function linesOf() {
    const code = [...document.querySelectorAll("div.highlight pre")].find((one) => one.textContent.includes(CODE));
    if (!code) return [];
    const rows = code.innerHTML.replace(/\n$/, "").split("\n");
    code.innerHTML = rows.map((row) => `<span class="live-line">${row || " "}</span>`).join("\n");
    return [...code.querySelectorAll(".live-line")];
  }

  const wordsOf = (line) => {
    const copy = line.cloneNode(true);
    copy.querySelectorAll(".linenos").forEach((one) => one.remove());
    return copy.textContent;
  };

  function make(figure) {
    const names = ["Encoder", "Decoder"];
    const panels = figure.still.map((still, i) => {
      const panel = figure.panel(612, names[i]);
      const copy = still.cloneNode(true);
      copy.classList.remove("live-still");
      copy.querySelectorAll("[id]").forEach((one) => one.removeAttribute("id"));
      panel.append(...copy.childNodes);
      return panel;
    });
    figure.panels.style.columnGap = 0; // the bridge from one to the other has no gap
    const lines = linesOf();
    const words = lines.map(wordsOf);
    const shown = element("pre", { class: "live-code", tabindex: 0, "aria-label": "The lines of the chosen box" });
    shown.style.cssText = "margin:0.6rem 0;padding:0.6rem;min-height:9em;font-size:12px;line-height:1.5;overflow-x:auto";
    if (lines.length) figure.panels.after(shown);

    const parts = PARTS.map(([panel, x, y, width, height, role, name, ...fragments]) => {
      const at = words.flatMap((line, i) => (fragments.some((one) => line.includes(one)) ? [i] : []));
      const look = { role, line: 3, radius: 6 };
      const frame = rect(panels[panel], x + 1.5, y + height / 2, width - 3, height, look);
      const button = { role: "button", tabindex: 0, "aria-label": name, "aria-pressed": false };
      set(frame, { ...button, fill: "transparent", "stroke-opacity": 0 }).style.cursor = "pointer";
      return { name, role, at, frame };
    });

    function light(chosen) {
      const paint = getComputedStyle(figure.place).getPropertyValue(`--${chosen.role}`);
      for (const part of parts) set(part.frame, { "stroke-opacity": +(part === chosen), "aria-pressed": part === chosen });
      lines.forEach((line, i) => {
        const on = chosen.at.includes(i);
        line.style.cssText = on ? `background:color-mix(in srgb,${paint} 15%,transparent)` : "";
        for (const count of line.querySelectorAll(".linenos")) count.style.color = on ? "inherit" : "";
      });
      shown.replaceChildren(chosen.at.map((i) => `${String(i + 1).padStart(2)}  ${words[i].replace(/^ {4}/, "")}`).join("\n"));
      figure.say(`${chosen.name}: line${chosen.at[1] ? "s" : ""} ${chosen.at.map((i) => i + 1).join(", ")}.`);
    }

    for (const part of parts) {
      part.frame.onclick = part.frame.onfocus = () => light(part);
      part.frame.onpointerenter = (event) => event.pointerType === "mouse" && light(part);
    }
    lines.forEach((line, i) => {
      const part = parts.find(({ at }) => at.includes(i));
      if (part) line.onclick = () => light(part);
    });
    figure.hint("Choose a box: its lines light up, here and in the cell above.");
    light(parts[0]);
  }

  begin("whole", make);
})(globalThis.lessons);
