"""Multi-head attention. One head hides how heads are split; three arguments hide the defaults."""

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.checks.definitions import Call, Draw, Remark, Task

NAMES = ("W_q", "W_k", "W_v", "W_o")
# For messages: the rows of all matrices, four of them or three in a stack, and the line that sets them.
EYES, TWICE = "torch.eye(2).repeat(4, 1)", "torch.eye(4).repeat(4, 1)"
EVEN = "torch.cat([n * torch.eye(2) for n in (2, 4, 6, 8)])"
KEYS, LOW = [[1, 0], [0, 1], [3, 0]], [[True, False], [True, True]]
SKEW = "torch.arange(16.0).view(8, 2) % 5"
SAME = "for p in layer.parameters(): p.data = {}[:len(p)] if p.dim() == 2 else 0 * p"
SET = "for p in layer.parameters(): p.data = torch.stack([next(rows) for _ in p]) if p.dim() == 2 else 0 * p"


def projections(rows: Tensor) -> dict[str, Tensor]:
    """W_q, W_k, W_v and W_o from stacked rows; biases are zero, so that answers without them are right."""
    matrices = {f"{n}.weight": matrix for n, matrix in zip(NAMES, rows.chunk(4), strict=True)}
    return matrices | {f"{n}.bias": torch.zeros(rows.size(1)) for n in NAMES}


def call(
    draw: Draw, heads: int, d_k: int, queries=3, keys=0, *, mask=None, other_values=False, given=3
) -> Call:
    """A call on two sentences with the first `given` of query, key, value; without `keys`, key is query."""
    d_model = heads * d_k
    query = draw.normal(2, queries, d_model)
    key = draw.normal(2, keys, d_model) if keys else query
    value = draw.normal(2, keys, d_model) if other_values else key
    kwargs = {} if mask is None else {"mask": mask}
    state = projections(draw.normal(4 * d_model, d_model) / d_model**0.5)
    return Call((query, key, value)[:given], kwargs, init=(d_model, heads), state=state)


def sharp(draw: Draw, one: Call) -> Call:
    """The same call, where each head finds keys by one feature or averages all, whatever the scale."""
    d_model, heads = one.init
    d_k = d_model // heads
    rows = {id(x): F.one_hot(draw.integers(0, d_k, *x.shape[:2], heads), d_k) for x in one.args[:2]}
    args = tuple(rows[id(x)].flatten(-2).float() if id(x) in rows else x for x in one.args)
    turned = torch.block_diag(*[torch.eye(d_k).roll(1, 0)] * heads)
    state = one.state | {"W_q.weight": 20 * turned, "W_k.weight": 20 * torch.eye(d_model)}
    return replace(one, args=args, state=state, view=output_only)


def output_only(results: Tensor | list) -> Tensor:
    """The output alone, if something else is returned with it."""
    return results[0] if isinstance(results, list) else results


def heads(draw: Draw) -> list[Call]:
    """Several heads, also as many as positions or as d_k; in the last call, the scale of scores matters."""
    calls = [sharp(draw, call(draw, *sizes)) for sizes in ((2, 3), (3, 2, 5), (3, 3, 3), (2, 2, 2))]
    return [*calls, replace(call(draw, 2, 3), view=output_only)]


def cross(draw: Draw) -> list[Call]:
    """The query alone, keys of another sentence, and values of a third."""
    calls = [call(draw, 1, 5, given=1), call(draw, 1, 5, 3, 4), call(draw, 1, 5, 3, 4, given=2)]
    others = [call(draw, 1, *sizes, other_values=True) for sizes in ((5, 3, 4), (3, 3, 3))]
    return [sharp(draw, one) for one in (*calls, call(draw, 1, 3, 3, 3, given=2), *others)]


def mask(draw: Draw) -> list[Call]:
    """Masks with all axes, with two, and for padding; last, two heads and one visible key per query."""
    padding = torch.tensor([[True, True, False], [True, True, True]])[:, None, None, :]
    masks = draw.mask(2, 1, 3, 3), torch.ones(3, 3, dtype=torch.bool).tril(), padding, draw.mask(1, 3)
    calls = [call(draw, 1, 5, mask=one) for one in masks]
    calls += [call(draw, 2, 3, 2, mask=one) for one in (torch.eye(2).bool(), draw.mask(2, 2, 2, 2))]
    return [sharp(draw, one) for one in calls]


def small(num_heads: int, *others: list, mask: list | None = None) -> Iterator[Call]:
    """Identity weights, then matrices that are unequal or asymmetric; last, wider heads."""
    kwargs = {} if mask is None else {"mask": torch.tensor(mask)}

    def case(x: list, rows: str = EYES) -> Call:
        args = tuple(torch.tensor([vectors]).float() for vectors in (x, *others))
        state = projections(eval(rows))  # so the message shows exactly what is loaded
        setting = f"rows = iter({rows})\n{SET}" if rows in (EVEN, SKEW) else SAME.format(rows)
        return Call(args, kwargs, init=(len(x[0]), num_heads), state=state, setting=setting)

    yield from map(case, ([[0, 2], [2, 0]], [[1, 0], [3, 1]], [[2, 1], [0, 3]]))
    yield from (case([[0, 1], [1, 0]], rows) for rows in (EVEN, SKEW))
    if not others:
        yield case([[0, 1, 0, 0], [2, 0, 0, 1]], TWICE)


TASK = Task(
    name="multi_head",
    solution=[scaled_dot_product_attention, MultiHeadAttention],
    roles={
        "W_q": "q wq query queries toq qkv",
        "W_k": "k wk key keys tok qkv kv",
        "W_v": "v wv value values tov qkv kv",
        "W_o": "o wo out output proj projection fc dense final merge concat",
    },
    planted=("values_from_query", "keys_viewed", "scaled_by_d_model", "merged_without_transpose"),
    probes={
        "output": (lambda draw: [call(draw, 1, 5), call(draw, 1, 2, queries=1)], small(1)),
        "heads": (heads, small(2)),
        "cross": (cross, [*small(1, KEYS), *small(1, KEYS, [[0, 1], [2, 0], [0, 3]]), *small(1)]),
        "mask": (mask, [c for n, m in ((1, LOW), (2, [[LOW, LOW[::-1]]])) for c in small(n, mask=m)]),
        "gradients": (lambda draw: [call(draw, 2, 3), call(draw, 2, 3, 3, 3, other_values=True)], small(1)),
    },
    remarks=(Remark("leave out dropout, which is not asked for.", replace(next(small(2)), training=True)),),
)
