"""The decoder layer. Without masks its wiring is seen; a single target position hides causality."""

from transformer_lessons.checks.catalogue.layer import (
    BOTH,
    FIRST,
    MEMORY,
    causal,
    dropout,
    one_target,
    sees_all,
    small,
    small_causal,
    small_training,
    source,
    two,
)
from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.layers import AddAndNorm, DecoderLayer


def wiring(draw: Draw) -> list[Call]:
    """One target position, which sees itself and the source; and the first of several, which sees all of it."""
    return [two(draw, 1), two(draw, 1), sees_all(draw)]


def pre_norm(draw: Draw) -> list[Call]:
    """One target position, and one of the source or several."""
    return [two(draw, 1, sources=number, norm_first=True) for number in (1, 4)]


TASK = Task(
    name="decoder_layer",
    right=[AddAndNorm, DecoderLayer],
    broken=("causal_unless_masked", "cross_is_self_attention", "dropout_after_norm", "added_to_the_norm"),
    probes={
        "wiring": (wiring, one_target()),
        "causal": (causal, small_causal(MEMORY, **BOTH)),
        "source_mask": (source, small(MEMORY, masks=(FIRST,), **BOTH)),
        "pre_norm": (pre_norm, small(MEMORY, norm_first=True, **BOTH)),
        "dropout": (dropout((16, 1), (16, 1), **BOTH), small_training(MEMORY, **BOTH)),
    },
)
