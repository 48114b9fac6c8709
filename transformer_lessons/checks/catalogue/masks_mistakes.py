"""Known wrong ways to write the padding mask and the causal mask."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.core import Mistake

__all__ = [
    "CAUSAL_MISTAKES",
    "PADDING_MISTAKES",
    "TO_TYPES",
    "CausalSteps",
    "PaddingSteps",
    "causal_mask_in_steps",
    "padding_mask_in_steps",
]

PAD, CAUSAL, CONVENTION = "#ch04-padding", "#ch04-causal", "#ch04-convention"


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
        "greater_than",
        "you take ids greater than pad_id for real; they are all that differ from it",
        "ids > 0 works for pad_id 0.",
        "Ids below pad_id are hidden.",
        PAD,
        ({"compare": lambda ids, pad_id: ids > pad_id},),
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
            )
        ),
    ),
)


def _accept_lengths(queries: int, keys: int) -> None:
    if queries < 0 or keys < queries:
        raise ValueError("keys: expected at least as many as queries")


@dataclass(frozen=True)
class CausalSteps:
    """What a mistake may replace in a causal mask."""

    given: Callable = lambda queries, keys, device: (queries, queries if keys is None else keys)
    accept: Callable = _accept_lengths
    offset: Callable = lambda queries, keys: keys - queries
    triangle: Callable = lambda full, offset: full.tril(offset)
    shape: Callable = lambda mask: mask[None, None]
    kind: Callable = lambda mask: mask
    place: Callable = lambda device: device


def causal_mask_in_steps(steps: CausalSteps) -> Callable:
    """A causal mask in these steps."""

    def causal_mask(queries, keys=None, *, device=None):
        queries, keys = steps.given(queries, keys, device)
        steps.accept(queries, keys)
        full = torch.ones(queries, keys, dtype=torch.bool, device=steps.place(device))
        return steps.kind(steps.shape(steps.triangle(full, steps.offset(queries, keys))))

    return causal_mask


def _no_device_keyword(device: str | None) -> None:
    if device is not None:
        raise TypeError("causal_mask() got an unexpected keyword argument 'device'")


def _no_keys(queries: int, keys: int | None, device: str | None) -> tuple[int, int]:
    if keys is not None:
        raise TypeError("causal_mask() takes 1 positional argument but 2 were given")
    return queries, queries


def _only_fewer_keys(queries: int, keys: int) -> None:
    if keys < queries:
        raise ValueError("keys")


def _only_negative(queries: int, keys: int) -> None:
    if queries < 0 or keys < 0:
        raise ValueError("queries")


def _only_negative_keys(queries: int, keys: int) -> None:
    if keys < queries or keys < 0:
        raise ValueError("keys")


def _only_torch_complains(queries: int, keys: int) -> None:
    if queries < 0:
        raise RuntimeError("Trying to create tensor with negative dimension")


CAUSAL_MISTAKES = (
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”, so later keys are False",
        "nn.Transformer's masks mean the opposite, and triu(1) marks what is hidden.",
        "Only the future is seen.",
        CONVENTION,
        ({"triangle": lambda full, offset: ~full.tril(offset)},),
    ),
    Mistake(
        "hides_itself",
        "your mask hides the diagonal: a position may see itself",
        "“No later position” was read as “earlier positions only”.",
        "The first query may attend to nothing.",
        CAUSAL,
        ({"triangle": lambda full, offset: full.tril(offset - 1)},),
    ),
    Mistake(
        "shows_next",
        "your mask shows one later position: a leak from the future",
        "tril(1) where tril(0) was meant.",
        "Training accuracy is nearly perfect, and generation is nonsense.",
        CAUSAL,
        ({"triangle": lambda full, offset: full.tril(offset + 1)},),
    ),
    Mistake(
        "upper",
        "you keep the upper triangle; queries are the rows, so the past is the lower one",
        "triu and tril are easily swapped.",
        "The first query sees everything, the last only itself.",
        CAUSAL,
        ({"triangle": lambda full, offset: full.triu(offset)},),
    ),
    Mistake(
        "shows_all",
        "your mask hides nothing",
        "ones(…) without tril.",
        "Training looks far too good.",
        CAUSAL,
        ({"triangle": lambda full, offset: full},),
    ),
    Mistake(
        "diagonal_only",
        "your mask shows the diagonal only: a position may see all earlier ones too",
        "eye(…) also hides the future.",
        "Every position sees only itself.",
        CAUSAL,
        ({"triangle": lambda full, offset: full & ~full.tril(offset - 1) & full.tril(offset)},),
    ),
    Mistake(
        "first_to_first",
        "with more keys than queries you align the first query with the first key",
        "tril() without a diagonal does so, and PyTorch's is_causal as well.",
        "In decoding with a cache, all but the oldest keys are hidden from the newest query.",
        CAUSAL,
        ({"offset": lambda queries, keys: 0},),
    ),
    Mistake(
        "offset_reversed",
        "you shift the diagonal the wrong way: it is keys − queries",
        "queries − keys was meant to align the ends.",
        "With more keys than queries, too much is hidden.",
        CAUSAL,
        ({"offset": lambda queries, keys: queries - keys},),
    ),
    Mistake(
        "keys_ignored",
        "you make a square mask of queries × queries, whatever keys is",
        "In training both lengths are equal.",
        "With a cache the mask does not fit the scores.",
        CAUSAL,
        ({"given": lambda queries, keys, device: (queries, queries)},),
    ),
    Mistake(
        "keys_missing",
        "your function does not take keys",
        "In training both lengths are equal.",
        "Callers with more keys than queries get a TypeError.",
        CAUSAL,
        ({"given": _no_keys},),
    ),
    Mistake(
        "zero_as_none",
        "you take 0 keys for none given",
        "keys or queries reads well, and 0 counts as False.",
        "A length of zero, which comes from a mistake elsewhere, gives a square mask.",
        CAUSAL,
        ({"given": lambda queries, keys, device: (queries, keys or queries)},),
    ),
    Mistake(
        "square_of_keys",
        "you make a square mask of keys × keys; its rows are the queries",
        "The mask was sized by the longer axis.",
        "With a cache the mask does not fit the scores.",
        CAUSAL,
        (
            {
                "given": lambda queries, keys, device: (queries if keys is None else keys,) * 2,
                "accept": lambda queries, keys: _accept_lengths(queries, keys),
            },
        ),
    ),
    Mistake(
        "axes_swapped",
        "your mask has shape (1, 1, keys, queries): queries are the rows",
        "The two sizes were passed in the other order.",
        "It does not fit the scores once the lengths differ.",
        CAUSAL,
        (
            {
                "shape": lambda mask: mask.transpose(-2, -1)[None, None],
                "triangle": lambda full, offset: full.tril(offset),
            },
        ),
    ),
    Mistake(
        "no_axes",
        "your mask has shape (queries, keys); here (1, 1, queries, keys) is wanted",
        "It broadcasts too, in the end.",
        "Combined with a (batch, keys) mask it goes wrong without a word; four axes say what is meant.",
        CAUSAL,
        ({"shape": lambda mask: mask},),
    ),
    Mistake(
        "one_axis_missing",
        "your mask has shape (1, queries, keys), one axis short of (1, 1, queries, keys)",
        "There is a batch axis, but no heads axis.",
        "Combined with masks of four axes, its first axis meets the heads.",
        CAUSAL,
        ({"shape": lambda mask: mask[None]},),
    ),
    *TO_TYPES,
    Mistake(
        "device_ignored",
        "you make the mask on the default device, not on the one asked for",
        "On a CPU there is no difference.",
        "On a GPU, the mask and the scores are on different devices.",
        CAUSAL,
        ({"place": lambda device: None},),
    ),
    Mistake(
        "device_missing",
        "your function does not take device",
        "On a CPU nobody misses it.",
        "Callers on a GPU get a TypeError.",
        CAUSAL,
        ({"place": _no_device_keyword},),
    ),
    Mistake(
        "lengths_unchecked",
        "you do not refuse fewer keys than queries, or negative lengths",
        "torch makes a mask of any two sizes.",
        "Some queries come before every key and see nothing.",
        CAUSAL,
        (
            {"accept": _only_torch_complains},
            {"accept": lambda queries, keys: None},
            {"accept": _only_fewer_keys},
            {"accept": _only_negative},
            {"accept": _only_negative_keys},
        ),
    ),
)
