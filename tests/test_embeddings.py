"""Embeddings by the formula, and the variances that the scaling is for."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close

from transformer_lessons.embeddings import TokenEmbedding, TransformerEmbedding
from transformer_lessons.encodings import SinusoidalEncoding, sinusoidal


def test_unit_variance_on_both_sides():
    # 499 · 101 entries: the variance of their squares' mean is 2/50,399, so 0.04 is six standard deviations.
    embedding = TokenEmbedding(499, 101)
    vectors = embedding(torch.arange(499)[None])[0]
    assert vectors.var().item() == pytest.approx(1, abs=0.04)
    assert vectors.mean().item() == pytest.approx(0, abs=0.03)
    logits = torch.randn(211, 101) @ embedding.weight.T
    assert logits.var().item() == pytest.approx(1, abs=0.08)


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
