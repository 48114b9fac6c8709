"""Attention by PyTorch's kernel. With d_k = 1 nobody sees the scale; bytes are counted, not seconds."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task

LONG = 131  # positions: a square of them is by far the largest thing there could be


def fused_attention(query, key, value, mask=None, *, is_causal=False):
    """The output of attention, without its weights."""
    queries, keys = query.size(-2), key.size(-2)
    if is_causal and (mask is not None or queries != keys):
        past = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        mask = past if mask is None else past & mask
        is_causal = False
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    blind = ~mask.any(dim=-1, keepdim=True)
    output = F.scaled_dot_product_attention(query, key, value, mask | blind)
    return output.masked_fill(blind, 0.0)


def call(draw: Draw, queries: int, keys: int, *masks: Tensor, d_k: int = 1, **options: Any) -> Call:
    """Two sentences with three heads; values are 5 wide."""
    shapes = (queries, d_k), (keys, d_k), (keys, 5)
    return Call((*(draw.normal(2, 3, *shape) for shape in shapes), *masks), options)


def formula(draw: Draw) -> list[Call]:
    """Several widths; and one with everything, its sizes all different."""
    alone = Call(tuple(draw.normal(n, 7) for n in (4, 6, 6)))
    return [call(draw, 4, 6, d_k=7), alone, call(draw, 4, 6, draw.mask(2, 1, 1, 6), d_k=7, is_causal=True)]


def masks(draw: Draw) -> list[Call]:
    """Of several shapes, two of them with queries that see nothing."""
    shown = draw.mask(2, 1, 1, 6)
    blind = draw.mask(2, 3, 4, 6) & (torch.arange(4) != 1)[:, None]
    padding = shown & (torch.arange(2) == 0)[:, None, None, None]
    return [call(draw, 4, 6, mask) for mask in (shown, draw.mask(4, 6), blind, padding)]


def causal(draw: Draw) -> list[Call]:
    """As many keys as queries; masks that show, and that hide, the first key."""
    first, others = draw.mask(2, 1, 1, 4), draw.mask(2, 1, 1, 4)
    first[..., 0], others[..., 0] = True, False
    return [call(draw, 4, 4, *given, is_causal=True) for given in ((), (first,), (others,))]


def more_keys(draw: Draw) -> list[Call]:
    """Without a mask, and with one that shows the first key and the last one."""
    ends = draw.mask(2, 1, 1, 6)
    ends[..., 0] = ends[..., -1] = True
    return [call(draw, 4, 6, *given, is_causal=True) for given in ((), (ends,))]


def long(*masks: Tensor, **options: Any) -> Call:
    """Many positions, where values are as wide as keys, which the kernel of a CPU wants."""
    x = torch.ones(1, 2, LONG, 3)
    return Call((x, x, x, *masks), options, enough={"largest": 2 * x.nbytes, "saved": 4 * x.nbytes})


PADDING = torch.ones(1, 1, 1, LONG, dtype=torch.bool)
MEMORY, CAUSAL_MEMORY = [long(), long(PADDING)], [long(is_causal=True)]


def small(
    queries: int, keys: int, *masks: list, d_k: int = 1, **options: Any
) -> Callable[[], Iterator[Call]]:
    """Whole numbers; the values 10, 20, … tell apart what is averaged."""

    def cases() -> Iterator[Call]:
        for q, k in ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0)):
            query, key = torch.zeros(queries, d_k), torch.zeros(keys, d_k)
            query[:, 0], key[:, 0] = q, k * torch.arange(keys)
            value = 10 * torch.arange(1.0, keys + 1)[:, None]
            for mask in masks or (None,):
                yield Call((query, key, value, *([] if mask is None else [torch.tensor(mask)])), options)

    return cases


TASK = Task(
    name="fused_attention",
    right=[fused_attention],
    arguments=("query", "key", "value", "mask"),
    requirements=(
        Requirement(
            "values",
            "it returns one tensor, softmax(QKᵀ/√d_k) V",
            points=0.5,
            calls=formula,
            small=small(1, 2, d_k=4),
            anchor="attention-fused",
        ),
        Requirement(
            "mask",
            "keys where the mask is False have no influence, and a query that sees none gets zeros",
            points=1,
            calls=masks,
            small=small(1, 3, [[True, True, False]], [[False, False, False]]),
            anchor="attention-fused",
        ),
        Requirement(
            "causal",
            "with is_causal=True a query sees no later key, and with a mask both must allow it",
            points=0.5,
            calls=causal,
            small=lambda: iter(
                [
                    *small(2, 2, is_causal=True)(),
                    *small(2, 2, [[True, False]], [[False, True]], is_causal=True)(),
                ]
            ),
            anchor="gpu-fused",
        ),
        Requirement(
            "more_keys",
            "with is_causal=True and more keys than queries, the last query sees the last key",
            points=0.5,
            calls=more_keys,
            small=lambda: iter(
                [
                    *small(1, 2, is_causal=True)(),
                    *small(1, 3, [[True, False, True]], is_causal=True)(),
                    *small(2, 3, is_causal=True)(),
                ]
            ),
            anchor="costs-wrong",
        ),
        Requirement(
            "memory",
            "nothing of the size of queries × keys is made or kept, nor with a mask of shape (batch, 1, 1, keys)",
            points=0.75,
            calls=lambda draw: MEMORY,
            small=lambda: iter(MEMORY),
            anchor="gpu-fused",
        ),
        Requirement(
            "causal_memory",
            "with is_causal=True, as many keys as queries and no mask, nothing of that size is made either",
            points=0.75,
            calls=lambda draw: CAUSAL_MEMORY,
            small=lambda: iter(CAUSAL_MEMORY),
            anchor="gpu-fused",
        ),
    ),
)
