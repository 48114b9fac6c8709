"""One step of linear attention. The output is judged by the state that was returned, right or wrong."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task

LEADS = (), (1,), (1, 1), (1, 1, 1)
FRONTS = (2, 4), (4,), ()  # an answer that expects a certain number of axes is right in one of these


def linear_attention_step(query, key, value, S=None, z=None, *, decay=1.0):
    """The output, S and z after one more position."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    outer = k[..., :, None] * value[..., None, :]
    S = outer if S is None else decay * S + outer
    z = k if z is None else decay * z + k
    return (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True), S, z


def new(draw: Draw, *lead: int) -> tuple[Tensor, ...]:
    """Query and key of width 3, and value of width 5."""
    return draw.normal(*lead, 3), draw.normal(*lead, 3), draw.normal(*lead, 5)


def old(draw: Draw, *lead: int) -> tuple[Tensor, ...]:
    """S and z as an earlier step could have left them."""
    return draw.normal(*lead, 3, 5), draw.uniform(*lead, 3) + 0.5


def state(results: list) -> dict[str, Tensor]:
    """The returned S and z, whatever the output is."""
    _, S, z = results if isinstance(results, list) else []
    return {"S": S, "z": z}


def deviation(query: Tensor) -> Callable[[list], Tensor]:
    """A view of the output minus φ(q) S / (φ(q)·z), with S and z as they were returned."""

    def view(results: list) -> Tensor:
        output, S, z = results
        q = F.elu(query) + 1
        return output - (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True)

    return view


def outputs(draw: Draw) -> list[Call]:
    """Steps with and without a state. No key feature is small, nor a divisor: adding 1e-6 is accepted."""
    given = [(new(draw, *lead), old(draw, *lead)) for lead in (*FRONTS, (5,))]  # as many as value is wide
    given = [((q, k.abs() + 1, v), two) for (q, k, v), two in given]
    given += [((-2 - q.abs().clamp(max=1), k, v), two) for (q, k, v), two in given[:1]]  # a divisor below 1
    return [Call(args, view=deviation(args[0])) for three, two in given for args in ((*three, *two), three)]


def returned_state(results: list) -> object:
    """The returned S and z; a state that is missing or zero is unequal to everything."""
    is_state = isinstance(results, list) and len(results) == 3 and results[1].any() and results[2].any()
    return results[1:] if is_state else object()


def first(draw: Draw) -> list[Call]:
    """First steps, which must equal a step from a state of zeros, with and without decay."""
    given = [new(draw, *lead) for lead in FRONTS]
    twins = [(*args, torch.zeros(*args[1].shape, 5), torch.zeros_like(args[1])) for args in given]
    calls = [Call(args, same_as=twin, view=returned_state) for args, twin in zip(given, twins, strict=True)]
    return [*calls, Call(given[0], {"decay": 0.5}, same_as=twins[0], view=returned_state)]


def decayed(draw: Draw) -> list[Call]:
    """Keys of zeros: whatever φ is, φ(0) is the same for all features. Last, a step without decay."""
    given = [(new(draw, *lead), old(draw, *lead)) for lead in FRONTS]
    calls = [Call((q, 0 * k, v, *both), {"decay": 0.25}, view=state) for (q, k, v), both in given]
    return [*calls, replace(calls[0], kwargs={})]


def kept(draw: Draw) -> list[Call]:
    """Steps with and without decay, and without a state; they show edited arguments and lost gradients."""
    calls = [Call((*new(draw, *lead), *old(draw, *lead)), {"decay": 0.75}) for lead in FRONTS]
    return [*calls, Call((*new(draw, 2, 4), *old(draw, 2, 4))), Call(new(draw, 2, 4))]


def shapes(results: list) -> list:
    """The shapes of all three results; nothing if all of them are zero."""
    return [list(x.shape) for x in results if any(y.any() for y in results)]


def axes(draw: Draw) -> list[Call]:
    """Up to three leading axes or none, with and without a state."""
    leads = (), (4,), (2, 4), (2, 1, 4)
    started = [Call((*new(draw, *lead), *old(draw, *lead)), {"decay": 0.5}, view=shapes) for lead in leads]
    return [*started, *(Call(new(draw, *lead), view=shapes) for lead in leads)]


def small(given=5, leads: tuple = ((),), view: Callable | None = None, **options: float) -> Iterator[Call]:
    """Numbers that can be computed by hand: φ(1) = 2, φ(0) = 1. All five arguments, or three."""
    pairs = ([0], [0]), ([0], [1]), ([1, 0], [1, 0]), ([0], [-1]), ([-1], [0])
    for lead, (q, k) in itertools.product(leads, pairs):
        query, key, value = (torch.tensor(x).float().expand(*lead, -1).clone() for x in (q, k, [6]))
        key = query if q == k else key  # saves the message a line
        args = query, key, value, torch.full((*key.shape, 1), 8.0), torch.full_like(key, 4.0)
        yield Call(args[:given], options, view=view)


TASK = Task(
    name="linear_attention_step",
    solution=[linear_attention_step],
    results=("output", "S", "z"),
    probes={
        "state": (
            lambda draw: [Call((*new(draw, *n), *old(draw, *n)), view=state) for n in FRONTS],
            small(view=state),
        ),
        "output": (outputs, [*small(leads=((), (2,))), *small(3)]),
        "first": (first, [*small(3), *small(3, decay=0.5)]),
        "decay": (decayed, [*small(view=state, decay=0.25), *small(view=state)]),
        "kept": (kept, small(decay=0.5)),
        "axes": (axes, [*small(5, LEADS), *small(3, LEADS)]),
    },
)
