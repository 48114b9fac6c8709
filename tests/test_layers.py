"""What a layer adds to its parts; `test_oracles` compares whole layers with PyTorch's."""

import pytest
import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.config import TransformerConfig
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.masks import padding_mask
from transformer_lessons.oracles.measure import perturb
from transformer_lessons.oracles.names import layer_to_torch

SOURCE, TARGET = 7, 11
LATER = torch.ones(TARGET, TARGET).triu(1) == 1  # True is hidden, as in PyTorch


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
    expected = theirs(x, memory, tgt_mask=LATER, tgt_key_padding_mask=tgt == 0)
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
    assert_close(actual, theirs(x, memory, tgt_mask=LATER))
    assert not torch.allclose(actual, ours.eval()(x, memory))
