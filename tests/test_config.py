"""The configuration: the paper's two models, and what is refused."""

from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from transformer_lessons import model
from transformer_lessons.config import TransformerConfig


def test_base_is_the_papers():
    config = TransformerConfig.base()
    sizes = (
        config.d_model,
        config.num_heads,
        config.d_ff,
        config.num_encoder_layers,
        config.num_decoder_layers,
    )
    assert sizes == (512, 8, 2048, 6, 6)
    assert (config.dropout, config.norm_first, config.norm) == (0.1, False, "layer")
    assert (config.activation, config.position) == ("relu", "sinusoidal")
    assert config.source_vocab_size == config.target_vocab_size == 37_000
    assert config.shared_vocabulary
    assert config.tie_embeddings
    assert (config.pad_id, config.bos_id, config.eos_id) == (0, 1, 2)


def test_what_the_paper_leaves_open():
    config = TransformerConfig.base()
    assert (config.max_length, config.num_key_value_heads) == (1024, None)


@pytest.mark.parametrize("groups", [None, 1, 2, 6])
def test_key_value_heads_divide_the_heads(groups):
    config = TransformerConfig(17, 19, d_model=24, num_heads=6, num_key_value_heads=groups)
    assert config.num_key_value_heads == groups


def test_rotary_positions_need_pairs():
    assert TransformerConfig(17, 19, d_model=12, num_heads=3, position="rotary").position == "rotary"


def test_big_is_the_papers():
    config = TransformerConfig.big()
    assert replace(config, d_model=512, num_heads=8, d_ff=2048, dropout=0.1) == TransformerConfig.base()
    assert (config.d_model, config.num_heads, config.d_ff, config.dropout) == (1024, 16, 4096, 0.3)


@pytest.mark.parametrize("preset", [TransformerConfig.base, TransformerConfig.big])
def test_presets_take_changes(preset):
    config = preset(101, dropout=0.0, d_model=48, shared_vocabulary=False, num_heads=3)
    assert (config.source_vocab_size, config.target_vocab_size) == (101, 101)
    assert (config.dropout, config.d_model, config.shared_vocabulary, config.num_heads) == (0.0, 48, False, 3)


def test_frozen_and_made_again_from_its_fields():
    config = TransformerConfig(17, 19, d_model=15, num_heads=3)
    with pytest.raises(FrozenInstanceError):
        config.d_model = 30
    assert TransformerConfig(**asdict(config)) == config


def test_model_exports_it():
    assert model.TransformerConfig is TransformerConfig


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source_vocab_size": 0}, "source_vocab_size: expected an integer, 1 or more, got 0"),
        ({"target_vocab_size": -3}, "target_vocab_size: expected an integer, 1 or more, got -3"),
        ({"d_model": 15.0}, "d_model: expected an integer, 1 or more, got 15.0"),
        ({"num_heads": True}, "num_heads: expected an integer, 1 or more, got True"),
        ({"d_ff": "23"}, "d_ff: expected an integer, 1 or more, got '23'"),
        ({"num_encoder_layers": 0}, "num_encoder_layers: expected an integer, 1 or more, got 0"),
        ({"num_decoder_layers": None}, "num_decoder_layers: expected an integer, 1 or more, got None"),
        ({"max_length": 0}, "max_length: expected an integer, 1 or more, got 0"),
        ({"num_heads": 4}, "num_heads: expected a divisor of d_model = 15, got 4"),
        ({"dropout": 1}, "dropout: expected 0 or more and below 1, got 1"),
        ({"dropout": -0.1}, "dropout: expected 0 or more and below 1, got -0.1"),
        ({"dropout": float("nan")}, "dropout: expected 0 or more and below 1, got nan"),
        ({"dropout": "0.1"}, "dropout: expected 0 or more and below 1, got '0.1'"),
        ({"norm": "batch"}, "norm: expected one of layer, rms, got 'batch'"),
        ({"activation": "swish"}, "activation: expected one of relu, gelu, swiglu, got 'swish'"),
        (
            {"position": ["learned"]},
            r"position: expected one of sinusoidal, learned, rotary, got \['learned'\]",
        ),
        ({"norm_first": "no"}, "norm_first: expected True or False, got 'no'"),
        ({"tie_embeddings": 1}, "tie_embeddings: expected True or False, got 1"),
        ({"shared_vocabulary": None}, "shared_vocabulary: expected True or False, got None"),
        ({"num_key_value_heads": 2}, "num_key_value_heads: expected a divisor of num_heads = 3, got 2"),
        ({"num_key_value_heads": 0}, "num_key_value_heads: expected a divisor of num_heads = 3, got 0"),
        ({"num_key_value_heads": -3}, "num_key_value_heads: expected a divisor of num_heads = 3, got -3"),
        ({"num_key_value_heads": 3.0}, "num_key_value_heads: expected a divisor of num_heads = 3, got 3.0"),
        ({"num_key_value_heads": True}, "num_key_value_heads: expected a divisor of num_heads = 3, got True"),
        (
            {"position": "rotary", "d_model": 9},
            "num_heads: expected d_model / num_heads even, for rotary positions, got",
        ),
        ({"pad_id": -1}, "pad_id: expected an integer, 0 to 16, got -1"),
        ({"bos_id": 17}, "bos_id: expected an integer, 0 to 16, got 17"),
        ({"eos_id": 1.5}, "eos_id: expected an integer, 0 to 16, got 1.5"),
        ({"eos_id": "2"}, "eos_id: expected an integer, 0 to 16, got '2'"),
        ({"eos_id": 0}, "pad_id, bos_id, eos_id: expected three different ids, got 0, 1, 0"),
        ({"shared_vocabulary": True}, "shared_vocabulary: expected vocabularies of one size, got 17 and 19"),
    ],
)
def test_nonsense_is_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        TransformerConfig(
            **{"source_vocab_size": 17, "target_vocab_size": 19, "d_model": 15, "num_heads": 3, **changes}
        )
