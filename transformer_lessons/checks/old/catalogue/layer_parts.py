"""What the checks of layers share: Add & Norm in steps, its known mistakes, and looking at dropout."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement
from transformer_lessons.checks.old.guarded import LayerNorm, TransformerConfig

__all__ = [
    "BOUND_TO",
    "PACKING",
    "PARTS",
    "RATE",
    "STREAM",
    "Packing",
    "PackingSteps",
    "drops",
    "example",
    "layer_sizes",
    "training",
]

RULES, WRONG = "#ch11-add-and-norm", "#ch11-wrong"
RATE = 0.25  # of dropout, where there is any
BOUND_TO = 0.1  # the share of dropped numbers lies within so much of the rate
PARTS = {
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
    "feed_forward": "the feed-forward network",
}

STREAM = Requirement(
    "stream",
    "in training the stream itself is never dropped: with silent sub-layers, dropout changes nothing.",
    ("silent",),
    WRONG,
    ("random",),
)


class Packing(nn.Module):
    """What Add & Norm owns."""

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)


@dataclass(frozen=True)
class PackingSteps:
    """What a mistake may replace in Add & Norm; `f` is the sub-layer, `drop` its dropout."""

    first: Callable = lambda norm_first: norm_first
    drop: Callable = lambda dropout, y, norm_first: dropout(y)
    after: Callable = lambda x, f, norm, drop: norm(x + drop(f(x)))
    before: Callable = lambda x, f, norm, drop: x + drop(f(norm(x)))

    def around(self, packing: Packing, x: Tensor, f: Callable, norm_first: bool) -> Tensor:
        """The sub-layer in its packing."""
        first = self.first(norm_first)
        rule = self.before if first else self.after
        return rule(x, f, packing.norm, lambda y: self.drop(packing.dropout, y, first))


def _added_to_the_norm(x: Tensor, f: Callable, norm: Callable, drop: Callable) -> Tensor:
    x = norm(x)
    return x + drop(f(x))


def _in_place(x: Tensor, f: Callable, norm: Callable, drop: Callable) -> Tensor:
    x += drop(f(norm(x)))
    return x


def _in_place_after(x: Tensor, f: Callable, norm: Callable, drop: Callable) -> Tensor:
    x += drop(f(x))
    return norm(x)


PACKING = (
    Mistake(
        "dropout_after_norm",
        "you put dropout behind the sum or the norm; it belongs on what the sub-layer gives, before the sum",
        "“Dropout comes last” is how other networks are written, and in evaluation nothing shows.",
        "In training holes are torn into the stream itself, and no later layer can mend them.",
        WRONG,
        (
            {
                "after": lambda x, f, norm, drop: drop(norm(x + f(x))),
                "before": lambda x, f, norm, drop: drop(x + f(norm(x))),
            },
            {"after": lambda x, f, norm, drop: drop(norm(x + f(x)))},
            {
                "after": lambda x, f, norm, drop: drop(norm(x + drop(f(x)))),
                "before": lambda x, f, norm, drop: drop(x + drop(f(norm(x)))),
            },
            {
                "after": lambda x, f, norm, drop: norm(drop(x + f(x))),
                "before": lambda x, f, norm, drop: drop(x + f(norm(x))),
            },
        ),
    ),
    Mistake(
        "dropout_on_the_way_in",
        "you drop what the sub-layer reads; what it gives is to be dropped",
        "The order of two function names in one line is easily turned round.",
        "In training each output is a little wrong everywhere, instead of missing here and there.",
        RULES,
        (
            {
                "after": lambda x, f, norm, drop: norm(x + f(drop(x))),
                "before": lambda x, f, norm, drop: x + f(drop(norm(x))),
            },
        ),
    ),
    Mistake(
        "no_dropout",
        "you never use dropout",
        "The formula of the norm and the sum has none; it stands in another section of the paper.",
        "Nothing shows in evaluation; in training the model overfits sooner.",
        RULES,
        ({"drop": lambda dropout, y, norm_first: y},),
    ),
    Mistake(
        "dropout_in_evaluation",
        "you drop in evaluation as well",
        "F.dropout is on unless it is told whether the module trains.",
        "The same input gives another output each time, at translation too.",
        RULES,
        (
            {"drop": lambda dropout, y, norm_first: F.dropout(y, dropout.p)},
            {"drop": lambda dropout, y, norm_first: F.dropout(y, dropout.p, dropout.training or norm_first)},
            {
                "drop": lambda dropout, y, norm_first: F.dropout(
                    y, dropout.p, dropout.training or not norm_first
                )
            },
        ),
    ),
    Mistake(
        "no_residual",
        "you left out the sum: the input must be added to what the sub-layer gives",
        "Layers that follow one another are what one knows from other networks.",
        "Tokens become alike from layer to layer, and deep stacks do not learn.",
        "#ch11-without",
        (
            {
                "after": lambda x, f, norm, drop: norm(drop(f(x))),
                "before": lambda x, f, norm, drop: drop(f(norm(x))),
            },
        ),
    ),
    Mistake(
        "norm_of_the_output",
        "you normalise what the sub-layer gives, before the sum; that is neither post-norm nor pre-norm",
        "A bracket that closes too early.",
        "Each sub-layer adds a variance of about 1, whatever it has to say, so the stream grows.",
        WRONG,
        (
            {"after": lambda x, f, norm, drop: x + norm(drop(f(x)))},
            {"after": lambda x, f, norm, drop: x + drop(norm(f(x)))},
            {
                "after": lambda x, f, norm, drop: x + norm(drop(f(x))),
                "before": lambda x, f, norm, drop: x + norm(drop(f(x))),
            },
            {
                "after": lambda x, f, norm, drop: x + drop(norm(f(x))),
                "before": lambda x, f, norm, drop: x + drop(norm(f(x))),
            },
        ),
    ),
    Mistake(
        "norm_missing",
        "you never normalise in post-norm",
        "The sum is what everybody remembers.",
        "The numbers grow with every sub-layer.",
        RULES,
        ({"after": lambda x, f, norm, drop: x + drop(f(x))},),
    ),
    Mistake(
        "norm_first_ignored",
        "you compute the same whatever norm_first says",
        "Only one of the two orders was written.",
        "The configuration says one thing and the model does another; the weights of both have the same shapes.",
        RULES,
        ({"first": lambda norm_first: False}, {"first": lambda norm_first: True}),
    ),
    Mistake(
        "orders_exchanged",
        "you exchanged the two orders: norm_first=True normalises what the sub-layer reads",
        "“Norm first” and “post-norm” are read as the same thing.",
        "Asked for pre-norm you build post-norm, which then needs its warm-up.",
        RULES,
        ({"first": lambda norm_first: not norm_first},),
    ),
    Mistake(
        "added_to_the_norm",
        "with norm_first you add to the normalised vector; the sum is with the vector as it came",
        "x = norm(x) overwrites what is needed a line later.",
        "It is post-norm with the brackets moved: every norm sits on the stream.",
        WRONG,
        ({"before": _added_to_the_norm},),
    ),
    Mistake(
        "normalised_again",
        "with norm_first you normalise the sum as well; a pre-norm stack has one norm more at its end, no more",
        "The line of post-norm was kept, and a norm added to it.",
        "The way around the sub-layers passes through a norm each time, which pre-norm is to avoid.",
        RULES,
        ({"before": lambda x, f, norm, drop: norm(x + drop(f(norm(x))))},),
    ),
    Mistake(
        "in_place",
        "you add with +=, which writes into your caller's tensor",
        "It saves a line.",
        "Whoever keeps the input of a layer finds its output there; in training autograd may complain.",
        WRONG,
        (
            {"after": _in_place_after, "before": _in_place},
            {"before": _in_place},
            {"after": _in_place_after},
        ),
    ),
    Mistake(
        "shortcut_detached",
        "you detached the input in the sum, so no gradient takes the way around the sub-layer",
        ".detach() or .data was added to silence an error about in-place changes.",
        "Outputs are right; in training a deep stack gets no gradient at its lower end.",
        "#ch11-paths",
        (
            {
                "after": lambda x, f, norm, drop: norm(x.detach() + drop(f(x))),
                "before": lambda x, f, norm, drop: x.detach() + drop(f(norm(x))),
            },
        ),
    ),
)


def layer_sizes(seed: int) -> dict[str, int]:
    """Sizes for a layer, distinct where two could be mistaken for each other."""
    chance = random.Random(seed)
    heads, d_k = chance.sample([2, 3, 5], 2)
    batch, source, target = chance.sample([2, 3, 5, 7], 3)
    return {"batch": batch, "source": source, "target": target, "heads": heads, "d_k": d_k, "d_ff": 11}


def example(layer: type[nn.Module], settings: dict, draw: Draw) -> dict[str, Tensor]:
    """Random weights for a layer of the package."""
    shapes = layer(TransformerConfig(17, 17, **settings)).state_dict()
    return {name: 0.5 * draw.normal(*tensor.shape) for name, tensor in shapes.items()}


def training(layer: type[nn.Module], settings: dict, state: dict, few: list, many: list) -> dict[str, Probe]:
    """What a layer shows in training: with all sub-layers silent, all but one, and none.

    Args:
        layer: the package's.
        settings, state: of the layer.
        few, many: its arguments, with few tokens, and with many for what has to be counted.
    """
    parts = [part for part in PARTS if f"{part}.W_q.weight" in state or f"{part}.W_1.weight" in state]

    def build(weights: dict, **changes) -> Build:
        changed = settings | {"dropout": RATE} | changes
        return Build([changed], dtype="float64", state=weights, training=True)

    def alone(part: str) -> Probe:
        weights = _silenced(state, *(other for other in parts if other != part))
        given = _quiet(layer, settings | {"norm_first": True}, weights, many) - many[0]
        return Probe(many, build=build(weights, norm_first=True), view=drops(many[0], given, PARTS[part]))

    return {
        "silent": Probe(few, build=build(_silenced(state, *parts))),
        **{f"training_{part}": alone(part) for part in parts},
        "training_after": Probe(
            many, build=build(state), view=partial(_differs, _quiet(layer, settings, state, many))
        ),
    }


@torch.no_grad()
def _quiet(layer: type[nn.Module], settings: dict, state: dict, given: list) -> Tensor:
    """What the package's layer gives in evaluation."""
    made = layer(TransformerConfig(17, 17, **settings)).double().eval()
    made.load_state_dict(state)
    return made(*given)


