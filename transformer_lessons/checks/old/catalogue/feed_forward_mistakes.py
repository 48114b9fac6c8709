"""The known mistakes of `FeedForward`, those it shares with `SwiGLU`, and the steps that they change."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Mistake

__all__ = ["DROPOUT", "MISTAKES", "WIDER_ALONE", "WIDTH_UNCHECKED", "Steps", "assemble"]

LAYER, WRONG, BENDS, DROP, ALONE = (
    f"#ch09-{name}" for name in ("layer", "wrong", "activations", "dropout", "positionwise")
)


def _accept(d_model: int, d_ff: int, activation: str) -> None:
    if d_model < 1 or d_ff < 1:
        raise ValueError("d_model, d_ff: expected 1 or more")
    _activation_known(activation)


def _activation_known(activation: str) -> None:
    if activation not in ("relu", "gelu"):
        raise ValueError("activation: expected relu or gelu")


def _activation_of_torch(d_model: int, d_ff: int, activation: str) -> None:
    if not hasattr(F, activation):
        raise ValueError(f"activation: {activation} is unknown")
    _accept(d_model, d_ff, "relu")


def _attribute_of_torch(d_model: int, d_ff: int, activation: str) -> None:
    getattr(F, activation)
    _accept(d_model, d_ff, "relu")


def _activation_in_a_word(d_model: int, d_ff: int, activation: str) -> None:
    _accept(d_model, d_ff, "relu" if activation in "relu, gelu" else activation)


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


def _not_too_wide(x: Tensor, d_model: int) -> None:
    if x.size(-1) > d_model:
        _fits(x, d_model)
    _torch_complains(x, d_model)


def _bend(hidden: Tensor, activation: str) -> Tensor:
    return torch.relu(hidden) if activation == "relu" else F.gelu(hidden)


def _tanh_gelu(hidden: Tensor, activation: str) -> Tensor:
    return torch.relu(hidden) if activation == "relu" else F.gelu(hidden, approximate="tanh")


def _bounded(limit: float) -> Callable:
    return lambda hidden, activation: _bend(hidden, activation).clamp(-limit, limit)


def _relu_bounded(limit: float) -> Callable:
    """What ReLU6 does, for one; GELU is left as it is."""
    return lambda hidden, activation: _bend(
        hidden.clamp(max=limit) if activation == "relu" else hidden, activation
    )


def _input_bounded(limit: float) -> Callable:
    return lambda x, activation: x.clamp(-limit, limit)


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
    drop_input: Callable = lambda x, p, training: x
    expand: Callable = lambda x, W_1: W_1(x)
    bend: Callable = _bend
    trains: Callable = lambda training, activation: training  # whether anything is dropped
    drop: Callable = lambda hidden, p, training: F.dropout(hidden, p, training)
    draw: Callable = lambda layer, drop, hidden, training: drop(hidden, layer.p, training)
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
            activation = "relu" if activation is None else activation
            steps.accept(d_model, d_ff, activation)
            self.W_1, self.W_2 = steps.maps(d_model, d_ff)
            self.d_model, self.activation, self.p = d_model, activation, steps.dropout(dropout)

        def forward(self, x):
            steps.fits(x, self.d_model)
            x = steps.drop_input(steps.first(x, self.activation), self.p, self.training)
            hidden = steps.bend(steps.expand(x, self.W_1), self.activation)
            trains = steps.trains(self.training, self.activation)
            y = steps.contract(steps.draw(self, steps.drop, hidden, trains), self.W_2)
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


def _mask_kept(layer: nn.Module, drop: Callable, hidden: Tensor, training: bool) -> Tensor:
    if not training:
        return hidden
    if not hasattr(layer, "kept"):
        layer.kept = drop(torch.ones_like(hidden), layer.p, True)
    return hidden * layer.kept


def _viewed(x: Tensor, activation: str = "") -> Tensor:
    return x.view(-1, x.size(-1)).view(x.shape)


def _kept_with_probability(hidden: Tensor, p: float, training: bool) -> Tensor:
    return F.dropout(hidden, 1 - p, training) if p else hidden


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
        "dropout_on_input",
        "you drop entries of the input; this dropout is for the hidden activations",
        "Dropout is often put before a layer.",
        "Each hidden activation is a little wrong, where some should be missing and the others right.",
        LAYER,
        ({"drop": _no_drop, "drop_input": lambda x, p, training: F.dropout(x, p, training)},),
    ),
    Mistake(
        "dropout_as_keep_probability",
        "you take dropout as the probability to keep; it is the probability to drop",
        "The first paper on dropout, and some older code, call the share that is kept p.",
        "With dropout=0.1, nine activations out of ten are missing.",
        DROP,
        ({"drop": _kept_with_probability},),
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

WIDER_ALONE = Mistake(
    "wider_alone_refused",
    "you refuse an input that is too wide, but not one that is too narrow",
    "The comparison is < or >, where it should be !=.",
    "The caller of the other kind is told about mat1 and mat2, and nothing about x.",
    LAYER,
    ({"fits": _not_too_wide},),
)

VIEWED = Mistake(
    "viewed",
    "you flatten the input with .view, which takes only numbers that lie in memory in their order",
    ".view and .reshape do the same for tensors that were just made.",
    "After a transpose, for instance, it fails; .reshape would copy.",
    ALONE,
    ({"first": _viewed},),
)


def _in_one_branch(mistake: Mistake) -> Mistake:
    """The same mistake, made for one of the two activations as well."""
    branches = (
        {"trains": lambda training, activation: training or activation == "gelu"},
        {"trains": lambda training, activation: training or activation == "relu"},
    )
    return replace(mistake, variants=(*mistake.variants, *branches))


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
        "clamped",
        "you bound the numbers, as clamp and relu6 do; a layer for inputs in the thousands has none",
        "NaN from large inputs is feared, and a bound looks like a cure.",
        "Beyond the bound all inputs give the same output, and get no gradient.",
        BENDS,
        (
            *({"first": _input_bounded(limit)} for limit in (10.0, 1e3)),
            *({"bend": _bounded(limit)} for limit in (1e2, 1e3, 1e4)),
            *({"bend": _relu_bounded(limit)} for limit in (6.0, 1e2, 1e3)),
        ),
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
    *(_in_one_branch(mistake) if mistake.id == "dropout_in_evaluation" else mistake for mistake in DROPOUT),
    Mistake(
        "dropout_mask_kept",
        "you draw the mask of dropout once and keep it; each call draws its own",
        "A mask looks like something that belongs to the layer.",
        "The same units are missing for ever, and a batch of another size fails.",
        DROP,
        ({"draw": _mask_kept},),
    ),
    VIEWED,
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
        "you look the activation up without checking it, so that a typo raises another error than ValueError",
        "A dict finds out by itself that a name is unknown.",
        "The message says nothing of what is possible: of a KeyError, it is the typo in quotes.",
        BENDS,
        ({"accept": _activation_looked_up},),
    ),
    Mistake(
        "activation_of_torch",
        'you take any name that torch has a function for; activation is "relu" or "gelu"',
        "getattr(F, activation) needs no list of names.",
        "Words that were never meant make layers: silu, or dropout.",
        BENDS,
        ({"accept": _activation_of_torch}, {"accept": _attribute_of_torch}),
    ),
    Mistake(
        "activation_part_of_a_word",
        "you ask whether activation is part of a text; it has to be one of two words",
        "“in” looks for a piece in a text, and for an element in a list.",
        "A word that lacks its end, and even no word at all, is accepted.",
        BENDS,
        ({"accept": _activation_in_a_word},),
    ),
    WIDTH_UNCHECKED,
    WIDER_ALONE,
    Mistake(
        "sizes_unchecked",
        "you do not refuse all sizes below 1",
        "nn.Linear takes a width of zero with no more than a warning.",
        "With d_ff=0 the layer puts out its second bias, whatever comes in.",
        LAYER,
        (
            {"accept": lambda d_model, d_ff, activation: _activation_known(activation)},
            {"accept": lambda d_model, d_ff, activation: _accept(1, d_ff, activation)},
            {"accept": lambda d_model, d_ff, activation: _accept(abs(d_model), abs(d_ff), activation)},
            {"accept": lambda d_model, d_ff, activation: _accept(d_model * d_ff, 1, activation)},
        ),
    ),
)
