"""The known mistakes of `token_embedding`, and the steps that they change."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "Steps", "assemble"]

LOOKUP, SCALE, INPUT, WRONG = "#ch02-lookup", "#ch02-scale", "#ch02-input", "#ch02-wrong"


def _accept_sizes(vocab_size: int, d_model: int) -> None:
    if vocab_size < 1 or d_model < 1:
        raise ValueError("vocab_size, d_model: expected 1 or more")


def _accept_ids(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError("ids: expected integers of shape (batch, length)")


def _accept_range(ids: Tensor, vocab_size: int) -> None:
    if ids.numel() and (ids.min() < 0 or ids.max() >= vocab_size):
        raise ValueError("ids: expected 0 to vocab_size - 1")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_sizes: Callable = _accept_sizes
    start: Callable = lambda v, d: torch.randn(v, d) / math.sqrt(d)
    first: Callable = lambda weight: weight
    keep: Callable = lambda module, weight: setattr(module, "weight", nn.Parameter(weight))
    accept_ids: Callable = _accept_ids
    accept_range: Callable = _accept_range
    when: Callable = lambda module: True  # whether the range is looked at
    read: Callable = lambda module: module.weight
    look_up: Callable = lambda ids, weight: F.embedding(ids, weight)
    scaled: Callable = lambda module: True  # whether the factor is taken
    scale: Callable = lambda x, ids, weight: x * math.sqrt(weight.size(1))
    result: Callable = lambda x: x


def assemble(steps: Steps) -> type[nn.Module]:
    """A token embedding in these steps."""

    class Embedding(nn.Module):
        def __init__(self, vocab_size, d_model):
            super().__init__()
            steps.accept_sizes(vocab_size, d_model)
            steps.keep(self, steps.first(steps.start(vocab_size, d_model)))

        def forward(self, ids):
            steps.accept_ids(ids)
            if steps.when(self):
                steps.accept_range(ids, len(self.weight))
            weight = steps.read(self)
            rows = steps.look_up(ids, weight)
            return steps.result(steps.scale(rows, ids, weight) if steps.scaled(self) else rows)

    return Embedding


def _remembered(module: nn.Module) -> Tensor:
    """A copy of the weight, made at the first call."""
    if not hasattr(module, "kept"):
        module.kept = module.weight.clone()
    return module.kept


def _in_place(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    """The factor goes into the weight itself, at every call."""
    weight.data.mul_(math.sqrt(weight.size(1)))
    return F.embedding(ids, weight)


def _one_hot_that_guesses(ids: Tensor, weight: Tensor) -> Tensor:
    return F.one_hot(ids.long()).to(weight.dtype) @ weight


def _refuse(wrong: Callable) -> Callable:
    def accept(ids: Tensor, vocab_size: int) -> None:
        if wrong(ids, vocab_size):
            raise ValueError("ids")

    return accept


def _crash_beyond(ids: Tensor, vocab_size: int) -> None:
    if ids.numel() and ids.max() >= vocab_size:
        raise IndexError("index out of range")


def _crash_outside(ids: Tensor, vocab_size: int) -> None:
    if ids.numel() and (ids.min() < 0 or ids.max() >= vocab_size):
        raise IndexError("index out of range in self")


def _in_one_sentence(number: int) -> Callable:
    return lambda ids, vocab_size: _accept_range(ids[number], vocab_size)


_no_minus_one = _refuse(lambda ids, v: (ids == -1).any() or (ids >= v).any())


def _indexed(ids: Tensor, weight: Tensor) -> Tensor:
    return weight[ids.long()]


def _row_of_zeros(weight: Tensor) -> Tensor:
    weight[:1] = 0
    return weight


def _refuse_one_axis(ids: Tensor) -> None:
    if ids.dim() < 2 or ids.is_floating_point():
        raise ValueError("ids: expected integers of shape (batch, length)")


def _refuse_axes(ids: Tensor) -> None:
    if ids.dim() != 2:
        raise ValueError("ids: expected shape (batch, length)")
    _crash_on_floats(ids)


def _refuse_float32(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.dtype is torch.float32:
        raise ValueError("ids: expected integers of shape (batch, length)")


def _refuse_floats(ids: Tensor) -> None:
    if ids.is_floating_point():
        raise ValueError("ids: expected integers")


def _only_zero(vocab_size: int, d_model: int) -> None:
    if vocab_size == 0 or d_model == 0:
        raise ValueError("vocab_size, d_model")


def _crash_on_floats(ids: Tensor) -> None:
    if ids.is_floating_point():
        raise RuntimeError("Expected tensor for argument #1 'indices' to have a scalar type of Long or Int")


def _only(what: str) -> Callable:
    """One of the two sizes is checked."""

    def accept(vocab_size: int, d_model: int) -> None:
        if {"vocab_size": vocab_size, "d_model": d_model}[what] < 1:
            raise ValueError(what)

    return accept


def _crash_but_for_batches(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.is_floating_point():
        raise IndexError("tensors used as indices must be long")


def _clamped(ids: Tensor, weight: Tensor) -> Tensor:
    return F.embedding(ids.clamp(0, len(weight) - 1), weight)


def _as_drawn(size: Callable) -> Callable:
    return lambda v, d: torch.randn(v, d) * size(v, d)


def _times(factor: Callable) -> dict[str, Callable]:
    return {"scale": lambda x, ids, weight: x * factor(x, ids, weight)}


MISTAKES = (
    Mistake(
        "factor_missing",
        "you return the rows as they are; they are to be multiplied by √d_model",
        "A look-up is what nn.Embedding does, and the factor is one sentence in the paper.",
        "With entries of variance 1/d_model, the position drowns the token.",
        SCALE,
        (_times(lambda x, ids, weight: 1.0),),
    ),
    Mistake(
        "plain_embedding",
        "you return rows of a weight that starts from variance 1, unscaled: as nn.Embedding comes, or with the "
        "factor √d_model in the weight instead of on what comes out",
        "Inputs of variance 1 come out, which is what the factor is for.",
        "As the output projection, the same weight gives scores of variance d_model.",
        WRONG,
        ({**_times(lambda x, ids, weight: 1.0), "start": torch.randn},),
    ),
    Mistake(
        "factor_not_rooted",
        "you multiply by d_model; the factor is its root",
        "The root got lost.",
        "The token drowns the position.",
        SCALE,
        (_times(lambda x, ids, weight: weight.size(1)),),
    ),
    Mistake(
        "factor_rounded",
        "you round the root of d_model down to a whole number",
        "math.isqrt and // give whole numbers, and widths in papers are often squares.",
        "Right for d_model = 4, 16, 64 and other squares only.",
        SCALE,
        (_times(lambda x, ids, weight: math.isqrt(weight.size(1))),),
    ),
    Mistake(
        "factor_divides",
        "you divide by √d_model; the rows are to be multiplied by it",
        "Attention divides by a root, so the embedding seems to.",
        "Tokens have next to no length beside their positions.",
        SCALE,
        (_times(lambda x, ids, weight: 1 / math.sqrt(weight.size(1))),),
    ),
    Mistake(
        "factor_of_vocabulary",
        "you take the root of the number of tokens; it is the root of the width, d_model",
        "weight.size(0), or len(weight), is the vocabulary's size.",
        "The larger the vocabulary, the larger the vectors.",
        SCALE,
        (_times(lambda x, ids, weight: math.sqrt(weight.size(0))),),
    ),
    Mistake(
        "factor_of_length",
        "you take the root of the sentence's length; it is the root of the width, d_model",
        "The wrong axis of the result or of the ids was read.",
        "A token's vector depends on how long the sentence is.",
        SCALE,
        (_times(lambda x, ids, weight: math.sqrt(ids.size(1))),),
    ),
    Mistake(
        "gradient_lost",
        "you cut the weight off from training, with .data, .detach(), no_grad or a buffer",
        "A look-up copies numbers, and copying does not look like something with a gradient.",
        "Outputs are right, and the embedding never learns.",
        LOOKUP,
        (
            {"look_up": lambda ids, weight: F.embedding(ids, weight.detach())},
            {"keep": lambda module, weight: module.register_buffer("weight", weight)},
            {"keep": lambda module, weight: setattr(module, "weight", nn.Parameter(weight, False))},
        ),
    ),
    Mistake(
        "padding_row_frozen",
        "you keep gradients from row 0, as padding_idx=0 does; here each row is one like any other",
        "Padding is thought to need a row of zeros.",
        "The row stays as it was; and 0 need not be the padding's id.",
        WRONG,
        ({"look_up": lambda ids, weight: F.embedding(ids, weight, padding_idx=0)},),
    ),
    Mistake(
        "gradient_averaged",
        "you divide a row's gradient by how often its token occurs; the gradients of all its places are added up",
        "scale_grad_by_freq sounds reasonable.",
        "Frequent tokens learn as slowly as rare ones.",
        LOOKUP,
        ({"look_up": lambda ids, weight: F.embedding(ids, weight, scale_grad_by_freq=True)},),
    ),
    Mistake(
        "one_hot_guesses",
        "you let one_hot guess the number of tokens from the largest id it meets",
        "one_hot works without its second argument.",
        "It fails for every batch in which the last token does not occur.",
        LOOKUP,
        ({"look_up": _one_hot_that_guesses},),
    ),
    Mistake(
        "start_variance_one",
        "your weight starts from variance 1, as torch.randn and nn.Embedding draw; it should be 1/d_model",
        "It is the default.",
        "Multiplied by √d_model, such vectors drown the positions; tied, scores have variance d_model.",
        SCALE,
        ({"start": torch.randn},),
    ),
    Mistake(
        "start_variance_too_small",
        "you divided the first entries by d_model: that makes their variance 1/d_model²; divide by its root",
        "Variance and standard deviation were mixed up.",
        "Tokens start next to nothing beside their positions.",
        SCALE,
        ({"start": _as_drawn(lambda v, d: 1 / d)},),
    ),
    Mistake(
        "start_constant",
        "all entries of your weight are the same at first",
        "torch.zeros or torch.ones was written down as a place to load weights into.",
        "All tokens have the same vector, and a model cannot tell them apart.",
        LOOKUP,
        ({"start": torch.zeros}, {"start": torch.ones}),
    ),
    Mistake(
        "start_with_padding",
        "you start row 0 from zeros, as padding_idx=0 does; here each row is one like any other",
        "Padding is thought to need a row of zeros.",
        "0 need not be the padding's id; another token starts without a vector then.",
        WRONG,
        ({"first": _row_of_zeros},),
    ),
    Mistake(
        "start_xavier",
        "your weight starts as xavier_uniform_ draws it; that variance depends on the vocabulary, too",
        "A usual loop initialises all parameters of a model so.",
        "With a large vocabulary, entries are far too small.",
        WRONG,
        ({"start": _as_drawn(lambda v, d: math.sqrt(2 / (v + d)))},),
    ),
    Mistake(
        "start_fixed",
        "your weight starts with the standard deviation 0.02, whatever d_model is",
        "GPT-2 does it so, at one width.",
        "Right for d_model = 2500 only.",
        SCALE,
        ({"start": _as_drawn(lambda v, d: 0.02)},),
    ),
    Mistake(
        "weight_scaled_in_place",
        "you multiply the weight itself, at every call",
        "An assignment or an operation in place was meant for the result.",
        "From call to call, all vectors grow.",
        WRONG,
        ({"scale": _in_place},),
    ),
    Mistake(
        "weight_remembered",
        "you keep what the weight was at the first call, and go on with that",
        "The factor never changes, so the product with it was computed once and for all.",
        "After a step of training, or once weights are loaded, vectors are those of before.",
        WRONG,
        ({"read": _remembered},),
    ),
    Mistake(
        "factor_only_in_training",
        "you multiply by √d_model in training only; vectors are the same in use",
        "Other parts of a model, such as dropout, do something in training only.",
        "The model meets vectors that it has never seen.",
        SCALE,
        ({"scaled": lambda module: module.training},),
    ),
    Mistake(
        "empty_batch_fails",
        "your function fails for an empty batch, which has neither a smallest id nor a largest",
        "min and max need something to choose from.",
        "The last, empty piece of a data set stops the program.",
        LOOKUP,
        ({"accept_range": _refuse(lambda ids, v: ids.min() < 0 or ids.max() >= v)},),
    ),
    Mistake(
        "forced_float32",
        "you return float32, whatever the weight's dtype is",
        "Floats were made explicitly somewhere.",
        "float64 loses half its digits.",
        LOOKUP,
        ({"result": Tensor.float},),
    ),
    Mistake(
        "factor_in_float32",
        "your factor is a float32 tensor, so it has float32's digits only",
        "torch.sqrt wants a tensor, and torch.tensor makes it of float32.",
        "In float64, results are wrong from the eighth digit on.",
        SCALE,
        ({"scale": lambda x, ids, weight: x * torch.sqrt(torch.tensor(float(weight.size(1))))},),
    ),
    Mistake(
        "negative_wraps",
        "you let negative ids through to an index, and −1 is the last token then",
        "Indexing counts from the end for negative numbers.",
        "A mark such as −100 for “no answer” becomes a word, without an error.",
        LOOKUP,
        (
            {"accept_range": _crash_beyond, "look_up": _indexed},
            {"accept_range": _refuse(lambda ids, v: (ids >= v).any()), "look_up": _indexed},
        ),
    ),
    Mistake(
        "range_unchecked",
        "you leave ids out of range to torch, whose IndexError says neither which id nor which range",
        "It complains, on a CPU.",
        "On a GPU it takes the whole process down.",
        LOOKUP,
        (
            {"accept_range": _crash_outside},
            {"accept_range": _refuse(lambda ids, v: (ids < 0).any())},
            {"accept_range": _refuse(lambda ids, v: (ids >= v).any())},
        ),
    ),
    Mistake(
        "one_beyond",
        "you let the id vocab_size through; the last token is vocab_size − 1",
        "> for >=: as many tokens as that are counted from 0.",
        "An id that is too large by one gives an error of torch.",
        LOOKUP,
        ({"accept_range": _refuse(lambda ids, v: ((ids < 0) | (ids > v)).any())},),
    ),
    Mistake(
        "range_of_one_sentence",
        "you look for ids out of range in one sentence only; each id of the batch has to be in range",
        "An index too many takes one row of the batch.",
        "A wrong id in another sentence becomes a word, or an error of torch.",
        LOOKUP,
        tuple(
            {"accept_range": _in_one_sentence(number), **look_up}
            for number in (0, -1)
            for look_up in ({}, {"look_up": _indexed})
        ),
    ),
    Mistake(
        "only_minus_one",
        "you refuse −1, and no other negative id",
        "−1 is the usual mark for “none”.",
        "−100, another usual mark, becomes a word, or an error of torch.",
        LOOKUP,
        ({"accept_range": _no_minus_one}, {"accept_range": _no_minus_one, "look_up": _indexed}),
    ),
    Mistake(
        "range_only_in_training",
        "you check the range of ids only in training; ids are wrong as easily afterwards",
        "The check costs time, and data is thought to be new in training only.",
        "In use, a wrong id becomes a word, or an error of torch.",
        LOOKUP,
        (
            {"when": lambda module: module.training},
            {"when": lambda module: module.training, "look_up": _indexed},
        ),
    ),
    Mistake(
        "range_hidden",
        "you bring ids outside the vocabulary into it, by clamping or by a remainder",
        "It keeps the program running.",
        "A wrong id becomes some other word.",
        LOOKUP,
        ({"accept_range": lambda ids, vocab_size: None, "look_up": _clamped},),
    ),
    Mistake(
        "ids_unchecked",
        "you do not refuse what is no batch of ids: one axis or three, or floating-point numbers",
        "A look-up works for any shape.",
        "A batch axis that got lost is found much later.",
        LOOKUP,
        (
            {"accept_ids": _crash_on_floats},
            {"accept_ids": lambda ids: None, "look_up": lambda ids, weight: F.embedding(ids.long(), weight)},
            {"accept_ids": _crash_but_for_batches},
            {"accept_ids": _refuse_one_axis},
            {"accept_ids": _refuse_axes},
            {"accept_ids": _refuse_floats},
            {"accept_ids": _refuse_float32},
            {"accept_ids": _refuse_float32, "look_up": _indexed},
        ),
    ),
    Mistake(
        "sizes_unchecked",
        "you do not refuse a vocab_size or d_model below 1",
        "An empty weight is a weight.",
        "A typo in a configuration shows somewhere else.",
        LOOKUP,
        (
            {"accept_sizes": lambda v, d: None},
            {"accept_sizes": lambda v, d: _accept_sizes(v * d, 1)},
            {"accept_sizes": _only_zero},
            {"accept_sizes": lambda v, d: None, "start": _as_drawn(lambda v, d: max(d, 1) ** -0.5)},
            {"accept_sizes": _only("d_model")},
            {"accept_sizes": _only("vocab_size")},
            {"accept_sizes": _only("vocab_size"), "start": _as_drawn(lambda v, d: max(d, 1) ** -0.5)},
        ),
    ),
)
