"""Checks of classes, of objects that are handed over, and of the order of arguments."""

import pytest
import torch
from torch import nn

from transformer_lessons import checks
from transformer_lessons.checks.given import BUILDERS
from transformer_lessons.checks.local import Local
from transformer_lessons.checks.old.core import Build, Given, Probe, Task
from transformer_lessons.checks.old.probe import ask


@pytest.fixture(autouse=True)
def as_users_run_it(no_shape_checks):
    """Learners do not run under the import hook, which would answer in place of the checks."""


class Counter(nn.Module):
    """Adds `step` to what it has counted, times its weight."""

    def __init__(self, step, start=0.0):
        super().__init__()
        if step < 0:
            raise ValueError("step")
        self.step = step
        self.weight = nn.Parameter(torch.tensor([2.0]))
        self.register_buffer("count", torch.tensor([start]))

    def forward(self, x):
        if self.training:
            self.count += self.step
        return self.weight * x + self.count

    def reset(self, to):
        self.count.fill_(to)
        return self.count


def asked(candidate, *args, **options):
    return ask(Local({"counter": candidate}), "counter", Probe(list(args), **options))


ONE = torch.tensor([1.0])


def test_an_object_is_built_and_prepared_before_it_is_asked():
    assert asked(Counter, ONE, build=Build([3])).value.tolist() == [5.0]
    assert asked(Counter, ONE, build=Build([3], {"start": 1.0})).value.tolist() == [6.0]
    assert asked(Counter, ONE, build=Build([3], training=False)).value.tolist() == [2.0]
    state = {"weight": torch.tensor([7.0]), "count": torch.tensor([10.0])}
    assert asked(Counter, ONE, build=Build([3], state=state)).value.tolist() == [20.0]
    assert asked(Counter, ONE, build=Build([3], dtype="float64")).value.dtype is torch.float64
    earlier = (("", [ONE], {}), ("reset", [50.0], {}), ("", [ONE], {}))
    assert asked(Counter, ONE, build=Build([3], earlier=earlier)).value.tolist() == [58.0]
    assert asked(Counter, 4.0, build=Build([3]), method="reset").value.tolist() == [4.0]
    found = asked(Counter, build=Build([3], earlier=earlier[:1]), method="state").value
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"weight": [2.0], "count": [3.0]}


def test_the_first_request_that_fails_is_the_answer():
    assert asked(Counter, ONE, build=Build([-3])).error["type"] == "ValueError"
    assert asked(Counter, ONE, build=Build([3], dtype="nowhere")).error["type"] == "RuntimeError"
    assert (
        asked(Counter, ONE, build=Build([3], earlier=(("forget", [], {}),))).error["type"] == "AttributeError"
    )
    no_state = {"counter": lambda step: [].append}
    reply = ask(Local(no_state), "counter", Probe([ONE], build=Build([3], state={"weight": ONE})))
    assert reply.error["type"] == "AttributeError"


def test_gradients_of_parameters_come_with_those_of_arguments():
    reply = asked(Counter, ONE, build=Build([3]), cotangents=[torch.tensor([5.0])])
    assert reply.gradients["0"].tolist() == [10.0]
    assert reply.parameters["weight"].tolist() == [5.0]


class OtherNames(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(1, d_model))

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.gamma, self.bias[0])


def test_other_names_of_parameters_are_no_crash():
    report = checks.check("layer_norm", OtherNames)
    assert not report.passed
    said = " ".join(report.message.split())
    assert "its parameters have other names or shapes than expected: weight (" in said
    assert ") is missing; bias should have shape (" in said
    assert ") is not expected" in said
    assert report.misconception is None


