"""One step of linear attention. The output is looked at beside the state that came back, right or wrong."""

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Requirement, Task

LEADS = (), (1,), (1, 1), (1, 1, 1)


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


def state(results: list) -> list:
    """S and z, whatever the output."""
    return [None, *results[1:]]


def added(draw: Draw) -> list[Call]:
    """To a state that is there."""
    return [Call((*new(draw, *lead), *old(draw, *lead)), view=state) for lead in ((2, 4), (4,), ())]


def read(query: Tensor) -> Callable[[list], Tensor]:
    """How far the output is from φ(q) S / (φ(q)·z), with S and z as they came back."""

    def view(results: list) -> Tensor:
        output, S, z = results
        q = F.elu(query) + 1
        return output - (q[..., None, :] @ S)[..., 0, :] / (q * z).sum(-1, keepdim=True)

    return view


def outputs(draw: Draw) -> list[Call]:
    """With and without a state before."""
    calls = []
    for lead in ((2, 4), (2, 7)):
        args = new(draw, *lead)
        calls += [Call((*args, *old(draw, *lead)), view=read(args[0])), Call(args, view=read(args[0]))]
    return calls


def first(draw: Draw) -> list[Call]:
    """No state; with and without decay."""
    return [Call(new(draw, 2, 4), view=state), Call(new(draw, 4), {"decay": 0.5}, view=state)]


def decayed(draw: Draw) -> list[Call]:
    """With a key whose features are zero, only what is old is left; then with a key."""
    query, key, value = new(draw, 2, 4)
    only_old = Call((query, key - 200, value, *old(draw, 2, 4)), {"decay": 0.75}, view=state)
    return [only_old, Call((*new(draw, 2, 4), *old(draw, 2, 4)), {"decay": 0.25}, view=state)]


def kept(draw: Draw) -> list[Call]:
    """With and without decay, and without a state."""
    started = (
        Call((*new(draw, 2, 4), *old(draw, 2, 4))),
        Call((*new(draw, 4), *old(draw, 4)), {"decay": 0.75}),
    )
    return [*started, Call(new(draw, 2, 4))]


def shapes(results: list) -> list:
    """Of all three, if they are not all zero."""
    return [list(x.shape) for x in results if x.any()]


def axes(draw: Draw) -> list[Call]:
    """From none to three in front, with and without a state."""
    leads = (), (4,), (2, 4), (2, 1, 4)
    started = [Call((*new(draw, *lead), *old(draw, *lead)), {"decay": 0.5}, view=shapes) for lead in leads]
    return [*started, *(Call(new(draw, *lead), view=shapes) for lead in leads)]


def small(
    given: int = 5, leads: tuple = ((),), view: Callable | None = None, **options: float
) -> Callable[[], Iterator[Call]]:
    """Numbers that can be computed by hand: φ(1) = 2, φ(0) = 1. All five arguments, or three."""

    def cases() -> Iterator[Call]:
        for lead, (q, k, v) in itertools.product(
            leads, (([0], [0], [6]), ([0], [1], [6]), ([1, 0], [1, 0], [6]))
        ):
            query, key, value = (torch.tensor(x).float().expand(*lead, -1).clone() for x in (q, k, v))
            args = query, key, value, torch.full((*key.shape, 1), 2.0), torch.ones_like(key)
            yield Call(args[:given], options, view=view)

    return cases


TASK = Task(
    name="linear_attention_step",
    right=[linear_attention_step],
    arguments=("query", "key", "value", "S", "z"),
    results=("output", "S", "z"),
    requirements=(
        Requirement(
            "state",
            "φ(k)ᵀv is added to S and φ(k) to z, with φ(x) = elu(x) + 1, and both are returned",
            points=1,
            calls=added,
            small=small(view=state),
            anchor="recurrent",
        ),
        Requirement(
            "output",
            "the output is φ(q) S / (φ(q)·z), with S and z of this position",
            points=1,
            calls=outputs,
            small=small(),
            anchor="recurrent",
        ),
        Requirement(
            "first",
            "without S and z it starts with an empty memory",
            points=0.5,
            calls=first,
            small=small(3),
            anchor="recurrent",
        ),
        Requirement(
            "decay",
            "S and z of before are multiplied by decay, and nothing else is",
            points=0.5,
            calls=decayed,
            small=small(view=state, decay=0.5),
            anchor="recurrent",
        ),
        Requirement(
            "kept",
            "the caller's S and z stay as they are, and gradients flow into them",
            points=0.5,
            calls=kept,
            small=small(decay=0.5),
            anchor="recurrent",
            backward=True,
        ),
        Requirement(
            "axes",
            "any number of axes may come in front, also none",
            points=0.5,
            calls=axes,
            small=lambda: [*small(5, LEADS)(), *small(3, LEADS)()],
            anchor="recurrent",
        ),
    ),
)
