"""The checks of `top_k` and `nucleus`, which the package does not have: requirements and their probes."""

import random

import torch

from transformer_lessons.checks.old.catalogue.sampling_mistakes import (
    NUCLEUS_MISTAKES,
    TOP_K_MISTAKES,
    NucleusSteps,
    TopKSteps,
    nucleus_in_steps,
    top_k_in_steps,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["NUCLEUS", "TOP_K"]

AT, WRONG = "#ch15-greedy", "#ch15-wrong"
K, P = 3, 0.7
ABOVE_HALF = 0.500001  # two of four equal tokens do not reach it
EXTREMES = (
    "logits in the thousands, above zero or below, give no NaN, and nothing that is cut off comes back."
)
CUT_OFF = "what is cut off should have a probability of exactly zero"
IMPOSSIBLE = "tokens with a logit of −∞ should have a probability of exactly zero"


def _sizes(seed: int) -> dict[str, int]:
    batch, vocab = random.Random(seed).sample([5, 7, 11, 13], 2)
    return {"batch": batch, "vocab": vocab}


def _logits(draw: Draw, *shape: int) -> torch.Tensor:
    """No two alike in a row: ties are a probe of their own."""
    order = draw.normal(*shape).argsort(-1).argsort(-1)
    return 0.6 * order + draw.normal(*shape).clamp(-3, 3) / 11


def _common(s: dict[str, int], draw: Draw, usual: float, small: float) -> dict[str, Probe]:
    """Calls that make sense for both, from basic to subtle."""
    logits = _logits(draw, s["batch"], s["vocab"])
    banned = logits.clone()
    banned[:, logits.argmax(-1)[0]] = -torch.inf
    banned[0, 2:] = -torch.inf
    forbidden = banned.isinf()
    return {
        "plain": Probe([logits, usual]),
        "one": Probe([logits, small]),
        "one_axis": Probe([logits[-1], usual]),
        "three_axes": Probe([_logits(draw, s["batch"], 2, s["vocab"]).transpose(0, 1), usual]),
        "large": Probe([1000 * logits + 5000, usual]),
        "low": Probe([logits - 10_000, usual]),
        "banned": Probe([banned, usual]),
        "impossible": Probe([banned, usual], view=lambda p: {IMPOSSIBLE: p[forbidden].eq(0).all()}),
        "edited": Probe([banned, usual], view=lambda p: {}),  # whether it edits them is all that is looked at
        "float32": Probe([logits.float(), usual]),
        "half": Probe([torch.tensor([[1.0, -1.0, 2.0, 0.0]], dtype=torch.float16), usual]),
        "cut_off": Probe([logits, usual], view=lambda p: {CUT_OFF: p > 0}),
    }


SUM = "where tokens are equally likely too, what is kept should sum to 1"
LIKELIEST = "the likeliest token should stay, also if it comes after others that are equally likely"


def _count(words: str):
    return lambda kept: {words: (kept > 0).sum(-1), SUM: (kept.sum(-1) - 1).abs() < 1e-3}


def _winner(words: str):
    """The same, of rows in which the last token alone is likelier than the others."""
    return lambda kept: {LIKELIEST: kept[..., -1] > 0, **_count(words)(kept)}


def _no_more(kept: torch.Tensor) -> dict[str, torch.Tensor]:
    words = f"of equal logits in the thousands, in float32, no more than {K} should keep a probability"
    return {words: (kept > 0).sum(-1) <= K}  # nor does NaN, which is no matter of ties


def _top_k_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    found = _common(s, draw, min(K, s["vocab"] - 1), 1)
    logits = found["plain"].args[0]
    equal = torch.zeros(s["batch"], s["vocab"], dtype=torch.float64)
    words = f"of tokens that are all equally likely, exactly {K} should keep a probability"
    winner = torch.tensor([[1.0, 1.0, 1.0, 1.0, 5.0]], dtype=torch.float64)
    below = f"of one token and four less likely ones that tie, exactly {K} should keep a probability"
    return {
        **found,
        "all": Probe([logits, s["vocab"]]),
        "more_than_all": Probe([logits, s["vocab"] + 3]),
        "equal": Probe([equal, K], view=_count(words)),
        "winner": Probe([winner, K], view=_winner(below)),
        "equal_large": Probe([equal.float() + 5000, K], view=_no_more),
        "none": Probe([logits, 0], refused="k=0"),
        "negative": Probe([logits, -1], refused="k=-1"),
    }


TOP_K = Task(
    name="top_k",
    signature="top_k(logits, k)",
    arguments=("logits", "k"),
    returns=("probabilities",),
    reference=top_k_in_steps(TopKSteps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor, of the shape of logits.",
            ("plain",),
            AT,
            ("structure",),
        ),
        Requirement(
            "values",
            "the k likeliest tokens share the whole probability in their old proportions, others get zero.",
            ("plain", "one"),
            AT,
        ),
        Requirement("axes", "logits may have any number of axes.", ("one_axis", "three_axes"), AT),
        Requirement(
            "all", "a k as large as the vocabulary, or larger, keeps all.", ("all", "more_than_all"), AT
        ),
        Requirement(
            "ties",
            "no more than k tokens keep a probability, even if several are equally likely.",
            ("cut_off", "equal", "winner", "equal_large"),
            AT,
        ),
        Requirement("extremes", EXTREMES, ("large", "low"), AT),
        Requirement("banned", "tokens with a logit of −∞ stay impossible.", ("banned", "impossible"), AT),
        Requirement(
            "dtype",
            "the result has the dtype of logits.",
            ("plain", "one", "float32", "half"),
            AT,
            ("dtype",),
        ),
        Requirement("inputs", "logits are left unchanged.", ("plain", "edited"), AT, ("inputs",)),
        Requirement("refusals", "a k below 1 is refused with ValueError.", ("none", "negative"), AT),
    ),
    sizes=_sizes,
    small=({"batch": 1, "vocab": 4}, {"batch": 2, "vocab": 5}),
    probes=_top_k_probes,
    steps=TopKSteps(),
    assemble=top_k_in_steps,
    mistakes=TOP_K_MISTAKES,
)


