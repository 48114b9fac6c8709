"""Encoder and decoder layers against nn.TransformerEncoderLayer and nn.TransformerDecoderLayer."""

import pytest
import torch
from compare import DTYPES, assert_same_module, layer_to_torch, perturb
from conftest import assert_close
from torch import nn

from transformer_lessons.cache import KeyValueCache
from transformer_lessons.config import TransformerConfig
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.feed_forward import SwiGLU
from transformer_lessons.layers import AddAndNorm, DecoderLayer, EncoderLayer, LayerCache
from transformer_lessons.masks import padding_mask
from transformer_lessons.norms import RMSNorm

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
    theirs.dropout1, theirs.dropout2, theirs.dropout3 = (Dropout(0.3) for _ in range(3))
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


def test_rms_norm_by_choice():
    layer = DecoderLayer(config(norm="rms"))
    assert sum(isinstance(module, RMSNorm) for module in layer.modules()) == 3
    assert not any(name.endswith("norm.bias") for name in layer.state_dict())


def test_swiglu_by_choice():
    layer = EncoderLayer(config(activation="swiglu"))
    assert isinstance(layer.feed_forward, SwiGLU)
    assert layer.feed_forward.W_3.weight.shape == (23, 15)
    x = torch.randn(2, SOURCE, 15)
    y = layer.add_norm_self(x, layer.self_attention)
    assert_close(layer(x), layer.add_norm_feed_forward.norm(y + layer.feed_forward(y)))


def test_fewer_key_value_heads_by_choice():
    layer = DecoderLayer(config(d_model=18, num_heads=6, num_key_value_heads=2))
    for attention in (layer.self_attention, layer.cross_attention):
        assert (attention.num_heads, attention.num_key_value_heads) == (6, 2)
        assert attention.W_k.weight.shape == attention.W_v.weight.shape == (6, 18)


def test_rotary_positions_by_choice_turn_self_attention_and_not_cross():
    layer = perturb(DecoderLayer(config(d_model=12, num_heads=3, position="rotary", max_length=29))).double()
    assert layer.rotate.table.shape == (29, 4)
    x, memory = (torch.randn(2, n, 12, dtype=torch.float64) for n in (TARGET, SOURCE))
    y = layer.add_norm_self.norm(x + layer.self_attention(x, is_causal=True, rotate=layer.rotate))
    z = layer.add_norm_cross.norm(y + layer.cross_attention(y, memory))
    expected = layer.add_norm_feed_forward.norm(z + layer.feed_forward(z))
    assert_close(layer(x, memory), expected)
    encoder = perturb(EncoderLayer(config(d_model=12, num_heads=3, position="rotary"))).double()
    y = encoder.add_norm_self.norm(x + encoder.self_attention(x, rotate=encoder.rotate))
    assert_close(encoder(x), encoder.add_norm_feed_forward.norm(y + encoder.feed_forward(y)))
    assert EncoderLayer(config()).rotate is DecoderLayer(config()).rotate is None


def test_a_target_mask_with_a_cache_is_over_its_slots():
    layer = perturb(DecoderLayer(config())).double().requires_grad_(False)
    x, memory = torch.randn(2, 5, 15, dtype=torch.float64), torch.randn(2, SOURCE, 15, dtype=torch.float64)
    seen = torch.tensor([True, False, True, True, True, True, True])
    whole = layer(x, memory, tgt_mask=seen[None, :5])
    caches = LayerCache(*(KeyValueCache(2, n, 3, 5, dtype=torch.float64) for n in (7, SOURCE)))
    pieces = [layer(piece, memory, tgt_mask=seen[None], cache=caches) for piece in x.split([2, 1, 2], dim=1)]
    assert_close(torch.cat(pieces, dim=1), whole)


def test_the_source_is_projected_once_a_sentence_where_there_is_a_cache():
    layer, sources = DecoderLayer(config()).double().requires_grad_(False), []
    layer.cross_attention.W_k.register_forward_hook(lambda module, given, result: sources.append(result))
    x, memory = torch.randn(2, 5, 15, dtype=torch.float64), torch.randn(2, SOURCE, 15, dtype=torch.float64)
    caches = LayerCache(*(KeyValueCache(2, n, 3, 5, dtype=torch.float64) for n in (5, SOURCE)))
    for piece in x.split([2, 1, 2], dim=1):
        layer(piece, memory, cache=caches)
    assert len(sources) == 1


@NORM_FIRST
def test_later_positions_reach_no_earlier_one(norm_first):
    layer = perturb(DecoderLayer(config(norm_first=norm_first))).eval()
    x, memory = torch.randn(2, TARGET, 15), torch.randn(2, SOURCE, 15)
    changed = x.clone()
    changed[:, 5:] = torch.randn(2, TARGET - 5, 15)
    assert torch.equal(layer(x, memory)[:, :5], layer(changed, memory)[:, :5])
    assert not torch.equal(layer(x, memory)[:, 5:], layer(changed, memory)[:, 5:])
