"""The check of `FeedForward`, and what it shares with that of `SwiGLU`."""

import random

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.feed_forward_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.catalogue.layer_parts import BOUND_TO, RATE
from transformer_lessons.checks.old.core import Build, Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import FeedForward

__all__ = ["BELOW_ONE", "SMALL", "TASK", "below_one", "dropped", "inputs_to_drop", "sizes", "state_of"]

LAYER, WRONG, BENDS, DROP, ALONE = (
    f"#ch09-{name}" for name in ("layer", "wrong", "activations", "dropout", "positionwise")
)
BELOW_ONE = ("no_hidden", "no_width", "negative_hidden", "negative_width", "both_negative")
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

    The bias is not zero, so that an output of zero can only come from dropout there. The first sentence's input
    is zero, so that dropout on the input leaves it as it is.
    """
    factors = (output - bias) / hidden
    zero, once, scaled, fourfold = ((factors - n).abs() < 1e-3 for n in (0, 1, 1 / (1 - RATE), 1 / RATE))
    if not training:
        return {"in evaluation, nothing should be dropped": bool(once.all())}
    shares = [zero.double().mean(axis) for axis in range(zero.dim())]
    return {
        "in training, the output should differ from evaluation's": not bool(once.all()),
        "dropout should hit the hidden activations, not the output": not bool((output == 0).any()),
        "dropout should hit the hidden activations, not the input": not bool(once[0].all()),
        "in training, each hidden activation should be dropped by itself, not whole positions or features": all(
            bool(((share > 0) & (share < 1)).any()) for share in shares
        ),
        "in training, a share p of the hidden activations should be zero": bool(
            (zero.double().mean() - RATE).abs() < BOUND_TO
        ),
        "in training, activations that are kept should be divided by 1 − p": bool((zero | scaled).all()),
        "in training, activations that are kept should not stay as they are": not bool((zero | once).all()),
        "dropout should be the probability to drop, not to keep": not bool((zero | fourfold).all()),
    }


def _state_of_one(draw: Draw) -> dict:
    return state_of(draw, {"W_1": (1, 1), "W_2": (1, 1)})


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d, h = s["batch"], s["length"], s["width"], s["hidden"]
    state = state_of(draw, {"W_1": (d, h), "W_2": (h, d)})
    x, y = draw.normal(b, t, d), draw.normal(b, t, d)
    layer, gelu = _build(d, h, state), _build(d, h, state, {"activation": "gelu"})
    return {
        "relu": Probe([x], build=layer, cotangents=[y]),
        "one": Probe([draw.normal(d)], build=layer),
        "turned": Probe([draw.normal(t, b, 2, d).transpose(0, 1)], build=layer),
        "gelu": Probe([x], build=gelu, cotangents=[y]),
        "large": Probe([1e4 * x], build=layer),
        "large_gelu": Probe([1e4 * x], build=gelu, cotangents=[y]),  # exp of such scores is infinite
        **_dropping(s, draw),
        "smallest": Probe([draw.normal(b, t, 1)], build=_build(1, 1, _state_of_one(draw))),
        **_unknown(x.float(), d, h),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=layer, refused=f"x of width {d + 1}, not {d}"),
        "narrower": Probe([x[..., 1:]], build=layer, refused=f"x of width {d - 1}, not {d}"),
        "no_hidden": Probe([x.float()], build=Build([d, 0]), refused="d_ff=0"),
        **below_one(d, h),
    }


def _unknown(x: Tensor, d: int, h: int) -> dict[str, Probe]:
    """Activations that are refused: no word at all, one that torch knows, and a part of a known one."""
    words = {"unknown": "step", "of_torch": "silu", "part": "gel"}
    return {
        name: Probe([x], build=Build([d, h], {"activation": word}), refused=f"activation={word!r}")
        for name, word in words.items()
    }


def below_one(width: int, hidden: int) -> dict[str, Probe]:
    """Other sizes that are refused when the layer is made."""
    sizes = {"no_width": (0, hidden), "negative_hidden": (width, -1), "negative_width": (-1, hidden)}
    sizes["both_negative"] = (-width, -hidden)
    return {
        name: Probe([], build=Build([*pair]), method="state", refused=f"d_model={pair[0]}, d_ff={pair[1]}")
        for name, pair in sizes.items()
    }


def _dropping(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    """Dropout, where hidden activations are never near zero, and pass on to the output."""
    n = max(s["width"], 7)
    x, bias = inputs_to_drop(draw, n), torch.ones(n, dtype=torch.float64)
    W_1, identity = draw.normal(n, n) / 30, torch.eye(n, dtype=torch.float64)

    def probe(b_1: Tensor, training: bool, activation: str = "relu", **more) -> Probe:
        state = {"W_1.weight": W_1, "W_1.bias": b_1, "W_2.weight": identity, "W_2.bias": bias}
        options = {"activation": activation, "dropout": RATE}
        hidden = Steps().bend(x @ W_1.T + b_1, activation)
        return Probe(
            [x],
            build=_build(n, n, state, options, training=training, **more),
            view=lambda output: dropped(output, hidden, bias, training),
        )

    return {
        # After a call with fewer vectors, of which no mask may be kept.
        "training": probe(30 * bias, True, earlier=(("", [x[:3, 1:]], {}),)),
        "training_gelu": probe(2 * bias, True, "gelu"),
        "evaluation": probe(30 * bias, False),
        "evaluation_gelu": probe(2 * bias, False, "gelu"),
    }


def inputs_to_drop(draw: Draw, width: int) -> Tensor:
    """Enough vectors to count what is dropped, those of the first sentence zero."""
    x = draw.normal(40, 5, width)
    x[0] = 0
    return x


def _build(d_model: int, d_ff: int, state: dict, options: dict | None = None, **more) -> Build:
    return Build([d_model, d_ff], options or {}, dtype="float64", state=state, **more)


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
        Requirement(
            "values", "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2.", ("relu", "one", "turned", "large"), LAYER
        ),
        Requirement(
            "gradients",
            "gradients reach the input and all weights and biases.",
            ("relu",),
            LAYER,
            ("gradients", "parameters"),
        ),
        Requirement("inputs", "the input is left unchanged.", ("relu",), "#ch09-in-place", ("inputs",)),
        Requirement(
            "activation",
            'activation may be "relu" or "gelu", the exact one.',
            ("gelu", "large_gelu"),
            BENDS,
            ("gradients", "parameters"),
        ),
        Requirement(
            "dropout",
            "in training, dropout hits the hidden activations.",
            ("training", "training_gelu"),
            DROP,
            ("random",),
        ),
        Requirement(
            "evaluation", "in evaluation nothing is dropped.", ("evaluation", "evaluation_gelu"), DROP
        ),
        Requirement(
            "refusals",
            "an unknown activation, another width than d_model and sizes below 1 are refused with ValueError.",
            ("smallest", "unknown", "of_torch", "part", "narrow", "narrower", *BELOW_ONE),
            LAYER,
        ),
    ),
    sizes=sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=6,
)
