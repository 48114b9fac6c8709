"""The configuration of a model: the paper's two, and what is refused. For training: `test_trainer`."""

from dataclasses import replace

import pytest

from transformer_lessons.config import TransformerConfig


def test_base_and_big_are_the_papers():
    sizes = TransformerConfig(
        37_000, 37_000, 512, 8, 2048, 6, 6, 0.1, False, "relu", "sinusoidal", True, True
    )
    assert TransformerConfig.base() == sizes
    assert (sizes.pad_id, sizes.bos_id, sizes.eos_id) == (0, 1, 2)
    wider = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
    assert TransformerConfig.big() == replace(sizes, **wider)


@pytest.mark.parametrize("preset", [TransformerConfig.base, TransformerConfig.big])
def test_presets_take_changes(preset):
    config = preset(101, dropout=0.0, d_model=48, shared_vocabulary=False, num_heads=3)
    assert (config.source_vocab_size, config.target_vocab_size) == (101, 101)
    assert (config.dropout, config.d_model, config.shared_vocabulary, config.num_heads) == (0.0, 48, False, 3)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source_vocab_size": 0}, "source_vocab_size: expected 1 or more, got 0"),
        ({"d_model": 15.0}, "d_model: expected int, got 15.0"),
        ({"num_heads": 4}, "num_heads: expected a divisor of d_model = 15, got 4"),
        ({"dropout": 1}, "dropout: expected 0 or more, below 1, got 1"),
        ({"dropout": float("nan")}, "dropout: expected 0 or more, below 1, got nan"),
        ({"dropout": "0.1"}, "dropout: expected float, got '0.1'"),
        ({"activation": "swish"}, "activation: expected one of relu, gelu, got 'swish'"),
        ({"position": "rotary"}, "position: expected one of sinusoidal, learned, got 'rotary'"),
        ({"pad_id": -1}, r"pad_id, bos_id, eos_id: expected three different ids, 0 to 16, got \(-1, 1, 2\)"),
        ({"bos_id": 17}, r"pad_id, bos_id, eos_id: expected three different ids, 0 to 16, got \(0, 17, 2\)"),
        ({"eos_id": 0}, r"pad_id, bos_id, eos_id: expected three different ids, 0 to 16, got \(0, 1, 0\)"),
        (
            {"shared_vocabulary": True},
            r"shared_vocabulary: expected vocabularies of one size, got \(17, 19\)",
        ),
    ],
)
def test_nonsense_is_refused(changes, complaint):
    sizes = {"source_vocab_size": 17, "target_vocab_size": 19, "d_model": 15, "num_heads": 3}
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        TransformerConfig(**{**sizes, **changes})
