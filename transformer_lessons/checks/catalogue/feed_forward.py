"""The check of `FeedForward`, and what it shares with that of `SwiGLU`."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.feed_forward import FeedForward

__all__ = ["DROPOUT", "SMALL", "TASK", "WIDTH_UNCHECKED", "dropped", "sizes", "state_of"]

LAYER, WRONG, BENDS, DROP, ALONE = (
    f"#ch09-{name}" for name in ("layer", "wrong", "activations", "dropout", "positionwise")
)
SMALL = (
    {"batch": 1, "length": 1, "width": 2, "hidden": 3},
    {"batch": 1, "length": 2, "width": 3, "hidden": 2},
)


def sizes(seed: int) -> dict[str, int]:
    """Distinct primes, in another order for each seed."""
    order = random.Random(seed).sample([2, 3, 5, 7, 11, 13], 4)
    return dict(zip(("batch", "length", "width", "hidden"), order, strict=True))


def state_of(draw: Draw, sizes: dict[str, tuple[int, int]], bias: bool = True) -> dict[str, Tensor]:
    """Weights and biases of linear maps, from (width in, width out)."""
    state = {}
    for name, (width_in, width_out) in sizes.items():
        state[f"{name}.weight"] = draw.normal(width_out, width_in)
        if bias:
            state[f"{name}.bias"] = draw.bias(width_out)
    return state


def dropped(output: Tensor, hidden: Tensor, bias: Tensor, training: bool) -> dict:
    """What dropout did to hidden activations that reach the output one to one, whichever chance picked.

    The bias is not zero, so that an output of zero can only come from dropout there.
    """
    factors = (output - bias) / hidden
    zero, twice, once = ((factors - n).abs() < 1e-3 for n in (0, 2, 1))
    if not training:
        return {"in evaluation, nothing should be dropped": bool(once.all())}
    return {
        "dropout should hit the hidden activations, not the output": not bool((output == 0).any()),
        "in training with dropout=0.5, about half of the hidden activations should be zero": bool(
            0.2 < zero.double().mean() < 0.8
        ),
        "with dropout=0.5, the activations that are kept should be doubled": bool((zero | twice).all()),
    }


def _state_of_one(draw: Draw) -> dict:
    return state_of(draw, {"W_1": (1, 1), "W_2": (1, 1)})


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d, h = s["batch"], s["length"], s["width"], s["hidden"]
    state = state_of(draw, {"W_1": (d, h), "W_2": (h, d)})
    x, y = draw.normal(b, t, d), draw.normal(b, t, d)
    layer = _build(d, h, state)
    unknown = Build([d, h], {"activation": "step"})
    return {
        "relu": Probe([x], build=layer, cotangents=[y]),
        "one": Probe([draw.normal(d)], build=layer),
        "gelu": Probe([x], build=_build(d, h, state, {"activation": "gelu"}), cotangents=[y]),
        **_dropping(s, draw),
        "smallest": Probe([draw.normal(b, t, 1)], build=_build(1, 1, _state_of_one(draw))),
        "unknown": Probe([x.float()], build=unknown, refused="activation='step'"),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=layer, refused=f"x of width {d + 1}, not {d}"),
        "no_hidden": Probe([x.float()], build=Build([d, 0]), refused="d_ff=0"),
    }


def _dropping(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    """Dropout, where hidden activations are far above zero and pass on to the output, whatever the activation."""
    n = max(s["width"], 7)
    x, bias = draw.normal(max(s["batch"], 3), max(s["length"], 3), n), torch.ones(n, dtype=torch.float64)
    W_1, b_1 = draw.normal(n, n) / 10, torch.full((n,), 30.0, dtype=torch.float64)
    identity = torch.eye(n, dtype=torch.float64)
    state = {"W_1.weight": W_1, "W_1.bias": b_1, "W_2.weight": identity, "W_2.bias": bias}
    hidden = x @ W_1.T + b_1

    def probe(training: bool) -> Probe:
        build = _build(n, n, state, {"dropout": 0.5}, training=training)
        return Probe([x], build=build, view=lambda output: dropped(output, hidden, bias, training))

    return {"training": probe(True), "evaluation": probe(False)}


def _build(d_model: int, d_ff: int, state: dict, options: dict | None = None, **more) -> Build:
    return Build([d_model, d_ff], options or {}, dtype="float64", state=state, **more)


def _accept(d_model: int, d_ff: int, activation: str) -> None:
    if d_model < 1 or d_ff < 1:
        raise ValueError("d_model, d_ff: expected 1 or more")
    _activation_known(activation)


def _activation_known(activation: str) -> None:
    if activation not in ("relu", "gelu"):
        raise ValueError("activation: expected relu or gelu")


def _activation_looked_up(d_model: int, d_ff: int, activation: str) -> None:
    if activation not in ("relu", "gelu"):
        raise KeyError(activation)
    _accept(d_model, d_ff, activation)


def _fits(x: Tensor, d_model: int) -> None:
    if x.size(-1) != d_model:
        raise ValueError(f"x: expected a last axis of {d_model}")


def _torch_complains(x: Tensor, d_model: int) -> None:
    """What a product of matrices that do not fit raises."""
    if x.size(-1) != d_model:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def _bend(hidden: Tensor, activation: str) -> Tensor:
    return torch.relu(hidden) if activation == "relu" else F.gelu(hidden)


def _tanh_gelu(hidden: Tensor, activation: str) -> Tensor:
    return torch.relu(hidden) if activation == "relu" else F.gelu(hidden, approximate="tanh")


def _bend_in_place(x: Tensor, activation: str) -> Tensor:
    return x.copy_(_bend(x, activation))


def _linears(d_model: int, d_ff: int) -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    keywords: Callable = lambda activation, dropout: None
    dropout: Callable = lambda given: given or 0.0
    maps: Callable = _linears
    fits: Callable = _fits
    first: Callable = lambda x, activation: x  # what happens to the input
    expand: Callable = lambda x, W_1: W_1(x)
    bend: Callable = _bend
    drop: Callable = lambda hidden, p, training: F.dropout(hidden, p, training)
    contract: Callable = lambda hidden, W_2: W_2(hidden)
    last: Callable = lambda y, activation: y
    drop_output: Callable = lambda y, p, training: y
    result: Callable = lambda y, x: y


def assemble(steps: Steps) -> type[nn.Module]:
    """The feed-forward layer in these steps."""

    class Layer(nn.Module):
        def __init__(self, d_model, d_ff, *, activation=None, dropout=None):
            super().__init__()
            steps.keywords(activation, dropout)
            activation = activation or "relu"
            steps.accept(d_model, d_ff, activation)
            self.W_1, self.W_2 = steps.maps(d_model, d_ff)
            self.d_model, self.activation, self.p = d_model, activation, steps.dropout(dropout)

        def forward(self, x):
            steps.fits(x, self.d_model)
            x = steps.first(x, self.activation)
            hidden = steps.bend(steps.expand(x, self.W_1), self.activation)
            y = steps.contract(steps.drop(hidden, self.p, self.training), self.W_2)
            y = steps.drop_output(steps.last(y, self.activation), self.p, self.training)
            return steps.result(y, x)

    return Layer


def _no_activation_keyword(activation: str | None, dropout: float | None) -> None:
    if activation is not None:
        raise TypeError("f() got an unexpected keyword argument 'activation'")


def _no_dropout_keyword(activation: str | None, dropout: float | None) -> None:
    if dropout is not None:
        raise TypeError("f() got an unexpected keyword argument 'dropout'")


def _no_bend(hidden: Tensor, activation: str) -> Tensor:
    return hidden


def _no_drop(hidden: Tensor, p: float, training: bool) -> Tensor:
    return hidden


DROPOUT = (
    Mistake(
        "dropout_ignored",
        "you never use dropout",
        "With dropout=0 nothing is missing.",
        "The layer overfits as if none had been asked for.",
        DROP,
        ({"drop": _no_drop},),
    ),
    Mistake(
        "dropout_on_output",
        "you drop entries of the output; the layer around does that, and this dropout is for hidden activations",
        "The paper drops the sub-layer's output, and so it seems to belong here.",
        "The second bias is dropped as well, and the layer around drops a second time.",
        LAYER,
        ({"drop": _no_drop, "drop_output": lambda y, p, training: F.dropout(y, p, training)},),
    ),
    Mistake(
        "dropout_in_evaluation",
        "you drop in evaluation too",
        "F.dropout is on unless it is told otherwise, and knows nothing of model.eval().",
        "Two calls in evaluation give different answers.",
        DROP,
        ({"drop": lambda hidden, p, training: F.dropout(hidden, p)},),
    ),
    Mistake(
        "dropout_not_rescaled",
        "you zero activations without dividing the others by 1 − dropout",
        "A random mask looks like all of dropout.",
        "In evaluation, activations are larger on average than in training.",
        DROP,
        ({"drop": lambda hidden, p, training: F.dropout(hidden, p, training) * (1 - p * training)},),
    ),
    Mistake(
        "dropout_by_default",
        "your dropout defaults to 0.1; it should be off unless it is asked for",
        "The paper's rate was made the default.",
        "Whoever names no dropout gets some in training.",
        LAYER,
        ({"dropout": lambda given: 0.1 if given is None else given},),
    ),
)

WIDTH_UNCHECKED = Mistake(
    "width_unchecked",
    "you do not check the width of the input yourself",
    "torch complains too, but about mat1 and mat2, in the middle of your code.",
    "The caller is told nothing about x.",
    LAYER,
    ({"fits": _torch_complains},),
)

MISTAKES = (
    Mistake(
        "no_activation",
        "you left out the activation: two linear maps in a row are one linear map",
        "A line got lost, or a stub was to be completed later.",
        "However wide it is, the layer can learn no more than a single matrix.",
        WRONG,
        ({"bend": _no_bend},),
    ),
    Mistake(
        "activation_last",
        "you apply the activation after the second map; it belongs between the two",
        "Each of many layers ends with its activation in other networks.",
        "The output is never negative, and the two maps collapse into one.",
        LAYER,
        ({"bend": _no_bend, "last": _bend},),
    ),
    Mistake(
        "activation_twice",
        "you apply the activation after the second map as well",
        "A pair of nn.Linear and activation was repeated.",
        "The output is never much below zero, so the layer can hardly take anything away from the residual.",
        LAYER,
        ({"last": _bend},),
    ),
    Mistake(
        "activation_first",
        "you apply the activation to the input, before the first map",
        "Blocks of other networks begin with norm and activation.",
        "Negative features are lost, and the two maps collapse into one.",
        LAYER,
        ({"bend": _no_bend, "first": _bend},),
    ),
    Mistake(
        "input_overwritten",
        "your activation writes over the input of the layer",
        "inplace=True saves a copy; put first in the layer, it hits its caller's tensor.",
        "The residual sum adds what is left of the input.",
        "#ch09-in-place",
        ({"bend": _no_bend, "first": _bend_in_place}, {"first": _bend_in_place}),
    ),
    Mistake(
        "activation_ignored",
        "you never look at activation, and always take the same one",
        "The paper has only ReLU.",
        'activation="gelu" changes nothing.',
        BENDS,
        (
            {"bend": lambda hidden, activation: torch.relu(hidden)},
            {"bend": lambda hidden, activation: F.gelu(hidden)},
        ),
    ),
    Mistake(
        "gelu_by_tanh",
        "you take the approximation of GELU by tanh; here it is the exact one, by erf",
        "GPT-2's code has it.",
        "Outputs differ in the fourth digit, enough to make a comparison with other code fail.",
        BENDS,
        ({"bend": _tanh_gelu},),
    ),
    Mistake(
        "residual_added",
        "you add the input to the output; the layer around does that",
        "x + FFN(x) is what the paper's picture shows.",
        "The input is added twice.",
        LAYER,
        ({"result": lambda y, x: y + x},),
    ),
    Mistake(
        "over_positions",
        "you multiply along the positions, as if features came before them",
        "A convolution wants features first, and so a transpose was kept.",
        "It fails unless there are as many positions as features; then positions are mixed.",
        ALONE,
        (
            {"expand": lambda x, W_1: W_1(x.mT), "contract": lambda hidden, W_2: W_2(hidden).mT},
            {
                "expand": lambda x, W_1: W_1(x.transpose(1, 2)),
                "contract": lambda hidden, W_2: W_2(hidden).transpose(1, 2),
            },
        ),
    ),
    Mistake(
        "widths_swapped",
        "you built the maps the other way round: nn.Linear is told the width in, then the width out",
        "The weight of nn.Linear has shape (out, in).",
        "The first map expects d_ff features.",
        LAYER,
        (
            {"maps": lambda d_model, d_ff: _linears(d_ff, d_model)},
            {"maps": lambda d_model, d_ff: _linears(d_model, d_ff)[::-1]},
        ),
    ),
    Mistake(
        "no_bias",
        "your maps have no biases; here both have one",
        "Newer layers leave them out.",
        "An activation can only bend at zero.",
        LAYER,
        (
            {"maps": lambda d, h: (nn.Linear(d, h, bias=False), nn.Linear(h, d, bias=False))},
            {"maps": lambda d, h: (nn.Linear(d, h, bias=False), nn.Linear(h, d))},
            {"maps": lambda d, h: (nn.Linear(d, h), nn.Linear(h, d, bias=False))},
        ),
    ),
    Mistake(
        "d_ff_ignored",
        "your hidden width is 4 · d_model, whatever d_ff is",
        "That is the paper's ratio.",
        "d_ff changes nothing.",
        LAYER,
        ({"maps": lambda d_model, d_ff: _linears(d_model, 4 * d_model)},),
    ),
    Mistake(
        "activation_keyword_missing",
        "your layer does not take activation",
        "The paper's has only one.",
        "A GELU cannot be had.",
        BENDS,
        ({"keywords": _no_activation_keyword},),
    ),
    Mistake(
        "dropout_keyword_missing",
        "your layer does not take dropout",
        "Equation 2 of the paper has none.",
        "Hidden activations cannot be dropped.",
        LAYER,
        ({"keywords": _no_dropout_keyword},),
    ),
    *DROPOUT,
    Mistake(
        "activation_unchecked",
        "you accept an activation that you do not know",
        "An “else” takes whatever is left.",
        "A typo in a configuration goes unnoticed.",
        BENDS,
        ({"accept": lambda d_model, d_ff, activation: _accept(d_model, d_ff, "relu")},),
    ),
    Mistake(
        "activation_key_error",
        "you look the activation up without checking it, so that a typo raises KeyError",
        "A dict finds out by itself that a name is unknown.",
        "The message is the typo in quotes, and says nothing of what is possible.",
        BENDS,
        ({"accept": _activation_looked_up},),
    ),
    WIDTH_UNCHECKED,
    Mistake(
        "sizes_unchecked",
        "you accept a hidden width of zero",
        "nn.Linear takes it with no more than a warning.",
        "The layer puts out its second bias, whatever comes in.",
        LAYER,
        ({"accept": lambda d_model, d_ff, activation: _activation_known(activation)},),
    ),
)

TASK = Task(
    name="feed_forward",
    signature='FeedForward(d_model, d_ff, activation="relu", dropout=0.0)(x)',
    arguments=("x",),
    returns=("output",),
    reference=FeedForward,
    requirements=(
        Requirement(
            "returns",
            "its parameters are those of two nn.Linear, W_1 and W_2; it returns a tensor of the input's shape.",
            ("relu",),
            LAYER,
            ("structure",),
        ),
        Requirement("values", "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2.", ("relu", "one"), LAYER),
        Requirement(
            "gradients",
            "gradients reach the input and all weights and biases.",
            ("relu",),
            LAYER,
            ("gradients", "parameters"),
        ),
        Requirement("inputs", "the input is left unchanged.", ("relu",), "#ch09-in-place", ("inputs",)),
        Requirement("activation", 'activation may be "relu" or "gelu", the exact one.', ("gelu",), BENDS),
        Requirement("dropout", "in training, dropout hits the hidden activations.", ("training",), DROP),
        Requirement("evaluation", "in evaluation nothing is dropped.", ("evaluation",), DROP),
        Requirement(
            "refusals",
            "an unknown activation, another width than d_model and sizes below 1 are refused with ValueError.",
            ("smallest", "unknown", "narrow", "no_hidden"),
            LAYER,
        ),
    ),
    sizes=sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=3,
)
