"""The check of `soft_capped_attention`, an exercise that goes beyond the chapter and the package."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention import BASE, SMALL, base_probes, low_scores, sizes
from transformer_lessons.checks.old.catalogue.attention_mistakes import CORE
from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import SHAPES
from transformer_lessons.checks.old.catalogue.attention_steps import Steps, attend_capped, cap_scores
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

ANCHOR = "#ch05-saturation"
CAP = 1.5
WORDS = {
    "values": "weights = softmax(cap · tanh(scores / cap)) with scores = QKᵀ/√d_k, output = weights V.",
    "extremes": "scores and caps of any size work: no overflow, no NaN, and nothing hidden leaks.",
}


def probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    """Those of plain attention, and caps that cannot be."""
    found = base_probes(s, draw, (CAP,))
    q, k, v, _ = found["plain"].args
    low = low_scores(q, k, v, 1e5)  # and still below −1e4 where the cap is as wide
    return {
        **found,
        "tiny_cap": Probe([q, k, v, 0.01, draw.mask(s["batch"], s["heads"], s["queries"], s["keys"])]),
        "large_cap": Probe([q * 300, k * 10, v, 1e5]),
        "large_cap_masked": Probe([*low, 1e6, found["masked"].args[-1]]),
        "small_cap": Probe([q, k, v, 0.25]),
        "whole_cap": Probe([q, k, v, 50], note="cap is an int"),
        "zero_cap": Probe([q, k, v, 0.0], refused="cap=0.0"),
        "negative_cap": Probe([q, k, v, -CAP], refused=f"cap={-CAP}"),
    }


def _clamped(scores: Tensor, cap: float, d_k: int) -> Tensor:
    return scores.clamp(-cap, cap)


def _before_scaling(scores: Tensor, cap: float, d_k: int) -> Tensor:
    return cap_scores(scores * d_k**0.5, cap) / d_k**0.5


def _filled_by_cap(times: float) -> dict:
    """Hidden scores are a multiple of the cap, which only the step after hiding knows."""

    def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
        return scores if mask is None else scores.masked_fill(~mask, -math.inf)

    return {"hide": hide, "late": lambda scores, cap: scores.masked_fill(scores == -math.inf, -times * cap)}


def _never(scores: Tensor, cap: float, d_k: int) -> Tensor:
    return scores


CAPPING = (
    Mistake(
        "cap_ignored",
        "you never use cap",
        "Plain attention was copied.",
        "Large scores stay large.",
        ANCHOR,
        ({"cap": _never},),
    ),
    Mistake(
        "cap_not_multiplied",
        "you left out the factor in front: cap·tanh(scores/cap), not tanh(scores/cap)",
        "tanh alone limits the scores too.",
        "Scores lie between −1 and 1, whatever cap is, and even small ones shrink.",
        ANCHOR,
        ({"cap": lambda scores, cap, d_k: torch.tanh(scores / cap)},),
    ),
    Mistake(
        "cap_not_divided",
        "you left out the division inside: cap·tanh(scores/cap), not cap·tanh(scores)",
        "The cap is multiplied in, so the range is right.",
        "Small scores are stretched; a soft cap leaves them as they are.",
        ANCHOR,
        ({"cap": lambda scores, cap, d_k: cap * torch.tanh(scores)},),
    ),
    Mistake(
        "cap_clamped",
        "you cut the scores off with clamp; a soft cap bends them with tanh",
        "Both keep scores within −cap … cap.",
        "Beyond the cap there is no gradient at all.",
        ANCHOR,
        ({"cap": _clamped},),
    ),
    Mistake(
        "cap_before_scaling",
        "you capped QKᵀ and divided by √d_k afterwards; the scaled scores are what is capped",
        "The order of two harmless-looking lines.",
        "The effective cap is cap/√d_k.",
        ANCHOR,
        ({"cap": _before_scaling},),
    ),
    Mistake(
        "cap_after_mask",
        "you capped after masking, which lifts hidden scores up to −cap",
        "The cap was put right before the softmax.",
        "Hidden keys get weight. Cap first, then mask.",
        "#ch05-masks",
        ({"cap": _never, "late": cap_scores, "clear": lambda weights, mask: weights},),
    ),
    Mistake(
        "mask_filled_by_cap",
        "you fill hidden scores with a multiple of the cap, which is not far away where the cap is small",
        "No score exceeds the cap, so −20·cap looks very low.",
        "With a small cap, hidden keys take a share of the weight.",
        "#ch05-masks",
        tuple(_filled_by_cap(times) for times in (2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0)),
    ),
    Mistake(
        "cap_unchecked",
        "you accept a cap of zero or less",
        "Nothing fails: the scores become NaN, or change nothing at all.",
        "A typo in a configuration goes unnoticed.",
        ANCHOR,
        ({"accept_cap": lambda cap: None},),
    ),
)
MORE = {"mask": ("tiny_cap",), "extremes": ("large_cap", "large_cap_masked")}

TASK = Task(
    name="soft_capped_attention",
    signature="soft_capped_attention(query, key, value, cap, mask=None)",
    arguments=("query", "key", "value", "cap", "mask"),
    returns=("output", "weights"),
    reference=attend_capped(Steps()),
    requirements=(
        *(
            replace(r, sentence=WORDS.get(r.id, r.sentence), probes=(*r.probes, *MORE.get(r.id, ())))
            for r in BASE
        ),
        Requirement(
            "refusals",
            "a cap that is not positive is refused with ValueError; a small one is not, nor a whole number.",
            ("small_cap", "whole_cap", "zero_cap", "negative_cap"),
            ANCHOR,
        ),
    ),
    sizes=sizes,
    small=SMALL,
    probes=probes,
    steps=Steps(),
    assemble=attend_capped,
    mistakes=(*CAPPING, *CORE, *SHAPES),
)
