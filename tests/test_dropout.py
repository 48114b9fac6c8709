"""Dropout: how often, which, and how much is left, against PyTorch's and the binomial distribution."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES
from torch import nn

from transformer_lessons.fast import dropout
from transformer_lessons.fast.dropout import STEPS, Dropout

COUNT = 4 * 104_729  # a prime number of draws


def within(rate: float, count: int) -> float:
    """Five standard deviations of how often something of this rate happens: once in two million times more."""
    return 5 * math.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_as_many_are_dropped_as_should_be(p):
    dropped = (Dropout(p)(torch.ones(COUNT)) == 0).double()
    assert dropped.mean().item() == pytest.approx(p, abs=within(p, COUNT))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_four_numbers_of_a_draw_are_independent(p):
    dropped = Dropout(p)(torch.ones(COUNT)).eq(0).double().view(-1, 4)
    tolerance = within(p, len(dropped))
    assert dropped.mean(0).tolist() == pytest.approx([p] * 4, abs=tolerance)
    together = dropped.T @ dropped / len(dropped)  # how often two of them are dropped at once
    expected = torch.full((4, 4), p * p, dtype=torch.float64).fill_diagonal_(p)
    assert (together - expected).abs().max() <= tolerance
    following = (dropped[1:, 0] * dropped[:-1, 3]).mean().item()
    assert following == pytest.approx(p * p, abs=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.25, 0.5, 0.75])  # multiples of 2⁻¹⁶: nothing is rounded
def test_what_is_left_is_scaled_as_by_torch(p, dtype):
    x = torch.randn(7, 101, dtype=dtype)
    ours, theirs = Dropout(p)(x), F.dropout(x, p)
    both = (ours != 0) & (theirs != 0)
    assert both.any()
    assert torch.equal(ours[both], theirs[both])


@pytest.mark.parametrize("p", [0.1, 1 / 3, 1e-5, 1 - 1e-9])
def test_scale_and_rate_are_rounded_together_so_the_mean_stays(p):
    kept = Dropout(p)(torch.ones(COUNT, dtype=torch.float64)).max().item()
    rounded = min(round(p * STEPS), STEPS - 1) / STEPS
    assert abs(rounded - p) <= 1 / STEPS
    if rounded < 0.99:  # of fewer, none might be left
        assert kept == pytest.approx(1 / (1 - rounded), rel=1e-15)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 5), (4,), (0, 7)])
def test_any_shape(shape):
    y = Dropout(0.5)(torch.ones(shape))
    assert y.shape == shape
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_what_is_dropped_does_not_hang_on_how_the_input_lies_in_memory():
    x, dropout = torch.randn(5, 7), Dropout(0.5)
    torch.manual_seed(3)
    expected = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x.T.contiguous().T), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    x = torch.randn(7, 101).to(dtype)
    torch.manual_seed(3)
    expected = Dropout(0.1)(x.double())
    torch.manual_seed(3)
    actual = Dropout(0.1)(x)
    assert actual.dtype == dtype
    assert torch.equal(actual, expected.to(dtype))


def test_the_gradient_is_dropped_and_scaled_as_the_input():
    x = torch.randn(7, 101, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.25)(x)
    cotangent = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, cotangent)
    assert torch.equal(gradient, torch.where(y != 0, cotangent, 0.0) * (1 / 0.75))


def test_a_seed_gives_the_same_and_the_next_call_another():
    x, dropout = torch.ones(101), Dropout(0.5)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("p", "kept"), [(0.1, 65_536 - 6_554), (0.5, 32_768), (1 - 1e-9, 1)])
def test_of_all_numbers_just_the_share_is_dropped(p, kept, monkeypatch):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    monkeypatch.setattr(dropout, "_uniform_16_bits", lambda shape: every)
    y = Dropout(p)(torch.ones(65_536, dtype=torch.float64))
    assert (y > 0).sum() == kept
    assert y.mean().item() == pytest.approx(1, rel=1e-12)


def test_a_tenth_unless_told():
    assert Dropout().p == 0.1  # §5.4


@pytest.mark.parametrize("p", [0.0, 1e-6])
def test_next_to_nothing_is_nothing(p):
    x = torch.randn(7, 101)
    assert torch.equal(Dropout(p)(x), x)


def test_only_in_training():
    x = torch.randn(7, 101)
    assert torch.equal(Dropout(0.5).eval()(x), x)


@pytest.mark.usefixtures("no_shape_checks")
def test_elsewhere_it_is_torchs():
    """Where numbers can't be looked at (another device, a graph being compiled), PyTorch's own kernel draws."""
    y = Dropout(0.5)(torch.ones(7, 101, device="meta"))
    assert (y.shape, y.device.type) == ((7, 101), "meta")
    x = torch.ones(7, 101)
    torch.manual_seed(3)
    expected = F.dropout(x, 0.5)
    compiled = torch.compile(Dropout(0.5), backend="eager", fullgraph=True)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), expected)


def test_whoever_looks_for_dropout_finds_it():
    assert isinstance(Dropout(0.5), nn.Dropout)
    assert repr(Dropout(0.5)) == "Dropout(p=0.5, inplace=False)"
