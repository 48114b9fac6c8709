"""English number words and their German translations: endless training pairs without a download.

"four hundred and twenty-one" becomes "vierhunderteinundzwanzig". German says the units before the tens (one
and twenty), so a model must look at the source out of order, and cross-attention has something to show.
The English form is the same as in num2words.
"""

import math
import random
import re
from collections.abc import Iterable
from functools import cache

from transformer_lessons.data.encoded import Pair
from transformer_lessons.data.vocabulary import Vocabulary

LIMIT = 1_000_000

ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
VALUES = dict(zip([*ENGLISH_SMALL, *ENGLISH_TENS], [*range(20), *range(20, 100, 10)], strict=True))
ENGLISH_TOKENS = [*ENGLISH_SMALL, *ENGLISH_TENS, "hundred", "thousand", "and", ","]

GERMAN_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
).split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
GERMAN_TOKENS = [*GERMAN_SMALL, *GERMAN_TENS, "hundert", "tausend", "und", "ein"]


def english(n: int) -> str:
    """The English words of a number: 421005 is "four hundred and twenty-one thousand and five".

    A pitfall: "thousand" is followed by a comma before hundreds and by "and" before less: "one thousand, one
    hundred", but "one thousand and one". ValueError for a number outside 0 … 999,999.
    """
    _check(n)
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if n >= size:
            head, rest = divmod(n, size)
            joint = ", " if size == 1000 and rest >= 100 else " and "
            return f"{english(head)} {name}" + (joint + english(rest) if rest else "")
    if n < 20:
        return ENGLISH_SMALL[n]
    tens, units = divmod(n, 10)
    return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH_SMALL[units]}" if units else "")


def german_tokens(n: int, one: str = "eins") -> list[str]:
    """The parts of the German word of a number: 421 is ["vier", "hundert", "ein", "und", "zwanzig"].

    A pitfall: 1 is "eins" only at the very end, as in 101; before any other part, as in 101,000, it is "ein".
    """
    _check(n)
    for size, name in ((1000, "tausend"), (100, "hundert")):
        if n >= size:
            head, rest = divmod(n, size)
            return [*german_tokens(head, "ein"), name, *(german_tokens(rest, one) if rest else [])]
    if n < 20:
        return [one if n == 1 else GERMAN_SMALL[n]]
    tens, units = divmod(n, 10)
    units_first = [*german_tokens(units, "ein"), "und"] if units else []
    return [*units_first, GERMAN_TENS[tens - 2]]


def german(n: int) -> str:
    """The German word of a number: 421 is "vierhunderteinundzwanzig"."""
    return "".join(german_tokens(n))


def _check(n: int) -> None:
    if not 0 <= n < LIMIT:
        raise ValueError(f"number: expected 0 to {LIMIT - 1:,}, got {n:,}")


def english_tokens(text: str) -> list[str]:
    """The words and commas of a text: ["twenty", "one", "thousand"]. User input needs `parse` instead."""
    return re.findall(r"[a-z]+|,", text)


def parse(text: str) -> int:
    """The number written in `text`, in digits or in English words.

    Capitals are accepted, and so are missing commas, hyphens or *and*: "Four hundred five" is 405. ValueError
    for what `english` would not say, such as "a hundred" or "twelve hundred", and outside 0 … 999,999.
    """
    text = text.strip().lower()
    if re.fullmatch(r"[-−+]?(\d+|\d{1,3}(,\d{3})+)", text):
        n = int(text.replace("−", "-").replace(",", ""))
        _check(n)
        return n
    words = [word for word in re.sub(r"[,-]", " ", text).split() if word != "and"]
    thousands = part = 0
    for word in words or ["nothing"]:
        if word not in ENGLISH_TOKENS:
            got = repr(word) if words else word
            raise ValueError(f"number: expected one below {LIMIT:,} in digits or English words, got {got}")
        if word == "thousand":
            thousands, part = part, 0
        else:
            part = 100 * part if word == "hundred" else part + VALUES[word]
    n = 1000 * thousands + part
    if n >= LIMIT or [word for word in english_tokens(english(n)) if word not in ("and", ",")] != words:
        raise ValueError(f"number: expected words that form one number, got {text!r}")
    return n


@cache
def held_out() -> tuple[int, ...]:
    """The 1,000 numbers that no training set contains: uniform below a million, always the same."""
    return tuple(random.Random("held out").sample(range(LIMIT), 1000))


def training_numbers(count: int, seed: int) -> list[int]:
    """`count` numbers for training, none of them held out; half uniform, half log-uniform.

    If all were uniform, nine in ten numbers would have six digits, and a model would hardly see a short one.
    """
    generator, excluded, numbers = random.Random(seed), set(held_out()), []
    while len(numbers) < count:
        if len(numbers) % 2:
            n = generator.randrange(LIMIT)
        else:
            n = int(math.exp(generator.uniform(0, math.log(LIMIT + 1)))) - 1
        if n < LIMIT and n not in excluded:
            numbers.append(n)
    return numbers


def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    """The English and the German vocabulary. The same id means different words in the two."""
    return Vocabulary(ENGLISH_TOKENS), Vocabulary(GERMAN_TOKENS)


def pairs(numbers: Iterable[int]) -> list[Pair]:
    """The ids of the English and the German tokens of each number, without begin and end marks."""
    source, target = vocabularies()
    return [(source.encode(english_tokens(english(n))), target.encode(german_tokens(n))) for n in numbers]
