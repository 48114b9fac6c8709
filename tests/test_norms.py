"""LayerNorm and BatchNorm against PyTorch's, and where half precision would overflow."""

import pytest
import torch
from compare import DTYPES, assert_same_module, perturb
from conftest import assert_close
from torch import nn

from transformer_lessons.norms import BatchNorm, LayerNorm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("eps", [1e-6, 0.5])  # a large ε shows where it stands
@pytest.mark.parametrize("shape", [(7,), (2, 3, 5, 7)])
def test_equal_to_torch(shape, eps, dtype):
    assert_same_module(
        LayerNorm(7, eps).to(dtype),
        nn.LayerNorm(7, eps, dtype=dtype),
        dict,
        lambda norm, x: norm(x),
        lambda norm, x: norm(x),
        3 * torch.randn(shape, dtype=dtype) + 2,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_input_in_half_precision_may_meet_weights_in_float32(dtype):
    norm, x = perturb(LayerNorm(7)), torch.randn(5, 7).to(dtype)
    assert_close(norm(x).float(), norm.double()(x.double()).float(), tolerance=torch.finfo(dtype).eps)


def test_same_default_epsilon_as_torch():
    assert LayerNorm(7).eps == nn.LayerNorm(7).eps == 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_its_statistics_in_float32(dtype):
    x = (20_000 * torch.randn(5, 101)).clamp(-60_000, 60_000).to(dtype)  # squares far beyond 65,504
    module = LayerNorm(101)
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


# --- BatchNorm


def test_batch_norm_by_hand():
    # Two features over four vectors: (1, 2, 3, 6) has mean 3 and variance (4 + 1 + 0 + 9) / 4 = 3.5.
    x = torch.tensor([[1.0, 0], [2, 0], [3, 0], [6, 0]], dtype=torch.float64).reshape(2, 2, 2)
    norm = BatchNorm(2, eps=0.5, momentum=0.25).double()
    y = norm(x)
    assert_close(
        y.flatten(0, 1)[:, 0], torch.tensor([-2.0, -1, 0, 3], dtype=torch.float64) / 2
    )  # √(3.5 + 0.5) = 2
    assert (y[..., 1] == 0).all()
    # r ← (1 − 0.25) r + 0.25 new, with the unbiased variance 14 / 3.
    assert_close(norm.running_mean, torch.tensor([0.75, 0.0], dtype=torch.float64))
    assert_close(norm.running_var, torch.tensor([0.75 + 14 / 12, 0.75], dtype=torch.float64))
    assert norm.num_batches_tracked == 1
    evaluated = norm.eval()(x)
    scale = (norm.running_var + 0.5) ** -0.5
    assert_close(evaluated, (x - norm.running_mean) * scale)
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 7), (5, 7), (2, 3, 5, 7)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_equals_torch(training, shape, dtype):
    ours, theirs = BatchNorm(7).to(dtype), nn.BatchNorm1d(7, dtype=dtype)
    for norm in (ours, theirs):
        norm.train(training)
    assert_same_module(
        ours,
        theirs,
        dict,
        lambda norm, x: norm(x),
        lambda norm, x: norm(x.flatten(0, -2)).view(x.shape),
        3 * torch.randn(shape, dtype=dtype) + 2,
    )
    for name, statistic in theirs.state_dict().items():
        if name.startswith("running"):
            assert_close(ours.state_dict()[name], statistic)
    assert ours.num_batches_tracked == theirs.num_batches_tracked


def test_batch_norm_has_torchs_defaults_and_state():
    ours, theirs = BatchNorm(7), nn.BatchNorm1d(7)
    assert (ours.eps, ours.momentum) == (theirs.eps, theirs.momentum)
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_in_training_a_later_token_changes_an_earlier_ones_norm():
    x = torch.randn(2, 5, 7)
    changed = x.clone()
    changed[:, 4] += 1
    norm = BatchNorm(7)
    assert not torch.allclose(norm(x)[:, :4], norm(changed)[:, :4])
    assert torch.equal(norm.eval()(x)[:, :4], norm(changed)[:, :4])


def test_batch_norm_in_half_precision_keeps_its_sums_in_float32():
    x = (20_000 * torch.randn(101, 7)).clamp(-60_000, 60_000)
    norm = BatchNorm(7)
    expected = norm(x.half().float())
    actual = BatchNorm(7)(x.half())
    assert actual.dtype == torch.float16
    assert_close(actual.float(), expected, tolerance=1e-3)


def test_one_vector_is_enough_in_evaluation():
    assert BatchNorm(7).eval()(torch.ones(1, 7)).shape == (1, 7)


def test_initial_values_do_nothing():
    for norm in (LayerNorm(7), BatchNorm(7)):
        assert torch.equal(norm.weight, torch.ones(7))
        assert torch.equal(norm.bias, torch.zeros(7))


def test_with_a_momentum_of_one_only_the_last_batch_counts():
    norm = BatchNorm(3, momentum=1.0)
    norm(torch.randn(11, 3))
    last = torch.randn(11, 3)
    norm(last)
    assert_close(norm.running_mean, last.mean(0))
    assert_close(norm.running_var, last.var(0))
