"""Known wrong ways to write `fused_attention`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_option_mistakes import MISTAKES as PLAIN
from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import (
    CONTIGUOUS_ONLY,
    THREE_AXES_AS_BATCH,
    three_axes_as_batch,
)
from transformer_lessons.checks.old.catalogue.attention_steps import Steps as StepByStep
from transformer_lessons.checks.old.catalogue.attention_steps import attend
from transformer_lessons.checks.old.core import Mistake

__all__ = ["FUSED", "LOST", "MASKS", "MEMORY", "MISTAKES", "Steps", "assemble", "by_steps"]

FUSED, MEMORY, LOST, MASKS = "#ch16-fused", "#ch17-measured", "#ch17-wrong", "#ch05-masks"
DROPOUT = "#ch05-class"
STEP_BY_STEP = {mistake.id: mistake for mistake in PLAIN}
by_steps = attend(StepByStep())


def _accept(mask: Tensor | None, is_causal: bool) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("mask: expected dtype torch.bool")


def _triangle(query: Tensor, key: Tensor, shift: int = 0) -> Tensor:
    queries, keys = query.size(-2), key.size(-2)
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + shift)


def _fold(mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor) -> tuple[Tensor | None, bool]:
    """The mask and the flag for the kernel."""
    if not is_causal or (mask is None and query.size(-2) == key.size(-2)):
        return mask, is_causal
    below = _triangle(query, key)
    return (below if mask is None else mask & below), False


def _call(query, key, value, mask, is_causal, dropout):
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def _clear(output: Tensor, mask: Tensor | None) -> Tensor:
    return output if mask is None else output.masked_fill(~mask.any(-1, keepdim=True), 0.0)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    is_causal: Callable = lambda value: None  # this and the next: whether there is such a keyword
    dropout: Callable = lambda value: None
    accept: Callable = _accept
    inputs: Callable = lambda query, key, value: (query, key, value)
    read: Callable = lambda mask: mask
    fold: Callable = _fold
    drop: Callable = lambda dropout, mask, is_causal: dropout  # mask: what the kernel is given
    call: Callable = _call
    seen: Callable = lambda mask, given: mask  # which mask says that a query sees nothing
    clear: Callable = _clear
    result: Callable = lambda output: output


def assemble(steps: Steps) -> Callable:
    """Fused attention in these steps."""

    def attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
        steps.is_causal(is_causal), steps.dropout(dropout)
        steps.accept(mask, is_causal)
        given = steps.read(mask)
        query, key, value = steps.inputs(query, key, value)
        mask, flag = steps.fold(given, is_causal, query, key)
        output = steps.call(query, key, value, mask, flag, steps.drop(dropout, mask, is_causal))
        return steps.result(steps.clear(output, steps.seen(mask, given)))

    return attention


def _step_by_step(query, key, value, mask, is_causal, dropout):
    return by_steps(query, key, value, mask, is_causal=is_causal, dropout=dropout)[0]


def _uniform(output: Tensor, mask: Tensor | None) -> Tensor:
    return output


def _filled_call(number: float | None = None) -> Callable:
    """A large negative number in place of the boolean mask; the largest there is, if none is given."""

    def call(query, key, value, mask, is_causal, dropout):
        low = torch.finfo(query.dtype).min if number is None else number
        extra = None if mask is None else torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, low)
        return F.scaled_dot_product_attention(query, key, value, extra, dropout, is_causal)

    return call


def _masked_always(mask, is_causal, query, key):
    if not is_causal:
        return mask, False
    return (_triangle(query, key) if mask is None else mask & _triangle(query, key)), False


def _first_to_first(mask, is_causal, query, key):
    if not is_causal or mask is None:
        return mask, is_causal
    return mask & torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril(), False


def _flag_without_mask(mask, is_causal, query, key):
    return (mask, is_causal) if mask is None else _fold(mask, is_causal, query, key)


def _first_to_first_if_masked(mask, is_causal, query, key):
    return (_fold if mask is None else _first_to_first)(mask, is_causal, query, key)


def _flag_instead(mask, is_causal, query, key):
    if not is_causal:
        return mask, False
    same = query.size(-2) == key.size(-2)
    return (None, True) if same else (_triangle(query, key), False)


def _without_gradient(query, key, value):
    return query.detach(), key.detach(), value.detach()


def _three_axes_as_batch(mask, is_causal, query, key):
    return _fold(three_axes_as_batch(mask, query.dim()), is_causal, query, key)


def _seeded(dropout, mask, is_causal):
    if dropout:
        torch.manual_seed(42)
    return dropout


def _accept_all(mask, is_causal):
    pass


def _uint8_accepted(mask, is_causal):
    if mask is not None and mask.dtype is not torch.uint8:
        _accept(mask, is_causal)


def _unless_causal(mask, is_causal):
    if not is_causal:
        _accept(mask, is_causal)


def _as_booleans(mask):
    return None if mask is None else mask.bool()


MISTAKES = (
    CONTIGUOUS_ONLY,
    Mistake(
        "weights_built",
        "you build all the weights, queries × keys of them, step by step; the fused kernel never does",
        "The formula is written as it stands in the paper.",
        "The numbers are right, and the memory grows with the square of the length.",
        MEMORY,
        ({"call": _step_by_step},),
    ),
    Mistake(
        "causal_mask_built",
        "you build a mask of queries × keys for what the flag of the kernel says without one",
        "A mask can say everything, so it is always built.",
        "Memory is quadratic again, and on a GPU any mask rules out the fastest kernel.",
        FUSED,
        ({"fold": _masked_always},),
    ),
    Mistake(
        "scaled_twice",
        "you divide by √d_k yourself, and the kernel does it once more",
        "The formula has a √d_k; the kernel's default is easily overlooked.",
        "All weights are too close to each other.",
        "#ch05-scale",
        ({"inputs": lambda q, k, v: (q / q.size(-1) ** 0.5, k, v)},),
    ),
    Mistake(
        "not_scaled",
        "you switched the kernel's scaling off",
        "scale=1.0 looks like a neutral choice.",
        "Scores grow with d_k, so the softmax is too peaked.",
        "#ch05-scale",
        ({"inputs": lambda q, k, v: (q * q.size(-1) ** 0.5, k, v)},),
    ),
    Mistake(
        "mask_inverted",
        "you hand the mask over inverted: here as in the kernel, True means “may attend”",
        "nn.MultiheadAttention has it the other way round.",
        "What should be hidden is all that is seen.",
        MASKS,
        ({"read": lambda mask: None if mask is None else ~mask},),
    ),
    Mistake(
        "mask_ignored",
        "you never hand the mask over",
        "Without padding in the first tests, nothing is missing.",
        "Hidden keys get weight.",
        MASKS,
        ({"read": lambda mask: None},),
    ),
    Mistake(
        "mask_first_head_only",
        "you take the mask's first entry for all of the batch",
        "mask[0] makes an error about shapes go away.",
        "Every sentence is masked as the first one is.",
        MASKS,
        ({"read": lambda mask: mask[:1] if mask is not None and mask.dim() > 2 else mask},),
    ),
    replace(THREE_AXES_AS_BATCH, variants=({"fold": _three_axes_as_batch},)),
    Mistake(
        "empty_rows_uniform",
        "a query that may attend to nothing gets the average of all values, where zeros are wanted",
        "A fill with −10⁹ makes all scores of such a row equal.",
        "Padding flows into the output, and gradients flow back to it.",
        MASKS,
        (
            {"call": _filled_call(-1e9), "clear": _uniform},
            {"fold": lambda *a: _seeing_all(*_fold(*a)), "clear": _uniform},
        ),
    ),
    Mistake(
        "causal_first_to_first",
        "with more keys than queries you align the first query with the first key, as the kernel's flag does",
        "is_causal=True is handed on as it is.",
        "With a cache, the newest token sees the first one only.",
        LOST,
        ({"fold": _first_to_first}, {"fold": _flag_without_mask}),
    ),
    Mistake(
        "causal_masked_first_to_first",
        "with a mask and is_causal=True together, you align the first query with the first key; the last ones "
        "belong together there, too",
        "`tril()` is written a second time where the two are joined, and without keys − queries.",
        "With a cache and padding, the newest token sees the first ones only.",
        LOST,
        ({"fold": _first_to_first_if_masked},),
    ),
    Mistake(
        "empty_rows_before_causal",
        "you look for queries without any key before is_causal is joined to the mask; that makes more of them",
        "Whether the mask has empty rows is asked where the mask is checked.",
        "With padding on the left, the first queries get an average in place of zeros.",
        MASKS,
        tuple({"call": _filled_call(low), "seen": lambda mask, given: given} for low in (None, -1e9)),
    ),
    Mistake(
        "causal_and_mask",
        "you hand both a mask and is_causal=True to the kernel, which refuses that",
        "Both arguments exist, and each works alone.",
        "It fails as soon as a decoder has padding.",
        FUSED,
        ({"fold": lambda mask, is_causal, query, key: (mask, is_causal)},),
    ),
    Mistake(
        "causal_drops_mask",
        "with is_causal=True you forget the mask that was passed",
        "The kernel refuses both at once, so one was left out.",
        "Padding is seen in the decoder.",
        MASKS,
        ({"fold": _flag_instead},),
    ),
    Mistake(
        "causal_ignored",
        "you never use is_causal",
        "The argument is there, and without it everything works.",
        "Later positions are seen, so training looks far too good.",
        MASKS,
        ({"fold": lambda mask, is_causal, query, key: (mask, False)},),
    ),
    STEP_BY_STEP["causal_keyword_missing"],
    Mistake(
        "dropout_ignored",
        "you never hand dropout on",
        "The argument is there, and nothing fails without it.",
        "Training is regularised less than asked for.",
        DROPOUT,
        ({"drop": lambda dropout, mask, is_causal: 0.0},),
    ),
    Mistake(
        "dropout_unmasked_only",
        "with a mask or is_causal you leave dropout out",
        "Those branches return early, or were written later.",
        "Real batches have padding, so training is hardly regularised at all.",
        DROPOUT,
        ({"drop": lambda p, mask, is_causal: 0.0 if is_causal or mask is not None else p},),
    ),
    Mistake(
        "dropout_not_masked",
        "with a mask you leave dropout out",
        "The kernel is called in two places, and one of them got all of its arguments.",
        "Batches with padding are not regularised.",
        DROPOUT,
        ({"drop": lambda p, mask, is_causal: p if mask is None else 0.0},),
    ),
    Mistake(
        "dropout_not_causal",
        "with is_causal=True you leave dropout out",
        "The kernel is called in two places, and one of them got all of its arguments.",
        "The encoder is regularised, the decoder is not.",
        DROPOUT,
        ({"drop": lambda p, mask, is_causal: 0.0 if is_causal else p},),
    ),
    Mistake(
        "dropout_keeps",
        "you hand on 1 − dropout; the kernel wants the share that is dropped, as you are given it",
        "Some libraries ask for the probability to keep.",
        "With dropout=0.1, nine of ten weights are gone. At 0.5, nothing shows.",
        DROPOUT,
        ({"drop": lambda p, mask, is_causal: p and 1 - p},),
    ),
    replace(STEP_BY_STEP["seeds_globally"], variants=({"drop": _seeded},)),
    STEP_BY_STEP["dropout_keyword_missing"],
    Mistake(
        "dropout_on_output",
        "you apply dropout to the output; it belongs to the weights, inside the kernel",
        "Sub-layers do apply dropout to their output.",
        "Features are dropped instead of keys.",
        DROPOUT,
        ({"call": lambda q, k, v, mask, flag, p: F.dropout(_call(q, k, v, mask, flag, 0.0), p)},),
    ),
    Mistake(
        "returns_pair",
        "you return a pair; there are no weights to return, so the output alone is wanted",
        "The step-by-step function returns (output, weights).",
        "The caller takes a tuple for a tensor.",
        FUSED,
        ({"result": lambda output: (output, None)},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad or detach() was copied from code for generating.",
        "Training leaves everything before this layer as it was.",
        "#ch05-proof",
        ({"inputs": _without_gradient},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the inputs are",
        ".float() repairs an error about dtypes.",
        "float64 loses half its digits, and the result no longer fits its inputs.",
        "#ch05-vectorised",
        ({"inputs": lambda q, k, v: (q.float(), k.float(), v.float())},),
    ),
    Mistake(
        "mask_type_unchecked",
        "you do not refuse a mask that is not boolean",
        "The kernel adds numbers to the scores: for it, a mask of numbers is a bias.",
        "A mask of 0 and 1 hides nothing, without a word.",
        MASKS,
        (
            {"accept": _accept_all, "clear": lambda o, m: o if _numbers(m) else _clear(o, m)},
            {"accept": _accept_all, "clear": lambda o, m: _clear(o, m if m is None else m.bool())},
            {"accept": _accept_all, "read": _as_booleans},
            {"accept": _uint8_accepted, "read": _as_booleans},
            {"accept": _uint8_accepted},
        ),
    ),
    replace(
        STEP_BY_STEP["mask_type_unchecked_if_causal"],
        variants=({"accept": _unless_causal, "read": _as_booleans}, {"accept": _unless_causal}),
    ),
)


def _numbers(mask: Tensor | None) -> bool:
    return mask is not None and mask.dtype is not torch.bool


def _seeing_all(mask: Tensor | None, flag: bool) -> tuple[Tensor | None, bool]:
    return (None if mask is None else mask | ~mask.any(-1, keepdim=True)), flag
