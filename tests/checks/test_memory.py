"""The meter counts the bytes that arithmetic predicts, on any machine."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from transformer_lessons import checks
from transformer_lessons.checks.learner.memory import Meter

N, WIDTH = 31, 7
SQUARE, LINE = N * N * 8, N * WIDTH * 8


def memory_of(function, *args, cotangents=None):
    """The memory that one metered call of this function reports."""
    local = checks.Local({"f": function})
    if cotangents is None:
        reply = local.call("f", list(args), {}, meter=True)
    else:
        reply = local.vjp("f", list(args), {}, cotangents, meter=True)
    assert reply.error is None, reply.error
    return reply.memory


def matrix(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_nothing_is_counted_unless_asked_for():
    assert checks.Local({"f": lambda x: x @ x}).call("f", [matrix(N, N)], {}).memory == {}


def test_the_largest_tensor_and_the_peak_of_a_product():
    q = matrix(N, WIDTH)
    memory = memory_of(lambda q: (q @ q.T).softmax(-1) @ q, q)
    assert (memory["largest"], memory["shape"]) == (SQUARE, [N, N])
    assert memory["peak"] == 2 * SQUARE  # the scores and the weights
    assert memory["saved"] == 0


def test_views_and_changes_in_place_are_no_new_memory():
    q = matrix(N, WIDTH)
    memory = memory_of(lambda q: q.T[2:].reshape(-1)[:3] * 1.0, q.T.contiguous())
    assert memory["largest"] <= LINE
    assert memory_of(lambda q: q.mul_(2).view(-1).unsqueeze(0).expand(50, -1), q)["largest"] == 0
    assert memory_of(lambda q: (q + 1).add_(1).relu_().T, q)["peak"] == LINE


def test_what_is_freed_counts_no_longer():
    def one_after_the_other(q):
        return sum((q @ q.T).sum() for _ in range(5))

    assert memory_of(one_after_the_other, matrix(N, WIDTH))["peak"] < SQUARE + 100
    assert memory_of(lambda q: sum([q @ q.T for _ in range(5)]), matrix(N, WIDTH))["peak"] >= 5 * SQUARE


def test_tensors_kept_for_the_backward_pass_are_counted_once():
    def squared(x):
        hidden = torch.tanh(x)  # keeps its result,
        return hidden * hidden  # and this keeps it twice

    one = matrix(N, WIDTH)
    assert memory_of(squared, one, cotangents=[one])["saved"] == LINE
    assert memory_of(squared, one)["saved"] == 0  # without gradients, nothing


def test_arguments_and_results_are_not_kept():
    one = matrix(N, WIDTH)
    assert memory_of(lambda x: x * x, one, cotangents=[one])["saved"] == 0
    assert memory_of(torch.tanh, one, cotangents=[one])["saved"] == 0


def test_what_was_made_and_dropped_is_not_kept():
    def detour(x):
        (x @ x.T).exp()
        return x * 2

    one = matrix(N, WIDTH)
    assert memory_of(detour, one, cotangents=[one])["saved"] == 0


def test_memory_hidden_in_a_closure_is_found():
    one, drawer = matrix(N, WIDTH), []

    def hoarding(x):
        drawer.append(x.detach() @ x.detach().T)
        return x * 2

    assert memory_of(hoarding, one, cotangents=[one])["saved"] == SQUARE


def test_a_cycle_that_nobody_holds_is_not_kept():
    def cycle(x):
        loop = [x.detach() @ x.detach().T]
        loop.append(loop)
        return x * 2

    one = matrix(N, WIDTH)
    assert memory_of(cycle, one, cotangents=[one])["saved"] == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_saves_little_and_recomputes_in_the_backward_pass(reentrant):
    def attend(q):
        return (q @ q.T).softmax(-1) @ q

    q = matrix(N, WIDTH)
    plain = memory_of(attend, q, cotangents=[q])
    assert SQUARE <= plain["saved"] <= SQUARE + LINE
    if reentrant:  # refuses the gradients that a check asks for
        leaf = q.clone().requires_grad_()
        with Meter() as count:
            result = checkpoint(attend, leaf, use_reentrant=True)
            count.count_saved(result)
            result.sum().backward()
        again = count.memory
    else:
        again = memory_of(lambda q: checkpoint(attend, q, use_reentrant=False), q, cotangents=[q])
    assert again["saved"] < LINE
    assert again["peak"] >= 2 * SQUARE
    assert again["largest"] == SQUARE


def test_the_peak_has_the_backward_pass_in_it():
    """Forwards one square, tanh's result; backwards two more, the gradients of its result and its input."""
    one = matrix(N, N)
    forward = memory_of(lambda x: torch.tanh(x).sum(), one)
    both = memory_of(lambda x: torch.tanh(x).sum(), one, cotangents=[torch.tensor(1.0)])
    assert SQUARE <= forward["peak"] < 1.1 * SQUARE
    assert 2 * SQUARE <= both["peak"] < 4 * SQUARE


def test_a_backward_pass_within_the_call_counts_too():
    def step(model, x):
        model(x).sum().backward()
        return torch.tensor(0.0)

    class Perceptron(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(WIDTH, N), nn.ReLU(), nn.Linear(N, 1))
            self.double()

    local = checks.Local({"step": step, "Perceptron": Perceptron})
    model = {"handle": local.build("Perceptron", [], {}).value}
    assert local.call("step", [model, matrix(N, WIDTH)], {}, meter=True).memory["peak"] >= 2 * SQUARE


def test_the_fused_kernel_makes_no_square_where_it_runs():
    q = matrix(1, 1, 131, 3)
    fused = memory_of(F.scaled_dot_product_attention, q, q, q, cotangents=[q])
    assert fused["largest"] == q.nbytes
    wide = matrix(1, 1, 131, 5)  # values of another width: PyTorch silently uses the unfused computation
    assert memory_of(F.scaled_dot_product_attention, q, q, wide)["shape"][-2:] == [131, 131]


def test_gradients_of_arguments_and_parameters_come_from_one_backward_pass():
    local, calls = checks.Local({"Layer": nn.Linear}), []
    handle = local.build("Layer", [3, 2], {}).value
    local._names[handle].register_full_backward_hook(lambda *_: calls.append(1))
    x = torch.randn(5, 3)
    reply = local.vjp(handle, [x], {}, [torch.ones(5, 2)])
    assert calls == [1]
    assert reply.gradients["0"].shape == x.shape
    assert torch.allclose(reply.parameters["weight"], x.sum(0).expand(2, 3))
    assert torch.equal(reply.parameters["bias"], torch.full((2,), 5.0))


def test_the_meter_holds_on_to_nothing():
    with Meter() as count:
        tensor = matrix(N, N) * 2
        count.count_saved(tensor)
        seen = weakref.ref(tensor)
    del tensor
    gc.collect(1)
    assert seen() is None