class DetachedWeight(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        if d_model < 1:
            raise ValueError("d_model")
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        if x.size(-1) != len(self.weight):
            raise ValueError("x")
        return nn.functional.layer_norm(x, self.weight.shape, self.weight.detach(), self.bias, self.eps)


def test_a_parameter_without_gradient_is_found():
    report = checks.check("layer_norm", DetachedWeight)
    assert report.requirement == "gradients"
    assert "no gradient arrives at the parameter weight" in report.message


def test_an_example_shows_how_the_object_was_made():
    report = checks.check("layer_norm", lambda d_model, eps=1e-5: nn.Identity())
    assert report.counterexample.startswith("module = LayerNorm(2)\n")


# ---- Objects that are handed over

STEP = Task(
    name="descend",
    signature="descend(module, optimizer, x)",
    arguments=("module", "optimizer", "x"),
    returns=("loss",),
    reference=lambda module, optimizer, x: _descend(module, optimizer, x),
    requirements=(),
    sizes=lambda seed: {},
    small=(),
    probes=lambda sizes, draw: {},
    steps=None,
    assemble=lambda steps: None,
    mistakes=(),
)


def _descend(module, optimizer, x):
    loss = module(x).sum()
    loss.backward()
    optimizer.step()
    return loss


def test_a_given_object_is_built_where_the_candidate_is_and_looked_at_afterwards():
    linear = Given("linear", [torch.tensor([[2.0, 3.0]]), torch.tensor([1.0])])
    probe = Probe([linear, 0.5, torch.tensor([[5.0, 7.0]])], look=(0,))

    def candidate(module, rate, x):
        assert isinstance(module, nn.Linear)
        return _descend(module, torch.optim.SGD(module.parameters(), lr=rate), x)

    reply = STEP.observe(Local({"descend": candidate}), probe)
    loss, state = reply.value
    assert loss.item() == 2 * 5 + 3 * 7 + 1
    assert state["weight"].tolist() == [[2 - 2.5, 3 - 3.5]]
    assert state["bias"].tolist() == [0.5]
    again = STEP.observe(Local({"descend": candidate}), probe)
    assert torch.equal(again.value[1]["weight"], state["weight"])  # built anew for every question


def test_given_objects_are_what_they_are_called():
    perceptron = BUILDERS["perceptron"]([torch.eye(2), torch.ones(1, 2)], [torch.zeros(2), torch.zeros(1)])
    assert perceptron(torch.tensor([[-3.0, 5.0]])).item() == 5.0
    optimizer = BUILDERS["sgd"](perceptron, 0.25)
    assert (type(optimizer), optimizer.defaults["lr"]) == (torch.optim.SGD, 0.25)
    sizes = {"source_vocab_size": 7, "target_vocab_size": 11, "d_model": 6, "num_heads": 3, "d_ff": 5}
    config = {**sizes, "num_encoder_layers": 1, "num_decoder_layers": 1}
    from transformer_lessons.checks.old.guarded import Transformer, TransformerConfig

    state = {k: v.double() for k, v in Transformer(TransformerConfig(**config)).state_dict().items()}
    model = BUILDERS["model"](config, state)
    assert not model.training
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("kind", ["model", "training_model", "evaluated_model"])
@pytest.mark.parametrize("tied", [False, True])
def test_what_a_candidate_does_to_its_model_no_other_sees(kind, tied):
    from transformer_lessons.checks.old.guarded import Transformer, TransformerConfig

    config = {"source_vocab_size": 7, "target_vocab_size": 11, "d_model": 6, "num_heads": 3, "d_ff": 5}
    config |= {"num_encoder_layers": 1, "num_decoder_layers": 2, "tie_embeddings": tied, "dropout": 0.0}
    fresh = Transformer(TransformerConfig(**config)).double().eval()
    state = {name: tensor.clone() for name, tensor in fresh.state_dict().items()}
    src, tgt = torch.tensor([[3, 4, 5, 0]]), torch.tensor([[1, 6, 7]])

    def spoil(module):
        for part in module.modules():
            part.register_forward_hook(lambda *_: 0 / 0)
            part.added = True
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                tensor.fill_(0)
        module.config.__dict__["pad_id"] = 3
        del module.decoder_layers[0]

    spoil(BUILDERS[kind](config, state))
    model = BUILDERS[kind](config, state)
    assert torch.equal(model(src, tgt), fresh(src, tgt))
    assert (model.output.weight is model.target_embedding.token.weight) == tied
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in fresh.named_parameters()]
    assert all(p.requires_grad and p.is_leaf for p in model.parameters())
    assert all(torch.equal(tensor, fresh.state_dict()[name]) for name, tensor in state.items())
    with pytest.raises(KeyError):
        BUILDERS[kind](config, {name: tensor for name, tensor in state.items() if "W_q" not in name})


def test_a_check_that_hands_over_nonsense_is_told():
    with pytest.raises(RuntimeError, match=r"given\.linear: "):
        STEP.observe(Local({"descend": _descend}), Probe([Given("linear", [3, 4])]))


# ---- The order of arguments


def test_another_order_of_arguments_is_said():
    right = checks.task("padding_mask").reference
    report = checks.check("padding_mask", lambda pad_id, ids: right(ids, pad_id))
    assert report.misconception == "argument_order"
    assert "you take the arguments in the order (pad_id, ids)" in report.message
    assert "Callers write padding_mask(ids, pad_id)." in " ".join(report.message.split())


def test_another_order_and_another_mistake_is_not_another_order():
    right = checks.task("padding_mask").reference
    report = checks.check("padding_mask", lambda pad_id, ids: ~right(ids, pad_id))
    assert report.misconception != "argument_order"