def _silenced(state: dict[str, Tensor], *parts: str) -> dict[str, Tensor]:
    """The weights, with zeros in the last map of these sub-layers: they have nothing to say."""
    last = tuple(f"{part}.W_2" if part == "feed_forward" else f"{part}.W_o" for part in parts)
    return {name: tensor * (not name.startswith(last)) for name, tensor in state.items()}


def _differs(quiet: Tensor, output: Tensor) -> dict[str, bool]:
    return {
        "in training, dropout should change the output in post-norm too": not torch.allclose(quiet, output)
    }


def drops(x: Tensor, given: Tensor, what: str) -> Callable[[Tensor], dict[str, bool]]:
    """A view of a pre-norm output in training: whether dropout falls on what a sub-layer gives, and only there.

    Args:
        x: the input.
        given: what the sub-layer gives in evaluation.
        what: the sub-layer's name in the learner's sentence.
    """

    def view(output: Tensor) -> dict[str, bool]:
        added = output - x
        gone = added.abs() < 1e-9
        kept = (added - given / (1 - RATE)).abs() < 1e-6 * (1 + given.abs())  # a mask may be float32
        share = (gone & ~kept).double().mean().item()
        rows, columns = (gone.flatten(0, -2).double().mean(axis) for axis in (1, 0))
        return {
            f"in training, dropout should change what {what} gives": not torch.allclose(added, given),
            f"in training, some of what {what} gives should be dropped": bool(gone.any()),
            f"in training, each number that {what} gives should be either dropped or divided by 1 − p, "
            "and nothing else changed": bool((gone | kept).all()),
            f"in training, of what {what} gives a share p should be dropped": abs(share - RATE) < BOUND_TO,
            "in training, each number should be dropped by itself, not whole positions or features": bool(
                ((rows > 0) & (rows < 1)).any() and ((columns > 0) & (columns < 1)).all()
            ),
        }

    return view
