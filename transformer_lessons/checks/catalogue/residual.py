"""Add & Norm. A sub-layer of zeros shows what happens to the stream; one of ones, what is dropped."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Given, Task
from transformer_lessons.layers import AddAndNorm

linear = partial(Given, "linear")  # a sub-layer with this weight and bias
SET = "for n, p in enumerate(layer.parameters()): p.data = torch.arange(1., 4) * (2 - n or 3)"
SEED = "torch.manual_seed(0x5EED0000)"  # set by the check before each call
TWO = {"norm.weight": 2 * torch.arange(1.0, 4), "norm.bias": torch.arange(1.0, 4)}
AFTER = {"norm_after.weight": 3 * torch.arange(1.0, 4), "norm_after.bias": -torch.arange(1.0, 4)}
SET_ONES = "layer.norm_after.weight.data, layer.norm_after.bias.data = torch.zeros(3), torch.ones(3)"
SANDWICH = (
    "config: TransformerConfig)",
    "config: TransformerConfig, sandwich=False)",
    "        self.dropout = nn",
    "        self.norm_after = LayerNorm(config.d_model) if sandwich else None\n        self.dropout = nn",
    "        if self.norm_first:\n",
    "        if self.norm_after is not None:\n"
    "            return x + self.dropout(self.norm_after(sublayer(self.norm(x))))\n        if self.norm_first:\n",
)


def config(d_model: int, num_heads: int = 1, d_ff: int = 0, *, norm_first=False, dropout=0.0) -> Given:
    """A configuration with the three or five settings that a layer reads, and how the message writes it."""
    sizes = {"d_model": d_model, "num_heads": num_heads, "d_ff": d_ff, "dropout": dropout}
    sizes = {name: size for name, size in sizes.items() if d_ff or name != "d_ff"}
    text = ", ".join(f"{name}={value}" for name, value in sizes.items()) + ", norm_first=True" * norm_first
    return Given("config", [{**sizes, "norm_first": norm_first}], f"TransformerConfig(7, 7, {text})")


def constant(width: int, number: float) -> Given:
    """A sub-layer that returns this number everywhere."""
    return Given("linear", [torch.zeros(width, width), torch.full((width,), number)])


def call(draw: Draw, **options) -> Call:
    """A call with a random norm and a random sub-layer, and numbers so large that no ε shows."""
    state = {"norm.weight": draw.normal(5), "norm.bias": draw.normal(5)}
    args = 30 * draw.normal(2, 3, 5), linear([30 * draw.normal(5, 5), draw.normal(5)])
    return Call(args, init=(config(5, **options),), state=state)


def training(draw: Draw, number: float, *, norm_first: bool, is_training: bool = True) -> Call:
    """A call with dropout 0.25 and a sub-layer that returns this number, by default in training."""
    args = 30 * draw.normal(8, 5), constant(5, number)
    given = config(5, norm_first=norm_first, dropout=0.25)
    return Call(args, init=(given,), training=is_training, view=added(args[0]) if number else None)


def added(x: Tensor) -> Callable[[Tensor], list[float]]:
    """A view of which numbers were added to the stream."""
    return lambda y: sorted(set((y - x).mul(1000).round().div(1000).add(0.0).flatten().tolist()))


def is_uneven(y: Tensor) -> bool:
    """Whether rows have holes: a norm turns a row of one number, which has none, into zeros."""
    return bool(y.abs().max() > 0.1)


def uneven(*shape: int) -> Call:
    """Post-norm of zeros, to which ones are added, half of them dropped."""
    given = config(shape[-1], dropout=0.5)
    return Call((torch.zeros(*shape), constant(shape[-1], 1.0)), init=(given,), training=True, view=is_uneven)


def dropout(draw: Draw) -> list[Call]:
    """The stream stays whole; what is added is dropped or scaled up in training, and kept in evaluation."""
    calls = [training(draw, 0.0, norm_first=first) for first in (False, True)]
    calls += [training(draw, 1.0, norm_first=True, is_training=mode) for mode in (True, False)]
    x, _ = calls[2].args
    averages = linear([torch.ones(5, 5) / 5, torch.zeros(5)])
    mean = replace(calls[2], args=(x, averages), state=norm("norm", 0.0))
    # One call's second norm returns ones for any input; the other's turns ones without holes into zeros.
    ones = replace(calls[2], state=norm("norm", 1.0) | norm("norm_after", 0.0))
    even = replace(uneven(8, 5), state=norm("norm", 0.0) | norm("norm_after", 1.0))
    even = replace(even, args=(torch.zeros(8, 5), linear([torch.eye(5), torch.zeros(5)])))
    both = [replace(one, init=(*one.init, True)) for one in (ones, even)]
    calls += [mean, *both, replace(both[0], training=False), uneven(8, 5)]
    return [*calls, replace(calls[-1], training=False)]


def both(draw: Draw, **options) -> list[Call]:
    """Calls with random weights; the last shows whether x is left as it was."""
    return [call(draw, **options), call(draw, **options), replace(call(draw, **options), edits=True)]


def sandwich(draw: Draw) -> list[Call]:
    """Sandwich norms, with and without norm_first; the last call shows whether x is left as it was."""
    calls = []
    for first in (False, True):
        plain = call(draw, norm_first=first)
        state = plain.state | {"norm_after.weight": draw.normal(5), "norm_after.bias": draw.normal(5)}
        calls.append(replace(plain, init=(*plain.init, True), state=state))
    return [*calls, replace(calls[0], edits=True)]


def norm(name: str, weight: float, width: int = 5) -> dict[str, Tensor]:
    """A norm's state: with weight 1 that of a new norm, with 0 one that returns ones for any input."""
    return {f"{name}.weight": torch.full((width,), weight), f"{name}.bias": torch.full((width,), 1 - weight)}


