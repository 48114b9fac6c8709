"""Attention against a plain loop, F.scaled_dot_product_attention and nn.MultiheadAttention."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_function, assert_same_module, layer_to_torch, leaves, perturb
from conftest import assert_close
from torch import nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.masks import causal_mask, padding_mask, segment_mask
from transformer_lessons.tools.attention_maps import attention_maps

D_K, D_V, QUERIES, KEYS = 5, 13, 7, 11
ROWS = torch.tensor([7, 11])  # real tokens in each of two padded sequences


def output_only(*arguments, **options):
    return scaled_dot_product_attention(*arguments, **options)[0]


def fused(*arguments, **options):
    return fused_attention(*arguments, **options)[0]


BOTH = pytest.mark.parametrize("attend", [output_only, fused], ids=["step by step", "fused"])
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def qkv(*batch: int, dtype=torch.float64, queries=QUERIES, keys=KEYS):
    sizes = (queries, D_K), (keys, D_K), (keys, D_V)
    return [torch.randn(*batch, *size, dtype=dtype) for size in sizes]


def some_mask(*shape: int) -> torch.Tensor:
    """Random, but every query sees at least the first key."""
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


# --- scaled_dot_product_attention, and the kernel that `fast` puts in its place


def test_against_a_loop():
    query, key, value = qkv()
    mask = some_mask(QUERIES, KEYS)
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    for i in range(QUERIES):
        exponentials = [
            math.exp(sum(query[i, d] * key[j, d] for d in range(D_K)) / math.sqrt(D_K)) if mask[i, j] else 0.0
            for j in range(KEYS)
        ]
        expected = torch.tensor(exponentials, dtype=torch.float64) / sum(exponentials)
        assert_close(weights[i], expected)
        assert_close(output[i], sum(expected[j] * value[j] for j in range(KEYS)))


@DTYPE
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("is_masked", [False, True])
@BOTH
def test_equal_to_torch(attend, is_masked, batch, dtype):
    mask = some_mask(*batch, QUERIES, KEYS) if is_masked else None
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        *qkv(*batch, dtype=dtype),
    )


@pytest.mark.parametrize("shape", [(2, 1, 1, KEYS), (3, QUERIES, 1), (QUERIES, KEYS)])
@BOTH
def test_masks_broadcast(attend, shape):
    mask = some_mask(*shape)
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask.expand(2, 3, QUERIES, KEYS)),
        *qkv(2, 3),
    )


@DTYPE
@BOTH
def test_causal_between_equal_lengths_is_torch_is_causal(attend, dtype):
    assert_same_function(
        lambda q, k, v: attend(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *qkv(2, 3, keys=QUERIES, dtype=dtype),
    )


@DTYPE
@pytest.mark.parametrize("queries", [1, QUERIES])
@BOTH
def test_causal_with_more_keys_aligns_the_last_with_the_last(attend, queries, dtype):
    mask = torch.tensor([[j <= i + KEYS - queries for j in range(KEYS)] for i in range(queries)])
    assert torch.equal(mask, causal_mask(queries, KEYS)[0, 0])
    assert_same_function(
        lambda q, k, v: attend(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        *qkv(2, 3, queries=queries, dtype=dtype),
    )


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@BOTH
def test_is_causal_keeps_the_axes_of_its_inputs(attend, batch):
    query, key, value = qkv(*batch, keys=QUERIES)
    assert attend(query, key, value, is_causal=True).shape == (*batch, QUERIES, D_V)


@BOTH
def test_causal_and_a_mask(attend):
    mask = some_mask(2, 1, 1, QUERIES)
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask & causal_mask(QUERIES)),
        *qkv(2, 3, keys=QUERIES),
    )


@DTYPE
def test_gradients_through_the_weights(dtype):
    mask = some_mask(2, 3, QUERIES, KEYS)
    query, key, value = qkv(2, 3, dtype=dtype)
    assert_same_function(
        lambda q, k: scaled_dot_product_attention(q, k, value, mask)[1],
        lambda q, k: (q @ k.mT * D_K**-0.5).masked_fill(~mask, -torch.inf).softmax(-1),
        query,
        key,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@BOTH
def test_a_query_without_any_key_gives_zeros_and_finite_gradients(attend, dtype):
    mask = some_mask(2, 1, QUERIES, KEYS)
    mask[0, 0, 3] = False
    query, key, value = leaves(*qkv(2, 3, dtype=dtype))
    with torch.autograd.set_detect_anomaly(True):
        output = attend(query, key, value, mask)
        output.backward(torch.randn_like(output))
    assert (output[0, :, 3] == 0).all()
    assert (query.grad[0, :, 3] == 0).all()
    assert all(tensor.grad.isfinite().all() for tensor in (query, key, value))
    others = torch.arange(QUERIES) != 3
    seen = mask[..., others, :]
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 5e-2}.get(dtype)
    expected = F.scaled_dot_product_attention(query[..., others, :], key, value, seen)
    assert_close(output[..., others, :], expected, tolerance=tolerance)


def test_the_weights_of_a_query_without_any_key_are_zero():
    mask = some_mask(QUERIES, KEYS)
    mask[3] = False
    weights = scaled_dot_product_attention(*qkv(), mask)[1]
    assert_close(weights.sum(-1), mask.any(-1).double())


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
@BOTH
def test_nothing_to_attend(attend, sizes):
    batch, queries, keys = sizes
    output = attend(*qkv(batch, queries=queries, keys=keys))
    assert torch.equal(output, torch.zeros(batch, queries, D_V, dtype=torch.float64))


# --- MultiHeadAttention

HEADS, D_MODEL = 3, 15


def theirs_of(dtype) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=dtype)


def padding():
    """Where each of two sequences has real tokens, `batch keys`."""
    return torch.arange(KEYS) < ROWS[:, None]


@DTYPE
def test_self_attention_equals_torch(dtype):
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS).to(dtype),
        theirs_of(dtype),
        layer_to_torch,
        lambda ours, x: ours(x),
        lambda theirs, x: theirs(x, x, x, need_weights=False)[0],
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
    )


@DTYPE
@pytest.mark.parametrize("has_value", [False, True])
def test_cross_attention_equals_torch(has_value, dtype):
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS).to(dtype),
        theirs_of(dtype),
        layer_to_torch,
        lambda ours, q, k, v: ours(q, k, v) if has_value else ours(q, k) + 0 * v.sum(),
        lambda theirs, q, k, v: theirs(q, k, v if has_value else k, need_weights=False)[0] + 0 * v.sum(),
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
    )


@DTYPE
def test_padding_and_causality_are_torchs_with_the_polarity_turned(dtype):
    ids = torch.where(padding(), 5, 0)
    hidden = {"key_padding_mask": ids == 0, "attn_mask": ~causal_mask(KEYS)[0, 0]}
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS).to(dtype),
        theirs_of(dtype),
        layer_to_torch,
        lambda ours, x: ours(x, mask=padding_mask(ids, 0), is_causal=True),
        lambda theirs, x: theirs(x, x, x, **hidden, need_weights=False)[0],
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
    )


@DTYPE
def test_a_mask_for_each_head_and_the_weights_of_each_head(dtype):
    mask = some_mask(2, HEADS, QUERIES, KEYS)
    ours, theirs = perturb(MultiHeadAttention(D_MODEL, HEADS)).to(dtype), theirs_of(dtype)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    q, k = (torch.randn(2, length, D_MODEL, dtype=dtype) for length in (QUERIES, KEYS))
    expected = theirs(q, k, k, attn_mask=~mask.flatten(0, 1), average_attn_weights=False)[1]
    assert_close(attention_maps(ours, q, k, None, mask)[""], expected.detach())


def test_another_attention_may_take_its_place():
    attention, x = perturb(MultiHeadAttention(D_MODEL, HEADS)), torch.randn(2, QUERIES, D_MODEL)
    attention.attention = lambda q, k, v, mask, *, is_causal: (
        v,
        None,
    )  # every query takes the value beside it
    assert_close(attention(x), attention.W_o(attention.W_v(x)))
    assert MultiHeadAttention.attention is scaled_dot_product_attention


def test_keys_and_values_may_be_made_first_and_looked_at_later():
    attention, x = perturb(MultiHeadAttention(D_MODEL, HEADS)).double(), torch.randn(2, 7, D_MODEL).double()
    k, v = attention.keys_and_values(x, x)
    assert k.shape == v.shape == (2, HEADS, 7, 5)
    whole = attention(x, is_causal=True)
    for t in range(7):
        step = attention.look(x[:, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1])
        assert_close(step, whole[:, t : t + 1])


def test_packed_sentences_equal_separate_ones():
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).double()
    first, second = (torch.randn(2, length, D_MODEL, dtype=torch.float64) for length in (4, 7))
    segments = torch.tensor([[0] * 4 + [1] * 7] * 2)
    joined, mask = torch.cat([first, second], dim=1), segment_mask(segments, segments)
    separate = [attention(x, is_causal=True) for x in (first, second)]
    assert_close(attention(joined, mask=mask, is_causal=True), torch.cat(separate, dim=1))


def test_state_dict_names_and_shapes():
    state = MultiHeadAttention(D_MODEL, HEADS).state_dict()
    assert list(state) == [f"W_{letter}.{leaf}" for letter in "qkvo" for leaf in ("weight", "bias")]
    assert {tensor.shape for tensor in state.values()} == {(D_MODEL, D_MODEL), (D_MODEL,)}


def test_projections_start_xavier_uniform_and_biases_at_zero():
    for name, parameter in MultiHeadAttention(101, 1).named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            bound = math.sqrt(6 / (101 + 101))
            assert 0.99 * bound < parameter.abs().max() <= bound


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="4 heads do not divide 15"):
        MultiHeadAttention(D_MODEL, 4)
