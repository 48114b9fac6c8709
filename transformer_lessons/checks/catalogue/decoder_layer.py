"""The decoder layer. Without masks its wiring is seen; a single target position hides causality."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.catalogue.layer import (
    ALL,
    BOTH,
    FIRST,
    MEMORY,
    call,
    changed_at,
    dropout,
    silenced,
    small,
    small_training,
)
from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task
from transformer_lessons.layers import AddAndNorm, DecoderLayer


def one(draw: Draw, targets: int, *masks: Tensor | None, sources: int = 4, **options) -> Call:
    """Two sentences."""
    args = draw.normal(2, targets, 6), draw.normal(2, sources, 6), *masks
    return call(draw, *args, **BOTH, **options)


def wiring(draw: Draw) -> list[Call]:
    """One target position, which sees itself and the source; and the first of several, which sees all of it."""
    first = silenced(one(draw, 3), "self_attention.W_o")
    first = replace(first, twin=changed_at(first, 1, 3), view=lambda y: y[:, :1])
    return [one(draw, 1), one(draw, 1), first]


def pre_norm(draw: Draw) -> list[Call]:
    """One target position, and one of the source or several."""
    return [one(draw, 1, sources=number, norm_first=True) for number in (1, 4)]


def causal(draw: Draw) -> list[Call]:
    """The first positions when a later one changes, and the last when one does that is hidden, or is not.

    Whatever cross-attention does.
    """
    plain = silenced(one(draw, 3, sources=3), "cross_attention.W_o")
    masked = one(draw, 3, None, torch.tensor([False, True, True]).expand(2, 1, 1, 3), sources=3)
    masked = silenced(masked, "cross_attention.W_o")
    hidden, seen = (changed_at(masked, 0, place) for place in (0, 1))
    calls = [replace(plain, twin=changed_at(plain, 0, 2), view=lambda y: y[:, :2])]
    calls += [replace(masked, twin=twin, view=lambda y: y[:, 2]) for twin in (hidden, seen)]
    return [*calls, replace(masked, twin=changed_at(masked, 0, 2), view=lambda y: y[:, 1])]


def small_causal() -> Iterator[Call]:
    """Without a mask, and with masks that hide something or nothing."""
    cases = [*small(MEMORY, **BOTH)(), *small(MEMORY, None, masks=(FIRST, ALL), **BOTH)()]
    return reversed([case for case in cases if case.args[0].size(1) > 1])


def small_wiring() -> Iterator[Call]:
    """One target position, then two of which nothing is causal but the self-attention."""
    yield from sorted(small(MEMORY, **BOTH)(), key=lambda case: case.args[0].size(1))


def source(draw: Draw) -> list[Call]:
    """A source position that is hidden changes, and one that is not."""
    masked = one(draw, 1, torch.tensor([True, True, True, False]).expand(2, 1, 1, 4))
    masked = silenced(masked, "self_attention.W_o")
    return [replace(masked, twin=changed_at(masked, 1, place)) for place in (3, 1)]


TASK = Task(
    name="decoder_layer",
    right=[AddAndNorm, DecoderLayer],
    arguments=("x", "memory", "src_mask", "tgt_mask"),
    broken=("causal_unless_masked", "cross_is_self_attention", "dropout_after_norm", "added_to_the_norm"),
    requirements=(
        Requirement(
            "wiring",
            "self-attention, cross-attention to memory and feed-forward follow each other, each in an Add & Norm "
            "of its own",
            points=1,
            calls=wiring,
            small=small_wiring,
            anchor="layers-wiring",
        ),
        Requirement(
            "causal",
            "no position sees a later one of the target, nor what tgt_mask hides",
            points=0.5,
            calls=causal,
            small=small_causal,
            anchor="layers-wrong",
        ),
        Requirement(
            "source_mask",
            "src_mask hides positions of memory",
            points=0.5,
            calls=source,
            small=small(MEMORY, masks=(FIRST,), **BOTH),
            anchor="layers-wrong",
        ),
        Requirement(
            "pre_norm",
            "with norm_first, each sub-layer reads its norm of the stream and adds to the stream",
            points=0.5,
            calls=pre_norm,
            small=small(MEMORY, norm_first=True, **BOTH),
            anchor="add-and-norm",
        ),
        Requirement(
            "dropout",
            "in training, dropout falls on what each sub-layer gives, before the sum, and on nothing else",
            points=0.5,
            calls=dropout((16, 1), (16, 1), **BOTH),
            small=small_training(MEMORY, **BOTH),
            anchor="residuals-wrong",
        ),
    ),
)
