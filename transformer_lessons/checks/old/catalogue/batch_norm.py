"""The check of `BatchNorm`, and the steps that it shares with that of the masked one."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.layer_norm import (
    VIEWED,
    functional_complains,
    norm_sizes,
    torch_complains,
    viewed,
    width_fits,
)
from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import BatchNorm

__all__ = ["CORE", "TASK", "Steps", "after", "apart", "assemble", "buffers", "moving", "running", "state_of"]

MATHS, SENTENCES, EPSILON = "#ch10-batch-norm", "#ch10-sentences", "#ch10-wrong"


def state_of(draw: Draw, d: int) -> dict[str, Tensor]:
    """Weights and running statistics as after some training."""
    return {
        "weight": draw.normal(d),
        "bias": draw.normal(d),
        "running_mean": draw.normal(d),
        "running_var": draw.normal(d).abs() + 0.5,
        "num_batches_tracked": torch.tensor(3),
    }


def running(state: dict) -> dict:
    """The running statistics, with a sentence for each."""
    return {
        "after a batch in training, running_mean should be (1 − momentum) · old + momentum · mean": state.get(
            "running_mean"
        ),
        "after a batch in training, running_var should be (1 − momentum) · old + momentum · variance, "
        "with the unbiased variance": state.get("running_var"),
        "num_batches_tracked should count the batches in training": state.get("num_batches_tracked"),
    }


def buffers(state: dict) -> dict:
    """What a new layer holds, by name."""
    sentence = (
        "a new layer's state_dict should hold weight (ones), bias (zeros), running_mean (zeros), "
        "running_var (ones) and num_batches_tracked (0)"
    )
    return {sentence: {name: state[name] for name in sorted(state)}}


def after(*calls: list) -> tuple[tuple[str, list, dict], ...]:
    """Calls before the one that counts."""
    return tuple(("", list(call), {}) for call in calls)


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d = s["batch"], s["length"], s["width"]
    x, y = draw.normal(b, t, d), draw.normal(b, t, d)
    state, new = state_of(draw, d), Build([d], dtype="float64")
    loaded = Build([d], dtype="float64", state=state)
    evaluated = replace(loaded, training=False)
    return {
        "new": Probe([x], build=new),
        "training": Probe([x], build=loaded, cotangents=[y]),
        "evaluation": Probe([x], build=evaluated, cotangents=[y]),
        "epsilon": Probe([x / 4], build=replace(loaded, kwargs={"eps": 0.5})),
        "rows": Probe([x[0]], build=loaded),
        "four_axes": Probe([draw.normal(b, 2, t, d).transpose(0, 1)], build=loaded),
        "one": Probe([x[0, 0]], build=evaluated),
        "names": Probe([], build=new, method="state", view=buffers),
        **moving(loaded, [x], [draw.normal(b, t, d) * 2 + 1]),
        "own": apart(loaded, [x]),
        "float32": Probe([x.float()], build=Build([d])),
        "narrow": Probe([draw.normal(b, t, d + 1)], build=loaded, refused=f"x of width {d + 1}, not {d}"),
        "one_wide": Probe([x[..., :1]], build=evaluated, refused=f"x of width 1, not {d}"),
        "two": Probe([x[:1, :2]], build=loaded),
        "single_row": Probe([x[0, :1]], build=loaded, refused="a single vector of two axes in training"),
        "single": Probe([x[:1, :1]], build=loaded, refused="a single vector in training"),
    }


def moving(loaded: Build, first: list, second: list) -> dict[str, Probe]:
    """Running statistics after one batch, after two, in evaluation then, and after a batch in evaluation."""
    one, two = (replace(loaded, earlier=after(*calls)) for calls in ([first], [first, second]))
    two = replace(two, kwargs={"momentum": 0.25})
    trained = replace(two, earlier=(*two.earlier, ("eval", [], {})), state=None)
    return {
        "running": Probe([], build=one, method="state", view=running),
        "momentum": Probe([], build=two, method="state", view=running),
        "trained": Probe(first, build=trained),
        "left": Probe([], build=replace(one, training=False), method="state", view=_left),
    }


def apart(loaded: Build, call: list) -> Probe:
    """Asks for what only numbers without a graph have, after a batch that has one."""
    x, *mask = call
    build = replace(loaded, earlier=after([x.clone().requires_grad_(), *mask]))
    return Probe([], build=build, method="running_mean.numpy", view=lambda numbers: {})


def _left(state: dict) -> dict:
    return {"in evaluation, the running statistics should stay as they are": running(state)}


def _enough(mask: Tensor) -> None:
    if mask.sum() < 2:
        raise ValueError("x: expected two vectors or more")


def _corrected(x: Tensor, mask: Tensor, variance: Tensor) -> Tensor:
    count = mask.sum()
    return variance * count / (count - 1)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer.

    `mask` says which positions count; without one, all do.
    """

    eps: Callable = lambda given: given
    momentum: Callable = lambda given: given
    first_var: Callable = torch.ones
    fits: Callable = width_fits
    accept_type: Callable = lambda mask: None
    accept_mask: Callable = lambda mask, x: None
    read: Callable = lambda mask: mask
    clean: Callable = lambda x, mask: x  # what is done to padding before anything else
    enough: Callable = _enough
    mean: Callable = lambda x, mask: x[mask].mean(0)
    variance: Callable = lambda x, mask, mean: (x[mask] - mean).square().mean(0)
    divisor: Callable = lambda x, mask, variance: variance  # the variance that normalises
    corrected: Callable = _corrected  # the variance that is kept
    keep: Callable = lambda x, mask, mean, variance: (mean, variance)  # what enters the running statistics
    moves: Callable = lambda training: training
    alone: Callable = lambda statistic: statistic.detach()  # from the batch that it is of
    move: Callable = lambda old, new, momentum: (1 - momentum) * old + momentum * new
    counts: Callable = lambda number: number + 1
    own: Callable = lambda training: training  # whether the batch's own statistics normalise
    detach: Callable = lambda statistic: statistic
    root: Callable = lambda variance, eps: (variance + eps).sqrt()
    normalise: Callable = lambda x, mean, root: (x - mean) / root
    affine: Callable = lambda y, weight, bias: y * weight + bias
    hide: Callable = lambda y, x, mask, training: y  # what padding gets
    result: Callable = lambda y, x: y.to(x.dtype)


