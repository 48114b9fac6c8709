"""The check of `accumulated_step`: a batch in parts, that learns what the whole batch would."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons.checks.old.core import Draw, Given, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

PARALLEL, MEMORY, LOOP = "#ch16-parallel", "#ch17-memory", "#ch14-loop"
CALLS = "for 12 rows in 6 parts, the model is not called 6 times, once for each part"
TOO_MANY = (
    "for 11 rows in 4 parts, the model is called more than 4 times: these are more parts than asked for"
)
LOSS = "the loss returned is not the mean over all real tokens"
WEIGHTS = "after the step, the model's weights are not those that the whole batch would have made"
PAD = 0


def _sizes(seed: int) -> dict[str, int]:
    order = random.Random(seed)
    features, hidden, vocab = order.sample([3, 5, 7], 3)
    return {
        "rows": order.choice([11, 13]),
        "length": order.choice([5, 7]),
        "features": features,
        "hidden": hidden,
        "vocab": vocab,
        "parts": order.choice([3, 4, 5]),
    }


def _view(result: list) -> dict:
    loss, state = result
    return {LOSS: loss.reshape(()).float(), WEIGHTS: state}


def _model(s: dict[str, int], draw: Draw) -> Given:
    widths = s["features"], s["hidden"], s["vocab"]
    pairs = list(itertools.pairwise(widths))
    weights = [0.5 * draw.normal(out, into, dtype=torch.float32) for into, out in pairs]
    biases = [draw.normal(out, dtype=torch.float32) for _, out in pairs]
    return Given("perceptron", [weights, biases])


def _batch(s: dict[str, int], draw: Draw, rows: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and targets, sorted by length as batches are: parts have very different numbers of tokens."""
    rows, length = rows or s["rows"], s["length"]
    targets = draw.integers(1, s["vocab"], rows, length)
    for row in range(rows):
        targets[row, 1 + row * (length - 1) // max(rows - 1, 1) :] = PAD
    return draw.normal(rows, length, s["features"], dtype=torch.float32), targets


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    model, (x, targets) = _model(s, draw), _batch(s, draw)
    full = draw.integers(1, s["vocab"], 2 * s["parts"], s["length"])
    even = draw.normal(*full.shape, s["features"], dtype=torch.float32)
    blank = targets.clone()
    blank[: -(-len(blank) // s["parts"])] = PAD
    count = {**s, "length": 13, "features": 2, "hidden": 31, "vocab": 3}
    long, answers = _batch(count, draw, rows=12)
    odd, few_answers = _batch(count, draw, rows=11)  # divided in more than one way, but not in any
    hidden = 12 * 13 * 31 * 4

    def probe(x, targets, parts, rate=0.5, **options):
        return Probe([model, x, targets, parts, rate], look=(0,), view=_view, **options)

    return {
        "whole": probe(x, targets, 1),
        "even": probe(even, full, s["parts"]),
        "calls": Probe(
            [Given("counting", [_model(count, draw)]), long, answers, 6, 0.5],
            look=(0,),
            view=lambda result: {CALLS: result[1]["calls"]},
        ),
        "calls_uneven": Probe(
            [Given("counting", [_model(count, draw)]), odd, few_answers, 4, 0.5],
            look=(0,),
            view=lambda result: {TOO_MANY: int(result[1]["calls"]) > 4},
        ),
        "parts": probe(x, targets, s["parts"]),
        "two": probe(x, targets, 2, rate=0.125),
        "more_than_rows": probe(x[:3], targets[:3], 7),
        "blank_part": probe(x, blank, s["parts"]),
        "counted": Probe(
            [_model(count, draw), odd, few_answers, 6, 0.5],
            look=(0,),
            view=_view,
            meter=True,
            enough={"largest": hidden // 4, "peak": hidden // 2},
        ),
        "left_over": Probe([Given("used", [model]), x, targets, 2, 0.5], look=(0,), view=_view),
        "no_parts": Probe([model, x, targets, 0, 0.5], refused="parts=0"),
        "negative_parts": Probe([model, x, targets, -2, 0.5], refused="parts=-2"),
    }


def _accept(parts: int) -> None:
    if parts < 1:
        raise ValueError("parts: expected 1 or more")


def _summed(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=PAD, reduction="sum")


def _real(targets: Tensor) -> int:
    return int((targets != PAD).sum())


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    split: Callable = lambda x, targets, parts: list(zip(x.chunk(parts), targets.chunk(parts), strict=True))
    summed: Callable = _summed
    share: Callable = lambda loss, own, of_all, parts, rows: loss / of_all
    real: Callable = _real
    first: Callable = lambda model: model.zero_grad()
    between: Callable = lambda model, rate: None
    last: Callable = lambda model, rate: _descend(model, rate)
    result: Callable = lambda losses, found: sum(losses)
    backward: Callable = lambda loss, waiting: loss.backward()
    rest: Callable = lambda waiting: None


def _descend(model: nn.Module, rate: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
    model.zero_grad()


def assemble(steps: Steps) -> Callable:
    """Accumulation in these steps."""

    def accumulated_step(model, x, targets, parts, rate):
        steps.accept(parts)
        of_all, losses, waiting = steps.real(targets), [], []
        steps.first(model)
        pairs = steps.split(x, targets, parts)
        for part, answers in pairs:
            loss = steps.summed(model(part), answers)
            loss = steps.share(loss, steps.real(answers), of_all, len(pairs), len(part) / len(x))
            steps.backward(loss, waiting)
            losses.append(loss.detach())
            steps.between(model, rate)
        steps.rest(waiting)
        steps.last(model, rate)
        return steps.result(losses, pairs)

    return accumulated_step


def _dropping(x, targets, parts):
    size = max(len(x) // parts, 1)
    return list(zip(x.split(size), targets.split(size), strict=True))[:parts]


def _rest_in_one(place):
    def split(x, targets, parts):
        sizes = [len(x) // parts] * parts
        sizes[place] += len(x) % parts
        pairs = zip(x.split(sizes), targets.split(sizes), strict=True)
        return [pair for pair in pairs if len(pair[0])]

    return split


def _in_parts_of(size: Callable) -> Callable:
    """Of the size that `size` says, however many that makes."""

    def split(x, targets, parts):
        rows = max(size(len(x), parts), 1)
        return list(zip(x.split(rows), targets.split(rows), strict=True))

    return split


def _retained(loss, waiting):
    loss.backward(retain_graph=True)
    waiting.append(loss)


def _mean(loss, own):
    return loss / own if own else loss * float("nan")


MISTAKES = (
    Mistake(
        "mean_of_means",
        "you average the means of the parts; a token in a part with few of them counts for more",
        "The loss of each part is a mean, and dividing by parts is what the tutorials do.",
        "It trains, but learns something else with every number of parts.",
        PARALLEL,
        ({"share": lambda loss, own, of_all, parts, rows: _mean(loss, own) / parts},),
    ),
    Mistake(
        "weighted_by_rows",
        "you weight the mean of each part by its rows; it is the tokens that count",
        "Parts of unequal size were thought of, but not padding.",
        "Short sentences count for more than in the whole batch.",
        PARALLEL,
        ({"share": lambda loss, own, of_all, parts, rows: _mean(loss, own) * rows},),
    ),
    Mistake(
        "means_summed",
        "you add up the means of the parts and divide by nothing",
        "backward() adds gradients up, and each loss is fine by itself.",
        "The step is `parts` times too long.",
        PARALLEL,
        ({"share": lambda loss, own, of_all, parts, rows: _mean(loss, own)},),
    ),
    Mistake(
        "never_divided",
        "you add up the losses of all tokens and never divide by their number",
        "reduction='sum' is right for each part; the division comes afterwards.",
        "The step grows with the batch.",
        PARALLEL,
        ({"share": lambda loss, own, of_all, parts, rows: loss},),
    ),
    Mistake(
        "padding_counted",
        "you divide by all positions, padding included",
        "numel() counts what is there.",
        "The more padding, the shorter the step.",
        PARALLEL,
        ({"real": lambda targets: targets.numel()},),
    ),
    Mistake(
        "padding_learned",
        "you count padding as something to be predicted",
        "ignore_index was left out.",
        "Most of what is learned is where padding stands.",
        LOOP,
        (
            {
                "summed": lambda logits, targets: F.cross_entropy(
                    logits.flatten(0, -2), targets.flatten(), reduction="sum"
                ),
                "real": lambda targets: targets.numel(),
            },
            {
                "summed": lambda logits, targets: F.cross_entropy(
                    logits.flatten(0, -2), targets.flatten(), reduction="sum"
                ),
            },
        ),
    ),
    Mistake(
        "step_for_each_part",
        "you take a step after each part; there is one step, after the last",
        "The loop of ordinary training was kept.",
        "Later parts see other weights: these are small batches, not a large one.",
        PARALLEL,
        ({"between": lambda model, rate: _descend(model, rate), "last": lambda model, rate: None},),
    ),
    Mistake(
        "only_the_last_part",
        "you clear the gradients before each part, so only those of the last are left",
        "zero_grad() stands at the top of every training loop.",
        "All other parts are computed for nothing.",
        PARALLEL,
        ({"summed": lambda logits, targets: _summed(logits, targets), "backward": lambda *a: _alone(*a)},),
    ),
    Mistake(
        "left_over_counted",
        "you add to what stood in .grad before; an earlier step may have left something there",
        "In a new model there is nothing, so it works the first time.",
        "Every step takes the one before along.",
        LOOP,
        ({"first": lambda model: None},),
    ),
    Mistake(
        "last_rows_dropped",
        "you drop the rows that are left over where parts does not divide their number",
        "rows // parts rows make a part.",
        "The end of each batch is never learned.",
        PARALLEL,
        ({"split": _dropping},),
    ),
    Mistake(
        "rest_in_the_last_part",
        "one of your parts takes all rows that are left over; parts are to be of nearly equal size",
        "Each part has rows // parts rows, but for the last one, which ends where the batch does.",
        "11 rows in 6 parts make five of 1 and one of 6, and that does not fit.",
        MEMORY,
        ({"split": _rest_in_one(-1)}, {"split": _rest_in_one(0)}),
    ),
    Mistake(
        "more_parts",
        "you make more parts than asked for where they do not divide the rows",
        "split(rows // parts) makes another part of what is left over, or several.",
        "11 rows in 4 parts make 6, and a step takes longer.",
        PARALLEL,
        (
            {"split": _in_parts_of(lambda rows, parts: rows // parts)},
            {"split": _in_parts_of(lambda rows, parts: 1 if rows % parts else rows // parts)},
        ),
    ),
    Mistake(
        "ascent",
        "you add the gradient; the loss falls in the other direction",
        "A sign.",
        "The loss rises.",
        LOOP,
        ({"last": lambda model, rate: _descend(model, -rate)},),
    ),
    Mistake(
        "no_step",
        "you never change the weights of the model that is handed over",
        "backward() looks like the end of it; or an optimizer was kept that knows an earlier model.",
        "The model stays as it was.",
        LOOP,
        ({"last": lambda model, rate: None},),
    ),
    Mistake(
        "rate_ignored",
        "you never use rate as it was given",
        "A constant was written down where the argument belongs.",
        "With another rate, nothing changes.",
        LOOP,
        (
            {"last": lambda model, rate: _descend(model, 1.0)},
            {"last": lambda model, rate: _descend(model, 0.1)},
            {"last": lambda model, rate: _descend(model, 0.01)},
        ),
    ),
    Mistake(
        "last_loss_returned",
        "you return the loss of the last part",
        "`loss` still has that value after the loop.",
        "The curve that is plotted is noise.",
        PARALLEL,
        ({"result": lambda losses, pairs: losses[-1]},),
    ),
    Mistake(
        "whole_at_once",
        "you never divide the batch; the numbers are those of the whole, and so is the memory",
        "That the result must be equal makes this the simplest way.",
        "A batch that does not fit still does not fit.",
        MEMORY,
        ({"split": lambda x, targets, parts: [(x, targets)]},),
    ),
    Mistake(
        "one_backward",
        "you hold the graphs of all parts until the end, to go back once or by retain_graph; let each go at once",
        "One sum, one backward pass looks tidy; and retain_graph=True repairs an error about a second one.",
        "The memory is that of the whole batch.",
        MEMORY,
        (
            {
                "backward": lambda loss, waiting: waiting.append(loss),
                "rest": lambda waiting: sum(waiting).backward(),
            },
            {"backward": _retained},
        ),
    ),
    Mistake(
        "parts_unchecked",
        "you do not refuse parts below 1",
        "chunk complains about it, though not with a ValueError.",
        "The caller is told nothing about parts.",
        PARALLEL,
        (
            {"accept": lambda parts: None},
            {"accept": lambda parts: None, "split": lambda x, t, p: _at_least_one(x, t, p)},
        ),
    ),
)


def _alone(loss: Tensor, waiting: list) -> None:
    """Backward, with the gradients of earlier parts taken out again."""
    waiting[:] = [loss]
    leaves_ = _parameters(loss)
    for leaf in leaves_:
        leaf.grad = None
    loss.backward()


def _parameters(loss: Tensor) -> list[Tensor]:
    """The leaves of a graph."""
    seen, todo, found = set(), [loss.grad_fn], []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    return found


def _at_least_one(x: Tensor, targets: Tensor, parts: int) -> list:
    return list(zip(x.chunk(max(parts, 1)), targets.chunk(max(parts, 1)), strict=True))


TASK = Task(
    name="accumulated_step",
    signature="accumulated_step(model, x, targets, parts, rate)",
    arguments=("model", "x", "targets", "parts", "rate"),
    returns=("loss",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns one tensor, the loss.", ("whole",), PARALLEL, ("structure",)),
        Requirement(
            "step",
            "with one part: one step w − rate · g, g the gradient of the loss per real token (targets ≠ 0).",
            ("whole",),
            LOOP,
        ),
        Requirement(
            "equal_parts",
            "parts of equally many tokens add up to the same step.",
            ("even", "calls", "calls_uneven"),
            PARALLEL,
        ),
        Requirement(
            "tokens",
            "parts of unequal numbers of rows and tokens do so too: every real token counts the same.",
            ("parts", "two"),
            PARALLEL,
        ),
        Requirement("few_rows", "parts may be more than there are rows.", ("more_than_rows",), PARALLEL),
        Requirement("blank", "a part without a real token changes nothing.", ("blank_part",), PARALLEL),
        Requirement("left_over", "what stood in .grad before counts for nothing.", ("left_over",), LOOP),
        Requirement("inputs", "x and targets are left unchanged.", ("whole", "parts"), PARALLEL, ("inputs",)),
        Requirement(
            "peak",
            "no more than one part's hidden layers are held at a time.",
            ("counted",),
            MEMORY,
            ("largest", "peak"),
        ),
        Requirement(
            "refusals", "parts below 1 are refused with ValueError.", ("no_parts", "negative_parts"), PARALLEL
        ),
    ),
    sizes=_sizes,
    small=(),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=7,  # what is neither refused nor counted
)
