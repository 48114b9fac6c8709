"""Encoder and decoder layers against nn.TransformerEncoderLayer and nn.TransformerDecoderLayer."""

import pytest
import torch
from compare import DTYPES, assert_same_module, layer_to_torch, perturb
from conftest import assert_close
from torch import nn

from transformer_lessons.config import TransformerConfig
from transformer_lessons.layers import AddAndNorm, DecoderLayer, EncoderLayer
from transformer_lessons.masks import padding_mask

SIZES = {"d_model": 15, "num_heads": 3, "d_ff": 23}
SOURCE, TARGET = 7, 11
SRC = torch.tensor([[5] * 7, [5] * 4 + [0] * 3])

DTYPE = pytest.mark.parametrize("dtype", DTYPES)
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True])


def config(**changes) -> TransformerConfig:
    return TransformerConfig(17, 19, **{"dropout": 0.0, **SIZES, **changes})


def theirs_of(cls, dtype=torch.float32, *, dropout=0.0, **options):
    return cls(15, 3, 23, dropout, batch_first=True, dtype=dtype, **options)


@DTYPE
@NORM_FIRST
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_torch(activation, norm_first, dtype):
    options = {"norm_first": norm_first, "activation": activation}
    assert_same_module(
        EncoderLayer(config(**options)).to(dtype),
        theirs_of(nn.TransformerEncoderLayer, dtype, **options),
        layer_to_torch,
        lambda ours, x: ours(x, padding_mask(SRC, 0)),
        lambda theirs, x: theirs(x, src_key_padding_mask=SRC == 0),
        torch.randn(2, SOURCE, 15, dtype=dtype),
    )


@DTYPE
@NORM_FIRST
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_equals_torch(activation, norm_first, dtype):
    options = {"norm_first": norm_first, "activation": activation}
    hidden = {"tgt_mask": torch.ones(TARGET, TARGET).triu(1) == 1, "memory_key_padding_mask": SRC == 0}
    assert_same_module(
        DecoderLayer(config(**options)).to(dtype),
        theirs_of(nn.TransformerDecoderLayer, dtype, **options),
        layer_to_torch,
        lambda ours, x, memory: ours(x, memory, padding_mask(SRC, 0)),
        lambda theirs, x, memory: theirs(x, memory, **hidden),
        torch.randn(2, TARGET, 15, dtype=dtype),
        torch.randn(2, SOURCE, 15, dtype=dtype),
    )


def test_a_target_mask_comes_on_top_of_causality():
    tgt = torch.tensor([[0, 0, 5, 5, 5], [5] * 5])  # padding on the left
    ours = perturb(DecoderLayer(config())).double()
    theirs = theirs_of(nn.TransformerDecoderLayer, torch.float64)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    x, memory = torch.randn(2, 5, 15, dtype=torch.float64), torch.randn(2, SOURCE, 15, dtype=torch.float64)
    hidden = {"tgt_mask": torch.ones(5, 5).triu(1) == 1, "tgt_key_padding_mask": tgt == 0}
    actual = ours(x, memory, tgt_mask=padding_mask(tgt, 0))
    assert_close(actual[tgt != 0], theirs(x, memory, **hidden)[tgt != 0])


@NORM_FIRST
def test_dropout_is_on_the_output_of_every_sublayer_and_nowhere_else(norm_first):
    # Without the two dropouts that only PyTorch has (on the weights, inside the feed-forward network),
    # the same seed drops the same entries: as many draws, in the same order, of the same shapes.
    ours = perturb(DecoderLayer(config(dropout=0.3, norm_first=norm_first)))
    theirs = theirs_of(nn.TransformerDecoderLayer, dropout=0.3, norm_first=norm_first)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    theirs.self_attn.dropout = theirs.multihead_attn.dropout = theirs.dropout.p = 0.0
    theirs.dropout1, theirs.dropout2, theirs.dropout3 = (nn.Dropout(0.3) for _ in range(3))
    # One sequence only: PyTorch swaps batch and length inside, and entries are drawn in the order of memory.
    x, memory = torch.randn(1, TARGET, 15), torch.randn(1, SOURCE, 15)
    torch.manual_seed(1)
    actual = ours(x, memory)
    torch.manual_seed(1)
    assert_close(actual, theirs(x, memory, tgt_mask=torch.ones(TARGET, TARGET).triu(1) == 1))
    assert not torch.allclose(actual, ours.eval()(x, memory))
    assert torch.equal(ours(x, memory), ours(x, memory))


@NORM_FIRST
def test_the_residual_stream_is_never_dropped(norm_first):
    block = AddAndNorm(config(dropout=0.5, norm_first=norm_first))
    block.norm = nn.Identity()
    x = torch.randn(2, 101, 15)
    added = block(x, torch.ones_like) - x
    dropped = added.abs() < 1e-5
    assert dropped.float().mean().item() == pytest.approx(0.5, abs=0.06)
    assert_close(added[~dropped], torch.full_like(added[~dropped], 2.0))


@NORM_FIRST
def test_where_the_norm_stands(norm_first):
    block = perturb(AddAndNorm(config(norm_first=norm_first)))
    x = torch.randn(2, 7, 15)
    expected = x + 3 * block.norm(x) if norm_first else block.norm(x + 3 * x)
    assert_close(block(x, lambda y: 3 * y), expected)
