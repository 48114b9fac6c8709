"""The check of `influence`, an exercise: which outputs of a model depend on which inputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Draw, Given, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

QUESTIONS, LINE, LEAK, MODES = "#ch18-questions", "#ch18-line", "#ch18-case-05", "#ch18-case-02"
FAINT = 1e-9  # a weight that no threshold should hide, and double precision does not
NEARLY_ALL = 1 - 1e-9  # the share that dropout takes from a model that must not be left in training mode


def _sizes(seed: int) -> dict[str, int]:
    length, width, outputs = random.Random(seed).sample([3, 5, 7], 3)
    return {"length": max(length, 5), "width": width, "outputs": outputs}


def _as_found(shown: list) -> dict:
    found, state = shown
    training, touched, trainable = state["_extra_state"].tolist()
    return {
        "dropout should play no part, in whatever mode the model comes": found,
        "the model should be left in the mode in which it came, training or evaluation": training,
        "the model's parameters should hold no gradients afterwards": touched,
        "the model's parameters should require gradients afterwards, as they did before": trainable,
    }


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    n, d = s["length"], s["width"]

    def some(share: float) -> Tensor:
        """A pattern that is not symmetric, with some zeros in it, on the diagonal too."""
        kept = draw.normal(n, n) < share
        kept[0, -1], kept[-1, 0], kept[1, 1] = True, False, False
        return _large(draw, n, n) * kept

    def probe(pattern: Tensor, weight: Tensor, kind: str = "plain", **changes) -> Probe:
        dropout, training = changes.pop("dropout", 0.0), changes.pop("training", False)
        x = changes.pop("x", None)
        model = Given("mixer", [pattern, weight, dropout, training, kind])
        return Probe([model, _large(draw, n, d) if x is None else x], **changes)

    weight, silent, balanced = (_large(draw, s["outputs"], d) for _ in range(3))
    silent_last = silent.flip(0)
    silent[0] = silent_last[-1] = 0.0  # the first number of each output, or the last one, is always 0
    balanced[:, 1] = -balanced[:, 0]
    balanced[:, 2:] = 0.0  # the entries of each gradient add up to zero
    single = torch.zeros(1, d, dtype=torch.float64)
    single[0, 0] = 1.0  # y, −2y and y alone: their gradients add up to zero, with weights 1, 2, 3 too
    watched = {"look": (0,), "view": _as_found}
    nothing = torch.zeros(n, d, dtype=torch.float64)  # of which tanh makes zeros, with a slope
    faint = some(0.0)
    faint = torch.where(faint == 0, FAINT * (draw.normal(n, n) < 0), faint)
    return {
        "causal": probe(_large(draw, n, n).tril(), weight),
        "any": probe(some(0.3), weight),
        "negative": probe(-some(0.3).abs(), weight.abs()),
        "silent": probe(some(0.3), silent),
        "silent_last": probe(some(0.3), silent_last),
        "at_zero": probe(some(0.3), weight, x=nothing),
        "mirrored": probe(some(0.3), single, "mirrored"),
        "balanced": probe(some(0.3), balanced),
        "faint": probe(faint, weight),
        "deaf": probe(some(0.3), weight, "deaf"),
        "constant": probe(some(0.3), weight, "constant"),
        "training": probe(some(0.3), weight, "nested", dropout=NEARLY_ALL, training=True, **watched),
        "evaluation": probe(some(0.3), weight, "nested", dropout=NEARLY_ALL, **watched),
    }


def _large(draw: Draw, *shape: int) -> Tensor:
    """Numbers around ±1 and ±0.1, so that tanh is neither flat nor straight."""
    x = draw.normal(*shape)
    return torch.where(x >= 0, 0.1 + x.abs() / 2, -0.1 - x.abs() / 2)


def _jacobian(y: Tensor, x: Tensor) -> Tensor:
    """By position and number of the output, then by position and number of the input."""
    rows = [_gradient(number, x) for number in y.flatten()]
    return torch.stack(rows).view(*y.shape, *x.shape)


def _gradient(number: Tensor, x: Tensor) -> Tensor:
    if not number.requires_grad:
        return torch.zeros_like(x)
    found = torch.autograd.grad(number, x, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(x) if found is None else found


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    enter: Callable = lambda model: model.eval()
    jacobian: Callable = _jacobian
    sizes: Callable = lambda J: J.abs().amax(dim=(1, 3))
    shape: Callable = lambda sizes: sizes
    decide: Callable = lambda sizes: sizes != 0
    leave: Callable = lambda model, was, y: model.train(was)


def assemble(steps: Steps) -> Callable:
    """The matrix of influence in these steps."""

    def influence(model, x):
        was = model.training
        steps.enter(model)
        x = x.detach().clone().requires_grad_()
        y = model(x)
        found = steps.decide(steps.shape(steps.sizes(steps.jacobian(y, x))))
        steps.leave(model, was, y)
        return found

    return influence


def _crashing(y: Tensor, x: Tensor) -> Tensor:
    for number in y.flatten():
        torch.autograd.grad(number, x, retain_graph=True)  # raises if x was not used
    return _jacobian(y, x)


def _of_sums(y: Tensor, x: Tensor) -> Tensor:
    return torch.stack([_gradient(row.sum(), x) for row in y])[:, None]


def _gradless_crashing(y: Tensor, x: Tensor) -> Tensor:
    if not y.requires_grad:
        torch.autograd.grad(y.sum(), x, allow_unused=True)  # raises
    return _jacobian(y, x)


def _frozen(model: nn.Module, was: bool, y: Tensor) -> None:
    model.train(was).requires_grad_(False)


def _of_one_number(f: Callable) -> Callable:
    """Of one number for each output, which grows with the size of its numbers."""
    return lambda y, x: torch.stack([_gradient(f(row).sum(), x) for row in y])[:, None]


def _piling_up(y: Tensor, x: Tensor) -> Tensor:
    """x.grad after each position's backward(), never emptied."""
    return _jacobian(y, x).abs().cumsum(dim=0)


