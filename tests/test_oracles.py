"""Every component beside an implementation that we did not write, and whether a difference would be seen."""

from dataclasses import FrozenInstanceError

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES
from torch import nn

from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.norms import LayerNorm
from transformer_lessons.oracles import Case, cases, is_within
from transformer_lessons.oracles.measure import (
    Deviation,
    distance,
    leaves,
    perturb,
    same_function,
    same_module,
)
from transformer_lessons.oracles.names import halves, renamed

DTYPE = pytest.mark.parametrize("dtype", DTYPES)


@DTYPE
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_equal_to_its_oracle(case, dtype):
    assert case.is_available, f"{case.needs} is missing: the tests need it"
    deviation = case.worst(dtype)
    assert is_within(deviation, dtype), deviation


def test_the_oracles_are_of_several_kinds():
    components = {case.component.split(",")[0] for case in cases()}
    assert {name.split(".")[0] for name in components} >= set(
        "encodings embeddings norms attention feed_forward losses schedule layers model decoding".split()
    )
    assert {case.needs for case in cases()} == {"torch", "transformers"}
    assert len({case.name for case in cases()}) == len(cases())


# --- The measure itself


def test_distance_by_hand():
    ours, theirs = torch.tensor([1.0, 2.0, 3.5]), torch.tensor([1.0, 2.25, 4.0])
    assert distance(ours, theirs) == 0.5 / 4
    assert distance(ours / 8, theirs / 8) == 0.5 / 8  # below 1 it is absolute
    assert distance(-theirs, theirs) == 2
    assert distance(torch.zeros(0, 3), torch.zeros(0, 3)) == 0


def test_other_shapes_dtypes_and_nan_are_infinitely_far():
    x = torch.ones(3)
    for other in (torch.ones(1), torch.ones(1, 3), x.double(), torch.tensor([1.0, torch.nan, 1.0])):
        assert distance(other, x) == torch.inf
        assert distance(x, other) == torch.inf


def test_equal_values_with_another_gradient_are_seen():
    x = torch.randn(5, dtype=torch.float64)
    cut = same_function(lambda x: x.detach() * x, lambda x: x * x, x)
    assert cut.value == 0
    assert cut.gradient > 0.1
    unused = same_function(lambda x, y: x * 2, lambda x, y: x * 2 + 0 * y, x, x)
    assert unused == Deviation(0.0, 0.0)


def test_another_shape_of_output_is_seen():
    x = torch.randn(5, 1, dtype=torch.float64)
    assert same_function(lambda x: x, lambda x: x.mT, x).value == torch.inf
    call = (lambda module, x: module(x)), (lambda module, x: module(x)[:1])
    norms = LayerNorm(7).double(), nn.LayerNorm(7).double()
    x = torch.randn(5, 7, dtype=torch.float64)
    assert same_module(*norms, dict, *call, x) == Deviation(torch.inf, torch.inf)


class Detached(LayerNorm):
    """Right values; the scale learns nothing through x."""

    def forward(self, x):
        return super().forward(x.detach()) + x - x.detach()


class Frozen(LayerNorm):
    """Right values; the shift's gradient is doubled."""

    def forward(self, x):
        return super().forward(x) + self.bias - self.bias.detach()


@pytest.mark.parametrize("wrong", [Detached, Frozen])
def test_a_wrong_gradient_of_input_or_parameter_is_seen(wrong):
    x = torch.randn(5, 7, dtype=torch.float64)
    call = lambda module, x: module(x)  # noqa: E731
    right = same_module(LayerNorm(7).double(), nn.LayerNorm(7).double(), dict, call, call, x)
    found = same_module(wrong(7).double(), nn.LayerNorm(7).double(), dict, call, call, x)
    assert is_within(right, torch.float64)
    assert found.value <= 1e-10
    assert found.gradient > 1e-3


def test_the_worst_gradient_of_several_inputs_counts():
    x, y = torch.randn(2, 5, dtype=torch.float64)
    for ours in (lambda x, y: x.detach() * y, lambda x, y: x * y.detach()):
        found = same_function(ours, lambda x, y: x * y, x, y)
        assert found.value == 0
        assert found.gradient > 0.1


class ShiftedFirst(LayerNorm):
    """The shift before the scale: the same as long as the scale is 1 and the shift 0."""

    def forward(self, x):
        return (F.layer_norm(x, x.shape[-1:]) + self.bias) * self.weight


def test_a_mistake_that_initial_values_hide_is_seen():
    x, call = torch.randn(5, 7, dtype=torch.float64), lambda module, x: module(x)
    assert torch.allclose(ShiftedFirst(7).double()(x), nn.LayerNorm(7).double()(x))
    found = same_module(ShiftedFirst(7).double(), nn.LayerNorm(7).double(), dict, call, call, x)
    assert found.value > 1e-3


def test_a_case_draws_from_seeds_of_its_own_three_if_not_told():
    drawn = []
    case = Case("ours", "theirs", lambda dtype: drawn.append(torch.rand(()).item()) or Deviation(drawn[-1]))
    expected = []
    for seed in range(3):
        torch.manual_seed(seed)
        expected.append(torch.rand(()).item())
    for elsewhere in (3, 4):
        torch.manual_seed(elsewhere)
        assert case.worst(torch.float64) == Deviation(max(expected))
    assert drawn == 2 * expected
    with pytest.raises(FrozenInstanceError):
        case.component = "another"


def test_a_forgotten_parameter_is_an_error():
    names = {"W_1": "0"}
    with pytest.raises(KeyError):
        renamed(FeedForward(3, 5).state_dict(), names)


def test_a_case_tries_several_seeds_and_leaves_the_generator_alone():
    drawn = []

    def compare(dtype, factor):
        drawn.append(torch.rand(()).item())
        return Deviation(factor * drawn[-1], None if factor > 1 else drawn[-1] / 2)

    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    first = torch.rand(1)
    worst = Case("ours", "theirs", compare, {"factor": 1}).worst(torch.float64, seeds=5)
    assert torch.equal(torch.cat([first, torch.rand(1)]), expected)
    assert len(set(drawn)) == 5
    assert worst == Deviation(max(drawn), max(drawn) / 2)
    assert Case("ours", "theirs", compare, {"factor": 2}).worst(torch.float64).gradient is None


def test_bounds():
    assert is_within(Deviation(1e-10, None), torch.float64)
    assert not is_within(Deviation(0.0, 1.1e-10), torch.float64)
    assert not is_within(Deviation(torch.inf), torch.float32)
    assert is_within(Deviation(1e-5, 1e-5), torch.float32)
    assert not is_within(Deviation(1.1e-5, 0.0), torch.float32)


def test_availability():
    assert Case("ours", "theirs", distance).is_available
    assert not Case("ours", "theirs", distance, needs="a_library_that_is_not_there").is_available


def test_leaves_share_no_memory():
    x = torch.ones(3)
    (leaf,) = leaves(x)
    with torch.no_grad():
        leaf += 1
    assert x.tolist() == [1, 1, 1]
    assert leaf.requires_grad


def test_perturbed_parameters_are_all_off_their_initial_values():
    module = perturb(nn.LayerNorm(101))
    assert (module.weight != 1).all()
    assert (module.bias != 0).all()


def test_halves_by_hand():
    # Two heads of d_k = 4: within each, even rows first.
    assert halves(torch.arange(8), 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert halves(torch.arange(12)[:, None] * torch.ones(1, 2), 6)[:, 1].tolist() == [
        *(0, 2, 4, 1, 3, 5),
        *(6, 8, 10, 7, 9, 11),
    ]
