"""What a model costs, predicted from its config: parameters, operations, bytes, and time on a card.

Nothing is built or run; `tests/test_costs.py` holds the predictions to what PyTorch counts and keeps.
"""

from transformer_lessons.tools.costs.cards import Card, decoding_seconds, dollars, training_seconds
from transformer_lessons.tools.costs.counts import (
    Operations,
    Parameters,
    decoding_operations,
    forward_operations,
    parameters,
    training_operations,
)
from transformer_lessons.tools.costs.decoding import cache_bytes, decoding_bytes
from transformer_lessons.tools.costs.memory import (
    TrainingMemory,
    decoder_layer_bytes,
    encoder_layer_bytes,
    training_memory,
)
from transformer_lessons.tools.costs.sizes import BatchShape

__all__ = [
    "BatchShape",
    "Card",
    "Operations",
    "Parameters",
    "TrainingMemory",
    "cache_bytes",
    "decoder_layer_bytes",
    "decoding_bytes",
    "decoding_operations",
    "decoding_seconds",
    "dollars",
    "encoder_layer_bytes",
    "forward_operations",
    "parameters",
    "training_memory",
    "training_operations",
    "training_seconds",
]
