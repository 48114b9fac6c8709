"""LayerNorm and BatchNorm by hand, and where half precision would overflow; `test_oracles` has PyTorch's."""

import pytest
import torch
from torch import nn

from transformer_lessons.norms import BatchNorm, LayerNorm
from transformer_lessons.oracles.measure import perturb

F64 = torch.float64
BOTH = pytest.mark.parametrize("norm", [LayerNorm, BatchNorm])
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@pytest.mark.parametrize(("ours", "theirs"), [(LayerNorm, nn.LayerNorm), (BatchNorm, nn.BatchNorm1d)])
def test_defaults_and_initial_state_are_torchs(ours, theirs):
    ours, theirs = ours(7), theirs(7)
    assert ours.eps == theirs.eps
    assert getattr(ours, "momentum", None) == getattr(theirs, "momentum", None)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor)


@HALVES
@BOTH
def test_statistics_of_half_precision_are_taken_in_float32_and_rounded_once(norm, dtype):
    x = (20_000 * torch.randn(101, 103)).clamp(-60_000, 60_000).to(dtype)  # squares far beyond 65,504
    module = perturb(norm(103))
    expected, actual = module(x.float()), module(x)
    assert actual.dtype == dtype
    # Half a unit in the last place.
    assert ((actual.float() - expected).abs() <= torch.finfo(dtype).eps / 2 * expected.abs() + 1e-6).all()


def test_constant_rows_give_the_shift():
    norm, x = LayerNorm(7).double(), torch.full((5, 7), 3.0, dtype=F64, requires_grad=True)
    nn.init.normal_(norm.bias)
    y = norm(x)
    assert torch.equal(y, norm.bias.expand(5, 7))
    y.backward(torch.randn_like(y))
    assert x.grad.isfinite().all()
