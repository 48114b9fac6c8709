"""The check of `local_window_mask`, an exercise that goes beyond the chapter and the package."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.masks_mistakes import TO_TYPES
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

CAUSAL, CACHE, CONVENTION, LAYERS = "#ch04-causal", "#ch04-cache", "#ch04-convention", "#ch04-layers"


def _sizes(seed: int) -> dict[str, int]:
    pick = random.Random(seed).choice
    return {"queries": pick([5, 7]), "keys": pick([11, 13]), "window": pick([2, 3])}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    q, k, w = s["queries"], s["keys"], s["window"]
    return {
        "square": Probe([q, q, w]),
        "other_window": Probe([k, k, w + 1]),
        "only_itself": Probe([q, q, 1]),
        "whole": Probe([q, q, q]),
        "wide": Probe([q, q, k]),
        "longer": Probe([q, k, w]),
        "one_query": Probe([1, k, w]),
        "longer_wide": Probe([q, k, k - 1]),
        "no_query": Probe([0, k, w]),
        "device": Probe([q, k, w], {"device": "meta"}),
        "no_window": Probe([q, q, 0], refused="window=0"),
        "negative_window": Probe([q, q, -w], refused=f"window={-w}"),
        "fewer_keys": Probe([k, q, w], refused=f"fewer keys ({q}) than queries ({k})"),
        "negative": Probe([-q, k, w], refused=f"queries={-q}"),
        "both_negative": Probe([-q - 1, -q, w], refused=f"queries={-q - 1} and keys={-q}"),
    }


def _accept(queries: int, keys: int) -> None:
    if queries < 0 or keys < queries:
        raise ValueError("keys: expected at least as many as queries")


def _accept_window(window: int) -> None:
    if window < 1:
        raise ValueError("window: expected 1 or more")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    accept_window: Callable = _accept_window
    sizes: Callable = lambda queries, keys: (queries, keys)
    offset: Callable = lambda queries, keys: keys - queries
    latest: Callable = lambda here, key, window: key <= here
    earliest: Callable = lambda here, key, window: key > here - window
    see: Callable = lambda early, late: early & late
    shape: Callable = lambda mask: mask[None, None]
    kind: Callable = lambda mask: mask
    place: Callable = lambda device: device


def assemble(steps: Steps) -> Callable:
    """A window in these steps."""

    def local_window_mask(queries, keys, window, *, device=None):
        steps.accept(queries, keys)
        steps.accept_window(window)
        place = steps.place(device)
        rows, columns = steps.sizes(queries, keys)
        # Made on the CPU and moved: arange on "meta", which the check asks for, imports for seconds at first.
        here = torch.arange(rows)[:, None] + steps.offset(queries, keys)
        key = torch.arange(columns)[None, :]
        mask = steps.see(steps.earliest(here, key, window), steps.latest(here, key, window))
        return steps.kind(steps.shape(mask)).to(place)

    return local_window_mask


def _no_device_keyword(device: str | None) -> None:
    if device is not None:
        raise TypeError("local_window_mask() got an unexpected keyword argument 'device'")


def _crash(*_) -> None:
    raise RuntimeError("Trying to create tensor with negative dimension")


def _unless_both_negative(queries: int, keys: int) -> None:
    if not queries < keys < 0:
        _accept(queries, keys)


def _in_slices(here: Tensor, key: Tensor, window: int) -> Tensor:
    """``mask[i, here − window + 1 : here + 1] = True``, whose start counts from the end if it is negative."""
    mask = torch.zeros(here.size(0), key.size(1), dtype=torch.bool)
    for row, place in enumerate(here[:, 0].tolist()):
        mask[row, place - window + 1 : place + 1] = True
    return mask


def _always(here: Tensor, key: Tensor, window: int) -> Tensor:
    return here.new_ones(here.size(0), key.size(1), dtype=torch.bool)


def _in_blocks(here: Tensor, key: Tensor, window: int) -> Tensor:
    return here.div(window, rounding_mode="floor") == key.div(window, rounding_mode="floor")


MISTAKES = (
    Mistake(
        "one_too_many",
        "your window is one key too wide: the query's own position counts as one of the window",
        "“The last w keys” was taken to mean w keys before the query's own.",
        "Each layer sees a little further back than a cache of that size holds.",
        CAUSAL,
        ({"earliest": lambda here, key, window: key >= here - window},),
    ),
    Mistake(
        "one_too_few",
        "your window is one key too narrow: it holds `window` keys, the query's own among them",
        "The bound was moved once in the comparison and once more in the number.",
        "A window of one sees nothing at all.",
        CAUSAL,
        ({"earliest": lambda here, key, window: key > here - window + 1},),
    ),
    Mistake(
        "hides_itself",
        "your window ends before the query's own position; a position may see itself",
        "“Up to itself” was read as “before itself”.",
        "The first query sees nothing.",
        CAUSAL,
        (
            {
                "earliest": lambda here, key, window: key >= here - window,
                "latest": lambda here, key, window: key < here,
            },
            {"latest": lambda here, key, window: key < here},
        ),
    ),
    Mistake(
        "both_sides",
        "your window reaches as far forwards as backwards; no later key may be seen",
        "|i − j| < window is a window too, that of an encoder.",
        "The future leaks in.",
        CAUSAL,
        (
            {"latest": lambda here, key, window: key < here + window},
            {
                "earliest": lambda here, key, window: key >= here - window // 2,
                "latest": lambda here, key, window: key <= here + window // 2,
            },
            {
                "earliest": lambda here, key, window: key >= here - window,
                "latest": lambda here, key, window: key <= here + window,
            },
        ),
    ),
    Mistake(
        "future_open",
        "you hide what is too far back, but not the future",
        "The causal mask was thought to be joined in by somebody else.",
        "Every later key is seen.",
        CAUSAL,
        ({"latest": _always},),
    ),
    Mistake(
        "forwards",
        "your window lies after the query; the last keys up to itself are wanted",
        "triu in place of tril, or rows mistaken for columns.",
        "Only the future is seen.",
        CAUSAL,
        (
            {
                "earliest": lambda here, key, window: key >= here,
                "latest": lambda here, key, window: key < here + window,
            },
        ),
    ),
    Mistake(
        "shows_next",
        "your window includes the next key: a leak from the future",
        "tril(1) where tril(0) was meant.",
        "Training accuracy is nearly perfect, and generation is nonsense.",
        CAUSAL,
        (
            {"latest": lambda here, key, window: key <= here + 1},
            {
                "latest": lambda here, key, window: key <= here + 1,
                "earliest": lambda here, key, window: key > here - window + 1,
            },
        ),
    ),
    Mistake(
        "window_ignored",
        "you never use window: this is the causal mask",
        "The causal mask was copied.",
        "Everything back to the first key is seen.",
        CAUSAL,
        ({"earliest": _always},),
    ),
    Mistake(
        "first_to_first",
        "with more keys than queries you align the first query with the first key; the ends belong together",
        "The positions of queries were counted from 0, as in training.",
        "With a cache, the newest queries see the oldest keys.",
        CACHE,
        ({"offset": lambda queries, keys: 0},),
    ),
    Mistake(
        "offset_reversed",
        "you shift the queries the wrong way: the last query stands at the last key",
        "queries − keys was meant to align the ends.",
        "With more keys than queries, hardly any key is seen.",
        CACHE,
        ({"offset": lambda queries, keys: queries - keys},),
    ),
    Mistake(
        "keys_ignored",
        "you make a square mask of queries × queries, whatever keys is",
        "In training both lengths are equal.",
        "With a cache the mask does not fit the scores.",
        CACHE,
        ({"sizes": lambda queries, keys: (queries, queries), "offset": lambda queries, keys: 0},),
    ),
    Mistake(
        "last_keys_for_all",
        "you give every query the same keys, the last of all; each has a window of its own",
        "keys[-window:] is what one query sees, the newest.",
        "Earlier queries see the future, and not themselves.",
        CAUSAL,
        (
            {
                "earliest": lambda here, key, window: (key > key.size(1) - 1 - window).expand(len(here), -1),
                "latest": _always,
            },
            {"earliest": lambda here, key, window: key > key.size(1) - 1 - window},
        ),
    ),
    Mistake(
        "in_blocks",
        "you cut the keys into blocks of `window`; the window should slide along with the query",
        "i // window groups positions, which is quickly written.",
        "The first position of each block sees nothing but itself.",
        CAUSAL,
        ({"earliest": _in_blocks},),
    ),
    Mistake(
        "negative_start",
        "your window starts before the first key for early queries, and a negative start counts from the end",
        "A slice mask[i, start:stop] needs a start of 0 or more.",
        "The first queries see nothing, or the wrong keys.",
        CAUSAL,
        ({"earliest": _in_slices, "latest": _always},),
    ),
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”",
        "Some of PyTorch's own masks mean the opposite.",
        "Everything but the window is seen.",
        CONVENTION,
        ({"see": lambda early, late: ~(early & late)},),
    ),
    Mistake(
        "or_for_and",
        "you join the two limits with “or”; both have to hold, which is “and”",
        "“Not too early or not too late” sounds right.",
        "Every key fulfils one of the two, so that nothing is hidden.",
        "#ch04-combine",
        ({"see": lambda early, late: early | late},),
    ),
    Mistake(
        "no_axes",
        "your mask has shape (queries, keys); here (1, 1, queries, keys) is wanted",
        "It broadcasts too, in the end.",
        "Combined with a (batch, keys) mask it goes wrong without a word.",
        "#ch04-broadcast",
        ({"shape": lambda mask: mask},),
    ),
    Mistake(
        "one_axis_missing",
        "your mask has shape (1, queries, keys), one axis short of (1, 1, queries, keys)",
        "There is a batch axis, but no heads axis.",
        "Combined with masks of four axes, its first axis meets the heads.",
        "#ch04-broadcast",
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
        "window_unchecked",
        "you do not refuse a window below 1",
        "The comparison works for any number.",
        "No query sees anything, and nobody says why.",
        LAYERS,
        (
            {"accept_window": lambda window: None},
            {"accept_window": lambda window: _accept_window(window or 1)},
            {"accept_window": lambda window: None if window else _accept_window(window)},
            {"accept_window": lambda window: _crash() if window < 1 else None},
        ),
    ),
    Mistake(
        "lengths_unchecked",
        "you do not refuse fewer keys than queries, or negative lengths",
        "torch makes a mask of most sizes.",
        "Some queries come before every key and see nothing.",
        CAUSAL,
        (
            {"accept": lambda queries, keys: _crash() if queries < 0 else None},
            {
                "accept": lambda queries, keys: None if queries < 0 else _accept(queries, keys),
                "sizes": lambda queries, keys: (max(queries, 0), keys),
            },
            {"accept": lambda queries, keys: _crash() if queries < 0 else _accept(queries, keys)},
            {"accept": lambda queries, keys: None, "sizes": lambda queries, keys: (max(queries, 0), keys)},
            {"accept": _unless_both_negative},
            {
                "accept": _unless_both_negative,
                "sizes": lambda queries, keys: (max(queries, 0), max(keys, 0)),
            },
        ),
    ),
)

TASK = Task(
    name="local_window_mask",
    signature="local_window_mask(queries, keys, window, *, device=None)",
    arguments=("queries", "keys", "window"),
    returns=("mask",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (1, 1, queries, keys).",
            ("square",),
            CAUSAL,
            ("structure",),
        ),
        Requirement(
            "values",
            "each query sees itself and the window − 1 keys before it, and no other.",
            ("square", "other_window", "only_itself"),
            CAUSAL,
        ),
        Requirement("wide", "a window wider than the past shows all of the past.", ("whole", "wide"), CAUSAL),
        Requirement(
            "more_keys",
            "with more keys than queries, the last query stands at the last key.",
            ("longer", "one_query", "longer_wide", "no_query"),
            CACHE,
        ),
        Requirement("device", "the mask is made on the device asked for.", ("device",), CAUSAL),
        Requirement(
            "refusals",
            "a window below 1, fewer keys than queries, and negative lengths are refused with ValueError.",
            ("no_window", "negative_window", "fewer_keys", "negative", "both_negative"),
            CAUSAL,
        ),
    ),
    sizes=_sizes,
    small=(
        {"queries": 1, "keys": 2, "window": 1},
        {"queries": 2, "keys": 3, "window": 1},
        {"queries": 3, "keys": 4, "window": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
