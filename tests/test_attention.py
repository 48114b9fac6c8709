"""Attention by hand; `test_properties` covers all sizes and masks, `test_oracles` PyTorch's modules."""

import math

import pytest
import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.oracles.measure import perturb
from transformer_lessons.oracles.names import layer_to_torch
from transformer_lessons.tools.attention_maps import attention_maps

D_K, D_V, QUERIES, KEYS = 5, 13, 7, 11
HEADS, D_MODEL = 3, 15


def test_weights_of_each_head_equal_torchs_for_the_inverted_mask():
    mask = torch.rand(2, HEADS, QUERIES, KEYS) < 0.6
    mask[..., 0] = True
    ours = perturb(MultiHeadAttention(D_MODEL, HEADS))
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    q, k = (torch.randn(2, length, D_MODEL) for length in (QUERIES, KEYS))
    expected = theirs(q, k, k, attn_mask=~mask.flatten(0, 1), average_attn_weights=False)[1]
    assert_close(attention_maps(ours, q, k, None, mask)[""], expected.detach())


def test_another_attention_may_take_its_place():
    """Here by one in which every query takes the value at its own position."""
    attention, x = perturb(MultiHeadAttention(D_MODEL, HEADS)), torch.randn(2, QUERIES, D_MODEL)
    attention.attention = lambda q, k, v, mask, *, is_causal: (v, None)
    assert_close(attention(x), attention.W_o(attention.W_v(x)))
    assert MultiHeadAttention.attention is scaled_dot_product_attention


def test_projections_start_xavier_uniform_and_biases_at_zero():
    for name, parameter in MultiHeadAttention(101, 1).named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            bound = math.sqrt(6 / (101 + 101))
            assert 0.99 * bound < parameter.abs().max() <= bound


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"^4 heads do not divide 15$"):
        MultiHeadAttention(D_MODEL, 4)
