"""Known wrong ways to write the padding mask."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["PADDING_MISTAKES", "TO_TYPES", "PaddingSteps", "padding_mask_in_steps"]

PAD, CONVENTION = "#ch04-padding", "#ch04-convention"


def _accept_ids(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.is_floating_point():
        raise ValueError("ids: expected integers of shape (batch, length)")


@dataclass(frozen=True)
class PaddingSteps:
    """What a mistake may replace in a padding mask."""

    accept: Callable = _accept_ids
    compare: Callable = lambda ids, pad_id: ids != pad_id
    shape: Callable = lambda mask: mask[:, None, None, :]
    kind: Callable = lambda mask: mask


def padding_mask_in_steps(steps: PaddingSteps) -> Callable:
    """A padding mask in these steps."""

    def padding_mask(ids, pad_id):
        taken = steps.accept(ids)
        return taken if taken is not None else steps.kind(steps.shape(steps.compare(ids, pad_id)))

    return padding_mask


def _additive(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def _until_first_padding(ids: Tensor, pad_id: int) -> Tensor:
    return (ids != pad_id).long().cumprod(-1).bool()


def _edited(ids: Tensor, pad_id: int) -> Tensor:
    real = ids != pad_id
    ids[~real] = 0
    return real


def _narrowed(dtype: torch.dtype) -> Callable:
    return lambda ids, pad_id: ids.to(dtype) != torch.tensor(pad_id).to(dtype)


def _other_objects(ids: Tensor, pad_id: int) -> Tensor:
    return torch.tensor([[token is not pad_id for token in row] for row in ids.tolist()])


def _reopened(ids: Tensor, pad_id: int) -> Tensor:
    real = ids != pad_id
    return real | ~real.any(-1, keepdim=True)


def _no_batch_axis_crashes(ids: Tensor) -> None:
    if ids.dim() < 2:
        raise IndexError("too many indices for tensor of dimension 1")


def _other_axes_crash(ids: Tensor) -> None:
    if ids.dim() != 2:
        raise RuntimeError("shape is invalid for input of this size")


def _anything(ids: Tensor) -> Tensor | None:
    return ids if ids.dim() != 2 or ids.is_floating_point() else None


def _only_axes(ids: Tensor) -> None:
    if ids.dim() != 2:
        raise ValueError("ids: expected two axes")


def _only_float64(ids: Tensor) -> None:
    if ids.dim() != 2 or ids.dtype is torch.float64:
        raise ValueError("ids: expected integers of two axes")


def _only_type(ids: Tensor) -> Tensor | None:
    if ids.is_floating_point():
        raise ValueError("ids: expected integers")
    return ids if ids.dim() != 2 else None


def _two_axes_or_more(ids: Tensor) -> Tensor | None:
    if ids.dim() < 2 or ids.is_floating_point():
        raise ValueError("ids: expected integers of two axes")
    return ids if ids.dim() != 2 else None


TO_TYPES = (
    Mistake(
        "not_boolean",
        "your mask holds the numbers 0 and 1; it must be boolean",
        ".float() or .int() was added because something wanted numbers.",
        "~mask and masked_fill fail or do something else on numbers.",
        CONVENTION,
        tuple({"kind": kind} for kind in (Tensor.float, Tensor.double, Tensor.long, Tensor.int)),
    ),
    Mistake(
        "additive",
        "your mask is additive (0 and −inf); a boolean one is wanted, True = may attend",
        "Additive masks are the older convention, and can be added to the scores.",
        "It is of no use where a boolean mask is expected.",
        CONVENTION,
        (
            {"kind": _additive},
            {"kind": lambda mask: torch.zeros(mask.shape).masked_fill(~mask, -1e9)},
        ),
    ),
)

PADDING_MISTAKES = (
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”, so padding is False",
        "“Mask” sounds like “what is covered”, and nn.MultiheadAttention means it so.",
        "Only padding is seen.",
        CONVENTION,
        ({"compare": lambda ids, pad_id: ids == pad_id},),
    ),
    Mistake(
        "pad_id_zero",
        "you compare with 0 instead of pad_id",
        "Padding is 0 in most vocabularies.",
        "With another pad_id, padding is seen and a real word is hidden.",
        PAD,
        ({"compare": lambda ids, pad_id: ids != 0},),
    ),
    Mistake(
        "zero_too",
        "you hide id 0 as well as pad_id",
        "Padding is 0 in most vocabularies, and other marks seem no words either.",
        "Where 0 is a word, no query sees it.",
        PAD,
        ({"compare": lambda ids, pad_id: (ids != pad_id) & (ids != 0)},),
    ),
    Mistake(
        "greater_than",
        "you take ids greater than pad_id for real; they are all that differ from it",
        "ids > 0 works for pad_id 0.",
        "Ids below pad_id are hidden.",
        PAD,
        ({"compare": lambda ids, pad_id: ids > pad_id},),
    ),
    Mistake(
        "negative_too",
        "you hide negative ids as well as pad_id",
        "Losses ignore −100, and some programs pad with it.",
        "An id below zero, which comes from a mistake elsewhere, disappears without a word.",
        PAD,
        ({"compare": lambda ids, pad_id: (ids != pad_id) & (ids >= 0)},),
    ),
    Mistake(
        "none_without_padding",
        "you make no mask where nothing is padded; one that is True everywhere is wanted",
        "Where nothing is hidden, None seems to say the same.",
        "Callers that join it, or ask for its shape, fail with the first batch of equally long sentences.",
        PAD,
        ({"kind": lambda mask: None if mask.all() else mask},),
    ),
    Mistake(
        "until_first_padding",
        "you hide everything after the first padding; each id stands for itself",
        "Padding is thought to be on the right only.",
        "With padding on the left, nothing at all is seen.",
        PAD,
        ({"compare": _until_first_padding},),
    ),
    Mistake(
        "empty_rows_reopened",
        "you open a row again that is padding alone; a mask says what it says, even “nothing”",
        "It keeps the softmax from NaN.",
        "Queries of such a row see all of the padding.",
        "#ch04-empty-rows",
        ({"compare": _reopened},),
    ),
    Mistake(
        "identity_compared",
        "you ask with “is not” whether an id is another object than pad_id; != compares the numbers",
        "Python keeps one object for each integer up to 256, so that it works for small ids.",
        "With a padding of 50,256, nothing is hidden.",
        PAD,
        ({"compare": _other_objects},),
    ),
    Mistake(
        "ids_narrowed",
        "you compare ids in a type too narrow for a vocabulary, 8 or 16 bits wide",
        "Small types save memory, and hold the ids of small examples.",
        "Different ids become the same number, and real words are hidden as padding.",
        PAD,
        tuple(
            {"compare": _narrowed(dtype)}
            for dtype in (torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16)
        ),
    ),
    Mistake(
        "no_axes",
        "your mask has shape (batch, keys); it needs (batch, 1, 1, keys)",
        "It is the shape of ids.",
        "Against (batch, heads, queries, keys), batch meets queries: an error, or worse, none.",
        PAD,
        ({"shape": lambda mask: mask},),
    ),
    Mistake(
        "unsqueezed_once",
        "your mask has shape (batch, 1, keys), one axis short of (batch, 1, 1, keys)",
        "It fits scores without heads.",
        "With heads, its batch axis meets the heads axis.",
        PAD,
        ({"shape": lambda mask: mask[:, None, :]},),
    ),
    Mistake(
        "on_queries",
        "your mask has shape (batch, 1, keys, 1), so it hides queries; padding is hidden among the keys",
        "unsqueeze(-1) instead of unsqueeze(-2).",
        "Real words still see padding, and padded queries see nothing.",
        PAD,
        ({"shape": lambda mask: mask[:, None, :, None]},),
    ),
    Mistake(
        "on_both",
        "your mask hides padded queries as well as keys; the shape wanted is (batch, 1, 1, keys)",
        "Padding should not ask either, it seems.",
        "Rows without any key appear for no gain: nobody looks at what padding computes.",
        PAD,
        ({"shape": lambda mask: mask[:, None, None, :] & mask[:, None, :, None]},),
    ),
    Mistake(
        "expanded",
        "you repeat the mask for each query; broadcasting does that, the shape is (batch, 1, 1, keys)",
        "The scores have a queries axis, so the mask got one.",
        "It takes memory quadratic in the length, and fits no other number of queries.",
        PAD,
        ({"shape": lambda mask: mask[:, None, None, :].expand(-1, 1, mask.size(1), -1)},),
    ),
    Mistake(
        "batch_second",
        "your mask has shape (1, batch, 1, keys): the batch comes first",
        "mask[None] adds its axis in front.",
        "Each sentence's mask meets a head.",
        PAD,
        ({"shape": lambda mask: mask[None, :, None, :]},),
    ),
    *TO_TYPES,
    Mistake(
        "ids_edited",
        "you change the caller's ids",
        "Assigning to ids[…] writes into the tensor itself.",
        "The batch is different after the mask was made.",
        PAD,
        ({"compare": _edited},),
    ),
    Mistake(
        "ids_unchecked",
        "you do not refuse ids that cannot be a batch of tokens (one axis or three, or floating-point numbers)",
        "The comparison works for any tensor.",
        "A mistake elsewhere goes unnoticed here.",
        PAD,
        tuple(
            {"accept": accept}
            for accept in (
                _no_batch_axis_crashes,
                _other_axes_crash,
                _anything,
                _only_axes,
                _only_type,
                _two_axes_or_more,
                _only_float64,
            )
        ),
    ),
)
