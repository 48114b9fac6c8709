"""The decoder layer. Without masks its wiring is seen; a single target position hides causality."""

from transformer_lessons.checks.catalogue import layer
from transformer_lessons.checks.catalogue.layer import BOTH, MEMORY, decoder, one_target
from transformer_lessons.checks.definitions import Task
from transformer_lessons.layers import AddAndNorm, DecoderLayer

TASK = Task(
    name="decoder_layer",
    solution=[AddAndNorm, DecoderLayer],
    planted=("causal_unless_masked", "cross_is_self_attention", "dropout_after_norm", "added_to_the_norm"),
    probes={
        "wiring": (lambda draw: [decoder(draw, 1), decoder(draw, 1), layer.sees_all(draw)], one_target()),
        "causal": (layer.causal, layer.small_causal(MEMORY, **BOTH)),
        "source_mask": (layer.source, layer.SMALL_SOURCE),
        "pre_norm": (
            lambda draw: [decoder(draw, 1, sources=number, norm_first=True) for number in (1, 4)],
            layer.small(MEMORY, norm_first=True, **BOTH),
        ),
        "dropout": (layer.dropout((16, 1), (16, 1), **BOTH), layer.small_training(MEMORY, **BOTH)),
    },
)
