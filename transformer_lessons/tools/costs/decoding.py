"""Bytes that decoding keeps and reads, predicted from a config."""

from transformer_lessons.config import TransformerConfig
from transformer_lessons.tools.costs.sizes import (
    BatchShape,
    check,
    decoding_matrices,
    key_width,
    number_width,
)


def cache_bytes(config: TransformerConfig, shape: BatchShape, precision: str = "float32") -> int:
    """The keys and values that decoding keeps: ``2 · N · sentences · (target + source) · d_kv`` numbers.

    A pitfall: the cache of the source is as large as that of as many target tokens.

    Raises:
        ValueError: as `training_memory`.
    """
    check(config, shape)
    positions = shape.sentences * (shape.target + shape.source)
    return 2 * config.num_decoder_layers * positions * key_width(config) * number_width(precision)


def decoding_bytes(config: TransformerConfig, shape: BatchShape, precision: str = "float32") -> int:
    """What one step of decoding reads at least: ``width · decoding_matrices``, and the cache.

    The matrices are read once for all sentences, the cache is each sentence's own. A pitfall: the weights have to
    be held in that precision; under autocast they are float32, and converted at every step.

    Raises:
        ValueError: as `training_memory`.
    """
    check(config, shape)
    return number_width(precision) * decoding_matrices(config) + cache_bytes(config, shape, precision)
