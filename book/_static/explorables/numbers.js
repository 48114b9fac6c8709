/* Numbers in English and German words, as in transformer_lessons/data/number_words.py. */
"use strict";

globalThis.lessons = globalThis.lessons || {};

(function (lessons) {
  const LIMIT = 1_000_000;
  const ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " +
    "seventeen eighteen nineteen"
  ).split(" ");
  const ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
  const ENGLISH_WORDS = new Set([...ENGLISH_SMALL, ...ENGLISH_TENS, "hundred", "thousand", "and"]);
  const GERMAN_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn " +
    "siebzehn achtzehn neunzehn"
  ).split(" ");
  const GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ");

  /* 421005 → "four hundred and twenty-one thousand and five". */
  function english(n) {
    const thousands = Math.floor(n / 1000);
    const rest = n % 1000;
    if (!thousands) return englishBelow1000(rest);
    const head = `${englishBelow1000(thousands)} thousand`;
    return rest ? `${head}${rest >= 100 ? ", " : " and "}${englishBelow1000(rest)}` : head;
  }

  function englishBelow1000(n) {
    const hundreds = Math.floor(n / 100);
    const rest = n % 100;
    if (hundreds) {
      const head = `${ENGLISH_SMALL[hundreds]} hundred`;
      return rest ? `${head} and ${englishBelow1000(rest)}` : head;
    }
    if (rest < 20) return ENGLISH_SMALL[rest];
    const units = rest % 10;
    return ENGLISH_TENS[Math.floor(rest / 10) - 2] + (units ? `-${ENGLISH_SMALL[units]}` : "");
  }

  /* "twenty-one thousand" → ["twenty", "one", "thousand"]. */
  const englishTokens = (text) => text.match(/[a-z]+|,/g) || [];

  /* 421 → ["vier", "hundert", "ein", "und", "zwanzig"]. */
  function germanTokens(n) {
    const thousands = Math.floor(n / 1000);
    const rest = n % 1000;
    if (!thousands) return germanBelow1000(rest, "eins");
    const head = [...germanBelow1000(thousands, "ein"), "tausend"];
    return rest ? [...head, ...germanBelow1000(rest, "eins")] : head;
  }

  /* `one` is "eins" at the end of a number and "ein" before another part. */
  function germanBelow1000(n, one) {
    const hundreds = Math.floor(n / 100);
    const rest = n % 100;
    if (hundreds) {
      const head = [...germanBelow1000(hundreds, "ein"), "hundert"];
      return rest ? [...head, ...germanBelow1000(rest, one)] : head;
    }
    if (rest < 20) return [rest === 1 ? one : GERMAN_SMALL[rest]];
    const units = rest % 10;
    const turnedRound = units ? [...germanBelow1000(units, "ein"), "und"] : [];
    return [...turnedRound, GERMAN_TENS[Math.floor(rest / 10) - 2]];
  }

  /* The number that a text says, in digits or in English words; an Error says what is wrong with it. */
  function parse(text) {
    text = text.trim().toLowerCase();
    if (/^[-−+]?(\d+|\d{1,3}(,\d{3})+)$/.test(text)) {
      return checked(Number(text.replace("−", "-").replaceAll(",", "")) + 0); // −0 + 0 is 0
    }
    const words = text.replace(/[,-]/g, " ").split(/\s+/).filter(Boolean);
    if (!words.length) throw new Error("Type a number, in digits or in English words.");
    if (/^[\d,]+(\s+[\d,]+)+$/.test(text)) throw new Error("Type one number at a time.");
    if (/^[-−+]?[\d.,]+$/.test(text)) throw new Error(`“${text}” is not a whole number: write 1,234 or 1234.`);
    for (const word of words) {
      if (/^(minus|negative|(m|b)illions?)$/.test(word)) throw new Error(`Type a number from 0 to ${LIMIT - 1}.`);
      if (!ENGLISH_WORDS.has(word)) throw new Error(`“${word}” is neither digits nor an English number word.`);
    }
    const n = valueOf(words);
    const plain = (tokens) => tokens.filter((token) => token !== "and" && token !== ",").join(" ");
    const says = n < LIMIT && plain(words) === plain(englishTokens(english(n)));
    const isAndFine = words.every(
      (word, i) => word !== "and" || (["hundred", "thousand"].includes(words[i - 1]) && i + 1 < words.length),
    );
    if (!says || !isAndFine) throw new Error("These words do not form a number; try “four hundred and twenty-one”.");
    return n;
  }

  function checked(n) {
    if (!(n >= 0 && n < LIMIT)) throw new Error(`Type a number from 0 to ${LIMIT - 1}.`);
    return n;
  }

  function valueOf(words) {
    let total = 0;
    let group = 0;
    for (const word of words) {
      if (word === "thousand") [total, group] = [total + 1000 * group, 0];
      else if (word === "hundred") group *= 100;
      else if (ENGLISH_SMALL.includes(word)) group += ENGLISH_SMALL.indexOf(word);
      else if (ENGLISH_TENS.includes(word)) group += 20 + 10 * ENGLISH_TENS.indexOf(word);
    }
    return total + group;
  }

  lessons.numbers = { LIMIT, english, englishTokens, germanTokens, parse };
})(globalThis.lessons);
