"""The feed-forward network against nn.Sequential and plain Python."""

import math

import pytest
import torch
from compare import DTYPES, assert_same_module, perturb, renamed
from conftest import assert_close
from torch import nn

from transformer_lessons.feed_forward import FeedForward, linear

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


def sequential(activation: str, dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(7, 23), ACTIVATIONS[activation](), nn.Dropout(dropout), nn.Linear(23, 7))


def to_sequential(state: dict) -> dict:
    return renamed(state, {"W_1": "0", "W_2": "3"})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (2, 5, 7)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equal_to_sequential(activation, shape, dtype):
    assert_same_module(
        FeedForward(7, 23, activation=activation).to(dtype),
        sequential(activation).to(dtype),
        to_sequential,
        lambda ours, x: ours(x),
        lambda theirs, x: theirs(x),
        torch.randn(shape, dtype=dtype),
    )


def test_relu_is_the_default():
    network = FeedForward(7, 23)
    x = torch.randn(5, 7)
    assert torch.equal(network(x), network.W_2(network.W_1(x).clamp(min=0)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dropout_hits_the_hidden_activations_while_training(activation):
    ours = perturb(FeedForward(7, 23, activation=activation, dropout=0.3))
    theirs = sequential(activation, dropout=0.3)
    theirs.load_state_dict(to_sequential(ours.state_dict()))
    x = torch.randn(2, 5, 7)
    torch.manual_seed(1)
    actual = ours(x)
    torch.manual_seed(1)
    assert_close(actual, theirs(x))
    assert not torch.equal(actual, ours.eval()(x))
    assert_close(ours(x), theirs.eval()(x))


def test_positions_do_not_meet():
    network, x = perturb(FeedForward(7, 23)), torch.randn(2, 5, 7)
    changed = x.clone()
    changed[:, 3] += 1
    difference = (network(changed) - network(x)).abs().amax(-1)
    assert (difference[:, 3] > 0).all()
    assert (difference[:, [0, 1, 2, 4]] == 0).all()


def test_weights_start_xavier_uniform_and_biases_at_zero():
    bound = math.sqrt(6 / (101 + 307))
    for layer in (FeedForward(101, 307).W_1, FeedForward(101, 307).W_2):
        assert 0.99 * bound < layer.weight.abs().max() <= bound
        assert (layer.bias == 0).all()
    assert linear(101, 307, bias=False).bias is None
