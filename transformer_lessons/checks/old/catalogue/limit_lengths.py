"""The check of `limit_lengths`: sentences that are too long are refused, or cut, and always named."""

import random
from typing import Any

from transformer_lessons.checks.old.catalogue.limit_lengths_mistakes import END, MISTAKES, Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import limit_lengths

__all__ = ["TASK"]

LENGTHS = "#ch04-lengths"
A_TUPLE = "it should return a tuple (kept, cut), and no dict"


def _sizes(seed: int) -> dict[str, int]:
    pick = random.Random(seed)
    return {"sentences": pick.choice([5, 7, 11]), "max_length": pick.choice([3, 4, 6])}


def _sentence(draw: Draw, length: int, has_end: bool) -> list[int]:
    ids = draw.integers(3, 41, length).tolist()
    return [*ids[:-1], END] if has_end else ids


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    n, m = s["sentences"], s["max_length"]
    lengths = [m + i if i % 3 else max(1, m - 1 - i) for i in range(n)]  # every third one fits
    plain = [_sentence(draw, length, False) for length in lengths]
    plain[2:3] = [list(plain[1])] * len(plain[2:3])  # two long sentences are the same
    ended = [_sentence(draw, length, True) for length in lengths]
    mixed = [_sentence(draw, length, i % 2 == 0) for i, length in enumerate(reversed(lengths))]
    for ids in mixed:
        if len(ids) > m:
            ids[0] = END  # an end mark at the wrong end,
            ids.insert(m, END)  # and one among what is cut off
    one, long, longer = [7], [7] * (m + 1), [7] * (5 * m)
    exact = [_sentence(draw, m, i % 2 == 0) for i in range(n)]
    short = [_sentence(draw, 1 + i % (m - 1), i % 2 == 0) for i in range(n)]
    cutting = {"too_long": "truncate"}
    return {
        "cut": Probe([plain, m], cutting, view=_cut),
        "end": Probe([ended, m], cutting, view=_end),
        "mixed": Probe([mixed, m], cutting, view=_end),
        "short": Probe([short, m], cutting, view=_all_fit),
        "exact": Probe([exact, m], cutting, view=_exact),
        "refuse_short": Probe([short, m], {"too_long": "refuse"}, view=_all_fit),
        "refuse_exact": Probe([exact, m], view=_exact),
        "empty": Probe([[[], short[0], []], m], cutting, view=_all_fit),
        "no_sentences": Probe([[], m], view=_all_fit),
        "one_id": Probe([mixed, 1], cutting, view=_end),
        "refuse": Probe(
            [[one, longer, one], m], {"too_long": "refuse"}, refused='one too long and too_long="refuse"'
        ),
        "default": Probe(
            [[long, one, one], m], refused="the first one too long, and nothing said of cutting"
        ),
        "refuse_last": Probe([[one, one, long], m], refused="the last one too long, nothing said of cutting"),
        "refuse_two": Probe([[long, one, long], m], refused="two of three too long, nothing said of cutting"),
        "refuse_all": Probe([[long, long], m], refused="all sentences too long, and nothing said of cutting"),
        "unknown": Probe([plain, m], {"too_long": "drop"}, refused='too_long="drop"'),
        "no_word": Probe([short, m], {"too_long": ""}, refused='too_long=""'),
        "part_of_word": Probe([short, m], {"too_long": "trunc"}, refused='too_long="trunc"'),
        "capital": Probe([short, m], {"too_long": "Truncate"}, refused='too_long="Truncate"'),
        "space": Probe([short, m], {"too_long": "truncate "}, refused='too_long="truncate "'),
        "unknown_short": Probe([short, m], {"too_long": "cut"}, refused='too_long="cut", even if all fit'),
        "no_length": Probe([plain, 0], cutting, refused="max_length=0"),
        "negative_length": Probe([plain, -m], cutting, refused=f"max_length={-m}"),
        "no_length_for_none": Probe([[], 0], refused="max_length=0, even without sentences"),
    }


def _seen(value: Any, sentence: str) -> dict:
    if isinstance(value, dict):  # which would be taken apart into its keys
        return {A_TUPLE: False}
    kept, cut = value
    lists = isinstance(kept, list) and all(isinstance(ids, list) for ids in kept)
    plain = isinstance(cut, list) and all(type(number) is int for number in cut)
    return {
        A_TUPLE: True,
        "`kept`, the first of what is returned, should be a list of lists": lists,
        "`kept` should hold as many sentences as there were": lists and len(kept),
        "the lengths of the sentences in `kept` are not right": lists and [len(ids) for ids in kept],
        sentence: kept,
        "`cut` should be a list of plain whole numbers, of Python's type int": plain,
        "`cut` should list the numbers, from 0, of the sentences that were cut": cut,
    }


def _cut(value: Any) -> dict:
    return _seen(value, "a cut should keep the beginning of a sentence, and change nothing in it")


def _end(value: Any) -> dict:
    return _seen(value, f"where a sentence ended with {END}, and only there, its cut should too")


def _all_fit(value: Any) -> dict:
    return _seen(value, "sentences that fit should stay as they are")


def _exact(value: Any) -> dict:
    return _seen(value, "sentences of exactly max_length ids fit, and should stay as they are")


TASK = Task(
    name="limit_lengths",
    signature='limit_lengths(sentences, max_length, *, too_long="refuse")',
    arguments=("sentences", "max_length"),
    returns=("kept", "cut"),
    reference=limit_lengths,
    requirements=(
        Requirement(
            "returns",
            "it returns the sentences kept and the numbers of those cut.",
            ("short",),
            LENGTHS,
            ("structure",),
        ),
        Requirement(
            "truncate",
            'with too_long="truncate", long sentences are cut to max_length, and named.',
            ("cut",),
            LENGTHS,
        ),
        Requirement(
            "end",
            f"a cut ends with the end mark, {END}, if the sentence did.",
            ("end", "mixed", "one_id"),
            LENGTHS,
        ),
        Requirement(
            "fitting",
            "sentences of at most max_length ids stay as they are.",
            ("short", "exact", "refuse_short", "refuse_exact", "empty", "no_sentences"),
            LENGTHS,
        ),
        Requirement(
            "refuse",
            'sentences that are too long are refused unless too_long="truncate".',
            ("refuse", "default", "refuse_last", "refuse_two", "refuse_all"),
            LENGTHS,
        ),
        Requirement(
            "inputs", "the caller's lists are left unchanged.", ("cut", "end", "short"), LENGTHS, ("inputs",)
        ),
        Requirement(
            "refusals",
            "any other too_long, and a max_length below 1, are refused with ValueError.",
            (
                "unknown",
                "no_word",
                "part_of_word",
                "capital",
                "space",
                "unknown_short",
                "no_length",
                "negative_length",
                "no_length_for_none",
            ),
            LENGTHS,
        ),
    ),
    sizes=_sizes,
    small=({"sentences": 2, "max_length": 2}, {"sentences": 3, "max_length": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
