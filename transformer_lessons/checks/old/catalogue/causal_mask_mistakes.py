"""Known wrong ways to write the causal mask."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from transformer_lessons.checks.old.catalogue.masks_mistakes import TO_TYPES
from transformer_lessons.checks.old.core import Mistake

__all__ = ["CAUSAL_MISTAKES", "CausalSteps", "causal_mask_in_steps"]

CAUSAL, CONVENTION = "#ch04-causal", "#ch04-convention"


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
    place: Callable = lambda device, keys: device  # keys as they were given, or None


def causal_mask_in_steps(steps: CausalSteps) -> Callable:
    """A causal mask in these steps."""

    def causal_mask(queries, keys=None, *, device=None):
        place = steps.place(device, keys)
        queries, keys = steps.given(queries, keys, device)
        steps.accept(queries, keys)
        full = torch.ones(queries, keys, dtype=torch.bool, device=place)
        return steps.kind(steps.shape(steps.triangle(full, steps.offset(queries, keys))))

    return causal_mask


def _no_device_keyword(device: str | None, keys: int | None) -> None:
    if device is not None:
        raise TypeError("causal_mask() got an unexpected keyword argument 'device'")


def _no_keys(queries: int, keys: int | None, device: str | None) -> tuple[int, int]:
    if keys is not None:
        raise TypeError("causal_mask() takes 1 positional argument but 2 were given")
    return queries, queries


def _zero_keys_accepted(queries: int, keys: int) -> None:
    if queries < 0 or keys < 0 or 0 < keys < queries:
        raise ValueError("keys")


def _only_fewer_keys(queries: int, keys: int) -> None:
    if keys < queries:
        raise ValueError("keys")


def _only_negative(queries: int, keys: int) -> None:
    if queries < 0 or keys < 0:
        raise ValueError("queries")


def _unless_both_negative(queries: int, keys: int) -> None:
    if not queries < keys < 0:
        _accept_lengths(queries, keys)


def _from_a_table(size: int) -> Callable:
    """``table[keys - queries : keys, :keys]`` of a table of so many rows and columns."""
    return lambda full, offset: full.tril(offset)[: max(size - offset, 0), :size]


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
        "you do not refuse 0 keys, or take them for none given",
        "`keys or queries` and `if keys and …` read well, and 0 counts as False.",
        "A length of zero, which comes from a mistake elsewhere, goes unnoticed.",
        CAUSAL,
        (
            {"given": lambda queries, keys, device: (queries, keys or queries)},
            {"accept": _zero_keys_accepted},
        ),
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
    Mistake(
        "table_too_small",
        "you cut the mask out of a table made once, which ends before these keys do",
        "nanoGPT keeps such a table, as long as its longest text.",
        "For more keys the mask has fewer rows or columns than were asked for, without an error.",
        CAUSAL,
        tuple({"triangle": _from_a_table(size)} for size in (512, 1024, 2048)),
    ),
    *TO_TYPES,
    Mistake(
        "device_ignored",
        "you make the mask on the default device, not on the one asked for",
        "On a CPU there is no difference.",
        "On a GPU, the mask and the scores are on different devices.",
        CAUSAL,
        ({"place": lambda device, keys: None},),
    ),
    Mistake(
        "device_on_one_path",
        "you use device on one of two paths only: where keys are given, or where they are not",
        "A square mask and a longer one were written apart.",
        "On a GPU it fails in training or in decoding, and works in the other.",
        CAUSAL,
        (
            {"place": lambda device, keys: device if keys is None else None},
            {"place": lambda device, keys: None if keys is None else device},
        ),
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
            {"accept": _unless_both_negative},
        ),
    ),
)
