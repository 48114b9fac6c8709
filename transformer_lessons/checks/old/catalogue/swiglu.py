"""The check of `SwiGLU`: its requirements, the calls that probe them, and the known wrong ways to write it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.feed_forward import (
    BELOW_ONE,
    SMALL,
    below_one,
    dropped,
    inputs_to_drop,
    sizes,
    state_of,
)
from transformer_lessons.checks.old.catalogue.feed_forward_mistakes import (
    DROPOUT,
    WIDER_ALONE,
    WIDTH_UNCHECKED,
)
from transformer_lessons.checks.old.catalogue.layer_parts import RATE
from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import SwiGLU

__all__ = ["TASK"]

GATES, DROP, LAYER = "#ch09-swiglu", "#ch09-dropout", "#ch09-layer"


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d, h = s["batch"], s["length"], s["width"], s["hidden"]
    widths = {"W_1": (d, h), "W_2": (h, d), "W_3": (d, h)}
    state, with_bias = state_of(draw, widths, bias=False), state_of(draw, widths)
    x, y = draw.normal(b, t, d), draw.normal(b, t, d)
    small = state_of(draw, dict.fromkeys(("W_1", "W_2", "W_3"), (1, 1)), bias=False)
    layer = Build([d, h], dtype="float64", state=state)
    biased = Build([d, h], {"bias": True}, dtype="float64", state=with_bias)
    return {
        "plain": Probe([x], build=layer, cotangents=[y]),
        "one": Probe([draw.normal(d)], build=layer),
        "large": Probe([1e4 * x], build=layer, cotangents=[y]),  # exp of such scores is infinite
        "biased": Probe([x], build=biased, cotangents=[y]),
        **_dropping(s, draw),
        "smallest": Probe([draw.normal(b, t, 1)], build=Build([1, 1], dtype="float64", state=small)),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=layer, refused=f"x of width {d + 1}, not {d}"),
        "narrower": Probe([x[..., 1:]], build=layer, refused=f"x of width {d - 1}, not {d}"),
        "no_hidden": Probe([x.float()], build=Build([d, 0]), refused="d_ff=0"),
        **below_one(d, h),
    }


def _dropping(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    """Dropout, where what is gated is never near zero and passes on to the output."""
    n = max(s["width"], 7)
    x, bias = inputs_to_drop(draw, n), torch.ones(n, dtype=torch.float64)
    W_1, W_3 = (draw.normal(n, n).sigmoid() / 10 for _ in range(2))
    state = {"W_1.weight": W_1, "W_2.weight": torch.eye(n, dtype=torch.float64), "W_3.weight": W_3}
    state |= {"W_1.bias": 2 * bias, "W_2.bias": bias, "W_3.bias": 3 * bias}
    gated = F.silu(x @ W_1.T + 2) * (x @ W_3.T + 3)

    def probe(training: bool) -> Probe:
        build = Build([n, n], {"dropout": RATE, "bias": True}, "float64", state, training)
        return Probe([x], build=build, view=lambda output: dropped(output, gated, bias, training))

    return {"training": probe(True), "evaluation": probe(False)}


def _accept(d_model: int, d_ff: int) -> None:
    if d_model < 1 or d_ff < 1:
        raise ValueError("d_model, d_ff: expected 1 or more")


def _fits(x: Tensor, d_model: int) -> None:
    if x.size(-1) != d_model:
        raise ValueError(f"x: expected a last axis of {d_model}")


def _maps(d_model: int, d_ff: int, bias: bool | None) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    up, bias = (d_model, d_ff), bool(bias)
    return nn.Linear(*up, bias=bias), nn.Linear(d_ff, d_model, bias=bias), nn.Linear(*up, bias=bias)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    dropout: Callable = lambda given: given or 0.0
    maps: Callable = _maps
    fits: Callable = _fits
    drop_input: Callable = lambda x, p, training: x
    expand: Callable = lambda x, W_1, W_3: (W_1(x), W_3(x))
    gate: Callable = lambda score, gate: F.silu(score) * gate
    drop: Callable = lambda hidden, p, training: F.dropout(hidden, p, training)
    drop_output: Callable = lambda y, p, training: y


def assemble(steps: Steps) -> type[nn.Module]:
    """The gated feed-forward layer in these steps."""

    class Layer(nn.Module):
        def __init__(self, d_model, d_ff, *, dropout=None, bias=None):
            super().__init__()
            steps.accept(d_model, d_ff)
            self.W_1, self.W_2, self.W_3 = steps.maps(d_model, d_ff, bias)
            self.d_model, self.p = d_model, steps.dropout(dropout)

        def forward(self, x):
            steps.fits(x, self.d_model)
            x = steps.drop_input(x, self.p, self.training)
            hidden = steps.gate(*steps.expand(x, self.W_1, self.W_3))
            y = self.W_2(steps.drop(hidden, self.p, self.training))
            return steps.drop_output(y, self.p, self.training)

    return Layer


def _swapped(d_model: int, d_ff: int, bias: bool | None) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    first, second, third = _maps(d_model, d_ff, bias)
    return first, third, second


MISTAKES = (
    Mistake(
        "gate_and_score_swapped",
        "you apply silu to x W_3; it belongs to x W_1",
        "Which of the two maps is called the gate differs from text to text.",
        "With weights from elsewhere, the output is another one.",
        GATES,
        ({"gate": lambda score, gate: score * F.silu(gate)},),
    ),
    Mistake(
        "sigmoid_gate",
        "you gate with the sigmoid, as in GLU; here it is silu(z) = z · sigmoid(z)",
        "Gates of recurrent networks are sigmoids.",
        "One of the two factors is lost: the hidden units are nearly linear in x.",
        GATES,
        ({"gate": lambda score, gate: torch.sigmoid(score) * gate},),
    ),
    Mistake(
        "relu_gate",
        "you gate with ReLU (that is ReGLU); SwiGLU takes silu",
        "The activation of FeedForward was kept.",
        "A close relative, but another function.",
        GATES,
        ({"gate": lambda score, gate: torch.relu(score) * gate},),
    ),
    Mistake(
        "gelu_gate",
        "you gate with GELU (that is GEGLU); SwiGLU takes silu",
        "GELU and SiLU look much the same.",
        "A close relative, but another function.",
        GATES,
        (
            {"gate": lambda score, gate: F.gelu(score) * gate},
            {"gate": lambda score, gate: F.gelu(score, approximate="tanh") * gate},
        ),
    ),
    Mistake(
        "gate_added",
        "you add the two maps; a gate multiplies",
        "Residual sums are everywhere in a Transformer.",
        "No unit can be shut.",
        GATES,
        ({"gate": lambda score, gate: F.silu(score) + gate},),
    ),
    Mistake(
        "silu_of_product",
        "you apply silu to the product; it belongs to the first factor alone",
        "A pair of brackets too many.",
        "Negative products are cut off, whatever their factors.",
        GATES,
        ({"gate": lambda score, gate: F.silu(score * gate)},),
    ),
    Mistake(
        "silu_on_both",
        "you apply silu to both maps; x W_3 stays as it is",
        "The two lines look alike, so they were written alike.",
        "Hidden units are hardly ever negative.",
        GATES,
        ({"gate": lambda score, gate: F.silu(score) * F.silu(gate)},),
    ),
    Mistake(
        "no_silu",
        "you multiply the two maps without silu",
        "The product is a non-linearity already, so nothing seems to be missing.",
        "A bilinear layer: all units are squares and products.",
        GATES,
        ({"gate": lambda score, gate: score * gate},),
    ),
    Mistake(
        "no_gate",
        "you never use W_3",
        "It is the layer with SiLU as its activation.",
        "W_3 gets no gradient.",
        GATES,
        ({"gate": lambda score, gate: F.silu(score)},),
    ),
    Mistake(
        "one_map_for_both",
        "you multiply silu(x W_1) by x W_1; the second factor is x W_3",
        "The name of the first map was copied.",
        "W_3 gets no gradient.",
        GATES,
        ({"expand": lambda x, W_1, W_3: (W_1(x), W_1(x))},),
    ),
    Mistake(
        "names_swapped",
        "you gave the names W_2 and W_3 the other way round: W_2 leads back to d_model",
        "One counts the maps in the order in which they are used.",
        "Weights cannot be exchanged with other code.",
        GATES,
        ({"maps": _swapped},),
    ),
    Mistake(
        "bias_by_default",
        "your maps have biases unless told otherwise; here they have none",
        "nn.Linear has a bias unless told otherwise.",
        "More parameters than the formula has.",
        GATES,
        ({"maps": lambda d, h, bias: _maps(d, h, True if bias is None else bias)},),
    ),
    Mistake(
        "bias_ignored",
        "your maps have no biases, even with bias=True",
        "The formula has none.",
        "bias=True changes nothing.",
        GATES,
        ({"maps": lambda d, h, bias: _maps(d, h, False)},),
    ),
    Mistake(
        "width_reduced_inside",
        "you take two thirds of d_ff inside; d_ff is the hidden width, and the caller reduces it",
        "For as many parameters as FeedForward's, published code does so on its own.",
        "The hidden width is not what was asked for.",
        GATES,
        (
            {"maps": lambda d, h, bias: _maps(d, 2 * h // 3, bias)},
            {"maps": lambda d, h, bias: _maps(d, max(1, round(2 * h / 3)), bias)},
        ),
    ),
    *DROPOUT,
    WIDTH_UNCHECKED,
    WIDER_ALONE,
    Mistake(
        "exp_overflows",
        "you divide exp(z) by 1 + exp(z): for large scores both are infinite, and their quotient is NaN",
        "Written by hand, the sigmoid is as often this as 1/(1 + exp(−z)).",
        "In float32 a score beyond 88 is enough.",
        GATES,
        ({"gate": lambda score, gate: score * torch.exp(score) / (1 + torch.exp(score)) * gate},),
    ),
    Mistake(
        "exp_overflows_backward",
        "you divide by 1 + exp(−z): for very negative scores it is infinite, and on the way back zero times "
        "infinity is NaN",
        "Forwards, dividing by infinity gives the right zero.",
        "Outputs are right; in float32 one score below −88 makes all gradients NaN. torch.sigmoid is safe.",
        GATES,
        ({"gate": lambda score, gate: score / (1 + torch.exp(-score)) * gate},),
    ),
    Mistake(
        "sizes_unchecked",
        "you do not refuse all sizes below 1",
        "nn.Linear takes a width of zero with no more than a warning.",
        "With d_ff=0 the layer puts out zeros, whatever comes in.",
        LAYER,
        (
            {"accept": lambda d_model, d_ff: None},
            {"accept": lambda d_model, d_ff: _accept(1, d_ff)},
            {"accept": lambda d_model, d_ff: _accept(abs(d_model), abs(d_ff))},
            {"accept": lambda d_model, d_ff: _accept(d_model * d_ff, 1)},
        ),
    ),
)

TASK = Task(
    name="swiglu",
    signature="SwiGLU(d_model, d_ff, dropout=0.0, bias=False)(x)",
    arguments=("x",),
    returns=("output",),
    reference=SwiGLU,
    requirements=(
        Requirement(
            "returns",
            "its parameters are the weights of three nn.Linear (W_1 and W_3 widen, W_2 leads back), without "
            "biases; it returns one tensor, of the input's shape.",
            ("plain",),
            GATES,
            ("structure",),
        ),
        Requirement("values", "SwiGLU(x) = (silu(x W_1) ∘ x W_3) W_2.", ("plain", "one", "large"), GATES),
        Requirement(
            "gradients",
            "gradients reach the input and all weights, from large scores too.",
            ("plain", "large"),
            GATES,
            ("gradients", "parameters"),
        ),
        Requirement("bias", "with bias=True, all three maps have one.", ("biased",), GATES, ("parameters",)),
        Requirement("inputs", "the input is left unchanged.", ("plain",), "#ch09-in-place", ("inputs",)),
        Requirement(
            "dropout",
            "in training, dropout hits the hidden activations.",
            ("training",),
            DROP,
            ("random",),
        ),
        Requirement("evaluation", "in evaluation nothing is dropped.", ("evaluation",), DROP),
        Requirement(
            "refusals",
            "another width than d_model and sizes below 1 are refused with ValueError.",
            ("smallest", "narrow", "narrower", *BELOW_ONE),
            LAYER,
        ),
    ),
    sizes=sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=4,
)
