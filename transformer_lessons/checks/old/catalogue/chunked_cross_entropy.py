"""The check of `chunked_cross_entropy`: the loss over a large vocabulary without all its logits."""

import random

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.chunked_cross_entropy_mistakes import (
    LOSS,
    MEASURED,
    MISTAKES,
    ONLINE,
    Steps,
    assemble,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["TASK"]


def _sizes(seed: int) -> dict[str, int]:
    order = random.Random(seed)
    tokens, vocab = order.choice([11, 13]), order.choice([17, 19, 23])
    width, chunk = order.sample([3, 5, 7], 2)
    return {"tokens": tokens, "vocab": vocab, "width": width, "chunk": chunk}


def _inputs(
    draw: Draw, tokens: int, vocab: int, width: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Hidden vectors, the projection, and targets all over the vocabulary; one in four is padding."""
    targets = (draw.integers(0, vocab, 1) + torch.arange(tokens) * max(vocab // tokens, 1)) % vocab
    targets[targets == 0] = 1
    targets[::4] = 0
    return [draw.normal(tokens, width, dtype=dtype), draw.normal(vocab, width, dtype=dtype), targets]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    n, vocab, width, chunk = (s[name] for name in ("tokens", "vocab", "width", "chunk"))
    hidden, weight, targets = plain = _inputs(draw, n, vocab, width)
    unpadded = torch.where(targets == 0, 1, targets)
    other = torch.where(targets == 0, 2, torch.where(targets == 2, 3, targets))
    low = [hidden.abs() + 0.5, -2e4 * (weight.abs() + 0.5), targets]
    shown, halves = _inputs(draw, 53, 101, 2), _inputs(draw, 29, 74, 2)
    column, column_of_halves = 53 * 8, 29 * 8
    back = [torch.tensor(1.7, dtype=torch.float64)]  # not 1: a loss may be part of another one
    return {
        "one_chunk": Probe([hidden, weight, unpadded, vocab + 4, 0]),
        "padded": Probe([*plain, vocab + 4, 0]),
        "dividing": Probe([*_inputs(draw, n, 3 * chunk, width), chunk, 0]),
        "plain": Probe([*plain, chunk, 0], cotangents=back),
        "pad_id": Probe([hidden, weight, other, vocab + 4, 2]),
        "float32": Probe([*_inputs(draw, n, vocab, width, torch.float32), chunk, 0]),
        "large": Probe([hidden * 300, weight * 10, targets, chunk, 0], cotangents=back),
        "low": Probe([*low, chunk, 0]),
        "only_padding": Probe([hidden, weight, torch.zeros_like(targets), chunk, 0], cotangents=back),
        "one_token": Probe([hidden[:1], weight, unpadded[:1], 1, 0]),
        "training": Probe(
            [*shown, 13, 0],
            cotangents=back,
            meter=True,
            enough={"largest": 13 * column, "saved": 25 * column, "peak": 90 * column},
        ),
        "halves": Probe(
            [*halves, 37, 0], cotangents=back, meter=True, enough={"saved": 18 * column_of_halves}
        ),
        "few_classes": Probe(
            [*_inputs(draw, 61, 41, 2), 7, 0], cotangents=back, meter=True, enough={"largest": 7 * 61 * 8}
        ),
        "no_chunk": Probe([*plain, 0, 0], refused="chunk=0"),
        "negative_chunk": Probe([*plain, -chunk, 0], refused=f"chunk={-chunk}"),
    }


TASK = Task(
    name="chunked_cross_entropy",
    signature="chunked_cross_entropy(hidden, weight, targets, chunk, pad_id)",
    arguments=("hidden", "weight", "targets", "chunk", "pad_id"),
    returns=("loss",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor without axes.", ("one_chunk",), MEASURED, ("structure",)
        ),
        Requirement(
            "values",
            "loss = −log softmax(hidden weightᵀ)[target], its mean over the tokens.",
            ("one_chunk",),
            LOSS,
        ),
        Requirement(
            "padding", "tokens whose target is pad_id count for nothing.", ("padded", "pad_id"), LOSS
        ),
        Requirement(
            "chunks",
            "chunk classes at a time share one softmax; chunk need not divide their number.",
            ("dividing", "plain"),
            ONLINE,
        ),
        Requirement("gradients", "gradients reach hidden and weight.", ("plain",), MEASURED, ("gradients",)),
        Requirement(
            "extremes",
            "logits of any size work: no overflow, no NaN, and none in gradients.",
            ("large", "low"),
            ONLINE,
            ("gradients",),
        ),
        Requirement("dtype", "the loss has the dtype of hidden.", ("float32", "plain"), LOSS, ("dtype",)),
        Requirement("inputs", "the caller's tensors are left unchanged.", ("plain",), LOSS, ("inputs",)),
        Requirement(
            "only_padding",
            "without a single real token, loss and gradients are 0.",
            ("only_padding",),
            LOSS,
            ("gradients",),
        ),
        Requirement(
            "largest",
            "no tensor holds the logits of all classes, forwards or backwards.",
            ("training", "few_classes"),
            MEASURED,
            ("largest",),
        ),
        Requirement(
            "saved",
            "nothing of the size of all logits is kept for the way back.",
            ("training", "halves"),
            MEASURED,
            ("gradients", "saved"),
        ),
        Requirement(
            "peak", "nor is it there at once on the way back.", ("training",), MEASURED, ("gradients", "peak")
        ),
        Requirement(
            "refusals",
            "a chunk below 1 is refused with ValueError.",
            ("one_token", "no_chunk", "negative_chunk"),
            LOSS,
        ),
    ),
    sizes=_sizes,
    small=(
        {"tokens": 2, "vocab": 3, "width": 1, "chunk": 2},
        {"tokens": 2, "vocab": 5, "width": 2, "chunk": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=9,  # what is neither refused nor counted
)
