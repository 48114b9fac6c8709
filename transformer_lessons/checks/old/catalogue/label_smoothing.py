"""The check of `label_smoothed_loss`: the sum over real tokens and their number, no mass on padding."""

import random
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.label_smoothing_mistakes import MISTAKES
from transformer_lessons.checks.old.catalogue.label_smoothing_steps import Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import label_smoothed_loss

__all__ = ["TASK"]

LOSS, SMOOTHING, WRONG = "#ch14-loss", "#ch14-smoothing", "#ch14-wrong"


def _sizes(seed: int) -> dict[str, int]:
    batch, length, vocab = random.Random(seed).sample([3, 5, 7, 11, 13], 3)
    return {"batch": batch, "length": length, "vocab": vocab}


def _seen(value: Any) -> Any:
    """The count may be a whole number or a tensor of one, of any type."""
    loss, tokens = value
    number = isinstance(tokens, int | float) or (isinstance(tokens, Tensor) and not tokens.dim())
    return [loss, torch.as_tensor(tokens, dtype=torch.float64)] if number else value


def _halved(value: Any) -> Any:
    sentence = "of float16 logits the loss should be computed, and returned, in float32"
    return {sentence: value[0]}


def _brain(value: Any) -> Any:
    sentence = "of bfloat16 logits the loss should be computed, and returned, in float32"
    return {sentence: value[0]}


def _kept(value: Any) -> Any:
    sentence = "the loss of float64 logits should be float64, also where all is padding, and then 0"
    return {sentence: value[0]}


def _targets(s: dict[str, int], draw: Draw, pad_id: int) -> tuple[Tensor, Tensor]:
    """Answers without padding, and the same with padding at the end of all rows but the first."""
    batch, length = s["batch"], s["length"]
    full = draw.integers(1, s["vocab"], batch, length)
    full = (full + pad_id) % s["vocab"]
    padded = full.clone()
    for row in range(batch):
        cut = length - row % length if batch > 1 else length - 1
        padded[row, cut:] = pad_id
    return full, padded


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, v = s["batch"], s["length"], s["vocab"]
    logits, up = draw.normal(b, t, v), [torch.tensor(1.7, dtype=torch.float64), torch.tensor(0.0)]
    full, padded = _targets(s, draw, 0)
    middle = v // 2
    _, inside = _targets(s, draw, middle)
    large = 1000 * logits
    high = torch.tensor([-500.0, 500.0], dtype=torch.float64)[torch.arange(t) % 2, None]
    turned = logits.transpose(0, 1)

    def asked(x: Tensor, y: Tensor, pad_id: int | None = 0, **options: Any) -> Probe:
        return Probe([x, y], {"pad_id": pad_id, **options}, view=_seen)

    usual = {"pad_id": 0, "smoothing": 0.1}
    return {
        "plain": asked(logits, full, smoothing=0.0),
        "padded": asked(logits, padded, smoothing=0.0),
        "smoothed": asked(logits, full, smoothing=0.3),
        "both": Probe([logits, padded], {"pad_id": 0, "smoothing": 0.3}, cotangents=up, view=_seen),
        "pad_id": asked(logits, inside, middle, smoothing=0.2),
        "last_pad_id": asked(logits, (inside - middle - 1) % v, v - 1, smoothing=0.2),
        "default": asked(logits, padded),
        "one_axis": asked(logits[0], padded[-1], smoothing=0.2),
        "extreme": asked(large, padded, smoothing=0.1),
        "apart": asked(logits + high, full, smoothing=0.1),
        "shifted": asked(logits + 1000, padded, smoothing=0.1),
        "only_padding": asked(logits, torch.zeros_like(full), smoothing=0.1),
        "only_padding_type": Probe([logits[0], torch.zeros_like(full[0])], usual, view=_kept),
        "float32": asked(logits.float(), padded, smoothing=0.1),
        "half": Probe([(3 * logits).half(), padded], usual, cotangents=up, view=_halved),
        "no_pad_id": asked(logits, full - 1, None, smoothing=0.2),
        "no_axes": asked(logits[0, 0], full[0, 0], smoothing=0.2),
        "turned": asked(turned, padded.T, smoothing=0.2),
        "padding_first": asked(logits, padded.flip(-1), smoothing=0.2),
        "brain": Probe([(3 * logits).bfloat16(), padded], usual, cotangents=up, view=_brain),
        "negative": Probe([logits, padded], {"pad_id": 0, "smoothing": -0.1}, refused="smoothing=-0.1"),
        "above": Probe([logits, padded], {"pad_id": 0, "smoothing": 1.5}, refused="smoothing=1.5"),
        "all": Probe([logits, padded], {"pad_id": 0, "smoothing": 1.0}, refused="smoothing=1.0"),
        "below": Probe([logits, full], {"pad_id": -1}, refused="pad_id=-1"),
        "no_class": Probe([logits, full], {"pad_id": v}, refused=f"pad_id={v} among {v} classes"),
    }


TASK = Task(
    name="label_smoothing",
    signature="label_smoothed_loss(logits, targets, *, pad_id, smoothing=0.1)",
    arguments=("logits", "targets"),
    returns=("loss", "tokens"),
    reference=label_smoothed_loss,
    requirements=(
        Requirement(
            "returns",
            "it returns the sum of the loss and the number of real tokens, each a single number.",
            ("plain",),
            LOSS,
            ("structure",),
        ),
        Requirement(
            "values",
            "without smoothing, the loss is −log p(right token), summed over the tokens.",
            ("plain",),
            LOSS,
        ),
        Requirement(
            "padding",
            "positions whose target is pad_id count neither in the sum nor in the number.",
            ("padded", "only_padding", "padding_first"),
            LOSS,
        ),
        Requirement(
            "smoothing",
            "ε/(V − 1) of the target goes to every class but padding, and 1 − ε more to the right one.",
            ("smoothed", "both"),
            SMOOTHING,
        ),
        Requirement(
            "pad_id", "any class can be the padding, not only 0.", ("pad_id", "last_pad_id"), SMOOTHING
        ),
        Requirement("default", "smoothing is 0.1 unless given.", ("default",), SMOOTHING),
        Requirement(
            "no_pad_id",
            "with pad_id=None all tokens are real, and all V classes share ε.",
            ("no_pad_id",),
            SMOOTHING,
        ),
        Requirement(
            "axes",
            "logits may have any number of axes before the classes.",
            ("one_axis", "no_axes", "turned"),
            LOSS,
        ),
        Requirement("gradients", "gradients reach the logits.", ("both", "half"), LOSS, ("gradients",)),
        Requirement(
            "extremes",
            "logits in the thousands give a finite loss.",
            ("extreme", "apart", "shifted"),
            LOSS,
        ),
        Requirement(
            "dtype",
            "float64 and float32 are kept; narrower logits are computed with in float32.",
            ("both", "only_padding_type", "float32", "half", "brain"),
            LOSS,
        ),
        Requirement(
            "inputs", "logits and targets are left unchanged.", ("both", "pad_id"), LOSS, ("inputs",)
        ),
        Requirement(
            "refusals",
            "a smoothing outside [0, 1), and a pad_id that is no class, are refused with ValueError.",
            ("negative", "all", "above", "below", "no_class"),
            SMOOTHING,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "length": 2, "vocab": 3}, {"batch": 2, "length": 3, "vocab": 5}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=15,  # a draft fails in its own way without a pad_id
)
