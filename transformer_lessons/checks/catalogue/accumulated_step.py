"""A batch in parts, that learns what the whole batch would."""

import torch
import torch.nn.functional as F

from transformer_lessons.checks.definitions import Call, Draw, Given, Requirement, Task


def accumulated_step(model, x, targets, parts, rate):
    """One step of gradient descent, a part of the batch at a time; the loss per real token."""
    tokens = (targets != 0).sum()
    model.zero_grad()
    loss = 0.0
    for inputs, wanted in zip(x.chunk(parts), targets.chunk(parts), strict=True):
        logits = model(inputs).transpose(1, 2)
        part = F.cross_entropy(logits, wanted, ignore_index=0, reduction="sum") / tokens
        part.backward()
        loss = loss + part.detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
    return loss


def call(draw: Draw, parts: int, rows: int = 7, kind: str = "perceptron", blank: int = 0) -> Call:
    """Sentences sorted by length, of which the first ones are padding alone."""
    targets = draw.integers(1, 5, rows, 5)
    targets = targets * (torch.arange(5) < 1 + torch.arange(rows)[:, None] * 5 // rows)
    targets[:blank] = 0
    weights = [0.5 * draw.normal(6, 3), 0.5 * draw.normal(5, 6)]
    model = Given("perceptron", [weights, [draw.normal(6), draw.normal(5)]])
    model = Given("used", [model]) if kind == "used" else model
    return Call((model, draw.normal(rows, 5, 3), targets, parts, 0.5), look=(0,))


def scores(targets: list, parts: int, used: bool = False) -> Call:
    """For the message, a model that is a table of scores of three classes, all zero."""
    shown = "torch.nn.Embedding.from_pretrained(torch.zeros(3, 3), freeze=False)"
    model = Given("embedding", [torch.zeros(3, 3)], shown)
    left = Given("used", [model], f"{shown}  # in whose .grad are ones from before")
    x = torch.arange(len(targets))[:, None].expand(-1, len(targets[0])).clone()
    return Call((left if used else model, x, torch.tensor(targets), parts, 1.0), look=(0,))


HIDDEN = 12 * 13 * 31 * 4  # bytes of the hidden layer of the whole batch, in the call below


def memory() -> list[Call]:
    """Twelve rows in six parts."""
    model = Given(
        "perceptron",
        [[torch.ones(31, 2), torch.ones(3, 31)], [torch.ones(31), torch.ones(3)]],
        "torch.nn.Sequential(torch.nn.Linear(2, 31), torch.nn.ReLU(), torch.nn.Linear(31, 3))",
    )
    targets = torch.full((12, 13), 1)
    enough = {"largest": HIDDEN // 4, "peak": HIDDEN // 2}
    return [Call((model, torch.ones(12, 13, 2), targets, 6, 0.5), enough=enough)]


TASK = Task(
    name="accumulated_step",
    right=[accumulated_step],
    arguments=("model", "x", "targets", "parts", "rate"),
    results=("loss", "the model's"),
    requirements=(
        Requirement(
            "step",
            "in one part, the weights become w − rate · g, with g of the loss per real token, which is returned",
            points=1,
            calls=lambda draw: [call(draw, 1), call(draw, 1, rows=3)],
            small=lambda: iter([scores([[1, 0], [1, 2]], 1)]),
            anchor="training-loop",
        ),
        Requirement(
            "tokens",
            "parts with different numbers of real tokens learn what the whole batch would",
            points=1,
            calls=lambda draw: [call(draw, 2), call(draw, 4), call(draw, 3, rows=6)],
            small=lambda: iter([scores([[1, 0], [1, 2]], 2)]),
            anchor="training-loss",
            needs="step",
        ),
        Requirement(
            "blank",
            "a part may hold padding alone, and there may be fewer rows than parts",
            points=0.5,
            calls=lambda draw: [call(draw, 3, blank=3), call(draw, 7, rows=3)],
            small=lambda: iter([scores([[0, 0], [1, 2]], 2), scores([[1, 1], [1, 2]], 3)]),
            anchor="training-loss",
            needs="step",
        ),
        Requirement(
            "left_over",
            "what is left in the parameters' gradients from before is not taken along",
            points=0.5,
            calls=lambda draw: [call(draw, 1, kind="used")],
            small=lambda: iter([scores([[1, 0], [1, 2]], 1, used=True)]),
            anchor="training-loop",
            needs="step",
        ),
        Requirement(
            "memory",
            "the hidden layers of one part only are there at a time",
            points=1,
            calls=lambda draw: memory(),
            small=memory,
            anchor="costs-memory",
            needs="step",
        ),
    ),
)
