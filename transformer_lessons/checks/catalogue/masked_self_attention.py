"""Causal self-attention in a batch with padding: probes change what must not matter, and what must."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task


def masked_self_attention(x, ids, pad_id):
    """Each position averages the words up to itself; one that sees none of them gets zeros."""
    length = x.size(2)
    real = (ids != pad_id)[:, None, None, :]
    past = torch.ones(length, length, dtype=torch.bool).tril()
    visible = real & past
    scores = x @ x.mT / math.sqrt(x.size(-1))
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).masked_fill(~visible, 0.0)
    return weights @ x


def words(draw: Draw, *shape: int) -> Tensor:
    """Ids without padding, whether that is 0 or 7."""
    return draw.integers(10, 23, *shape)


def outputs(*places: int, sentence: int | None = None) -> Callable[[Tensor], Tensor]:
    """A view of the outputs at these positions, of one sentence or of all."""
    return lambda y: y[:, :, list(places)] if sentence is None else y[sentence][:, list(places)]


def changed(draw: Draw, x: Tensor, *places: int) -> Tensor:
    """A copy of x with random vectors at these positions."""
    x = x.clone()
    x[:, :, list(places)] = 3 * draw.normal(*x[:, :, list(places)].shape)
    return x


def compare(draw: Draw, x: Tensor, ids: Tensor, pad_id: int, changes: dict, view: Callable) -> list[Call]:
    """A call for each change of positions, which shows whether the outputs in view stay the same."""
    return [Call((x, ids, pad_id), same_as=(changed(draw, x, *at), ids, pad_id), view=view) for at in changes]


def alike(draw: Draw, ids: Tensor, pad_id: int) -> Call:
    """A call with equal vectors: any average of them, with whatever weights, is the same vector again."""
    x = draw.normal(1, 1, 1, ids.size(1)).expand(1, 1, ids.size(1), ids.size(1))
    return Call((x.contiguous(), ids, pad_id))


def attention(draw: Draw) -> list[Call]:
    """The last position of one sentence, which sees everything, whatever the masks; then equal vectors."""
    given = [(draw.normal(1, h, n, d), words(draw, 1, n), 0) for h, n, d in ((1, 4, 3), (3, 5, 2))]
    return [*(Call(args, view=outputs(-1)) for args in given), alike(draw, words(draw, 1, 4), 0)]


def causal(draw: Draw) -> list[Call]:
    """Changes at later positions, which must not matter, at the position itself and before, which must."""
    calls = []
    for heads, length in ((1, 5), (2, 4)):
        x, ids = draw.normal(1, heads, length, 3), words(draw, 1, length)
        calls += compare(draw, x, ids, 0, [(2,), (3,), (1,), (0,)], outputs(1))
        calls += compare(draw, x, ids, 0, [(length - 1,)], outputs(0, 1, 2))
    return calls


def padding(draw: Draw) -> list[Call]:
    """Changes of padding, which must not matter, and of words, which must, for padded positions as well."""
    x, ids = draw.normal(1, 2, 6, 3), words(draw, 1, 6)
    ids[0, [1, 4]] = 7
    ids[0, 2] = 0  # a word here, as pad_id is 7
    calls = compare(draw, x, ids, 7, [(1,), (1, 4), (2,), (0,)], outputs(3, 5))
    return [*calls, *compare(draw, x, ids, 7, [(0,), (1,), (4,)], outputs(4)), alike(draw, ids, 7)]


def sentences(draw: Draw) -> list[Call]:
    """A sentence in a batch, which must get what it gets alone; as many sentences as heads, or positions."""
    calls = []
    for batch, heads, length in ((3, 3, 5), (4, 2, 4), (2, 1, 3)):
        x, ids = draw.normal(batch, heads, length, 3), words(draw, batch, length)
        ids[0, 1] = ids[1, 2] = 0
        kept = outputs(0, length - 1, sentence=0)
        calls += [
            Call((x, ids, 0), same_as=(x[:1], ids[:1], 0), view=kept),
            Call((x, ids, 0), same_as=(x[1:], ids[1:], 0), view=outputs(0, length - 1, sentence=-1)),
            Call((x, ids, 0), same_as=(x[1:], ids[1:], 0), view=kept),  # another sentence, so it must differ
        ]
    return calls


def zeros(length: int, seeing: int) -> Callable[[Tensor], dict[str, Any]]:
    """A view of the rows that see nothing, and whether the others are zero."""
    return lambda y: {
        "output of rows that see nothing": y[:, :, :seeing],
        "other rows are zero": bool((y[:, :, seeing:length] == 0).all()),
    }


def empty_rows(draw: Draw) -> list[Call]:
    """Padding on the left, so that the first positions see nothing."""
    calls = []
    for batch, length, padded in ((1, 4, 1), (2, 5, 2)):
        ids = words(draw, batch, length)
        ids[:, :padded] = 0
        x = draw.normal(batch, batch, length, length)
        calls.append(Call((x, ids, 0), view=zeros(length, padded)))
    return calls


def small(*rows: list, pad_id: int = 0, width: int = 1) -> Iterator[Call]:
    """One head, or two alike; vectors of one number, or of `width` numbers, all but the first of them 0."""
    for sentences, heads in [(row, heads) for heads in (1, 2) for row in rows]:
        ids = torch.tensor(sentences)
        for numbers in ([1.0, 2.0, 3.0], [0.0, 2.0, 1.0], [2.0, 0.0, 3.0]):
            x = torch.zeros(*ids.shape, width)
            x[..., 0] = torch.tensor(numbers[: ids.size(1)])
            yield Call((x[:, None].repeat(1, heads, 1, 1), ids, pad_id))


PAIR = [[5, 0, 6], [5, 6, 7]]
TASK = Task(
    name="masked_self_attention",
    solution=[masked_self_attention],
    planted=("unsqueezed_once", "sized_by_batch", "input_infinite", "padding_overwritten"),
    probes={
        "attention": (attention, small([[5, 6]], [[5, 6, 7]], width=4)),
        "causal": (causal, small([[5, 6]], [[5, 6, 7]])),
        "padding": (padding, small([[5, 9, 6]], [[5, 0, 9]], [[5, 6, 9]], pad_id=9)),
        "sentences": (sentences, small([[5, 6], [0, 6]], PAIR, [*PAIR, [5, 6, 0]])),
        "empty_rows": (empty_rows, small([[0, 5]], [[0, 0, 5]])),
    },
)
