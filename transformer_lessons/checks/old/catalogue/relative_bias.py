"""The check of `relative_bias`, an exercise that goes beyond the chapter and the package."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

RELATIVE = "#ch03-rotary"


def _sizes(seed: int) -> dict[str, int]:
    heads, short, long = random.Random(seed).sample([2, 3, 5, 7], 3)
    short, long = sorted((short, long))
    return {"heads": heads, "queries": short, "keys": long}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    h, q, k = s["heads"], s["queries"], s["keys"]
    wide, narrow = draw.normal(h, 2 * k + 1), draw.normal(h, 2 * q - 1)
    return {
        "square": Probe([wide, q]),
        "both_given": Probe([wide, k, k], cotangents=[draw.normal(h, k, k)]),
        "longer": Probe([wide, q, k]),
        "one_query": Probe([wide, 1, k]),
        "clipped_past": Probe([narrow, 1, 2 * q], note="distances beyond the table"),
        "clipped": Probe(
            [narrow, q + k, q + k],
            cotangents=[draw.normal(h, q + k, q + k)],
            note="distances beyond the table",
        ),
        "clipped_longer": Probe([narrow, k, q + k], note="distances beyond the table"),
        "one_column": Probe([draw.normal(h, 1), q, k]),
        "float32": Probe([wide.float(), q, k]),
        "fewer_keys": Probe([wide, k, q], refused=f"fewer keys ({q}) than queries ({k})"),
        "even": Probe(
            [draw.normal(h, 2 * k), q, k], refused=f"a table of {2 * k} columns, without a middle one"
        ),
        "no_keys": Probe([wide, q, 0], refused=f"no keys for {q} queries"),
    }


def _accept_keys(queries: int, keys: int) -> None:
    if keys < queries:
        raise ValueError("keys: expected at least as many as queries")


def _accept_table(table: Tensor) -> None:
    if table.size(1) % 2 == 0:
        raise ValueError("table: expected an odd number of columns")


def _distance(queries: int, keys: int, offset: int, c: int) -> Tensor:
    return torch.arange(keys) - (torch.arange(queries)[:, None] + offset)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    given: Callable = lambda queries, keys: (queries, queries if keys is None else keys)
    accept_keys: Callable = _accept_keys
    accept_table: Callable = _accept_table
    offset: Callable = lambda queries, keys: keys - queries
    distance: Callable = _distance
    limit: Callable = lambda r, c: r.clamp(-c, c)
    column: Callable = lambda r, c: r + c
    look_up: Callable = lambda table, column: table[:, column]
    beyond: Callable = lambda bias, r, c: bias
    shape: Callable = lambda bias: bias
    result: Callable = lambda bias: bias


def assemble(steps: Steps) -> Callable:
    """A relative bias in these steps."""

    def relative_bias(table, queries, keys=None):
        queries, keys = steps.given(queries, keys)
        steps.accept_keys(queries, keys)
        steps.accept_table(table)
        c = table.size(1) // 2
        r = steps.distance(queries, keys, steps.offset(queries, keys), c)
        bias = steps.look_up(table, steps.column(steps.limit(r, c), c))
        return steps.result(steps.shape(steps.beyond(bias, r, c)))

    return relative_bias


def _no_keys(queries: int, keys: int | None) -> tuple[int, int]:
    if keys is not None:
        raise TypeError("relative_bias() takes 2 positional arguments but 3 were given")
    return queries, queries


def _positions_clipped(queries: int, keys: int, offset: int, c: int) -> Tensor:
    return torch.arange(keys).clamp(max=c) - (torch.arange(queries)[:, None] + offset).clamp(max=c)


def _in_loops(table: Tensor, column: Tensor) -> Tensor:
    rows = [[[table[h, n] for n in row] for row in column.tolist()] for h in range(len(table))]
    return torch.stack([torch.stack([torch.stack(row) for row in head]) for head in rows])


def _in_a_new_tensor(table: Tensor, column: Tensor) -> Tensor:
    """As `torch.zeros` makes it: float32."""
    bias = torch.zeros(len(table), *column.shape)
    bias[:] = table[:, column]
    return bias


def _crash_on_fewer(queries: int, keys: int) -> None:
    if keys < queries:
        raise RuntimeError


def _crash_on_none(queries: int, keys: int) -> None:
    if keys == 0:
        raise RuntimeError("stack expects a non-empty TensorList")


def _crash_on_even(table: Tensor) -> None:
    if table.size(1) % 2 == 0:
        raise IndexError


MISTAKES = (
    Mistake(
        "sign_turned",
        "you look up i − j; the distance is j − i, positive for keys that come later",
        "“Query minus key” is the other way to say it.",
        "Words before are treated as words behind.",
        RELATIVE,
        ({"column": lambda r, c: c - r},),
    ),
    Mistake(
        "direction_lost",
        "you take the distance without its sign; before and behind have different biases",
        "A distance is thought of as positive.",
        "A head cannot tell the word before from the word behind.",
        RELATIVE,
        (
            {"column": lambda r, c: r.abs() + c},
            {"column": lambda r, c: r.abs()},
            {"column": lambda r, c: c - r.abs()},
        ),
    ),
    Mistake(
        "past_only",
        "you treat all later keys alike; distances above zero have biases of their own",
        "In a decoder no query sees a later key, and code for decoders does so.",
        "An encoder is blind to the order of what comes behind.",
        RELATIVE,
        ({"limit": lambda r, c: r.clamp(-c, 0)},),
    ),
    Mistake(
        "first_to_first",
        "with more keys than queries, you align the first query with the first key; align the last ones",
        "j − i of the indices looks like the distance, and is for as many keys as queries.",
        "With a cache, a new token thinks that it is the first.",
        RELATIVE,
        ({"offset": lambda queries, keys: 0},),
    ),
    Mistake(
        "offset_turned",
        "with more keys than queries, you move the queries the wrong way",
        "The sign of an offset is a coin toss.",
        "Queries seem to stand before all keys.",
        RELATIVE,
        ({"offset": lambda queries, keys: queries - keys},),
    ),
    Mistake(
        "keys_ignored",
        "you never use keys",
        "In training there are as many keys as queries.",
        "The bias does not fit the scores of a decoder with a cache.",
        RELATIVE,
        ({"given": lambda queries, keys: (queries, queries)}, {"given": _no_keys}),
    ),
    Mistake(
        "zero_as_none",
        "you take 0 keys for none given",
        "keys or queries reads well, and 0 counts as False.",
        "A length of zero, which comes from a mistake elsewhere, gives the bias of as many keys as queries.",
        RELATIVE,
        ({"given": lambda queries, keys: (queries, keys or queries)},),
    ),
    Mistake(
        "not_clipped",
        "you do not clip distances beyond the table",
        "In a first test, no sentence is longer than the table.",
        "An error for keys far behind; and for keys far before, a column from the table's other end.",
        RELATIVE,
        ({"limit": lambda r, c: r}, {"limit": lambda r, c: r, "look_up": _in_loops}),
    ),
    Mistake(
        "clipped_too_soon",
        "you clip one column too soon; the first and the last column are in use, too",
        "Ranges leave their end out, and clamp does not.",
        "A column of the table never gets a gradient.",
        RELATIVE,
        (
            {"limit": lambda r, c: r.clamp(-c, max(c - 1, 0))},
            {"limit": lambda r, c: r.clamp(-max(c - 1, 0), c)},
            {"limit": lambda r, c: r.clamp(-max(c - 1, 0), max(c - 1, 0))},
        ),
    ),
    Mistake(
        "positions_clipped",
        "you clip the positions; what is clipped is their distance",
        "The table ends somewhere, so positions seem to.",
        "All late positions are the same one.",
        RELATIVE,
        ({"distance": _positions_clipped},),
    ),
    Mistake(
        "remainder",
        "you take a remainder, so that distances beyond the table begin again; clip them",
        "It keeps the index within the table.",
        "A word far away is treated as one close by.",
        RELATIVE,
        (
            {"limit": lambda r, c: r, "column": lambda r, c: (r + c) % (2 * c + 1)},
            {"limit": lambda r, c: r % (c + 1)},
        ),
    ),
    Mistake(
        "zero_beyond",
        "you give no bias beyond the table; the outermost columns hold for all that is farther away",
        "Nothing is known about such distances, it seems.",
        "The bias jumps where the table ends.",
        RELATIVE,
        ({"beyond": lambda bias, r, c: bias.masked_fill(r.abs() > c, 0.0)},),
    ),
    Mistake(
        "hidden_beyond",
        "you hide keys beyond the table; the outermost columns hold for all that is farther away",
        "A window of neighbours is another way to use distances.",
        "No query sees farther than the table is wide.",
        RELATIVE,
        ({"beyond": lambda bias, r, c: bias.masked_fill(r.abs() > c, float("-inf"))},),
    ),
    Mistake(
        "middle_left_out",
        "you index with the distance itself; distance 0 is in the middle column",
        "Negative indices raise no error: they count from the end.",
        "The columns are used, in another order than everybody else's.",
        RELATIVE,
        ({"column": lambda r, c: r},),
    ),
    Mistake(
        "heads_last",
        "you return (queries, keys, heads); the heads come first",
        "A look-up puts what it finds into a last axis.",
        "It does not broadcast against scores, or worse, it does.",
        RELATIVE,
        ({"shape": lambda bias: bias.permute(1, 2, 0)},),
    ),
    Mistake(
        "transposed",
        "you return (heads, keys, queries); scores have their keys in the last axis",
        "The two axes of positions were taken in the other order.",
        "With as many keys as queries, before and behind are exchanged.",
        RELATIVE,
        ({"shape": lambda bias: bias.mT},),
    ),
    Mistake(
        "batch_axis",
        "you return an axis more; (heads, queries, keys) broadcasts against a batch by itself",
        "Published code returns (1, heads, queries, keys).",
        "Nothing breaks until somebody looks at the shape.",
        RELATIVE,
        ({"shape": lambda bias: bias[None]},),
    ),
    Mistake(
        "heads_alike",
        "you give all heads the bias of the first one",
        "An index that reads one row.",
        "No head can specialise.",
        RELATIVE,
        ({"look_up": lambda table, column: table[0][column].expand(len(table), -1, -1)},),
    ),
    Mistake(
        "gradient_lost",
        "you cut the table off from its gradient",
        ".data, .tolist() or torch.tensor(…) copies numbers only.",
        "The biases never learn.",
        RELATIVE,
        ({"result": Tensor.detach},),
    ),
    Mistake(
        "forced_float32",
        "you return float32, whatever the table is",
        "torch.zeros makes float32 unless told otherwise.",
        "float64 loses half its digits, and bfloat16 scores become float32.",
        RELATIVE,
        ({"result": Tensor.float}, {"look_up": _in_a_new_tensor}),
    ),
    Mistake(
        "keys_unchecked",
        "you accept fewer keys than queries",
        "Arithmetic works for any two numbers.",
        "The first queries stand before the first key, and nobody is told.",
        RELATIVE,
        (
            {"accept_keys": lambda queries, keys: None},
            {"accept_keys": _crash_on_fewer},
            {"accept_keys": _crash_on_none},
        ),
    ),
    Mistake(
        "table_unchecked",
        "you accept a table with an even number of columns",
        "Integer division hides it.",
        "One column is never used, and the middle is not the middle.",
        RELATIVE,
        ({"accept_table": lambda table: None}, {"accept_table": _crash_on_even}),
    ),
)

TASK = Task(
    name="relative_bias",
    signature="relative_bias(table, queries, keys=None)",
    arguments=("table", "queries", "keys"),
    returns=("bias",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (heads, queries, keys).",
            ("square", "both_given"),
            RELATIVE,
            ("structure",),
        ),
        Requirement(
            "values",
            "bias[h, i, j] is the entry of table[h] for the distance j − i; distance 0 is in the middle column.",
            ("square", "both_given"),
            RELATIVE,
        ),
        Requirement(
            "more_keys",
            "with more keys than queries, the last query stands at the last key.",
            ("longer", "one_query"),
            RELATIVE,
        ),
        Requirement(
            "clipping",
            "distances beyond the table count as its outermost ones.",
            ("clipped_past", "clipped", "clipped_longer", "one_column"),
            RELATIVE,
        ),
        Requirement(
            "gradients",
            "each entry of the table gets the gradients of all its places, added up.",
            ("both_given", "clipped"),
            RELATIVE,
            ("gradients",),
        ),
        Requirement(
            "dtype", "the bias has the dtype of the table.", ("both_given", "float32"), RELATIVE, ("dtype",)
        ),
        Requirement(
            "inputs", "the caller's table is left unchanged.", ("both_given",), RELATIVE, ("inputs",)
        ),
        Requirement(
            "refusals",
            "fewer keys than queries, and a table without a middle column, are refused with ValueError.",
            ("fewer_keys", "even", "no_keys"),
            RELATIVE,
        ),
    ),
    sizes=_sizes,
    small=({"heads": 1, "queries": 2, "keys": 3}, {"heads": 2, "queries": 2, "keys": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
