"""Known wrong ways to write the options of attention, `is_causal` and `dropout`, and to check its mask."""

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_mistakes import CORE
from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import SHAPES
from transformer_lessons.checks.old.catalogue.attention_steps import Steps, no_keyword, triangle
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES"]

MASKING = CAUSAL = "#ch05-masks"
DROPOUT = "#ch05-class"
_accept, _causal = Steps.accept, Steps.causal  # the right ones


def _joined(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else mask & other


def _causal_with(below):
    """`is_causal` with another triangle."""
    return {"causal": lambda mask, is_causal, scores: _joined(mask, below(scores)) if is_causal else mask}


def _always_causal(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor:
    return _joined(mask, triangle(scores, scores.size(-1) - scores.size(-2)))


def _causal_instead(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    return triangle(scores, scores.size(-1) - scores.size(-2)) if is_causal else mask


def _dropped_unscaled(weights: Tensor, dropout: float) -> Tensor:
    return weights * (torch.rand_like(weights) >= dropout)


def _rate_as_divisor(weights: Tensor, dropout: float) -> Tensor:
    return _dropped_unscaled(weights, dropout) / dropout if dropout else weights


def _rate_kept(divisor):
    def drop(weights: Tensor, dropout: float) -> Tensor:
        kept = torch.rand_like(weights) < dropout
        return weights * kept / divisor(dropout) if dropout else weights

    return drop


def _noting_the_mask(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    """Both masks in one, which knows the one that was given."""
    if not is_causal:
        return mask
    joined = _always_causal(mask, is_causal, scores)
    joined.given = mask
    return joined


def _cleared_as_given(weights: Tensor, mask: Tensor | None) -> Tensor:
    given = getattr(mask, "given", mask)
    return weights if given is None else weights.masked_fill(~given, 0.0)


def _emptied_as_given(weights: Tensor, mask: Tensor | None) -> Tensor:
    given = getattr(mask, "given", mask)
    return weights if given is None else weights.masked_fill(~given.any(-1, keepdim=True), 0.0)


def _hidden_but_for_empty_rows(scores: Tensor, mask: Tensor | None) -> Tensor:
    given = getattr(mask, "given", mask)
    if mask is None:
        return scores
    shown = mask if given is None else mask | ~given.any(-1, keepdim=True)
    return scores.masked_fill(~shown, float("-inf"))


def _later_filled(number: float) -> dict:
    """The mask's keys are hidden well, later ones with a number of their own."""

    def hide(scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores
        filled, given = scores.masked_fill(~mask, number), getattr(mask, "given", mask)
        return filled if given is None else filled.masked_fill(~given, torch.finfo(scores.dtype).min)

    return {"causal": _noting_the_mask, "hide": hide}


def _four_axes(is_always: bool) -> dict:
    def causal(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
        if not is_causal:
            return mask
        below = triangle(scores, scores.size(-1) - scores.size(-2))
        return below if mask is None and not is_always else _joined(mask, below[None, None])

    return {"causal": causal}


def _first_to_first_if_masked(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    if not is_causal:
        return mask
    return _always_causal(None, True, scores) if mask is None else mask & triangle(scores, 0)


def _shared_among_heads(weights: Tensor, dropout: float) -> Tensor:
    return weights * F.dropout(weights.new_ones(weights.shape[-2:]), dropout)


def _shared_in_the_batch(weights: Tensor, dropout: float) -> Tensor:
    return weights * F.dropout(weights.new_ones(weights.shape[-3:]), dropout)


def _whole_queries_dropped(weights: Tensor, dropout: float) -> Tensor:
    return weights * F.dropout(weights.new_ones(*weights.shape[:-1], 1), dropout)


def _dropped_without_gradient(weights: Tensor, dropout: float) -> Tensor:
    return F.dropout(weights.detach(), dropout) if dropout else weights


def _keys_dropped(weights: Tensor, dropout: float) -> Tensor:
    return weights * F.dropout(weights.new_ones(weights.size(-1)), dropout)


def _cleared_and_noted(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Weights that know whether there was a mask."""
    cleared = weights if mask is None else weights.masked_fill(~mask, 0.0)
    cleared.is_masked = mask is not None
    return cleared


def _dropped_if_unmasked(weights: Tensor, dropout: float) -> Tensor:
    return weights if weights.is_masked else F.dropout(weights, dropout)


def _filled_with_mask(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    below = triangle(scores, scores.size(-1) - scores.size(-2))
    if not is_causal:
        return mask
    return below if mask is None else mask.logical_and_(below)


def _seeded(query: Tensor, key: Tensor, value: Tensor) -> tuple:
    torch.manual_seed(0)
    return query, key, value


def _seeded_if_dropping(weights: Tensor, dropout: float) -> Tensor:
    if dropout:
        torch.manual_seed(42)
    return F.dropout(weights, dropout)


def _filled_if_as_large(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    is_full = mask is not None and mask.shape[-2:] == scores.shape[-2:]
    return (_filled_with_mask if is_full else _causal)(mask, is_causal, scores)


def _checked_if_not_causal(mask: Tensor | None, is_causal: bool, scores: Tensor) -> Tensor | None:
    if not is_causal:
        _accept(mask)
    return _causal(None if mask is None else mask.bool(), is_causal, scores)


def _any_mask(mask: Tensor | None) -> None:
    return None


def _only_torch_complains(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        raise RuntimeError("masked_fill_ only supports boolean masks")


def _uint8_accepted(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype not in (torch.bool, torch.uint8):
        raise ValueError("mask: expected dtype torch.bool")


def _number_read(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    return mask if mask is None else mask != 0


MISTAKES = (
    *CORE,
    *SHAPES,
    Mistake(
        "causal_ignored",
        "you never use is_causal",
        "The argument is there, and without it everything works.",
        "Later positions are seen, so training looks far too good.",
        CAUSAL,
        ({"causal": lambda mask, is_causal, scores: mask},),
    ),
    Mistake(
        "causal_keyword_missing",
        "your function does not take is_causal",
        "The signature was shortened.",
        "Callers that pass is_causal=True get a TypeError.",
        CAUSAL,
        ({"is_causal": no_keyword("is_causal")},),
    ),
    Mistake(
        "causal_first_to_first",
        "with more keys than queries you align the first query with the first key",
        "tril() without a diagonal does so, and PyTorch's is_causal as well.",
        "In decoding with a cache, all but the oldest keys are hidden from the newest query.",
        CAUSAL,
        (_causal_with(triangle),),
    ),
    Mistake(
        "causal_masked_first_to_first",
        "with a mask and is_causal=True together, you align the first query with the first key; the last ones "
        "belong together there, too",
        "`tril()` is written a second time where the two are joined, and without keys − queries.",
        "With a cache and padding, the newest query sees the oldest keys only.",
        CAUSAL,
        ({"causal": _first_to_first_if_masked},),
    ),
    Mistake(
        "causal_hides_itself",
        "your causal mask hides the diagonal: a position may see itself",
        "“No later position” was read as “earlier positions only”; triu(0) instead of triu(1).",
        "The first query may attend to nothing.",
        CAUSAL,
        (_causal_with(lambda scores: triangle(scores, scores.size(-1) - scores.size(-2) - 1)),),
    ),
    Mistake(
        "causal_shows_next",
        "your causal mask shows one later position: a leak from the future",
        "tril(1) hides nothing but what triu(2) would: an off-by-one.",
        "Training accuracy is nearly perfect, and generation is nonsense.",
        CAUSAL,
        (_causal_with(lambda scores: triangle(scores, scores.size(-1) - scores.size(-2) + 1)),),
    ),
    Mistake(
        "causal_reversed",
        "your causal mask is the wrong way round: it shows later positions and hides earlier ones",
        "triu and tril are easily swapped.",
        "The last query sees only itself.",
        CAUSAL,
        (
            _causal_with(lambda s: ~triangle(s, s.size(-1) - s.size(-2) - 1)),
            _causal_with(lambda s: ~triangle(s, s.size(-1) - s.size(-2))),
        ),
    ),
    Mistake(
        "causal_always",
        "you apply the causal mask even if is_causal is False",
        "It was written for a decoder.",
        "The encoder cannot look ahead either.",
        CAUSAL,
        ({"causal": _always_causal},),
    ),
    Mistake(
        "causal_drops_mask",
        "with is_causal=True you forget the mask that was passed",
        "if/else instead of combining the two.",
        "Padding is seen in the decoder.",
        CAUSAL,
        ({"causal": _causal_instead},),
    ),
    Mistake(
        "causal_edits_mask",
        "you combine the masks in place, so the caller's padding mask becomes causal",
        "`mask &= …` changes the tensor itself.",
        "It crashes for masks that broadcast; for others, every later call is causal.",
        CAUSAL,
        ({"causal": _filled_with_mask}, {"causal": _filled_if_as_large}),
    ),
    Mistake(
        "causal_empty_rows",
        "you look for empty rows in the mask alone; with is_causal=True, both together empty others",
        "The causal mask alone leaves every query a key, itself.",
        "With padding on the left, the first queries see the future, or their weights are NaN.",
        CAUSAL,
        (
            {"causal": _noting_the_mask, "clear": _cleared_as_given},
            {"causal": _noting_the_mask, "hide": _hidden_but_for_empty_rows, "clear": _emptied_as_given},
        ),
    ),
    Mistake(
        "causal_four_axes",
        "you give the causal mask axes for batch and heads, and inputs without them get those axes too",
        "The causal mask of a decoder has four axes.",
        "The result has more axes than the query.",
        CAUSAL,
        (_four_axes(is_always=True), _four_axes(is_always=False)),
    ),
    Mistake(
        "causal_filled_too_small",
        "you fill the scores of later positions with a number that real scores can reach",
        "The mask is hidden well, and is_causal got a line of its own, with −1e4, say.",
        "When all visible scores are lower still, the future gets all the weight.",
        CAUSAL,
        tuple(_later_filled(x) for x in (-1e2, -1e3, -1e4)),
    ),
    Mistake(
        "dropout_keyword_missing",
        "your function does not take dropout",
        "The signature was shortened.",
        "Callers that pass dropout get a TypeError.",
        DROPOUT,
        ({"dropout": no_keyword("dropout")},),
    ),
    Mistake(
        "dropout_ignored",
        "you never use dropout",
        "The argument is there, and nothing fails without it.",
        "Training is regularised less than asked for.",
        DROPOUT,
        ({"drop": lambda weights, dropout: weights},),
    ),
    Mistake(
        "dropout_unmasked_only",
        "with a mask or is_causal you leave dropout out",
        "The branch with a mask returns early, or was written later.",
        "Real batches have padding, so training is hardly regularised at all.",
        DROPOUT,
        ({"clear": _cleared_and_noted, "drop": _dropped_if_unmasked},),
    ),
    Mistake(
        "dropout_detached",
        "with dropout no gradient of the output reaches query and key",
        "The dropped weights are computed under no_grad, from detached weights or in numpy.",
        "Training with dropout teaches the values only.",
        DROPOUT,
        ({"drop": _dropped_without_gradient},),
    ),
    Mistake(
        "dropout_keys_alike",
        "you drop whole keys, the same ones for every query; each weight is dropped by itself",
        "The random numbers were made for one row of weights, and broadcast.",
        "A query loses a key if and only if all others lose it.",
        DROPOUT,
        ({"drop": _keys_dropped},),
    ),
    Mistake(
        "dropout_whole_queries",
        "you drop all weights of a query at once, or none; each weight is dropped by itself",
        "The random numbers have an axis of size one where the keys are, or Dropout1d drops whole rows.",
        "A query that is hit gets nothing but zeros.",
        DROPOUT,
        ({"drop": _whole_queries_dropped},),
    ),
    Mistake(
        "dropout_heads_alike",
        "you drop the same weights in all heads, or all sentences; each weight is dropped by itself",
        "The random numbers were made for one matrix of queries and keys, and broadcast.",
        "What one head loses, no other can make up for.",
        DROPOUT,
        ({"drop": _shared_among_heads}, {"drop": _shared_in_the_batch}),
    ),
    Mistake(
        "dropout_in_weights",
        "the weights you return have dropout applied; those before it are wanted",
        "`weights = dropout(weights)` overwrites them.",
        "Maps have holes, and rows do not sum to one.",
        DROPOUT,
        ({"result": lambda output, weights, scores, masked, dropped: (output, dropped)},),
    ),
    Mistake(
        "dropout_on_output",
        "you apply dropout to the output; it belongs to the weights",
        "Sub-layers do apply dropout to their output.",
        "Features are dropped instead of keys.",
        DROPOUT,
        (
            {
                "drop": lambda weights, dropout: (weights, dropout),
                "average": lambda pair, value: F.dropout(pair[0] @ value, pair[1]),
            },
        ),
    ),
    Mistake(
        "dropout_not_rescaled",
        "you zero weights at random but do not divide the rest by 1 − dropout",
        "Multiplying by a random mask is only half of dropout.",
        "Outputs are smaller in training than in evaluation.",
        DROPOUT,
        ({"drop": _dropped_unscaled},),
    ),
    Mistake(
        "dropout_keeps",
        "you keep weights with probability dropout; that is how many are dropped",
        "`rand < p` reads well, and some libraries pass the probability to keep.",
        "With dropout=0.1, nine of ten weights are gone. At 0.5, nothing shows.",
        DROPOUT,
        ({"drop": _rate_kept(lambda p: p)}, {"drop": _rate_kept(lambda p: 1 - p)}),
    ),
    Mistake(
        "dropout_divides_by_rate",
        "you divide what is left by dropout; it is divided by 1 − dropout, the share that stays",
        "At 0.5 both are the same.",
        "With dropout=0.1, outputs are nine times as large in training as in evaluation.",
        DROPOUT,
        ({"drop": _rate_as_divisor},),
    ),
    Mistake(
        "mask_type_unchecked",
        "you do not refuse a mask that is not boolean",
        "A mask of 0 and 1 works by chance, or torch fails somewhere later.",
        "An additive mask (0 and −inf) is read the wrong way round, without a word.",
        MASKING,
        (
            {"accept": _any_mask, "read": _number_read},
            {"accept": _only_torch_complains},
            {"accept": _uint8_accepted, "read": _number_read},
            {"accept": _uint8_accepted},
        ),
    ),
    Mistake(
        "mask_type_unchecked_if_causal",
        "with is_causal=True you do not refuse a mask that is not boolean",
        "The branch for is_causal comes before the check.",
        "The same mask is refused in the encoder and read, or not understood, in the decoder.",
        MASKING,
        ({"accept": _any_mask, "causal": _checked_if_not_causal},),
    ),
    Mistake(
        "seeds_globally",
        "you call torch.manual_seed inside the function",
        "It makes results reproducible while trying things out.",
        "Dropout repeats itself, and so does everything random after each call.",
        DROPOUT,
        ({"inputs": _seeded}, {"drop": _seeded_if_dropping}),
    ),
)
