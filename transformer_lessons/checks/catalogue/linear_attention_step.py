"""One step of linear attention. The output is looked at beside the state that came back, right or wrong."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Task

LEADS = (), (1,), (1, 1), (1, 1, 1)
FRONTS = (2, 4), (4,), ()  # who expects a certain number of axes is right in one of these


def linear_attention_step(query, key, value, S=None, z=None, *, decay=1.0):
    """The output, S and z after one more position."""
    q, k = F.elu(query) + 1, F.elu(key) + 1
    outer = k[..., :, None] * value[..., None, :]
    S = outer if S is None else decay * S + outer
    z = k if z is None else decay * z + k
    return (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True), S, z


def new(draw: Draw, *lead: int) -> tuple[Tensor, ...]:
    """Query and key, 3 wide, and value, 5 wide."""
    return draw.normal(*lead, 3), draw.normal(*lead, 3), draw.normal(*lead, 5)


def old(draw: Draw, *lead: int) -> tuple[Tensor, ...]:
    """S and z."""
    return draw.normal(*lead, 3, 5), draw.uniform(*lead, 3) + 0.5


def state(results: list) -> dict[str, Tensor]:
    """S and z, whatever the output."""
    _, S, z = results if isinstance(results, list) else []
    return {"S": S, "z": z}


def added(draw: Draw) -> list[Call]:
    """To a state that is there."""
    return [Call((*new(draw, *lead), *old(draw, *lead)), view=state) for lead in FRONTS]


def read(query: Tensor) -> Callable[[list], Tensor]:
    """How far the output is from φ(q) S / (φ(q)·z), with S and z as they came back."""

    def view(results: list) -> Tensor:
        output, S, z = results
        q = F.elu(query) + 1
        return output - (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True)

    return view


def outputs(draw: Draw) -> list[Call]:
    """With and without a state before. No feature of a key is small, nor a divisor: who adds 1e-6 is right."""
    given = [(new(draw, *lead), old(draw, *lead)) for lead in (*FRONTS, (5,))]  # as many as values
    given = [((q, k.abs() + 1, v), two) for (q, k, v), two in given]
    given += [((-q.abs() - 2, k, v), two) for (q, k, v), two in given[:1]]  # and a divisor below 1
    return [Call(args, view=read(args[0])) for three, two in given for args in ((*three, *two), three)]


def started(results: list) -> object:
    """S and z; what is no state, or is empty, is like nothing else."""
    is_state = isinstance(results, list) and len(results) == 3 and results[1].any() and results[2].any()
    return results[1:] if is_state else object()


def first(draw: Draw) -> list[Call]:
    """The same as with an old state of zeros; with and without decay."""
    given = [new(draw, *lead) for lead in FRONTS]
    twins = [(*args, torch.zeros(*args[1].shape, 5), torch.zeros_like(args[1])) for args in given]
    calls = [Call(args, same_as=twin, view=started) for args, twin in zip(given, twins, strict=True)]
    return [*calls, Call(given[0], {"decay": 0.5}, same_as=twins[0], view=started)]


def decayed(draw: Draw) -> list[Call]:
    """With keys of zeros: whatever φ is, φ(0) is the same for all features. Once nothing decays."""
    given = [(new(draw, *lead), old(draw, *lead)) for lead in FRONTS]
    calls = [Call((q, 0 * k, v, *both), {"decay": 0.25}, view=state) for (q, k, v), both in given]
    return [*calls, replace(calls[0], kwargs={})]


def kept(draw: Draw) -> list[Call]:
    """With and without decay, and without a state."""
    calls = [Call((*new(draw, *lead), *old(draw, *lead)), {"decay": 0.75}) for lead in FRONTS]
    return [*calls, Call((*new(draw, 2, 4), *old(draw, 2, 4))), Call(new(draw, 2, 4))]


def shapes(results: list) -> list:
    """Of all three, if not all of it is zero."""
    return [list(x.shape) for x in results if any(y.any() for y in results)]


def axes(draw: Draw) -> list[Call]:
    """From none to three in front, with and without a state."""
    leads = (), (4,), (2, 4), (2, 1, 4)
    started = [Call((*new(draw, *lead), *old(draw, *lead)), {"decay": 0.5}, view=shapes) for lead in leads]
    return [*started, *(Call(new(draw, *lead), view=shapes) for lead in leads)]


def small(
    given: int = 5, leads: tuple = ((),), view: Callable | None = None, **options: float
) -> Iterator[Call]:
    """Numbers that can be computed by hand: φ(1) = 2, φ(0) = 1. All five arguments, or three."""
    for lead, (q, k, v) in itertools.product(
        leads, (([0], [0], [6]), ([0], [1], [6]), ([1, 0], [1, 0], [6]), ([0], [-1], [6]), ([-1], [0], [6]))
    ):
        query, key, value = (torch.tensor(x).float().expand(*lead, -1).clone() for x in (q, k, v))
        key = query if q == k else key  # one line less
        args = query, key, value, torch.full((*key.shape, 1), 8.0), torch.full_like(key, 4.0)
        yield Call(args[:given], options, view=view)


TASK = Task(
    name="linear_attention_step",
    right=[linear_attention_step],
    results=("output", "S", "z"),
    probes={
        "state": (added, small(view=state)),
        "output": (outputs, [*small(leads=((), (2,))), *small(3)]),
        "first": (first, [*small(3), *small(3, decay=0.5)]),
        "decay": (decayed, [*small(view=state, decay=0.25), *small(view=state)]),
        "kept": (kept, small(decay=0.5)),
        "axes": (axes, [*small(5, LEADS), *small(3, LEADS)]),
    },
)
