"""The check of `bleu` with several references: requirements, calls that probe them, and the known mistakes."""

import random
from dataclasses import replace

import torch

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.old.catalogue.bleu_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["TASK"]

AT = "#ch15-bleu"


def _sizes(seed: int) -> dict[str, int]:
    sentences, length = random.Random(seed).sample([3, 5, 7], 2)
    return {"sentences": sentences, "length": length + 5, "seed": seed}


def _sentence(chance: random.Random, length: int) -> list[str]:
    return [chance.choice("abcdefg") for _ in range(length)]


def _near(chance: random.Random, sentence: list[str], *, longer: int = 0) -> list[str]:
    """The same with another token towards its end, and some of its own tokens again, or some less."""
    other = list(sentence)
    other[-2 if len(other) > 5 else -1] = chance.choice("xyz")
    return other + other[:longer] if longer >= 0 else other[:longer]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    chance = random.Random(s["seed"])
    truth = [_sentence(chance, s["length"] + n % 3) for n in range(s["sentences"])]
    one = [[sentence] for sentence in truth]
    same = [_near(chance, sentence) for sentence in truth]
    again = [[*_near(chance, sentence), sentence[0], sentence[0], sentence[0]] for sentence in truth]
    shorter = [_near(chance, sentence, longer=-2) for sentence in truth]
    longer = [_near(chance, sentence, longer=3) for sentence in truth]
    uneven = [*same, same[0][:3], []], [*one, one[0], one[0]]  # one too short for groups of 4, and one empty
    # The candidate has the first more often; the last reference alone has what the others lack of it.
    several = [[[*t, t[0]], [*t, t[0], t[0]], a[1:-3]] for t, a in zip(truth, again, strict=True)]
    # Longer by 9, shorter by 4, longer by 1; or this last and two shorter ones, so that it is not always the
    # one in the middle. Then one that is shorter by 1; and, of two equally close, the shorter one last.
    apart = [
        [t[:-4], t[:-3], [*t, "z"]] if n % 2 else [[*t, *t[:8], "z"], t[:-4], [*t, "z"]]
        for n, t in enumerate(truth)
    ]
    below = [[[*t, *t[:3]], t[:-1], t[:-5]] for t in truth]
    tied = [[t[:-3], [*t, "y", "z"], t[:-2]] for t in truth]
    # Beside a sentence that is far too short, the others' lengths count even if their references are shorter.
    far, and_one = [[5 * truth[0]] * 3], [*same, same[0]]
    words = ["ein", "zwei", "drei", "vier"]
    run_on, turned = [1, 11, 2, 3, 4], [11, 1, 2, 3, 4]  # written without spaces, the same
    return {
        "same_length": Probe([same, one]),
        "shorter": Probe([shorter, one]),
        "longer": Probe([longer, one]),
        "again": Probe([again, one]),
        "uneven": Probe([*uneven]),
        "several": Probe([again, several]),
        "apart": Probe([and_one, apart + far]),
        "below": Probe([and_one, below + far]),
        "tied": Probe([and_one, tied + far]),
        "ids": Probe(
            [[*_numbered(again), run_on], [*[_numbered(references) for references in several], [turned] * 3]]
        ),
        "nothing": Probe([[[*words[:3], "x", "y"]], [[[*words]]]]),
        "short": Probe([[words[:2]], [[words[:2]]]]),
        "perfect": Probe([truth, one]),
        "empty": Probe([[[]], [[[*words]]]]),
        "unequal": Probe([same, [*one, [truth[0]]]], refused="more lists of references than candidates"),
        "fewer": Probe([same, one[:-1]], refused="fewer lists of references than candidates"),
        "without": Probe([same, [*one[:-1], []]], refused="a candidate without any reference"),
    }


def _numbered(sentences: list[list[str]]) -> list[list[int]]:
    return [[ord(token) for token in sentence] for sentence in sentences]


class NumberTask(Task):
    """A task whose answer is a number: an int, a float or a tensor of one, all taken for the same."""

    def observe(self, adapter: Adapter, probe: Probe) -> Reply:
        """Ask once."""
        reply = super().observe(adapter, probe)
        value = reply.value
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if type(value) not in (int, float):
            return reply
        return replace(reply, value=torch.tensor(float(value), dtype=torch.float64), kind="number")


TASK = NumberTask(
    name="bleu",
    signature="bleu(candidates, references)",
    arguments=("candidates", "references"),
    returns=("score",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns one number.", ("same_length",), AT, ("structure",)),
        Requirement(
            "values",
            "without brevity, BLEU is 100 times the geometric mean of the precisions p₁ … p₄.",
            ("same_length", "longer"),
            AT,
        ),
        Requirement("brevity", "short candidates are punished by exp(1 − r/c).", ("shorter",), AT),
        Requirement("clipping", "a group counts at most as often as the reference has it.", ("again",), AT),
        Requirement("corpus", "counts and lengths are added up over all sentences.", ("uneven",), AT),
        Requirement(
            "several",
            "with several references, a group may occur as often as in the one that has it most often.",
            ("several",),
            AT,
        ),
        Requirement(
            "closest",
            "of several references the length closest to the candidate's counts; of two as close, the shorter.",
            ("apart", "below", "tied"),
            AT,
        ),
        Requirement("ids", "tokens may be numbers.", ("ids",), AT),
        Requirement(
            "nothing",
            "without any right group of four, or without any group of four, BLEU is 0; of the references "
            "themselves it is 100.",
            ("nothing", "short", "perfect", "empty"),
            AT,
        ),
        Requirement(
            "refusals",
            "another number of lists of references than of candidates, or none for one of them, is refused with "
            "ValueError.",
            ("unequal", "fewer", "without"),
            AT,
        ),
    ),
    sizes=_sizes,
    small=({"sentences": 1, "length": 5, "seed": 0}, {"sentences": 2, "length": 6, "seed": 1}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