def _switch_alone(model: nn.Module, mode: bool) -> None:
    """What has parts must tell them, as eval() and train() do."""
    model.training = mode


def _backwards(model: nn.Module, was: bool, y: Tensor) -> None:
    """Gradients left in the model, as `backward()` leaves them."""
    model.train(was)
    if y.requires_grad:
        y.sum().backward()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)


def _threshold(limit: float) -> dict[str, Callable]:
    return {"decide": lambda sizes: sizes > limit}


MISTAKES = (
    Mistake(
        "transposed",
        "your rows are inputs and your columns outputs; it is the other way round",
        "A gradient has the shape of the input, so inputs come first.",
        "A causal model looks like one that sees the future alone.",
        QUESTIONS,
        ({"shape": lambda sizes: sizes.T},),
    ),
    Mistake(
        "outputs_summed",
        "you take the gradient of the sum of an output's numbers; their gradients can cancel",
        "backward() wants one number, and .sum() makes one.",
        "After a LayerNorm, whose outputs add up to a constant, nothing seems to depend on anything.",
        QUESTIONS,
        (
            {"jacobian": _of_sums},
            {"sizes": lambda J: J.sum(dim=1).abs().amax(dim=-1)},
            {"jacobian": _of_one_number(lambda row: row * torch.arange(1, len(row) + 1))},
        ),
    ),
    Mistake(
        "gradients_summed",
        "you add up a gradient's entries; they can cancel. Take their absolute values",
        "sum(-1) makes one number of a vector, too.",
        "An input that matters to two features in opposite ways seems not to matter.",
        QUESTIONS,
        ({"sizes": lambda J: J.sum(dim=3).abs().amax(dim=1)},),
    ),
    Mistake(
        "both_summed",
        "you add up the numbers of an output, and then the entries of its gradient; both can cancel",
        "One number for each pair of positions is wanted, and sums are the shortest way to it.",
        "Two kinds of influence are overlooked.",
        QUESTIONS,
        (
            {"jacobian": _of_sums, "sizes": lambda J: J.sum(dim=(1, 3))},
            {"sizes": lambda J: J.sum(dim=(1, 3))},
        ),
    ),
    Mistake(
        "first_number_only",
        "you look at the first number of each output only",
        "y[t, 0] is a number that has a gradient.",
        "What leaks into other features goes unseen.",
        QUESTIONS,
        ({"sizes": lambda J: J[:, 0].abs().amax(dim=-1)},),
    ),
    Mistake(
        "last_number_only",
        "you look at the last number of each output only",
        "A loop over the numbers overwrites what it found before.",
        "What leaks into other features goes unseen.",
        QUESTIONS,
        ({"sizes": lambda J: J[:, -1].abs().amax(dim=-1)},),
    ),
    Mistake(
        "sizes_of_outputs",
        "you take the gradient of the sum of an output's squares or absolute values: it is 0 where the output is",
        "Squares cannot cancel, so one number seems enough for each output.",
        "Where an output is 0, nothing seems to matter to it.",
        QUESTIONS,
        ({"jacobian": _of_one_number(torch.square)}, {"jacobian": _of_one_number(torch.abs)}),
    ),
    Mistake(
        "threshold",
        "you overlook faint influences: anything but exactly zero counts",
        "Comparing floating-point numbers with zero has a bad name. Where nothing arrives, zero is exact.",
        "A mask filled with a number that is not quite low enough passes.",
        LEAK,
        tuple(map(_threshold, (1e-8, 1e-6, 1e-5, 1e-4, 1e-3))),
    ),
    Mistake(
        "positive_only",
        "you count positive gradients only; a negative one is an influence, too",
        "`> 0` looks like “there is some”.",
        "About half of the influences are missing.",
        QUESTIONS,
        ({"sizes": lambda J: J.amax(dim=(1, 3)), "decide": lambda sizes: sizes > 0},),
    ),
    Mistake(
        "piled_up",
        "your gradients pile up: those of earlier outputs are still in x.grad when you look at a later one",
        "backward() adds to what is there.",
        "Everything below a leak seems to leak, too.",
        QUESTIONS,
        ({"jacobian": _piling_up},),
    ),
    Mistake(
        "training_mode",
        "you leave the model in training mode, so dropout hides what it happens to hide",
        "A gradient has to do with training.",
        "The result differs from call to call.",
        MODES,
        ({"enter": lambda model: None},),
    ),
    Mistake(
        "parts_not_told",
        "you set model.training yourself, of which the model's parts do not hear; eval() and train() tell all",
        "The mode is an attribute, and can be read, so it is written as well.",
        "The dropout inside the layers goes on, or is not switched on again.",
        MODES,
        (
            {
                "enter": lambda model: _switch_alone(model, False),
                "leave": lambda model, was, y: _switch_alone(model, was),
            },
            {"leave": lambda model, was, y: _switch_alone(model, was)},
        ),
    ),
    Mistake(
        "left_in_evaluation",
        "you switch the model to evaluation mode and leave it there",
        "eval() has no opposite in the code that was copied.",
        "Training goes on without dropout, and nobody notices.",
        MODES,
        ({"leave": lambda model, was, y: None},),
    ),
    Mistake(
        "left_in_training",
        "you leave the model in training mode, although it came in evaluation mode",
        "eval() and train() are written as a pair, like brackets.",
        "What is translated next is translated with dropout.",
        MODES,
        ({"leave": lambda model, was, y: model.train()},),
    ),
    Mistake(
        "gradients_left",
        "you leave gradients in the model's parameters, and the next step of training takes them along",
        "backward() goes to all leaves, not only to x.",
        "Looking at a model changes what it learns.",
        QUESTIONS,
        ({"leave": _backwards},),
    ),
    Mistake(
        "left_frozen",
        "you switch off the gradients of the model's parameters and leave it so",
        "requires_grad_(False) keeps gradients out of them.",
        "Training goes on, and the model learns nothing more.",
        QUESTIONS,
        ({"leave": _frozen},),
    ),
    Mistake(
        "past_only",
        "you look at earlier inputs only; whether later ones matter is the question",
        "The loop runs over s ≤ t, as in a causal mask.",
        "No model ever leaks.",
        LEAK,
        ({"shape": lambda sizes: sizes.tril()},),
    ),
    Mistake(
        "itself_left_out",
        "you leave out the influence of a position on itself",
        "That an output depends on its own input goes without saying, mostly.",
        "A mask that hides a token from itself is not found.",
        QUESTIONS,
        ({"shape": lambda sizes: sizes.fill_diagonal_(0.0)},),
    ),
    Mistake(
        "itself_assumed",
        "you take it for granted that each position depends on itself",
        "That an output depends on its own input goes without saying, mostly.",
        "A mask that hides a token from itself is not found.",
        QUESTIONS,
        ({"shape": lambda sizes: sizes.fill_diagonal_(1.0)},),
    ),
    Mistake(
        "strengths_returned",
        "you return how strong the influence is; True and False are wanted",
        "The gradient's size is at hand.",
        "What counts as none is left to the reader.",
        QUESTIONS,
        ({"decide": lambda sizes: sizes}, {"decide": lambda sizes: (sizes != 0).to(sizes.dtype)}),
    ),
    Mistake(
        "deaf_crashes",
        "you do not expect a model that ignores its input altogether; autograd refuses to answer there",
        "One always uses one's arguments, one thinks.",
        "The instrument breaks on the patient who needs it most.",
        LINE,
        ({"jacobian": _crashing},),
    ),
    Mistake(
        "constant_crashes",
        "you do not expect outputs that need no gradient at all: look at y.requires_grad, too",
        "allow_unused=True helps where y depends on the weights alone, and seems to settle it.",
        "The instrument breaks on a model that returns a constant.",
        LINE,
        ({"jacobian": _gradless_crashing},),
    ),
)


