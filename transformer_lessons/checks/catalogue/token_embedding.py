"""The token embedding. Directions hide the factor; equal rows hide the look-up."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task
from transformer_lessons.embeddings import TokenEmbedding

SET = "for p in layer.parameters(): p.data = torch."


def call(weight: Tensor, ids: Tensor, **options) -> Call:
    """A call of a layer with these rows."""
    return Call((ids,), init=tuple(weight.shape), state={"weight": weight}, **options)


def rows(draw: Draw) -> list[Call]:
    """Random rows, judged by their directions, whatever the factor; the last row is never looked up."""
    given = [(v, d, draw.integers(0, v - 1, *size)) for v, d, *size in ((7, 5, 3, 4), (8, 6, 1, 2))]
    given.append((5, 3, torch.tensor([[0, 3]])))
    return [call(draw.normal(v, d), ids, view=partial(F.normalize, dim=-1)) for v, d, ids in given]


def scale(draw: Draw) -> list[Call]:
    """Equal rows; last, after another call, which must not leave anything behind."""
    ids = draw.integers(0, 6, 3, 4)
    alike = [draw.normal(d).repeat(7, 1) for d in (5, 6, 11)]
    earlier = call(draw.normal(3).repeat(7, 1), ids, earlier=((ids,),))
    return [*(call(weight, ids) for weight in alike), earlier]


def start(*sizes: tuple[int, int]) -> list[Call]:
    """The weights of new layers, which are random, so that only their statistics can be judged."""
    return [Call((), init=size, method="state", view=weight_statistics(size[1])) for size in sizes]


def weight_statistics(d_model: int) -> Callable[[dict[str, Tensor]], dict[str, Any]]:
    """A view of the mean, the deviation times √d_model, and zero rows, too coarse for chance to matter."""

    def view(state: dict[str, Tensor]) -> dict[str, Any]:
        weight = next(tensor for tensor in state.values() if tensor.dim() == 2)
        spread = weight.std().item()
        size = spread * d_model**0.5
        return {
            "weight.mean() is close to 0": abs(weight.mean().item()) <= 0.05 * spread,
            "rounded weight.std() * √d_model": round(size, 1) if size < 2 else float(f"{size:.0e}"),
            "rows of zeros": int((weight == 0).all(-1).sum()),
        }

    return view


def gradients(draw: Draw) -> list[Call]:
    """Tokens that occur once, several times, or never, 0 among them."""
    ids = torch.tensor([[0, 3, 3, 1], [3, 0, 5, 2]])
    return [call(draw.normal(7, 5), ids), call(draw.normal(6, 1), ids)]


def small(*lists: list, width: int = 1, **options) -> Iterator[Call]:
    """A table with the rows 10, 20, 30, or with rows of ones if it is wider."""
    for ids in lists:
        weight = torch.tensor([[10.0], [20.0], [30.0]]) if width == 1 else torch.ones(3, width)
        written = "tensor([[10.], [20.], [30.]]).view_as(p)" if width == 1 else "ones_like(p)"
        yield call(weight, torch.atleast_2d(torch.tensor(ids)), setting=SET + written, **options)


def small_scale() -> Iterator[Call]:
    """Widths with a whole root, then another; last, a second call of the same layer."""
    for width in (4, 9, 5):
        yield from small([1], [0, 1], width=width)
    yield from small([1], width=4, earlier=((torch.tensor([[1]]),),))


TASK = Task(
    name="token_embedding",
    solution=[TokenEmbedding],
    roles={"weight": "weight weights w e embedding embeddings emb lut table"},
    probes={
        "rows": (rows, small([1], [0, 1], [2, 0], [1, 1, 0], [[0], [1]])),
        "scale": (scale, small_scale()),
        "start": (start((300, 64), (200, 100)), start((300, 64))),
        "gradients": (gradients, small([1], [0, 1], [1, 1, 0])),
    },
)
