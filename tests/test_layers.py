"""A layer and its parts, but for what `test_oracles` compares with PyTorch's: starts, dropout, seams, halves.

`test_properties` has attention of all sizes under all masks.
"""

import math

import pytest
import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.masks import padding_mask
from transformer_lessons.norms import BatchNorm, LayerNorm
from transformer_lessons.oracles.measure import perturb
from transformer_lessons.oracles.names import layer_to_torch
from transformer_lessons.tools.attention_maps import attention_maps


@pytest.mark.parametrize(
    "module", [MultiHeadAttention(101, 1), FeedForward(101, 307)], ids=lambda it: type(it).__name__
)
def test_projections_start_xavier_uniform_and_biases_at_zero(module):
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert 0.99 * bound < parameter.abs().max() <= bound


# --- Attention


def test_the_weights_of_each_head_are_torchs_with_the_polarity_turned():
    mask = torch.rand(2, 3, 7, 11) < 0.6
    mask[..., 0] = True
    ours = perturb(MultiHeadAttention(15, 3))
    theirs = nn.MultiheadAttention(15, 3, batch_first=True)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    q, k = (torch.randn(2, length, 15) for length in (7, 11))
    expected = theirs(q, k, k, attn_mask=~mask.flatten(0, 1), average_attn_weights=False)[1]
    assert_close(attention_maps(ours, q, k, None, mask)[""], expected.detach())


def test_another_attention_may_take_its_place():
    """Here one in which every query takes the value beside it."""
    attention, x = perturb(MultiHeadAttention(15, 3)), torch.randn(2, 7, 15)
    attention.attention = lambda q, k, v, mask, *, is_causal: (v, None)
    assert_close(attention(x), attention.W_o(attention.W_v(x)))
    assert MultiHeadAttention.attention is scaled_dot_product_attention


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"^4 heads do not divide 15$"):
        MultiHeadAttention(15, 4)


# --- The feed-forward network


def test_relu_unless_told_and_dropout_on_the_hidden_activations_while_training():
    network, x = FeedForward(7, 23, dropout=0.3), torch.randn(2, 5, 7)
    hidden = network.W_1(x).clamp(min=0)
    for training, dropout in ((True, nn.Dropout(0.3)), (False, nn.Identity())):
        torch.manual_seed(1)
        actual = network.train(training)(x)
        torch.manual_seed(1)
        assert_close(actual, network.W_2(dropout(hidden)))
    assert torch.equal(FeedForward(7, 23).dropout(hidden), hidden)


# --- Norms


@pytest.mark.parametrize(("ours", "theirs"), [(LayerNorm, nn.LayerNorm), (BatchNorm, nn.BatchNorm1d)])
def test_defaults_and_initial_state_are_torchs(ours, theirs):
    ours, theirs = ours(7), theirs(7)
    assert ours.eps == theirs.eps
    assert getattr(ours, "momentum", None) == getattr(theirs, "momentum", None)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", [LayerNorm, BatchNorm])
def test_statistics_of_half_precision_are_taken_in_float32_and_rounded_once(norm, dtype):
    x = (20_000 * torch.randn(101, 103)).clamp(-60_000, 60_000).to(dtype)  # squares far beyond 65,504
    module = perturb(norm(103))
    expected, actual = module(x.float()), module(x)
    assert actual.dtype == dtype
    # Half a unit in the last place.
    assert ((actual.float() - expected).abs() <= torch.finfo(dtype).eps / 2 * expected.abs() + 1e-6).all()


def test_constant_rows_give_the_shift():
    norm, x = LayerNorm(7).double(), torch.full((5, 7), 3.0, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(norm.bias)
    y = norm(x)
    assert torch.equal(y, norm.bias.expand(5, 7))
    y.backward(torch.randn_like(y))
    assert x.grad.isfinite().all()


# --- Layers

SOURCE, TARGET = 7, 11
EARLIER = torch.ones(TARGET, TARGET).triu(1) == 1  # what is hidden, as PyTorch has it


def pair(dropout: float = 0.0, norm_first: bool = False) -> tuple[DecoderLayer, nn.Module]:
    """Our decoder layer and PyTorch's, with the same weights."""
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "dropout": dropout, "norm_first": norm_first}
    ours = perturb(DecoderLayer(TransformerConfig(17, 19, **sizes)))
    theirs = nn.TransformerDecoderLayer(15, 3, 23, dropout, batch_first=True, norm_first=norm_first)
    theirs.load_state_dict(layer_to_torch(ours.state_dict()))
    return ours, theirs


def test_a_target_mask_comes_on_top_of_causality():
    tgt = torch.tensor([[0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 5], [5] * TARGET])  # padding on the left
    ours, theirs = pair()
    x, memory = torch.randn(2, TARGET, 15), torch.randn(2, SOURCE, 15)
    actual = ours(x, memory, tgt_mask=padding_mask(tgt, 0))
    expected = theirs(x, memory, tgt_mask=EARLIER, tgt_key_padding_mask=tgt == 0)
    assert_close(actual[tgt != 0], expected[tgt != 0])


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_is_on_the_output_of_every_sublayer_and_nowhere_else(norm_first):
    # Without the two dropouts that only PyTorch has (on the weights, inside the feed-forward network),
    # the same seed drops the same entries: as many draws, in the same order, of the same shapes.
    ours, theirs = pair(0.3, norm_first)
    theirs.self_attn.dropout = theirs.multihead_attn.dropout = theirs.dropout.p = 0.0
    theirs.dropout1, theirs.dropout2, theirs.dropout3 = (nn.Dropout(0.3) for _ in range(3))
    # One sequence only: PyTorch swaps batch and length inside, and entries are drawn in the order of memory.
    x, memory = torch.randn(1, TARGET, 15), torch.randn(1, SOURCE, 15)
    torch.manual_seed(1)
    actual = ours(x, memory)
    torch.manual_seed(1)
    assert_close(actual, theirs(x, memory, tgt_mask=EARLIER))
    assert not torch.allclose(actual, ours.eval()(x, memory))
