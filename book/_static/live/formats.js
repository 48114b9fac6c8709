/* A number in four formats (chapter 16): its bits, what is stored, and how far that is from the number. */
"use strict";

(function (lessons) {
  const { choices } = lessons.page;
  const { begin, set, number, text, rect, rail } = lessons.live;
  const NUMBERS = { "1/3": 1 / 3, "1/10": 0.1, 1: 1, "1.001": 1.001, π: Math.PI };
  const EXAMPLE = { name: "1/3", power: 0 };
  const FORMATS = [
    { name: "float32", exponent: 8, mantissa: 23 },
    { name: "bfloat16", exponent: 8, mantissa: 7 },
    { name: "float16", exponent: 5, mantissa: 10 },
    { name: "float8, e4m3", exponent: 4, mantissa: 3, largest: 448 }, // without an infinity: larger ones become 448
  ];
  const [CELL, HIGH, ROW] = [10.4, 17, 68];
  const ROLES = ["residual", "query", "value"]; // sign, exponent, mantissa

  const exponentOf = (x) => {
    const e = Math.floor(Math.log2(x));
    return 2 ** e > x ? e - 1 : 2 ** (e + 1) <= x ? e + 1 : e;
  };
  const rounded = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)); // ties go to the even number

  /* What a format stores of a positive number, and its bits: sign, exponent, mantissa. */
  function stored(x, { exponent, mantissa, largest }) {
    const bias = 2 ** (exponent - 1) - 1;
    const least = 1 - bias; // the exponent of the smallest numbers that have all digits
    const step = 2 ** (Math.max(exponentOf(x), least) - mantissa);
    const value = Math.min(rounded(x / step) * step, largest ?? Infinity);
    const bits = (part, size) => part.toString(2).padStart(size, "0");
    if (!largest && value >= 2 ** (bias + 1)) {
      return { value: Infinity, bits: `0${"1".repeat(exponent)}${"0".repeat(mantissa)}` };
    }
    const e = value < 2 ** least ? least - 1 : exponentOf(value);
    const digits = value / 2 ** (Math.max(e, least) - mantissa) - (e < least ? 0 : 2 ** mantissa);
    return { value, bits: `0${bits(e + bias, exponent)}${bits(digits, mantissa)}` };
  }

  /* As many digits as tell a float32 from its neighbours; with a power of ten if it is large or small. */
  function written(x) {
    if (!Number.isFinite(x) || x === 0) return x ? "∞" : "0";
    const [digits, power] = x.toExponential(7).split("e");
    if (power < -3 || power > 5) return `${Number(digits)} · 10^${power.replace("+", "").replace("-", "−")}`;
    return String(Number(x.toPrecision(8)));
  }

  function make(figure, about) {
    const given = { ...EXAMPLE, ...about };
    let { name, power } = given;
    const svg = figure.panel(ROW * FORMATS.length + 4, "The bits in four formats");
    const rows = FORMATS.map((format, k) => {
      const y = 12 + ROW * k;
      text(svg, 0, y, format.name, { bold: true, align: "start" });
      const cells = Array.from({ length: 1 + format.exponent + format.mantissa }, (_, i) => {
        const role = ROLES[i ? (i > format.exponent ? 2 : 1) : 0];
        const box = rect(svg, CELL * i, y + 20, CELL, HIGH, { fill: role, role, line: 0.8 });
        return { box, bit: text(svg, CELL * (i + 0.5), y + 20, "", { small: true }) };
      });
      const off = text(svg, 0, y + 38, "", { role: "soft", small: true, align: "start" });
      return { format, cells, held: text(svg, 92, y, "", { small: true, align: "start" }), off };
    });
    const side = figure.panel(150, "The number");
    const told = text(side, 170, 24, "", { bold: true });
    const put = rail(figure, side, 66, "times 2^e", { min: -34, max: 24, step: 1, start: given.power, digits: 0 }, (value) => {
      power = value;
      show();
    });
    ROLES.forEach((role, i) => {
      rect(side, 0, 100 + 19 * i, 12, 12, { fill: role, tint: 0.4, role });
      text(side, 20, 100 + 19 * i, ["sign", "exponent", "mantissa"][i], { small: true, align: "start" });
    });
    figure.controls(
      choices("Number", Object.fromEntries(Object.keys(NUMBERS).map((key) => [key, key])), name, (chosen) => {
        name = chosen;
        show();
      }),
    );
    figure.hint("Choose a number, and multiply it by a power of two until a format gives up.");

    function show() {
      const x = NUMBERS[name] * 2 ** power;
      const sum = power ? `${name} · 2^${number(power, 0)}` : name;
      told.textContent = `${sum} = ${written(x)}`;
      put(power);
      const found = rows.map(({ format, cells, held, off }) => {
        const { value, bits } = stored(x, format);
        cells.forEach(({ box, bit }, i) => {
          bit.textContent = bits[i];
          set(box, { "fill-opacity": bits[i] === "1" ? 0.4 : 0.06 });
        });
        const error = Math.abs(value / x - 1);
        const lost = value ? `off by ${error ? `${Number((100 * error).toPrecision(2))}%` : "nothing"}` : "all is lost";
        held.textContent = `stores ${written(value)}`;
        off.textContent = Math.abs(value) <= 2 * Math.abs(x) && (!value || Math.abs(value) > Math.abs(x) / 2) ? lost : "too large";
        return `${format.name} ${written(value)}`;
      });
      figure.say(`${sum} is stored as ${found.join("; ")}.`);
    }
    show();
  }

  lessons.formats = { stored, FORMATS };
  begin("formats", make);
})(globalThis.lessons);
