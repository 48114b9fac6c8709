"""Every component against an implementation that we did not write, and that differences are detected."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.norms import LayerNorm
from transformer_lessons.oracles import Case, cases, is_within
from transformer_lessons.oracles.measure import Deviation, compare, distance

F64 = torch.float64
NO_GRADIENTS = (
    "schedule.warmup_inverse_sqrt decoding.greedy decoding.beam variants.attention_backward".split()
)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_equal_to_its_oracle(case, dtype):
    deviation = case.worst(dtype)
    assert is_within(deviation, dtype), deviation
    assert (deviation.gradient is None) == (case.component in NO_GRADIENTS)


def test_the_oracles_are_of_several_kinds():
    canon = "encodings embeddings norms attention feed_forward losses schedule layers model decoding"
    assert {case.component.split(".")[0] for case in cases()} == {*canon.split(), "fast", "variants"}
    assert {case.oracle.startswith("transformers ") for case in cases()} == {False, True}
    assert len({case.name for case in cases()}) == len(cases()) == 49


# --- The measure itself


def test_distance_by_hand():
    ours, theirs = torch.tensor([1.0, 2.0, 3.5]), torch.tensor([1.0, 2.25, 4.0])
    assert distance(ours, theirs) == 0.5 / 4
    assert distance(ours / 8, theirs / 8) == 0.5 / 8  # below 1 it is absolute
    assert distance(-theirs, theirs) == 2


def test_other_shapes_dtypes_and_nan_are_infinitely_far():
    x = torch.ones(3)
    for other in (torch.ones(1), torch.ones(1, 3), x.double(), torch.tensor([1.0, torch.nan, 1.0])):
        assert distance(other, x) == distance(x, other) == torch.inf
    assert compare(lambda x: x, lambda x: x[:2], [x]) == Deviation(torch.inf, torch.inf)


def test_equal_values_with_another_gradient_are_seen():
    x, y = torch.randn(2, 5, dtype=F64)
    for ours in (lambda x, y: x.detach() * y, lambda x, y: x * y.detach()):
        found = compare(ours, lambda x, y: x * y, [x, y])
        assert found.value == 0
        assert found.gradient > 0.1
    assert compare(lambda x: x.detach(), lambda x: x, [x]) == Deviation(0.0, torch.inf)
    assert compare(lambda x, y: 2 * x, lambda x, y: 2 * x + 0 * y, [x, y]) == Deviation(0.0, 0.0)


class Doubled(LayerNorm):
    """Right values; the shift's gradient is doubled."""

    def forward(self, x):
        return super().forward(x) + self.bias - self.bias.detach()


class ShiftedFirst(LayerNorm):
    """Adds the shift before scaling: the same as long as the scale is 1 or the shift 0."""

    def forward(self, x):
        return (F.layer_norm(x, x.shape[-1:]) + self.bias) * self.weight


def norm_deviation(kind: type) -> Deviation:
    modules = kind(7).double(), nn.LayerNorm(7).double()
    return compare(*modules, [torch.randn(5, 7, dtype=F64)], modules)


def test_a_wrong_gradient_of_a_parameter_is_seen():
    assert is_within(norm_deviation(LayerNorm), F64)
    found = norm_deviation(Doubled)
    assert found.value <= 1e-10
    assert found.gradient > 1e-3


def test_a_mistake_that_initial_values_hide_is_seen():
    x = torch.randn(5, 7, dtype=F64)
    assert torch.allclose(ShiftedFirst(7).double()(x), nn.LayerNorm(7).double()(x))
    assert norm_deviation(ShiftedFirst).value > 1e-3  # as `compare` moves both away from where they start


def test_a_forgotten_parameter_is_an_error():
    ours, theirs = FeedForward(3, 5), nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 3))
    with pytest.raises(RuntimeError, match="W_2"):
        compare(ours, theirs, [torch.randn(2, 3)], (ours, theirs), {"W_1": "0"})


def test_a_case_takes_the_worst_of_several_seeds_and_leaves_dtype_and_generator_alone():
    drawn = []

    def make(factor):
        x = torch.rand(1)
        drawn.append(x.item())
        assert x.dtype == F64
        return (lambda: factor * x), (lambda: 0 * x), []

    before = torch.get_rng_state()
    worst = Case("ours", "theirs", make, {"factor": 0.5}).worst(F64, seeds=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert len(set(drawn)) == 5
    assert worst == Deviation(0.5 * max(drawn), None)
