"""Known wrong ways to write multi-head attention, each with what a learner should hear."""

import math

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.attention_mistakes import CORE
from transformer_lessons.checks.old.catalogue.multi_head_result_mistakes import RESULTS
from transformer_lessons.checks.old.catalogue.multi_head_steps import accept_heads, defaults
from transformer_lessons.checks.old.catalogue.multi_head_widths import (
    crash_if_wide,
    only,
    only_alike,
    only_query,
)
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES"]

LOOP, RESHAPE, CLASS, CROSS = "#ch07-loop", "#ch07-reshape", "#ch07-class", "#ch07-cross"
WRONG, PROOF, MASKS = "#ch07-wrong", "#ch07-proof", "#ch05-masks"


def _viewed(x: Tensor, h: int, length: int, d_k: int) -> Tensor:
    return x.reshape(x.size(0), h, length, d_k)


def _interleaved(x: Tensor, h: int, *_: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


def _merged_by_view(heads: Tensor) -> Tensor:
    return heads.reshape(heads.size(0), heads.size(2), -1)


def _slices(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Each head's features alone go through the head's own block of the matrices."""
    h = module.num_heads
    projected = []
    for x, linear in ((query, module.W_q), (key, module.W_k), (value, module.W_v)):
        pairs = zip(x.chunk(h, -1), linear.weight.chunk(h), linear.bias.chunk(h), range(h), strict=True)
        projected.append(torch.cat([part @ w.chunk(h, 1)[i].T + b for part, w, b, i in pairs], -1))
    return tuple(projected)


def _fill(number: float):
    return lambda scores, mask: scores if mask is None else scores.masked_fill(~mask, number)


def _same(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights


def _crash(*_: object) -> None:
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def _rounds_down(d_model: int, num_heads: int) -> None:
    if num_heads < 1:
        _crash()


def _kept(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not hasattr(module, "kept"):
        module.kept = module.W_k(key), module.W_v(value)
    return module.W_q(query), *module.kept


def _latest_mask(module: nn.Module, mask: Tensor | None) -> Tensor | None:
    module.latest = getattr(module, "latest", None) if mask is None else mask
    return module.latest


def _read_with(axes: int, place):
    """A mask of so many axes is given others."""
    return {"read": lambda mask: mask[place] if mask is not None and mask.dim() == axes else mask}


def _sized(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    """A mask with one part per head, as large as the scores or refused by torch."""
    per_head = mask is not None and mask.dim() == 4 and mask.size(1) > 1
    return mask.view(-1, *scores.shape[1:]) if per_head else mask


def _filled_lowest(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _crash_if_lonely(key: Tensor | None, value: Tensor | None) -> None:
    if key is None and value is not None:
        _crash()


def _no_zero(d_model: int, num_heads: int) -> None:
    if num_heads == 0:
        raise ZeroDivisionError("integer modulo by zero")
    accept_heads(d_model, num_heads)


def _only_zero(d_model: int, num_heads: int) -> None:
    if num_heads == 0 or d_model % num_heads:
        raise ValueError("num_heads: expected a divisor of d_model")


def _query_is_value(query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return query, query if key is None else key, query if value is None else value


def _query_is_value_if_it_fits(query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple:
    does_fit = key is not None and key.shape == query.shape
    return (_query_is_value if does_fit else defaults)(query, key, value)


def _key_ignored(query: Tensor, key: Tensor | None, value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    return query, query, query


MISTAKES = (
    Mistake(
        "split_by_view",
        "you split the heads by reinterpreting memory; length and heads have to be exchanged after the split",
        "view to (batch, heads, length, d_k) gives no error.",
        "A head attends within a stretch of positions, over pieces of their features.",
        WRONG,
        ({"split": _viewed},),
    ),
    Mistake(
        "merged_by_view",
        "you merged the heads by reinterpreting memory; heads and length have to be exchanged back before",
        "reshape to (batch, length, d_model) gives no error.",
        "An output consists of what one head found at several positions: with a causal mask, a leak.",
        WRONG,
        (
            {"merge": _merged_by_view},
            {"merge": lambda heads: heads.contiguous().view(heads.size(0), heads.size(2), -1)},
        ),
    ),
    Mistake(
        "view_in_and_out",
        "you split and merged the heads by reinterpreting memory; each time two axes have to be exchanged too",
        "The two mistakes fit each other: every shape is right.",
        "Each head sees a part of the positions with all features, and nothing else.",
        WRONG,
        ({"split": _viewed, "merge": _merged_by_view},),
    ),
    Mistake(
        "keys_by_view",
        "you “transposed” the keys by reinterpreting memory",
        "view(batch, heads, d_k, length) gives the shape wanted.",
        "Scores mix several keys.",
        WRONG,
        ({"turn": lambda k: k.reshape(*k.shape[:2], k.size(3), k.size(2))},),
    ),
    Mistake(
        "split_before_projecting",
        "you split the features before projecting; each head's projection takes all d_model features",
        "“Each head works on a part of the features” is read as “of the input”.",
        "No head can relate features of two parts.",
        WRONG,
        ({"project": _slices},),
    ),
    Mistake(
        "interleaved",
        "you deal the features out to the heads one by one; a head has d_k neighbouring ones",
        "The axis was cut into (d_k, heads), not (heads, d_k).",
        "It can be trained, but no weights made by anybody else fit.",
        RESHAPE,
        (
            {
                "split": _interleaved,
                "merge": lambda heads: heads.permute(0, 2, 3, 1).flatten(-2),
            },
            {"split": _interleaved},
        ),
    ),
    Mistake(
        "merged_in_turns",
        "you put the heads together feature by feature, in turns; those of one head stand side by side",
        "The axis of heads was moved to the end, behind their features.",
        "It can be trained, but no weights made by anybody else fit.",
        RESHAPE,
        ({"merge": lambda heads: heads.permute(0, 2, 3, 1).flatten(-2)},),
    ),
    Mistake(
        "one_head",
        "you never split: all d_model features make one head",
        "Every shape is right without the split as well.",
        "One softmax for everything, scaled by √d_model.",
        LOOP,
        ({"heads": lambda h: 1},),
    ),
    Mistake(
        "scaled_by_d_model",
        "you divide the scores by √d_model; a head's queries and keys are only d_k wide",
        "The width was read off before the split.",
        "All weights are too close to each other.",
        LOOP,
        ({"scores": lambda q, keys: q @ keys / math.sqrt(q.size(-1) * q.size(1))},),
    ),
    Mistake(
        "no_scaling",
        "you left out the division by √d_k",
        "It was lost between the reshapes.",
        "The softmax is too peaked.",
        "#ch05-scale",
        ({"scores": lambda q, keys: q @ keys},),
    ),
    Mistake(
        "scaled_by_d_k",
        "you divided by d_k, not √d_k",
        "The square root is easily lost.",
        "All weights are too close to each other.",
        "#ch05-scale",
        ({"scores": lambda q, keys: q @ keys / q.size(-1)},),
    ),
    Mistake(
        "softmax_over_queries",
        "your softmax runs over the queries; it must run over the keys, the last axis",
        "dim=-2, or an axis counted in a layout without heads.",
        "The weights of a query do not sum to one.",
        "#ch05-vectorised",
        ({"softmax": lambda scores: scores.softmax(-2)},),
    ),
    Mistake(
        "softmax_over_heads",
        "your softmax runs over the heads; it must run over the keys, the last axis",
        "dim=1 was the last axis but one before there were heads.",
        "The weights of a query do not sum to one.",
        "#ch05-vectorised",
        ({"softmax": lambda scores: scores.softmax(1)},),
    ),
    Mistake(
        "no_output_projection",
        "you left out W_o",
        "Concatenated, the heads have the right width already.",
        "What the heads found is never mixed, and W_o is never trained.",
        LOOP,
        ({"out": lambda module, merged: merged},),
    ),
    Mistake(
        "projections_swapped",
        "you use W_k for the values and W_v for the keys",
        "q, k and v are assigned in one line, in another order than the layers.",
        "It can be trained, but no weights made by anybody else fit.",
        CLASS,
        ({"project": lambda m, query, key, value: (m.W_q(query), m.W_v(key), m.W_k(value))},),
    ),
    Mistake(
        "query_projection_for_keys",
        "you project the keys with W_q; they have W_k",
        "A line was copied and half changed.",
        "Scores are symmetric in self-attention, and W_k is never trained.",
        CLASS,
        ({"project": lambda m, query, key, value: (m.W_q(query), m.W_q(key), m.W_v(value))},),
    ),
    Mistake(
        "key_projection_for_values",
        "you project the values with W_k; they have W_v",
        "A line was copied and half changed.",
        "Keys and values are the same, and W_v is never trained.",
        CLASS,
        ({"project": lambda m, query, key, value: (m.W_q(query), m.W_k(key), m.W_k(value))},),
    ),
    Mistake(
        "unprojected_values",
        "you split the values without projecting them by W_v",
        "Only query and key meet in the scores, so only they seem to need a projection.",
        "W_v is never trained.",
        CLASS,
        ({"project": lambda m, query, key, value: (m.W_q(query), m.W_k(key), value)},),
    ),
    Mistake(
        "keys_kept",
        "you keep keys and values of the first call and use them in all later ones",
        "A cache, as decoding has one, was built into the layer.",
        "From the second batch on, queries look into the first one.",
        CLASS,
        ({"project": _kept},),
    ),
    Mistake(
        "mask_kept",
        "you keep the mask of an earlier call and use it in calls that have none",
        "The mask was made an attribute of the layer.",
        "What one batch hides is hidden from the next.",
        CLASS,
        ({"recall": _latest_mask},),
    ),
    Mistake(
        "residual_inside",
        "you add the query to the output; the residual belongs to the layer around the attention",
        "Many notebooks put attention, residual and norm into one class.",
        "The layer that uses it adds the query a second time.",
        CLASS,
        ({"output": lambda output, query: output + query},),
    ),
    Mistake(
        "no_bias",
        "your projections have no biases; the four nn.Linear here have them",
        "The paper's formula has none.",
        "Weights of this course do not load.",
        CLASS,
        ({"linear": lambda a, b: nn.Linear(a, b, bias=False)},),
    ),
    Mistake(
        "one_length_for_all",
        "you take the number of positions from the query for keys and values too",
        "batch, time, width = query.shape is written once, and in self-attention all three agree.",
        "Cross-attention fails as soon as the lengths differ.",
        WRONG,
        (
            {"lengths": lambda x, h, query: (query.size(1), -1)},
            {"lengths": lambda x, h, query: (query.size(1), x.size(-1) // h)},
        ),
    ),
    Mistake(
        "key_ignored",
        "you never use key and value: keys and values are always made from the query",
        "In self-attention all three are the same.",
        "The decoder never reads the source.",
        CROSS,
        ({"inputs": _key_ignored},),
    ),
    Mistake(
        "value_ignored",
        "you never use value: values are always made from the key",
        "In nearly all uses both are the same.",
        "A value of one's own changes nothing.",
        CROSS,
        ({"inputs": lambda query, key, value: defaults(query, key, None)},),
    ),
    Mistake(
        "query_for_missing_value",
        "with a key and no value you take the query for the value; it is the key",
        "One default is used for both.",
        "Scores and values do not fit once the lengths differ.",
        CROSS,
        ({"inputs": _query_is_value}, {"inputs": _query_is_value_if_it_fits}),
    ),
    Mistake(
        "mask_ignored",
        "you never use the mask",
        "The argument is taken and not passed on.",
        "Padding and the future are seen.",
        CROSS,
        ({"read": lambda mask: None},),
    ),
    Mistake(
        "mask_inverted",
        "you read the mask the wrong way round: True means “may attend”",
        "nn.MultiheadAttention's masks mean the opposite.",
        "Only what should be hidden is seen.",
        PROOF,
        ({"read": lambda mask: None if mask is None else ~mask},),
    ),
    Mistake(
        "mask_unsqueezed",
        "you add an axis for the heads to the mask; it has one already",
        "Elsewhere masks come as (batch, queries, keys).",
        "A mask of five axes meets the scores' four.",
        CROSS,
        ({"read": lambda mask: None if mask is None else mask.unsqueeze(1)},),
    ),
    Mistake(
        "first_mask_for_all",
        "you use the mask of the first sentence or of the first head for all of them",
        "One mask per batch is enough in a causal model.",
        "Padding of other sentences is seen.",
        CROSS,
        (
            {"read": lambda mask: None if mask is None else mask[:1]},
            {"read": lambda mask: None if mask is None else mask[:, :1]},
            {"read": lambda mask: None if mask is None else mask[0, 0]},
        ),
    ),
    Mistake(
        "two_axes_as_padding",
        "you take a mask of two axes for (batch, keys); it broadcasts, so it is (queries, keys)",
        "Padding often comes so.",
        "A causal mask of two axes hides the wrong keys, or does not fit.",
        CROSS,
        (_read_with(2, (slice(None), None, None)),),
    ),
    Mistake(
        "three_axes_as_batch",
        "you take a mask of three axes for (batch, queries, keys); it broadcasts: (heads, queries, keys)",
        "Elsewhere masks come without an axis for the heads.",
        "Each sentence gets the mask of a head, or it does not fit.",
        CROSS,
        (_read_with(3, (slice(None), None)),),
    ),
    Mistake(
        "head_masks_full_only",
        "you reshape a mask with one part per head to all queries and keys; it may have one row for all queries",
        "A mask for each head looks like a matrix for each head.",
        "A mask of (batch, heads, 1, keys) raises an error about sizes.",
        CROSS,
        ({"hide": lambda scores, mask: _filled_lowest(scores, _sized(mask, scores))},),
    ),
    Mistake(
        "mask_near_zero",
        "you fill hidden scores with a number near zero; it has to be very negative",
        "1e-9 is written where -1e9 is meant.",
        "Hidden keys keep their weight.",
        MASKS,
        ({"hide": _fill(1e-9), "clear": _same}, {"hide": _fill(-1e-9), "clear": _same}),
    ),
    *(mistake for mistake in CORE if mistake.id in ("mask_filled_too_small", "naive_exp")),
    Mistake(
        "empty_rows_nan",
        "a query that may attend to nothing becomes NaN",
        "A softmax over nothing but −inf is 0/0.",
        "One such row makes the loss NaN.",
        MASKS,
        ({"hide": _fill(-math.inf), "clear": _same},),
    ),
    Mistake(
        "empty_rows_uniform",
        "a query that may attend to nothing averages all hidden values",
        "With all scores equally low the softmax is uniform.",
        "Padding flows into the output without a word.",
        MASKS,
        ({"hide": _fill(-1e9), "clear": _same}, {"clear": _same}),
    ),
    *RESULTS,
    Mistake(
        "divisor_unchecked",
        "you do not refuse, with ValueError, a num_heads that is zero or does not divide d_model",
        "d_model // num_heads rounds without a word, and an assert is no ValueError.",
        "It fails, if at all, in the first call, and about sizes.",
        CLASS,
        ({"accept": _rounds_down}, {"accept": lambda d, h: _crash() if h < 1 or d % h else None}),
    ),
    Mistake(
        "zero_unchecked",
        "you do not refuse a num_heads of zero",
        "d_model % 0 is an error of its own, ZeroDivisionError.",
        "The caller reads about a division that is not theirs.",
        CLASS,
        ({"accept": _no_zero}, {"accept": lambda d, h: _only_zero(d, h) if h else _crash()}),
    ),
    Mistake(
        "negative_unchecked",
        "you do not refuse a num_heads below zero",
        "d_model % -1 is 0, so −1 seems to divide it.",
        "It fails in the first call, and about sizes.",
        CLASS,
        ({"accept": _only_zero},),
    ),
    Mistake(
        "lonely_value_unchecked",
        "you do not refuse a value that comes without a key",
        "Each default is set on its own.",
        "A caller who confuses the order gets numbers.",
        CLASS,
        ({"accept_inputs": lambda key, value: None}, {"accept_inputs": _crash_if_lonely}),
    ),
    Mistake(
        "width_unchecked",
        "you do not check the width of the inputs yourself",
        "torch complains too, but about mat1 and mat2, in the middle of your code.",
        "The caller is told nothing about query, key or value.",
        CLASS,
        ({"fits": crash_if_wide},),
    ),
    Mistake(
        "only_query_checked",
        "you check the width of the query only; key and value can be wrong as well",
        "In self-attention there is nothing else.",
        "The caller is told nothing about key or value.",
        CLASS,
        ({"fits": only_query},),
    ),
    Mistake(
        "width_checked_in_part",
        "you check the widths of two of query, key and value, or only that they agree: all must be d_model",
        "In self-attention all three are the same.",
        "The caller is told nothing about the input that is wrong.",
        CLASS,
        (only(0, 1), only(0, 2), only(1, 2), {"fits": only_alike}),
    ),
)