class _Norm(nn.Module):
    """Batch normalisation; a mask is optional."""

    steps: Steps

    def __init__(self, d_model: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps, self.momentum = self.steps.eps(eps), self.steps.momentum(momentum)
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", self.steps.first_var(d_model))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        steps = self.steps
        steps.fits(x, len(self.weight))
        if mask is None:
            mask = torch.ones(x.shape[:-1], dtype=torch.bool)
        else:
            steps.accept_type(mask)
            steps.accept_mask(mask, x)
            mask = steps.read(mask)
        x = steps.clean(x, mask)
        if self.training:
            steps.enough(mask)
        mean, variance = map(steps.detach, self._statistics(x, mask))
        y = steps.normalise(x, mean, steps.root(variance, self.eps))
        y = steps.affine(y, self.weight, self.bias)
        return steps.result(steps.hide(y, x, mask, self.training), x)

    def _statistics(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What normalises; the running ones move on."""
        steps, kept = self.steps, (self.running_mean, self.running_var)
        if not (steps.own(self.training) or steps.moves(self.training)):
            return kept
        mean = steps.mean(x, mask)
        variance = steps.variance(x, mask, mean)
        if steps.moves(self.training):
            self._move(x, mask, steps.alone(mean), steps.alone(variance))
        return (mean, steps.divisor(x, mask, variance)) if steps.own(self.training) else kept

    def _move(self, x: Tensor, mask: Tensor, mean: Tensor, variance: Tensor) -> None:
        steps = self.steps
        mean, variance = steps.keep(x.detach(), mask, mean, variance)
        variance = steps.corrected(x, mask, variance)
        self.running_mean = steps.move(self.running_mean, mean, self.momentum)
        self.running_var = steps.move(self.running_var, variance, self.momentum)
        self.num_batches_tracked = steps.counts(self.num_batches_tracked)


def assemble(steps: Steps) -> type[nn.Module]:
    """Batch normalisation in these steps."""

    class Norm(_Norm):
        pass

    Norm.steps = steps
    return Norm


def _along(*axes: int) -> dict[str, Callable]:
    """Statistics along other axes, which are put back where they were."""

    def at(x: Tensor) -> tuple:
        return tuple(axis for axis in axes if -x.dim() <= axis < x.dim())

    return {
        "mean": lambda x, mask: x.mean(at(x), keepdim=True),
        "variance": lambda x, mask, mean: x.var(at(x), correction=0, keepdim=True),
    }


# Steps that masked statistics have as well.
CORE = (
    Mistake(
        "unbiased",
        "you normalise by the unbiased variance; the batch itself is divided by n, not n − 1",
        "torch's var and std correct for a sample unless told not to.",
        "Outputs are too small, by √((n − 1)/n).",
        MATHS,
        ({"divisor": _corrected},),
    ),
    Mistake(
        "running_biased",
        "you keep the biased variance; the running one is the unbiased, multiplied by n/(n − 1)",
        "It is the one that was computed for the batch.",
        "In evaluation outputs are too large, most of all after training with small batches.",
        MATHS,
        ({"corrected": lambda x, mask, variance: variance},),
    ),
    Mistake(
        "momentum_reversed",
        "you keep momentum of the old value; momentum is the share of the new one",
        "In optimisers, momentum is the share of the old.",
        "With 0.1, running statistics are nearly those of the last batch.",
        MATHS,
        ({"move": lambda old, new, momentum: momentum * old + (1 - momentum) * new},),
    ),
    Mistake(
        "momentum_ignored",
        "you never use momentum as it was given",
        "A constant was written down where the argument belongs.",
        "With another momentum, nothing changes.",
        MATHS,
        ({"momentum": lambda given: 0.1},),
    ),
    Mistake(
        "running_replaced",
        "you keep the statistics of the last batch only; old and new are averaged, by momentum",
        "An assignment instead of a weighted sum.",
        "Evaluation depends on which batch came last.",
        MATHS,
        ({"move": lambda old, new, momentum: new},),
    ),
    Mistake(
        "running_never_moved",
        "your running statistics never move",
        "In training nothing shows it.",
        "In evaluation, mean 0 and variance 1 are taken for the truth: nothing is normalised.",
        MATHS,
        ({"moves": lambda training: False},),
    ),
    Mistake(
        "running_moved_in_evaluation",
        "you move the running statistics in evaluation too",
        "The update stands before the question whether this is training.",
        "An evaluation depends on the evaluations before it.",
        MATHS,
        ({"moves": lambda training: True},),
    ),
    Mistake(
        "running_with_graph",
        "your running statistics keep the graph of every batch that they have seen",
        "Without no_grad or detach, autograd takes the average for a part of the model.",
        "Memory grows from step to step, and copies of the model fail.",
        MATHS,
        ({"alone": lambda statistic: statistic},),
    ),
    Mistake(
        "running_used_in_training",
        "you normalise by the running statistics in training; there the batch's own count",
        "They are called the statistics of the layer.",
        "Training starts with nothing normalised, and no gradient goes through mean and variance.",
        MATHS,
        ({"own": lambda training: False},),
    ),
    Mistake(
        "batch_used_in_evaluation",
        "you normalise by the batch's own statistics in evaluation; there the running ones count",
        "The mode was never asked for.",
        "An answer depends on who else is asking.",
        MATHS,
        ({"own": lambda training: True},),
    ),
    Mistake(
        "not_counted",
        "you never count the batches in num_batches_tracked",
        "Nothing here depends on it.",
        "Other code that averages over all batches divides by zero.",
        MATHS,
        ({"counts": lambda number: number},),
    ),
    Mistake(
        "variance_zero_at_first",
        "your running variance is zero at first; it should be one",
        "torch.zeros was copied from the line of the mean.",
        "Evaluated before training, outputs are hundreds of times too large.",
        MATHS,
        ({"first_var": torch.zeros},),
    ),
    Mistake(
        "eps_outside",
        "you add ε to the standard deviation; it belongs under the root, beside the variance",
        "“+ eps so that nothing is divided by zero” is satisfied either way.",
        "Where the variance is small, outputs have another size.",
        EPSILON,
        ({"root": lambda variance, eps: variance.sqrt() + eps},),
    ),
    Mistake(
        "eps_ignored",
        "you never use eps as it was given",
        "A constant was written down where the argument belongs.",
        "With another eps, nothing changes.",
        EPSILON,
        ({"eps": lambda given: 1e-5},),
    ),
    Mistake(
        "not_rooted",
        "you divide by the variance, not by its root",
        "It is the variance that the layer keeps.",
        "Outputs get smaller as inputs get larger.",
        MATHS,
        ({"root": lambda variance, eps: variance + eps},),
    ),
    Mistake(
        "affine_ignored",
        "you never use weight and bias",
        "A new layer's weight is one and its bias zero, so it looks right.",
        "Training cannot change the layer.",
        MATHS,
        ({"affine": lambda y, weight, bias: y},),
    ),
    Mistake(
        "statistics_detached",
        "you take the batch's mean and variance without their gradient",
        "The running statistics have none, and so no_grad was put around both.",
        "Outputs are right; gradients with respect to the input are not.",
        MATHS,
        ({"detach": lambda statistic: statistic.detach()},),
    ),
    Mistake(
        "width_unchecked",
        "you do not check the width of the input yourself",
        "torch complains too, but about sizes of a and b, and not at all if the width is 1.",
        "The caller is told nothing about x.",
        MATHS,
        ({"fits": torch_complains}, {"fits": functional_complains}),
    ),
)

MISTAKES = (
    Mistake(
        "over_features",
        "you normalise each vector over its features; that is LayerNorm",
        "LayerNorm was written just before.",
        "Right for a transposed batch.",
        MATHS,
        (_along(-1),),
    ),
    Mistake(
        "over_batch_only",
        "you average over the batch alone, at each position; all positions of all sentences count together",
        "In a matrix the batch is all there is.",
        "Running statistics get a row for each position, and another length fails.",
        MATHS,
        (_along(0),),
    ),
    Mistake(
        "over_positions_only",
        "you average over the positions of each sentence; all sentences of the batch count together",
        "Each sentence was meant to be left alone.",
        "It is InstanceNorm, and there is no sensible running average of it.",
        SENTENCES,
        (_along(-2),),
    ),
    Mistake(
        "first_two_axes",
        "you average over axes 0 and 1 by their numbers; it is all axes but the last",
        "Inputs mostly are (batch, length, d_model).",
        "Two axes give a mean over features as well, and four leave an axis out.",
        MATHS,
        (
            {
                "mean": lambda x, mask: x.mean((0, 1)),
                "variance": lambda x, mask, mean: x.var((0, 1), correction=0),
            },
        ),
    ),
    *CORE,
    Mistake(
        "single_accepted",
        "you accept a single vector in training",
        "Mean and biased variance of one vector do exist.",
        "The output is the bias, whatever the input, and the running variance becomes NaN.",
        MATHS,
        ({"enough": lambda mask: None}, {"enough": lambda mask: _enough(mask) if mask.dim() > 1 else None}),
    ),
    replace(VIEWED, anchor=SENTENCES, variants=({"clean": lambda x, mask: viewed(x)},)),
)

TASK = Task(
    name="batch_norm",
    signature="BatchNorm(d_model, eps=1e-5, momentum=0.1)(x)",
    arguments=("x",),
    returns=("output",),
    reference=BatchNorm,
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the input's shape.", ("new",), MATHS, ("structure",)
        ),
        Requirement(
            "values",
            "in training each feature gets mean 0 and variance 1 over all vectors of the batch.",
            ("new",),
            MATHS,
        ),
        Requirement("affine", "then it is scaled by weight and shifted by bias.", ("training",), MATHS),
        Requirement(
            "evaluation", "in evaluation the running statistics take their place.", ("evaluation",), MATHS
        ),
        Requirement("axes", "inputs may have any number of axes.", ("rows", "four_axes", "one"), SENTENCES),
        Requirement("epsilon", "ε is added to the variance, under the root.", ("epsilon",), EPSILON),
        Requirement(
            "gradients",
            "gradients reach the input, weight and bias, through mean and variance too, and none are kept.",
            ("training", "evaluation", "own"),
            MATHS,
            ("gradients", "parameters"),
        ),
        Requirement("parameters", "parameters and buffers are those of nn.BatchNorm1d.", ("names",), MATHS),
        Requirement("running", "in training the running statistics move.", ("running",), MATHS),
        Requirement(
            "momentum", "by momentum, and evaluation takes what came out.", ("momentum", "trained"), MATHS
        ),
        Requirement("left", "in evaluation they do not move.", ("left",), MATHS),
        Requirement(
            "dtype", "the output has the dtype of the input.", ("training", "float32"), MATHS, ("dtype",)
        ),
        Requirement("inputs", "the input is left unchanged.", ("training",), MATHS, ("inputs",)),
        Requirement(
            "refusals",
            "another width than d_model, and a single vector in training, are refused with ValueError.",
            ("two", "narrow", "one_wide", "single", "single_row"),
            MATHS,
        ),
    ),
    sizes=norm_sizes,
    small=({"batch": 2, "length": 1, "width": 2}, {"batch": 2, "length": 2, "width": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=3,
)