TASK = Task(
    name="influence",
    signature="influence(model, x)",
    arguments=("model", "x"),
    returns=("influence",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of booleans, of shape (length, length).",
            ("causal",),
            QUESTIONS,
            ("structure",),
        ),
        Requirement(
            "values",
            "entry [t, s] is True where the output at t depends on the input at s.",
            ("causal", "any", "negative"),
            QUESTIONS,
        ),
        Requirement(
            "outputs",
            "every number of an output counts, also if their gradients add up to zero.",
            ("silent", "silent_last", "at_zero", "mirrored"),
            QUESTIONS,
        ),
        Requirement(
            "inputs",
            "every number of an input counts, also if its gradients add up to zero.",
            ("balanced",),
            QUESTIONS,
        ),
        Requirement("faint", "the faintest influence counts.", ("faint",), LEAK),
        Requirement(
            "deaf", "a model that ignores its input is no problem: all is False.", ("deaf", "constant"), LINE
        ),
        Requirement(
            "model",
            "dropout plays no part, and the model is left as it came: its mode, and no gradients in it.",
            ("training", "evaluation"),
            MODES,
        ),
        Requirement("unchanged", "x is left unchanged.", ("any",), QUESTIONS, ("inputs",)),
    ),
    sizes=_sizes,
    small=(),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=2,
)
