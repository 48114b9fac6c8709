"""LayerNorm and RMSNorm against PyTorch's, and where half precision would overflow."""

import pytest
import torch
from compare import DTYPES, assert_same_module
from torch import nn

from transformer_lessons.norms import LayerNorm, RMSNorm

PAIRS = [(LayerNorm, nn.LayerNorm), (RMSNorm, nn.RMSNorm)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [1e-6, 0.5])  # a large ε shows where it stands
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 5, 7), (0, 7)])
@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_equal_to_torch(ours, theirs, shape, eps, dtype):
    assert_same_module(
        ours(7, eps).to(dtype),
        theirs(7, eps, dtype=dtype),
        dict,
        lambda norm, x: norm(x),
        lambda norm, x: norm(x),
        3 * torch.randn(shape, dtype=dtype) + 2,
    )


def test_same_default_epsilon_as_torch():
    assert LayerNorm(7).eps == nn.LayerNorm(7).eps == 1e-5
    assert RMSNorm(7).eps == 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_half_precision_takes_its_statistics_in_float32(norm, dtype):
    x = (20_000 * torch.randn(5, 101)).clamp(-60_000, 60_000).to(dtype)  # squares far beyond 65,504
    module = norm(101)
    expected = module(x.float())
    actual = module.to(dtype)(x)
    assert actual.dtype == dtype
    # One rounding, that of the result: half a unit in the last place.
    assert ((actual.float() - expected).abs() <= torch.finfo(dtype).eps / 2 * expected.abs() + 1e-7).all()


def test_constant_rows_give_the_shift():
    norm, x = LayerNorm(7).double(), torch.full((5, 7), 3.0, dtype=torch.float64, requires_grad=True)
    nn.init.normal_(norm.bias)
    y = norm(x)
    assert torch.equal(y, norm.bias.expand(5, 7))
    y.backward(torch.randn_like(y))
    assert x.grad.isfinite().all()


def test_zero_rows_stay_zero():
    x = torch.zeros(5, 7, requires_grad=True)
    y = RMSNorm(7)(x)
    assert torch.equal(y, torch.zeros(5, 7))
    y.backward(torch.randn_like(y))
    assert x.grad.isfinite().all()


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("shape", [(2, 1), (2, 5), (7, 2)])
def test_wrong_width(norm, shape):
    with pytest.raises(ValueError, match="x: expected a last axis of d_model = 7, got"):
        norm(7)(torch.zeros(shape))
