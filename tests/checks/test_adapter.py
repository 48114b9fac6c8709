"""The adapter through which a check uses a learner's objects: plain values in and out, nothing shared."""

import pytest
import torch
from torch import nn

from transformer_lessons.checks import Adapter, Local
from transformer_lessons.checks.learner.adapter import is_opaque, leaves


class Affine(nn.Module):
    """y = xW + b, scaled in training mode."""

    def __init__(self, width, *, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        y = x @ self.weight
        y = y if self.bias is None else y + self.bias
        return 2 * y if self.training else y

    def parts(self, x):
        return {"weight": self.weight, "result": [self(x), x]}


@pytest.fixture
def local():
    return Local({"Affine": Affine, "double": lambda x: 2 * x, "edit": lambda x, **_: x.add_(1)})


def test_local_is_an_adapter(local):
    assert isinstance(local, Adapter)
    assert not isinstance(Affine(2), Adapter)
    assert not isinstance(lambda x: x, Adapter)


def test_a_module_is_built_loaded_and_trained(local):
    handle = local.build("Affine", [3], {"bias": True}).value
    assert isinstance(handle, str)
    state = {"weight": torch.eye(3), "bias": torch.ones(3), "calls": torch.tensor(5)}
    assert local.load_state(handle, state).error is None
    state["weight"].zero_()  # ours, not the learner's copy
    assert torch.equal(local.state(handle).value["weight"], torch.eye(3))
    x = torch.randn(2, 3)
    torch.testing.assert_close(local.call(handle, [x], {}).value, 2 * (x + 1))
    assert local.train(handle, False).error is None
    torch.testing.assert_close(local.call(handle, [x], {}).value, x + 1)
    local.find(handle).to("meta")
    assert is_opaque(local.state(handle).value["weight"])


def test_a_class_cannot_list_other_weights_than_it_has():
    def lie(*_, **__):
        return {"other": torch.ones(1)}

    class Lying(Affine):
        state_dict = lie
        named_parameters = parameters = lambda self, **_: lie().items()

    local = Local({"Lying": Lying})
    handle = local.build("Lying", [3], {}).value
    state = local.state(handle)
    assert state.value.keys() == {"weight", "bias", "calls"}
    seen = local.vjp(handle, [torch.ones(1, 3)], {})
    assert seen.parameters.keys() == state.parameters.keys() == {"weight", "bias"}


def test_state_that_does_not_fit_is_an_error(local):
    handle = local.build("Affine", [3], {}).value
    error = local.load_state(handle, {"weights": torch.eye(3)}).error
    assert error["type"] == "RuntimeError"
    assert "Unexpected key" in error["message"]


def test_gradients_of_arguments_and_parameters_are_autograds(local):
    handle = local.build("Affine", [3], {}).value
    local.find(handle).double()
    x, cotangent = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    reply = local.vjp(handle, [x], {}, [cotangent])

    module = Affine(3).double()
    module.load_state_dict(local.state(handle).value)
    root = x.clone().requires_grad_()
    output = module(root)
    output.backward(cotangent)
    torch.testing.assert_close(reply.value, output.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(reply.gradients["0"], root.grad, rtol=0, atol=1e-12)
    assert reply.parameters.keys() == {"weight", "bias"}
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(reply.parameters[name], parameter.grad, rtol=0, atol=1e-12)
    assert reply.attached == [True]
    assert not reply.value.requires_grad
    assert local.state(handle).value["calls"] == 0


def test_gradients_are_found_where_a_cell_has_turned_them_off(local):
    handle = local.build("Affine", [3], {}).value
    with torch.no_grad():
        reply = local.vjp(handle, [torch.ones(1, 3)], {})
    assert reply.attached == [True]
    assert reply.gradients["0"] is not None
    assert reply.parameters["weight"] is not None


def test_methods_and_nested_results(local):
    handle = local.build("Affine", [2], {}).value
    x = torch.ones(1, 2)
    reply = local.vjp(f"{handle}.parts", [x], {}, [torch.ones(2, 2), torch.ones(1, 2), torch.ones(1, 2)])
    assert reply.kind == "dict"
    assert list(leaves(reply.value)) == ["weight", "result.0", "result.1"]
    torch.testing.assert_close(reply.parameters["weight"], torch.full((2, 2), 3.0))  # 1 + 2 in training mode


def test_integers_have_no_gradient_and_unused_arguments_get_none():
    local = Local({"first": lambda x, y, ids: x * ids})
    x, y, ids = torch.randn(3), torch.randn(3), torch.arange(3)
    reply = local.vjp("first", [x, y], {"ids": ids}, [torch.ones(3)])
    assert reply.gradients.keys() == {"0", "1"}
    torch.testing.assert_close(reply.gradients["0"], ids.float())
    assert reply.gradients["1"] is None


def test_a_detached_result_has_no_gradient():
    reply = Local({"f": lambda x: (x.detach(), x)}).vjp("f", [torch.ones(2)], {}, [torch.ones(2)] * 2)
    assert reply.attached == [False, True]


@pytest.mark.parametrize("verb", ["call", "vjp"])
def test_in_place_edits_are_reported_and_leave_the_callers_tensors_unchanged(local, verb):
    x, mask = torch.ones(2), torch.tensor([True, False])
    extra = [[torch.ones(2)]] if verb == "vjp" else []
    reply = getattr(local, verb)("edit", [x], {"mask": mask}, *extra)
    assert reply.mutated == ["0"]
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(reply.value, torch.full((2,), 2.0))
    assert getattr(local, verb)("double", [x], {}, *extra).mutated == []


def test_results_are_copies():
    kept = torch.zeros(2)
    reply = Local({"f": lambda: kept}).call("f", [], {})
    kept.add_(1)
    assert torch.equal(reply.value, torch.zeros(2))


def test_nan_that_stays_is_no_edit():
    assert Local({"f": lambda x: 1}).call("f", [torch.tensor([float("nan")])], {}).mutated == []


class IncomparableList(list):
    """A list whose comparison raises an error."""

    def __eq__(self, other):
        raise ValueError("no truth in this")


@pytest.mark.parametrize(
    "put",
    [
        lambda rows: rows[1].append(7),
        lambda rows: rows[1].pop(),
        lambda rows: rows[1].__setitem__(0, 8),
        lambda rows: rows[1].__setitem__(0, 5.0),
        # Comparing these with a number has no truth value or raises an error:
        lambda rows: rows[1].__setitem__(0, torch.tensor([5, 5])),
        lambda rows: rows[1].__setitem__(0, IncomparableList()),
        lambda rows: rows.__setitem__(1, None),
        lambda rows: rows[1].__setitem__(0, rows),
    ],
)
def test_a_list_that_is_changed_inside_is_named(put):
    rows = [[1, 2], [5, 6], []]
    reply = Local({"f": lambda rows, **_: put(rows)}).call("f", [rows], {"more": {"a": [float("nan"), None]}})
    assert reply.error is None
    assert rows == [[1, 2], [5, 6], []]
    assert [path[:3] for path in reply.mutated] == ["0.1"]


def test_lists_that_are_only_read_are_not_changed():
    rows, more = [[1, 2.0], [], ["a", True]], {"a": [float("nan"), None, torch.ones(2)]}
    assert Local({"f": lambda rows, **_: len(rows)}).call("f", [rows], {"more": more}).mutated == []


@pytest.mark.parametrize(
    ("value", "kind", "sent"),
    [
        (None, "NoneType", None),
        (True, "bool", True),
        (3, "int", 3),
        (0.5, "float", 0.5),
        ("a", "str", "a"),
        ((1, 2), "tuple", [1, 2]),
        ([1, (2,)], "list", [1, [2]]),
        ({1: 2}, "dict", {"1": 2}),
        (torch.float32, "torch.dtype", {"opaque": "a torch.dtype"}),
        (nn.ReLU(), "torch.nn.modules.activation.ReLU", {"opaque": "a torch.nn.modules.activation.ReLU"}),
    ],
)
def test_results_are_converted_to_plain_values(value, kind, sent):
    reply = Local({"f": lambda: value}).call("f", [], {})
    assert (reply.kind, reply.value) == (kind, sent)


def test_a_parameter_arrives_as_a_plain_tensor():
    value = Local({"f": lambda: nn.Parameter(torch.ones(2))}).call("f", [], {}).value
    assert type(value) is torch.Tensor
    assert not value.requires_grad


def test_errors_are_values_and_name_the_line():
    def wrong(x):
        return x @ x.reshape(3, 2)

    error = Local({"f": wrong}).call("f", [torch.ones(3, 2)], {}).error
    assert error["type"] == "RuntimeError"
    assert error["line"] == "return x @ x.reshape(3, 2)"
    backward = Local({"f": lambda x: _Broken.apply(x)}).vjp("f", [torch.ones(2)], {}, [torch.ones(2)]).error
    assert backward["type"] == "ArithmeticError"
    assert Local({}).call("f", [], {}).error["type"] == "NameError"


class _Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no way back")


def test_each_build_draws_the_same_random_numbers_and_keeps_the_callers_state(local):
    before = torch.get_rng_state()
    handles = [local.build("Affine", [3], {}).value for _ in range(2)]
    weights = [local.state(handle).value["weight"] for handle in handles]
    assert torch.equal(*weights)
    assert torch.equal(torch.get_rng_state(), before)
