"""The feed-forward networks against nn.Sequential and plain Python."""

import math

import pytest
import torch
from compare import DTYPES, assert_same_module, perturb, renamed
from conftest import assert_close
from torch import nn

from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.feed_forward import FeedForward, SwiGLU

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


def sequential(activation: str, dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(7, 23), ACTIVATIONS[activation](), Dropout(dropout), nn.Linear(23, 7))


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


# --- SwiGLU


@pytest.mark.parametrize("bias", [False, True])
def test_swiglu_against_a_loop(bias):
    network, x = perturb(SwiGLU(3, 5, bias=bias)).double(), torch.randn(3, dtype=torch.float64)
    W_1, W_2, W_3 = (linear.weight for linear in (network.W_1, network.W_2, network.W_3))
    biases = [linear.bias for linear in (network.W_1, network.W_2, network.W_3)]
    b_1, b_2, b_3 = biases if bias else torch.zeros(3, 5)
    hidden = []
    for j in range(5):
        z, gate = (sum(W[j, i] * x[i] for i in range(3)) + b[j] for W, b in ((W_1, b_1), (W_3, b_3)))
        hidden.append(z / (1 + torch.exp(-z)) * gate)
    expected = torch.stack([sum(W_2[i, j] * hidden[j] for j in range(5)) + b_2[i] for i in range(3)])
    assert_close(network(x), expected)


def test_swiglu_has_biases_only_if_asked():
    weights = {"W_1.weight", "W_2.weight", "W_3.weight"}
    assert set(SwiGLU(3, 5).state_dict()) == weights
    state = SwiGLU(3, 5, bias=True).state_dict()
    assert set(state) == weights | {"W_1.bias", "W_2.bias", "W_3.bias"}
    assert all((tensor == 0).all() for name, tensor in state.items() if name.endswith("bias"))


def test_swiglu_drops_hidden_activations_while_training():
    network, x = SwiGLU(7, 101, dropout=0.3), torch.randn(53, 7)
    seen = []
    network.W_2.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(x)
    network.eval()(x)
    dropped = seen[0] == 0
    assert dropped.float().mean().item() == pytest.approx(0.3, abs=0.04)
    assert_close(seen[0][~dropped], seen[1][~dropped] / 0.7)
    assert SwiGLU(7, 101).dropout.p == 0


@pytest.mark.parametrize("network", [FeedForward, SwiGLU])
def test_weights_start_xavier_uniform(network):
    for linear in (m for m in network(101, 307).modules() if isinstance(m, nn.Linear)):
        bound = math.sqrt(6 / (101 + 307))
        assert 0.99 * bound < linear.weight.abs().max() <= bound


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("network", [FeedForward, SwiGLU])
@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        ((0, 5), {}, "d_model: expected an integer, 1 or more, got 0"),
        ((3, 5.0), {}, "d_ff: expected an integer, 1 or more, got 5.0"),
        ((3, 5), {"dropout": 1.0}, "dropout: expected 0 or more and below 1, got 1.0"),
    ],
)
def test_sizes_that_are_none(network, arguments, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        network(*arguments, **options)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("network", [FeedForward, SwiGLU])
def test_another_width(network):
    with pytest.raises(ValueError, match=r"x: expected a last axis of d_model = 3, got \(2, 4\)"):
        network(3, 5)(torch.zeros(2, 4))


def test_unknown_activation():
    with pytest.raises(ValueError, match="activation: expected one of relu, gelu, got 'swish'"):
        FeedForward(7, 23, activation="swish")
