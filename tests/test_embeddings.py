"""Embeddings against F.embedding, and the variances that the scaling is for."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_module
from conftest import assert_close
from torch import nn

from transformer_lessons.embeddings import TokenEmbedding, TransformerEmbedding
from transformer_lessons.encodings import LearnedEncoding, SinusoidalEncoding, sinusoidal


@pytest.mark.parametrize("dtype", DTYPES)
def test_token_embedding_is_scaled_lookup(dtype):
    ids = torch.tensor([[3, 0, 3], [10, 3, 7]])  # 3 comes three times: its gradients add up
    assert_same_module(
        TokenEmbedding(11, 7).to(dtype),
        nn.Embedding(11, 7, dtype=dtype),
        dict,
        lambda ours: ours(ids),
        lambda theirs: theirs(ids) * math.sqrt(7),
    )


def test_unit_variance_on_both_sides():
    # 499 · 101 entries: the variance of their squares' mean is 2/50,399, so 0.04 is six standard deviations.
    embedding = TokenEmbedding(499, 101)
    vectors = embedding(torch.arange(499)[None])[0]
    assert vectors.var().item() == pytest.approx(1, abs=0.04)
    assert vectors.mean().item() == pytest.approx(0, abs=0.03)
    logits = torch.randn(211, 101) @ embedding.weight.T
    assert logits.var().item() == pytest.approx(1, abs=0.08)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 2])
def test_token_plus_position(offset, dtype):
    embedding = TransformerEmbedding(11, 7, position=LearnedEncoding(7, 13)).to(dtype)
    ids = torch.randint(11, (2, 5))
    token, table = embedding.token.weight, embedding.position.table
    expected = F.embedding(ids, token) * math.sqrt(7) + table[offset : offset + 5]
    actual, cotangent = embedding(ids, offset), torch.randn_like(expected)
    assert_close(actual, expected)
    for a, b in zip(
        torch.autograd.grad(actual, [token, table], cotangent),
        torch.autograd.grad(expected, [token, table], cotangent),
        strict=True,
    ):
        assert_close(a, b)


def test_without_position_order_is_invisible():
    embedding, ids = TransformerEmbedding(11, 7), torch.randint(11, (2, 5))
    assert torch.equal(embedding(ids.flip(1)), embedding(ids).flip(1))


def test_dropout_comes_after_the_positions_and_only_in_training():
    # Dropped before the sum, an entry would show its position instead of zero.
    embedding = TransformerEmbedding(11, 101, position=SinusoidalEncoding(101, 7), dropout=0.3)
    ids = torch.randint(11, (13, 7))
    whole = F.embedding(ids, embedding.token.weight) * math.sqrt(101) + sinusoidal(7, 101)
    assert_close(embedding.eval()(ids), whole)
    dropped = embedding.train()(ids)
    kept = dropped != 0
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.03)
    assert_close(dropped[kept], whole[kept] / 0.7)
