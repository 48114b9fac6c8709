"""The check of `grouped_query_attention`: several heads of queries share one head of keys and values."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention import BASE, exchanged, low_scores
from transformer_lessons.checks.old.catalogue.attention_mistakes import CORE
from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import CONTIGUOUS_ONLY
from transformer_lessons.checks.old.catalogue.attention_steps import Steps
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

ANCHOR, RESHAPE, CLASS = "#ch07-grouped", "#ch07-reshape", "#ch07-class"


def _sizes(seed: int) -> dict[str, int]:
    """Distinct primes: with one group, or one head for each, nothing could be mixed up."""
    rng = random.Random(seed)
    few, many = rng.sample([2, 3, 5], 3), rng.sample([3, 5, 7, 11], 4)
    names = ("batch", "groups", "each", "queries", "keys", "d_k", "d_v")
    return dict(zip(names, few + many, strict=True))


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, g, q, k = s["batch"], s["groups"], s["queries"], s["keys"]
    h = g * s["each"]
    query, key, value = (
        draw.normal(b, h, q, s["d_k"]),
        draw.normal(b, g, k, s["d_k"]),
        draw.normal(b, g, k, s["d_v"]),
    )
    back = [draw.normal(b, h, q, s["d_v"]), draw.normal(b, h, q, k)]
    empty = draw.mask(b, h, q, k)
    empty[..., 0, :] = False
    wide = draw.normal(b, h, k, s["d_v"])
    return {
        "plain": Probe([query, key, value], cotangents=back),
        "one": Probe([query, key[:, :1], value[:, :1]], note="one head of keys and values for all"),
        "as_many": Probe([query, draw.normal(b, h, k, s["d_k"]), wide]),
        "masked": Probe([query, key, value, draw.mask(b, h, q, k)], cotangents=back),
        "padding": Probe([query, key, value, draw.mask(b, 1, 1, k)]),
        "grid": Probe([query, key, value, draw.mask(q, k)]),
        "per_head": Probe([query, key, value, draw.mask(h, q, k)], note="a mask for each head"),
        "head_padding": Probe(
            [query, key, value, draw.mask(b, h, 1, k)], note="a row of a mask for each head"
        ),
        "float32": Probe([query.float(), key.float(), value.float(), draw.mask(b, 1, q, k)]),
        "large": Probe([query * 300, key * 10, value, draw.mask(b, 1, 1, k)]),
        "low": Probe([*low_scores(query, key, value), draw.mask(b, h, q, k)]),
        "empty": Probe([query, key, value, empty], cotangents=back),
        "alone": Probe(
            [query[:1, :1, :1], key[:1, :1], value[:1, :1]], note="one sentence, one head and one query"
        ),
        "exchanged": Probe(
            [*map(exchanged, (query, key, value))], note="axes exchanged, as after a split into heads"
        ),
        "uneven": Probe(
            [query, draw.normal(b, h - 1, k, s["d_k"]), draw.normal(b, h - 1, k, s["d_v"])],
            refused=f"{h} heads of queries and {h - 1} of keys",
        ),
        "apart": Probe([query, key, wide], refused=f"{g} heads of keys and {h} of values"),
    }


def _accept_groups(heads: int, groups: int) -> None:
    if heads % groups:
        raise ValueError("key: expected a number of heads that divides the query's")


def _accept_values(groups: int, others: int) -> None:
    if groups != others:
        raise ValueError("value: expected as many heads as key")


def _spread(x: Tensor, each: int) -> Tensor:
    return x.repeat_interleave(each, dim=1)


@dataclass(frozen=True)
class GroupedSteps(Steps):
    """What a mistake may replace, beside the steps of attention."""

    accept_groups: Callable = _accept_groups
    accept_values: Callable = _accept_values
    gather: Callable = lambda query, groups: query
    spread_keys: Callable = _spread
    spread_values: Callable = _spread
    order: Callable = lambda x, groups: x  # of the heads that come out


def assemble(steps: GroupedSteps) -> Callable:
    """Grouped-query attention in these steps."""

    def attention(query, key, value, mask=None):
        heads, groups = query.size(1), key.size(1)
        for refused in (steps.accept_groups(heads, groups), steps.accept_values(groups, value.size(1))):
            if refused is not None:
                return query, query  # a stand-in for numbers: only that it was accepted counts
        query, key, value = steps.inputs(query, key, value)
        query = steps.gather(query, groups)
        each = query.size(1) // groups
        key, value = steps.spread_keys(key, each), steps.spread_values(value, each)
        scores = steps.scores(query, key)
        mask = steps.read(mask, scores)
        hidden = steps.hide(scores, mask)
        weights = steps.clear(steps.softmax(hidden), mask)
        output = steps.average(weights, value)
        output, weights = steps.order(output, groups), steps.order(weights, groups)
        return steps.result(output, weights, scores, hidden, weights)

    return attention


def _tiled(x: Tensor, each: int) -> Tensor:
    return x.repeat(1, each, 1, 1)


def _first(x: Tensor, each: int) -> Tensor:
    return x[:, :1].expand(-1, x.size(1) * each, -1, -1)


def _mean(x: Tensor, each: int) -> Tensor:
    return x.mean(1, keepdim=True).expand(-1, x.size(1) * each, -1, -1)


def _last_first(x: Tensor, each: int) -> Tensor:
    return _spread(x.flip(1), each)


def _strided(x: Tensor, groups: int) -> Tensor:
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def _same(x: Tensor, each: int) -> Tensor:
    return x


def _crash(*_: object) -> None:
    raise RuntimeError("The size of tensor a must match the size of tensor b")


def _grouped(query: Tensor, groups: int) -> Tensor:
    """The query, which knows the number of groups."""
    query.groups = groups
    return query


def _grouped_scores(query: Tensor, key: Tensor) -> Tensor:
    scores = query @ key.mT / query.size(-1) ** 0.5
    scores.groups = query.groups
    return scores


def _full_per_head(mask: Tensor | None, scores: Tensor, *groups: int) -> Tensor | None:
    """A mask with one part per head, as large as the scores or refused by torch."""
    if mask is None or mask.dim() < 3 or mask.size(-3) == 1:
        return mask
    _, heads, queries, keys = scores.shape
    shape = (*groups, heads // groups[0]) if groups else (heads,)
    return mask.view(-1, *shape, queries, keys).flatten(1, -3)


def _full_per_group(mask: Tensor | None, scores: Tensor) -> Tensor | None:
    return _full_per_head(mask, scores, scores.groups)


SHARING = (
    Mistake(
        "tiled",
        "you repeat all heads of keys and values in turn, so query head i uses key head i mod g; neighbours "
        "share one",
        "repeat and expand lay out copies of the whole axis; repeat_interleave repeats each element.",
        "Every shape is right, and weights that were trained do not fit.",
        ANCHOR,
        (
            {"spread_keys": _tiled, "spread_values": _tiled},
            {"gather": _strided, "order": lambda x, g: x.unflatten(1, (-1, g)).transpose(1, 2).flatten(1, 2)},
        ),
    ),
    Mistake(
        "keys_apart_from_values",
        "you share keys in one way and values in another",
        "The two lines were not written alike.",
        "A head scores the keys of one group and averages the values of another.",
        ANCHOR,
        ({"spread_keys": _tiled}, {"spread_values": _tiled}),
    ),
    Mistake(
        "first_for_all",
        "all heads use the first head of keys and values; it is one head for each group",
        "With one head of keys and values (multi-query attention) it is the same.",
        "The other heads of keys and values never get a gradient.",
        ANCHOR,
        (
            {"spread_keys": _first, "spread_values": _first},
            {"spread_keys": _first},
            {"spread_values": _first},
        ),
    ),
    Mistake(
        "keys_averaged",
        "you average the heads of keys and values; each group keeps its own",
        "Models are converted to fewer heads by averaging, once, before training goes on.",
        "All heads look at the same mean.",
        ANCHOR,
        ({"spread_keys": _mean, "spread_values": _mean},),
    ),
    Mistake(
        "queries_averaged",
        "you average the query heads of a group; they stay apart, and share keys and values only",
        "“Grouped queries” sounds as if the queries were merged.",
        "There are as many outputs as groups.",
        ANCHOR,
        ({"gather": lambda query, groups: query.unflatten(1, (groups, -1)).mean(2)},),
    ),
    Mistake(
        "groups_reversed",
        "the first group of query heads uses the last head of keys and values",
        "Groups were counted from the other end.",
        "Every shape is right, and weights that were trained do not fit.",
        ANCHOR,
        ({"spread_keys": _last_first, "spread_values": _last_first},),
    ),
    Mistake(
        "heads_out_of_order",
        "your heads come out in another order than the queries went in: first by group, then within the group",
        "Two axes were exchanged before they were flattened.",
        "The output projection meets the heads in another order.",
        RESHAPE,
        ({"order": _strided},),
    ),
    Mistake(
        "not_shared",
        "you multiply h heads of queries with fewer heads of keys as they are",
        "Broadcasting is expected to help; it does so for an axis of size one only.",
        "It works with one head of keys and values, and with as many as there are queries.",
        ANCHOR,
        ({"spread_keys": _same, "spread_values": _same},),
    ),
    Mistake(
        "positions_repeated",
        "you repeat positions; heads are axis 1",
        "Axes were counted in the layout (batch, length, heads, d_k).",
        "The heads still do not fit.",
        RESHAPE,
        (
            {
                "spread_keys": lambda x, each: x.repeat_interleave(each, dim=2),
                "spread_values": lambda x, each: x.repeat_interleave(each, dim=2),
            },
        ),
    ),
    Mistake(
        "head_masks_full_only",
        "you reshape a mask with one part per head to all queries and keys; it may have one row for all queries",
        "The heads of the mask are cut into groups with view, and all five sizes are written down.",
        "A mask of (batch, heads, 1, keys) raises an error about sizes.",
        "#ch05-masks",
        (
            {"gather": _grouped, "scores": _grouped_scores, "read": _full_per_group},
            {"read": _full_per_head},
        ),
    ),
    Mistake(
        "groups_unchecked",
        "you do not refuse, with ValueError, a number of key heads that does not divide that of the query",
        "Division rounds down without a word.",
        "It fails later, about sizes, or some heads are never used.",
        CLASS,
        (
            {"accept_groups": lambda heads, groups: _crash() if heads % groups else None},
            {"accept_groups": lambda heads, groups: True if heads % groups else None},
        ),
    ),
    Mistake(
        "values_unchecked",
        "you do not refuse values with another number of heads than the keys",
        "Each of them is repeated by a factor of its own.",
        "A value that was repeated already goes unnoticed.",
        CLASS,
        (
            {"accept_values": lambda groups, others: _crash() if groups != others else None},
            {"accept_values": lambda groups, others: True if groups != others else None},
        ),
    ),
)
KEPT = {
    "no_scaling",
    "scaled_by_d_k",
    "softmax_over_queries",
    "softmax_dim_1",
    "empty_rows_uniform",
    "empty_rows_nan",
    "mask_inverted",
    "mask_ignored",
    "mask_unsqueezed",
    "mask_after_softmax",
    "mask_filled_too_small",
    "returns_scores",
    "returns_output_only",
    "results_swapped",
    "squeezed",
    "weights_mean_over_heads",
    "weights_detached",
    "no_gradient",
    "forced_float32",
}
WORDS = {
    "returns": "it returns a tuple (output, weights) of shapes (batch, heads, queries, d_v) and (batch, heads, "
    "queries, keys), with the query's heads.",
    "values": "it is scaled dot-product attention, in which h/g neighbouring query heads use the same head of "
    "keys and values.",
}


def _requirements() -> tuple[Requirement, ...]:
    """Those of attention that returns its weights, with what is special here."""
    kept = {r.id: replace(r, sentence=WORDS.get(r.id, r.sentence)) for r in BASE}
    kept["returns"] = replace(kept["returns"], anchor=ANCHOR)
    kept["values"] = replace(kept["values"], anchor=ANCHOR)
    sharing = Requirement(
        "groups",
        "with one head of keys and values all query heads share it; with as many as queries each has its own.",
        ("one", "as_many"),
        ANCHOR,
    )
    kept["broadcasting"] = replace(
        kept["broadcasting"],
        sentence="a mask may be smaller than (batch, heads, queries, keys), and inputs may come with their axes "
        "exchanged.",
        probes=("padding", "grid", "per_head", "head_padding", "exchanged"),
    )
    kept["extremes"] = replace(kept["extremes"], probes=("large", "low"))
    refusals = Requirement(
        "refusals",
        "a number of key heads that does not divide that of the query heads, and another number of value heads "
        "than key heads, are refused with ValueError.",
        ("uneven", "apart"),
        CLASS,
    )
    first = ("returns", "values")
    rest = [r for name, r in kept.items() if name not in first]
    return (kept["returns"], kept["values"], sharing, *rest, refusals)


TASK = Task(
    name="grouped_query",
    signature="grouped_query_attention(query, key, value, mask=None)",
    arguments=("query", "key", "value", "mask"),
    returns=("output", "weights"),
    reference=assemble(GroupedSteps()),
    requirements=_requirements(),
    sizes=_sizes,
    small=(
        {"batch": 1, "groups": 1, "each": 2, "queries": 1, "keys": 2, "d_k": 1, "d_v": 1},
        {"batch": 1, "groups": 2, "each": 2, "queries": 1, "keys": 2, "d_k": 1, "d_v": 1},
        {"batch": 1, "groups": 2, "each": 2, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
    ),
    probes=_probes,
    steps=GroupedSteps(),
    assemble=assemble,
    mistakes=(*SHARING, *(mistake for mistake in CORE if mistake.id in KEPT), CONTIGUOUS_ONLY),
    essential=14,  # all but the refusals
)
