"""Gradient accumulation. Batches of one token hide the divisor; a single group hides what must be reset."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.checks.catalogue import label_smoothing
from transformer_lessons.checks.definitions import Call, Draw, Given, Task

Batch = tuple[Tensor, Tensor]
WORDS = 5


def train_accumulated(module, batches, accumulate, *, rate, pad_id):
    """One step of gradient descent for each group of batches, and its loss per real token."""
    module.zero_grad()
    losses, total, tokens = [], 0.0, 0
    for number, (inputs, targets) in enumerate(batches, start=1):
        real = targets != pad_id
        logits = module(inputs)[real]
        loss = F.cross_entropy(logits, targets[real], reduction="sum")
        loss.backward()
        total, tokens = total + loss.item(), tokens + int(real.sum())
        if number % accumulate == 0 or number == len(batches):
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= rate * parameter.grad / tokens
            losses.append(total / tokens)
            module.zero_grad()
            total, tokens = 0.0, 0
    return losses


def weights(value: list) -> dict[str, Tensor]:
    """The table of logits after the steps."""
    return {"module.weight after the call": value[1]["weight"]}


def losses(value: list) -> Tensor:
    """The returned losses; a list of floats or of tensors becomes one tensor."""
    return torch.tensor([*map(float, value[0])]) if isinstance(value[0], list) else value[0]


def batch(draw: Draw, *lengths: int, pad: int = 0, length: int = 0) -> Batch:
    """Inputs and targets with one row per length: that many real targets, then padding."""
    ids = label_smoothing.targets(draw, pad, WORDS, *lengths, length=length)
    return draw.integers(0, WORDS, *ids.shape), ids


def train(draw: Draw, batches: list[Batch], accumulate: int, view=weights, *, pad=0, rate=0.7) -> Call:
    """A call that trains a table of logits, an embedding with one row per input token."""
    module = Given("embedding", [draw.normal(WORDS, WORDS)])
    return Call((module, batches, accumulate), {"rate": rate, "pad_id": pad}, weights_after=(0,), view=view)


def ones(draw: Draw, number: int) -> list[Batch]:
    """Batches of one token each."""
    return [batch(draw, 1) for _ in range(number)]


def padding(draw: Draw) -> list[Call]:
    """Groups of one real token, with pad_id 2; in the second call that token is 0."""
    inputs, _ = batch(draw, 1, pad=2, length=3)
    zero = inputs, torch.tensor([[0, 2, 2]])
    return [train(draw, [one], 1, pad=2) for one in (batch(draw, 1, pad=2, length=4), zero)]


def tokens(draw: Draw) -> list[Call]:
    """Groups of unequal batches, and a single batch, which show what the gradient is divided by."""
    uneven = [batch(draw, 3, 3), batch(draw, 1), batch(draw, 2, 2, 2)]
    return [train(draw, uneven, 3), train(draw, uneven[:2], 2), train(draw, uneven[2:], 1)]


def groups(draw: Draw) -> list[Call]:
    """Three groups of one, two or three tokens each; last, a module that comes with old gradients."""
    calls = [train(draw, ones(draw, size * 3), size) for size in (1, 2, 3)]
    return [*calls, used(calls[0])]


def used(call: Call) -> Call:
    """The same call of a module that comes with old gradients, all ones."""
    module, *others = call.args
    text = f"{module.expression}.apply(lambda m: m.weight.sum().backward())"
    return replace(call, args=(Given("used", [module], text), *others))


def rest(draw: Draw) -> list[Call]:
    """Fewer batches than a group, judged by the weights; then more, judged by whether the last one counts."""
    found = [train(draw, ones(draw, 2), 3)]
    for number, size in ((3, 2), (7, 3)):
        batches = [(inputs * 0 + (n == number - 1), y) for n, (inputs, y) in enumerate(ones(draw, number))]
        one = train(draw, batches, size)  # no other batch moves the row of the last one's input
        start = one.args[0].args[0]
        found.append(replace(one, view=lambda value, old=start: torch.equal(value[1]["weight"][1], old[1])))
    return found


def returned(draw: Draw) -> list[Call]:
    """The losses of equal and unequal batches, at rate 0; last, whether a rest has a loss if it has a step."""
    uneven = [batch(draw, 3, 3), batch(draw, 1), batch(draw, 2, 2, 2), batch(draw, 4, 4)]
    given = (ones(draw, 2), 2), (uneven[:3], 3), (uneven, 2)
    calls = [train(draw, batches, size, losses, rate=0.0) for batches, size in given]
    return [*calls, *small((2, ONE), view=lambda value: len(value[0]) == bool(value[1]["weight"].any()))]


def table(numbers: str) -> Given:
    """A table of logits for two inputs and three classes, all zero or an identity."""
    text = f"torch.nn.Embedding.from_pretrained(torch.{numbers}(2, 3), freeze=False)"
    return Given("embedding", [getattr(torch, numbers)(2, 3)], text)


def small(*cases: tuple, numbers: str = "zeros", view: Callable = weights, pad: int = 0) -> Iterator[Call]:
    """A call for each case: the group size, then batches of one row, each as (inputs, targets)."""
    for accumulate, *batches in cases:
        given = [tuple(torch.tensor([side]) for side in one) for one in batches]
        args = table(numbers), given, accumulate
        yield Call(args, {"rate": 1.0, "pad_id": pad}, weights_after=(0,), view=view)


ONE, OTHER, TWO = ([0], [1]), ([1], [2]), ([0, 0], [1, 1])

TASK = Task(
    name="accumulated_gradients",
    solution=[train_accumulated],
    planted=("pad_id_zero", "divided_twice", "rest_dropped", "tokens_run_on"),
    probes={
        "step": (lambda draw: [train(draw, ones(draw, 1), 1) for _ in range(2)], small((1, ONE))),
        "padding": (padding, small((1, ([0, 1], [1, 2])), pad=2)),
        "tokens": (tokens, small((2, TWO, OTHER), (1, TWO))),
        "groups": (groups, [*small((1, ONE, OTHER), (2, ONE, ONE, OTHER)), *map(used, small((1, ONE)))]),
        "rest": (rest, small((2, ONE), (2, ONE, ONE, OTHER))),
        "losses": (returned, small((2, ONE, ONE, OTHER), (2, TWO, ([1], [1])), numbers="eye", view=losses)),
    },
)
