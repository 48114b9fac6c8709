"""Answers as people write them: right ones pass in any form, and a mistake costs only what it breaks."""

import copy
import math
import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter

import pytest
import torch
from torch.utils._pytree import tree_leaves

from checks.answers import MODULES
from checks.conftest import TASKS
from transformer_lessons import checks, layers
from transformer_lessons.checks.definitions import changed
from transformer_lessons.config import TransformerConfig

RIGHT = [
    pytest.param(task, answer, id=f"{task}-{answer.__name__}")
    for module in MODULES
    for task, known in module.RIGHT.items()
    for answer in known
]
WRONG = [
    pytest.param(task, *entry, id=f"{task}-{entry[0].__name__}")
    for module in MODULES
    for task, known in module.WRONG.items()
    for entry in known
]


@cache
def cached_report(task: str, answer: Callable, seed: int) -> checks.Report:
    """The report on a wrong answer, cached because two tests use it."""
    return checks.check(task, answer, seed=seed)


def test_every_task_has_right_answers_of_other_people():
    assert {param.values[0] for param in RIGHT} == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_the_package_is_right(task):
    known = checks.task(task)
    report = checks.check(task, known.define(known.source))
    assert report.passed
    assert report.message == f"{known.public_name}: right."
    assert report.score() == known.total


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "result", [lambda x: None, lambda x: (x, x), lambda x: "a"], ids=["none", "two", "text"]
)
def test_whatever_is_returned_is_judged(task, result):
    known = checks.task(task)
    answer = known.define(known.source)
    if isinstance(answer, type):
        answer.forward = lambda self, x=None, *args, **kwargs: result(x)
    report = checks.check(task, answer if isinstance(answer, type) else lambda x=None, *_, **__: result(x))
    assert report.score() <= known.total / 4  # for a new object's weights, for example
    assert report.message.startswith(f"{known.public_name}: ")


@pytest.mark.parametrize("task", TASKS)
def test_zeros_of_the_right_shape_are_no_answer(task):
    known = checks.task(task)
    answer = known.define(known.source)
    right = answer.forward if isinstance(answer, type) else answer

    def wrong(*args, **kwargs):
        return zeros(right(*copy.deepcopy(args), **kwargs))  # the gradients are missing, too

    if isinstance(answer, type):
        answer.forward = wrong
    report = checks.check(task, answer if isinstance(answer, type) else wrong)
    assert report.score() <= known.total / 4  # for a new object's weights, or for refused arguments
    assert report.misconception in (None, "always_false"), report.message


def zeros(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, list | tuple):
        return [zeros(one) for one in value]
    return value and type(value)()


@pytest.mark.parametrize(("task", "answer"), RIGHT)
def test_a_right_answer_in_other_words_passes(task, answer):
    for seed in (0, 1):
        report = checks.check(task, answer, seed=seed)
        assert report.passed, report.message


@pytest.mark.full
@pytest.mark.parametrize(("task", "answer"), RIGHT)
def test_a_right_answer_passes_on_every_seed(task, answer):
    for seed in range(2, 100):
        report = checks.check(task, answer, seed=seed)
        assert report.passed, f"seed {seed}: {report.message}"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize(("task", "answer", "lost", "names"), WRONG)
def test_a_wrong_answer_loses_exactly_the_expected_requirements(task, answer, lost, names, seed):
    report = cached_report(task, answer, seed)
    assert {name for name, is_met in report.requirements.items() if not is_met} == lost, report.message
    assert {report.misconception, *report.also} - {None} == names, report.message


def first_mistake_of_each_requirement():
    """For each task and requirement, the first known mistake that loses it before any other requirement."""
    for name in TASKS:
        task = checks.task(name)
        order = [requirement.name for requirement in task.requirements]
        first = {min(mistake.costs, key=order.index): mistake for mistake in reversed(task.mistakes)}
        for mistake in first.values():
            answer = task.define(changed(task.source, mistake.ways[0]))
            yield pytest.param(name, answer, id=f"{name}-{mistake.name}")


@pytest.mark.parametrize(
    ("task", "answer"),
    [*first_mistake_of_each_requirement(), *(pytest.param(*p.values[:2], id=p.id) for p in WRONG)],
)
def test_the_case_shown_gives_what_the_message_says(task, answer):
    """The lines shown can be pasted; they give the numbers or the error of the message."""
    report = cached_report(task, answer, 0)
    known = checks.task(task)
    lines = [line.strip() for line in report.message.splitlines()]
    case = [line for line in report.message.splitlines() if line.startswith("    ") and "# " not in line[:6]]
    told = [line[2:] for line in lines if line.startswith("# ")]
    assert 0 < len(case) <= 6
    assert len(set(told)) == len(told) > 0
    imported = {
        "torch": torch,
        "checks": checks,
        "TransformerConfig": TransformerConfig,
        "package": layers,
    }
    space = {**imported, known.public_name: answer, answer.__name__: answer}
    *given, last = (line.strip() for line in case)
    exec("\n".join(given), space)
    if raised := re.match(r"raises (\w+)", told[-1]):
        with pytest.raises(Exception, match=r".*") as caught:
            eval(last, space)
        assert type(caught.value).__name__ == raised[1]
        return
    shown = re.fullmatch(r"(?:gradient of ([\w.]+) )?is +(\[.*?\])(, of shape .+)?", told[-1])
    name = shown and shown[1]
    leaf = space[name].requires_grad_() if name in space else name and attrgetter(name)(space["layer"])
    result = eval(last, space)
    if name:
        result = gradient_of_the_loss(leaf, result)
    if shown and isinstance(result, torch.Tensor):
        numbers = torch.tensor(eval(shown[2], {"nan": math.nan, "inf": math.inf})).flatten()
        assert torch.allclose(numbers.double(), result.flatten().double(), atol=0.051, equal_nan=True)


def gradient_of_the_loss(leaf, result):
    """As the comment in the case's last line says."""
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.autograd.backward(outputs, [torch.arange(1.0, 1 + x.numel()).cos().view_as(x) for x in outputs])
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