def small_sandwich() -> Iterator[Call]:
    """Small calls with sandwich norms."""
    for case in (*small(), *small(norm_first=True)):
        yield replace(case, init=(*case.init, True), state=TWO | AFTER)


def small(*, norm_first: bool = False) -> Iterator[Call]:
    """A sub-layer that shifts all numbers by one place; the last call shows whether x is left as it was."""
    rolls = Given("linear", [torch.eye(3).roll(1, 0), torch.zeros(3)], "lambda y: y.roll(1, -1)")
    for row in ([0.0, 3.0, 6.0], [1.0, 2.0, 6.0], [1.0, 1.0, 4.0]):
        given = config(3, norm_first=norm_first)
        yield (case := Call((torch.tensor([[row]]), rolls), init=(given,), state=TWO, setting=SET))
    yield replace(case, edits=True)


def small_training() -> Iterator[Call]:
    """Sub-layers of zeros; then ones, with some or nearly all of them dropped, or in evaluation none."""
    nothing = Given("linear", [torch.zeros(3, 3), torch.zeros(3)], "lambda y: 0 * y")
    ones = Given("linear", [torch.zeros(3, 3), torch.ones(3)], "lambda y: 0 * y + 1")
    x, given = torch.tensor([[[0.0, 3.0, 6.0]]]), {"training": True, "setting": SEED}
    for first, rate, sublayer in ((False, 0.5, nothing), (True, 0.5, nothing), (True, 0.999, ones)):
        yield Call((x, sublayer), init=(config(3, norm_first=first, dropout=rate),), **given)
    for first in (True, False):
        yield Call((x, ones), init=(config(3, norm_first=first, dropout=0.5),), setting=SEED)
    even = replace(uneven(1, 3), args=(torch.zeros(1, 3), ones), setting=SEED, view=describe_holes)
    yield from (even, replace(even, init=(*even.init, True)))
    both = {"state": norm("norm", 1.0, 3) | norm("norm_after", 0.0, 3), "setting": f"{SEED}\n{SET_ONES}"}
    for rate, training in ((0.999, True), (0.5, False)):
        yield Call((x, ones), init=(config(3, dropout=rate), True), training=training, **both)


def describe_holes(y: Tensor) -> str:
    """A phrase instead of numbers, as it is random which of them are dropped."""
    return "some numbers other than 0 where ones were dropped" if is_uneven(y) else "0 everywhere"


TASK = Task(
    name="residual",
    solution=[AddAndNorm],
    extension=SANDWICH,
    roles={"norm": "norm ln layernorm"},
    probes={
        "post_norm": (both, small()),
        "pre_norm": (lambda draw: both(draw, norm_first=True), small(norm_first=True)),
        "sandwich": (sandwich, small_sandwich()),
        "dropout": (dropout, small_training()),
    },
)