def _nucleus_probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    found = _common(s, draw, P, 0.01)
    logits = found["plain"].args[0]
    equal = torch.zeros(s["batch"], 4, dtype=torch.float64)
    words = "of 4 tokens that are equally likely, exactly {} should keep a probability with p = {}"
    winner = torch.tensor([[1 / 6, 1 / 6, 1 / 6, 1 / 2]], dtype=torch.float64).log()
    below = "of probabilities 1/6, 1/6, 1/6 and 1/2, exactly 2 should stay with p = 0.6"
    return {
        "plain": found.pop("plain"),
        "wide": Probe([logits, 0.95]),
        "sure": Probe([torch.tensor([[9.0, 0.0, 0.0, 0.0]], dtype=torch.float64), 0.99]),
        **found,
        "all": Probe([equal, 1.0]),  # quarters, whose sum nobody rounds
        "equal": Probe([equal, ABOVE_HALF], view=_count(words.format(3, ABOVE_HALF))),
        "exact": Probe([equal, 0.5], view=_count(words.format(2, 0.5))),
        "winner": Probe([winner, 0.6], view=_winner(below)),
        "zero": Probe([logits, 0.0], refused="p=0.0"),
        "negative": Probe([logits, -0.5], refused="p=-0.5"),
        "above_one": Probe([logits, 1.5], refused="p=1.5"),
    }


NUCLEUS = Task(
    name="nucleus",
    signature="nucleus(logits, p)",
    arguments=("logits", "p"),
    returns=("probabilities",),
    reference=nucleus_in_steps(NucleusSteps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor, of the shape of logits.",
            ("plain",),
            AT,
            ("structure",),
        ),
        Requirement(
            "values",
            "the fewest tokens that together have a probability of p or more share the whole probability, others "
            "get zero.",
            ("plain", "wide", "sure"),
            AT,
        ),
        Requirement("one", "the likeliest token always stays, however small p is.", ("one",), AT),
        Requirement("axes", "logits may have any number of axes.", ("one_axis", "three_axes"), AT),
        Requirement("all", "p = 1 keeps all.", ("all",), AT),
        Requirement(
            "ties",
            "no more tokens keep a probability than needed, even if several are equally likely.",
            ("cut_off", "equal", "exact", "winner"),
            AT,
        ),
        Requirement("extremes", EXTREMES, ("large", "low"), AT),
        Requirement("banned", "tokens with a logit of −∞ stay impossible.", ("banned", "impossible"), AT),
        Requirement(
            "dtype",
            "the result has the dtype of logits.",
            ("plain", "one", "float32", "half", "all"),
            AT,
            ("dtype",),
        ),
        Requirement("inputs", "logits are left unchanged.", ("plain", "edited"), AT, ("inputs",)),
        Requirement(
            "refusals",
            "a p that is not above 0 and at most 1 is refused with ValueError.",
            ("zero", "negative", "above_one"),
            AT,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "vocab": 4}, {"batch": 2, "vocab": 5}),
    probes=_nucleus_probes,
    steps=NucleusSteps(),
    assemble=nucleus_in_steps,
    mistakes=NUCLEUS_MISTAKES,
)
