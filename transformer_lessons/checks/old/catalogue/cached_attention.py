"""The check of `cached_attention_step`: one position attends, with a window, to keys and values that are kept."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

CACHE, WRONG, SCALE = "#ch15-cache", "#ch15-wrong", "#ch05-saturation"


def _sizes(seed: int) -> dict[str, int]:
    batch, heads, seen, d_k, d_v = random.Random(seed).sample([2, 3, 5, 7, 11], 5)
    if seen + 1 in (d_k, d_v):  # with as many keys as a key or value is wide, the scale could be of either
        batch, seen = seen, batch
    return {"batch": batch, "heads": heads, "seen": seen, "d_k": d_k, "d_v": d_v}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, t, d_k, d_v = (s[name] for name in ("batch", "heads", "seen", "d_k", "d_v"))

    def arguments(*axes: int, seen: int = t, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        shapes = (1, d_k), (1, d_k), (1, d_v), (seen, d_k), (seen, d_v)
        return [draw.normal(*axes, *shape, dtype=dtype) for shape in shapes]

    plain, narrow = arguments(b, h), t - t // 2
    cotangents = [draw.normal(b, h, *shape) for shape in ((1, d_v), (t + 1, d_k), (t + 1, d_v))]
    full = arguments(b, h, seen=3)
    large, low = arguments(b, h), arguments(b, h)
    # Keys so nearly alike that it is no matter what is subtracted from their scores, as long as something is.
    below = [low[0].abs() + 0.5, low[1] - 2000, low[2], low[3] - 2000, low[4]]
    return {
        "plain": Probe(plain, cotangents=cotangents),
        "first": Probe(arguments(b, h, seen=0)),
        "first_window": Probe([*arguments(b, h, seen=0), 2]),
        "no_heads": Probe(arguments(b)),
        "no_axes": Probe(arguments()),
        "window": Probe([*plain, narrow]),
        "full": Probe([*full, 3]),
        "one": Probe([*plain, 1]),
        "wide": Probe([*plain, t + 1]),
        "wider": Probe([*plain, t + 7], cotangents=cotangents),
        "extremes": Probe([large[0] * 1000, *large[1:]]),
        "low": Probe(below),
        "float32": Probe(arguments(b, h, dtype=torch.float32)),
        "zero": Probe([*plain, 0], refused="window=0"),
        "negative": Probe([*plain, -1], refused="window=-1"),
    }


def _accept(window: int | None) -> None:
    if window is not None and window < 1:
        raise ValueError("window: expected 1 or more")


def _last(kept: Tensor, window: int | None) -> Tensor:
    return kept if window is None else kept[..., -window:, :]


def _append(kept: Tensor, new: Tensor) -> Tensor:
    return torch.cat([kept, new], -2)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    old: Callable = lambda kept, window: kept  # what of the caller's cache is taken
    append: Callable = _append
    cut: Callable = _last  # what is kept
    look: Callable = lambda kept, window, new: kept  # what of it is attended to
    scale: Callable = lambda query, keys, values: math.sqrt(query.size(-1))
    soften: Callable = lambda scores: scores.softmax(-1)
    result: Callable = lambda output, keys, values, old: (output, keys, values)


def assemble(steps: Steps) -> Callable:
    """One step of cached attention in these steps."""

    def cached_attention_step(query, key, value, keys, values, window=None):
        steps.accept(window)
        all_keys, all_values = (
            steps.append(steps.old(kept, window), new) for kept, new in ((keys, key), (values, value))
        )
        kept_keys, kept_values = steps.cut(all_keys, window), steps.cut(all_values, window)
        seen_keys, seen_values = (
            steps.look(kept, window, every)
            for kept, every in ((kept_keys, all_keys), (kept_values, all_values))
        )
        weights = steps.soften(query @ seen_keys.mT / steps.scale(query, seen_keys, seen_values))
        return steps.result(weights @ seen_values, kept_keys, kept_values, (keys, values))

    return cached_attention_step


def _naive_softmax(scores: Tensor) -> Tensor:
    raised = scores.exp()
    return raised / raised.sum(-1, keepdim=True)


def _first_only(scores: Tensor) -> Tensor:
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1)


def _into_the_old(output: Tensor, keys: Tensor, values: Tensor, old: tuple) -> tuple[Tensor, Tensor, Tensor]:
    """A cache that is full is shifted where it lies."""
    for kept, new in zip(old, (keys, values), strict=True):
        if kept.shape == new.shape:
            kept.copy_(new)
    return output, keys, values


def _one_more(kept: Tensor, window: int | None) -> Tensor:
    return kept if window is None else kept[..., -window - 1 :, :]


def _one_less(kept: Tensor, window: int | None) -> Tensor:
    return kept if window is None else kept[..., max(kept.size(-2) - window + 1, 0) :, :]


MISTAKES = (
    Mistake(
        "itself_not_seen",
        "the new position does not see itself: its key and value are appended before it attends",
        "“Attend to the cache, then update it” is how caches work elsewhere.",
        "The first position has nothing to attend to, and every other one looks one short.",
        CACHE,
        ({"look": lambda kept, window, every: kept[..., :-1, :]},),
    ),
    Mistake(
        "itself_only",
        "you attend to the new key and value only",
        "The kept ones were appended, and then the arguments used.",
        "One key has the whole weight: the output is the new value.",
        CACHE,
        ({"look": lambda kept, window, every: every[..., -1:, :]},),
    ),
    Mistake(
        "new_first",
        "you put the new key and value in front; the cache is in the order of positions",
        "cat was given its tensors the other way round.",
        "The output is right, until the oldest have to be dropped or the order matters.",
        CACHE,
        ({"append": lambda kept, new: torch.cat([new, kept], -2)},),
    ),
    Mistake(
        "overwritten",
        "the new key and value replace the last ones; they have to be appended",
        "The slot was counted from the wrong end.",
        "The cache never grows.",
        CACHE,
        ({"append": lambda kept, new: torch.cat([kept[..., :-1, :], new], -2)},),
    ),
    Mistake(
        "old_cache_returned",
        "you return the cache as it came",
        "The new tensors have other names than the old ones.",
        "Every step forgets the one before.",
        CACHE,
        ({"result": lambda output, keys, values, old: (output, *old)},),
    ),
    Mistake(
        "swapped",
        "you return values before keys; the order is (output, keys, values)",
        "Nothing fails while d_k = d_v.",
        "From the next step on, values are searched and keys averaged.",
        CACHE,
        ({"result": lambda output, keys, values, old: (output, values, keys)},),
    ),
    Mistake(
        "scale",
        "scores are divided by √d_k, as without a cache",
        "The division was left out, or took the number of keys, or the values' width.",
        "The first step is right in some cases, the later ones drift away.",
        SCALE,
        (
            {"scale": lambda query, keys, values: 1.0},
            {"scale": lambda query, keys, values: query.size(-1)},
            {"scale": lambda query, keys, values: math.sqrt(keys.size(-2))},
            {"scale": lambda query, keys, values: math.sqrt(values.size(-1))},
        ),
    ),
    Mistake(
        "softmax_over_queries",
        "your softmax runs over the query, of which there is one; it must run over the keys, the last axis",
        "There is only one row, and axis −2 is it.",
        "All weights are 1: values are added up.",
        CACHE,
        ({"soften": lambda scores: scores.softmax(-2)},),
    ),
    Mistake(
        "causal_first",
        "a causal mask shows one query the first key alone; no mask is needed: all that is kept is past",
        "is_causal=True aligns the first query with the first key.",
        "Only the oldest position is ever seen.",
        CACHE,
        ({"soften": _first_only},),
    ),
    Mistake(
        "window_ignored",
        "you never use window",
        "Without it, all else is right.",
        "The cache grows without bound.",
        CACHE,
        ({"cut": lambda kept, window: kept},),
    ),
    Mistake(
        "window_from_the_start",
        "your window keeps the oldest positions; the latest are wanted",
        "[:window] instead of [−window:].",
        "The model sees the beginning for ever, and nothing new.",
        CACHE,
        ({"cut": lambda kept, window: kept if window is None else kept[..., :window, :]},),
    ),
    Mistake(
        "window_one_more",
        "you keep one position too many: the window counts the new one too",
        "The old cache was cut to the window, and then the new position appended.",
        "One more position than there is memory for.",
        CACHE,
        ({"cut": _one_more},),
    ),
    Mistake(
        "window_one_less",
        "you keep one position too few",
        "Room for the new position was left twice.",
        "One position less than there is memory for.",
        CACHE,
        ({"cut": _one_less},),
    ),
    Mistake(
        "window_after_attending",
        "you attend to everything and cut afterwards; attention sees no more than the window",
        "The cut looks like tidying up.",
        "A full cache sees one position more than it keeps, and the result depends on where one began.",
        CACHE,
        ({"look": lambda kept, window, every: every},),
    ),
    Mistake(
        "detached",
        "you cut the gradient off from what is kept",
        "Caches are for decoding, where no gradient is needed.",
        "Training in pieces with such a cache learns nothing from earlier pieces.",
        CACHE,
        (
            {"append": lambda kept, new: torch.cat([kept.detach(), new.detach()], -2)},
            {"append": lambda kept, new: torch.cat([kept.detach(), new], -2)},
            {"cut": lambda kept, window: kept if window is None else _last(kept, window).detach()},
            {"old": lambda kept, window: kept if window is None else kept.detach()},
            {"append": lambda kept, new: torch.cat([kept, new.detach()], -2)},
        ),
    ),
    Mistake(
        "shifted_in_place",
        "you write into the caller's cache once it is full; it must be left as it is",
        "A buffer of fixed size is shifted by one place, and the new position takes the last one.",
        "Another beam, or a second try from the same cache, goes on from a changed one.",
        CACHE,
        ({"result": _into_the_old},),
    ),
    Mistake(
        "naive_exp",
        "you raise e to the scores as they are, and large ones overflow",
        "The formula of the softmax says so.",
        "Scores in the thousands give NaN.",
        CACHE,
        ({"soften": _naive_softmax},),
    ),
    Mistake(
        "window_unchecked",
        "you accept a window below 1",
        "[−0:] is everything, and nothing fails.",
        "A window of 0 keeps all.",
        CACHE,
        (
            {"accept": lambda window: None},
            {"accept": lambda window: _accept(None if window == 0 else window)},
            {"accept": lambda window: _accept(None if window and window < 0 else window)},
        ),
    ),
)

TASK = Task(
    name="cached_attention_step",
    signature="cached_attention_step(query, key, value, keys, values, window=None)",
    arguments=("query", "key", "value", "keys", "values", "window"),
    returns=("output", "keys", "values"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns the output, and keys and values with one position more.",
            ("plain",),
            CACHE,
            ("structure",),
        ),
        Requirement(
            "values", "the new position attends to all that is kept and to itself.", ("plain",), CACHE
        ),
        Requirement("first", "at the first step the cache is empty.", ("first", "first_window"), CACHE),
        Requirement(
            "axes", "there may be no axis for heads, nor one for the batch.", ("no_heads", "no_axes"), CACHE
        ),
        Requirement(
            "window",
            "with a window, only its last positions are kept and attended to, the new one included.",
            ("window", "full", "one"),
            CACHE,
        ),
        Requirement("wide", "a window larger than what there is keeps all.", ("wide", "wider"), CACHE),
        Requirement(
            "gradients", "gradients reach all five tensors.", ("plain", "wider"), CACHE, ("gradients",)
        ),
        Requirement("extremes", "scores in the thousands give no NaN.", ("extremes", "low"), CACHE),
        Requirement(
            "dtype", "all results have the dtype of the arguments.", ("plain", "float32"), CACHE, ("dtype",)
        ),
        Requirement(
            "inputs", "the caller's cache is left unchanged.", ("plain", "window", "full"), CACHE, ("inputs",)
        ),
        Requirement("refusals", "a window below 1 is refused with ValueError.", ("zero", "negative"), CACHE),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "seen": 1, "d_k": 1, "d_v": 1},
        {"batch": 1, "heads": 1, "seen": 2, "d_k": 2, "d_v": 1},
        {"batch": 1, "heads": 1, "seen": 4, "d_k": 2, "d_v": 1},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
