"""The feed-forward network by the formula; `test_oracles` compares it with nn.Sequential."""

import math

import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.feed_forward import FeedForward, linear


def test_relu_unless_told_and_dropout_on_the_hidden_activations_while_training():
    network, x = FeedForward(7, 23, dropout=0.3), torch.randn(2, 5, 7)
    hidden = network.W_1(x).clamp(min=0)
    for training, dropout in ((True, nn.Dropout(0.3)), (False, nn.Identity())):
        torch.manual_seed(1)
        actual = network.train(training)(x)
        torch.manual_seed(1)
        assert_close(actual, network.W_2(dropout(hidden)))
    assert torch.equal(FeedForward(7, 23).dropout(hidden), hidden)


def test_weights_start_xavier_uniform_and_biases_at_zero():
    bound = math.sqrt(6 / (101 + 307))
    network = FeedForward(101, 307)
    for layer in (network.W_1, network.W_2):
        assert 0.99 * bound < layer.weight.abs().max() <= bound
        assert (layer.bias == 0).all()
    assert linear(101, 307, bias=False).bias is None
