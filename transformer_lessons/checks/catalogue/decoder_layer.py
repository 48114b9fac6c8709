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
from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task
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
    arguments=("x", "memory", "src_mask", "tgt_mask"),
    broken=("causal_unless_masked", "cross_is_self_attention", "dropout_after_norm", "added_to_the_norm"),
    requirements=(
        Requirement(
            "wiring",
            "self-attention, cross-attention to memory and feed-forward follow each other, each in an Add & Norm "
            "of its own",
            points=1,
            calls=wiring,
            small=one_target,
            anchor="layers-wiring",
        ),
        Requirement(
            "causal",
            "no position sees a later one of the target, nor what tgt_mask hides",
            points=0.5,
            calls=causal,
            small=lambda: small_causal(MEMORY, **BOTH),
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
