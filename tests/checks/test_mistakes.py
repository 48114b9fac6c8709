"""Each known mistake is detected, gets its own name, and costs only what it breaks."""

import pytest

from checks.conftest import TASKS
from transformer_lessons import checks
from transformer_lessons.checks.answer import answer_from
from transformer_lessons.checks.definitions import Draw, changed
from transformer_lessons.checks.engine import Diagnosis, judge
from transformer_lessons.checks.exam import exam_of
from transformer_lessons.checks.message import place
from transformer_lessons.checks.seen import alike, meets, same_gradients
from transformer_lessons.checks.symptoms import SYMPTOMS, mistakes_by_symptom, repair_patch

MISTAKES = [
    pytest.param(task, mistake, id=f"{name}-{mistake.name}")
    for name in TASKS
    for task in [checks.task(name)]
    for mistake in task.mistakes
]


@pytest.mark.parametrize("name", TASKS)
def test_the_right_answer_raises_only_where_it_refuses(name):
    """If it raised other errors, an answer that raises in the same places would count as right."""
    exam = exam_of(checks.task(name), 0)
    assert {exam.expected(n).error for n in range(len(exam.calls))} <= {"", "ValueError"}
    requirements = exam.task.requirements
    assert all(place(r.anchor) and r.cases and r.draw_calls(Draw(0)) for r in requirements)
    assert {r.needs for r in requirements} <= {"", *(r.name for r in requirements)}


@pytest.mark.parametrize(("task", "mistake"), MISTAKES)
def test_a_mistake_shows_and_gets_its_own_name(task, mistake):
    assert place(mistake.anchor)
    assert mistake.symptoms
    assert set(mistake.symptoms) <= set(SYMPTOMS)
    for way in mistake.ways:
        text = changed(task.source, way)
        assert text, f"{way}: not in the right answer's text, or overlapping"
        exam = exam_of(task, 0)
        verdict = Diagnosis(exam, [exam.outcome(text, number) for number in range(len(exam.calls))]).verdict()
        assert verdict.mistakes == (mistake,), f"{way}: {[found.name for found in verdict.mistakes]}"


@pytest.mark.parametrize(("task", "mistake"), MISTAKES)
def test_the_repair_patch_turns_wrong_lines_into_right_ones(task, mistake):
    texts = {"-": changed(task.source, mistake.ways[0]), "+": task.source}
    patch = repair_patch(task, mistake).splitlines()
    assert patch
    assert all(line[1:] in texts[line[0]].splitlines() for line in patch)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 30))
@pytest.mark.parametrize("name", TASKS)
def test_a_mistake_is_named_on_every_seed(name, seed):
    task = checks.task(name)
    for mistake in task.mistakes:
        for way in mistake.ways:
            verdict = judge(answer_from(task, changed(task.source, way)), seed)
            assert verdict.mistakes == (mistake,), way
    for each in (exam_of, answer_from):  # or what all mistakes of all tasks show would fill the memory
        each.cache_clear()


@pytest.mark.parametrize(("task", "mistake"), MISTAKES)
def test_a_mistake_costs_what_it_spoils(task, mistake):
    exam = exam_of(task, 0)
    for number, way in enumerate(mistake.ways):
        text = changed(task.source, way)
        for requirement in task.requirements:
            calls = [n for n, (r, _) in enumerate(exam.calls) if r is requirement]
            if requirement.name in mistake.costs:
                is_met = all(meets(exam.calls[n][1], exam.outcome(text, n), exam.expected(n)) for n in calls)
                assert number or not is_met, f"costs {requirement.name}, but meets it"
                continue
            crashes = all(exam.outcome(text, n).error and not exam.expected(n).error for n in calls)
            assert not crashes, f"{way} crashes wherever {requirement.name} is looked at, and is not charged"
            depends = number or not is_constant(task, text, calls)
            assert depends, f"{way}: {requirement.name} does not depend on the input"


def is_constant(task, text, calls) -> bool:
    """Whether a text gives the same for other arguments although the right answer does not."""
    exam, other = exam_of(task, 0), exam_of(task, 1)
    backward = exam.calls[calls[0]][0].backward
    same = same_nonzero_gradients if backward else same_values
    if all(same(exam.outcome(text, n), exam.expected(n)) for n in calls):
        return False  # it follows the right answer
    if not all(same(exam.outcome(text, n), other.outcome(text, n)) for n in calls):
        return False
    rights = [(exam.expected(n), other.expected(n)) for n in calls]
    return not (
        all(same_nonzero_gradients(x, y) for x, y in rights)
        if backward
        else any(alike(x.value, y.value) for x, y in rights)
    )


def same_values(a, b) -> bool:
    return alike(a.value, b.value) and not a.error


def same_nonzero_gradients(a, b) -> bool:
    return bool(a.gradients) and any(g.any() for g in a.gradients.values()) and same_gradients(a, b)


def test_symptoms_are_found_by_any_of_their_words_in_any_order():
    assert list(mistakes_by_symptom("NaNs loss")) == ["loss is NaN"]
    assert list(mistakes_by_symptom()) == list(SYMPTOMS)
    with pytest.raises(ValueError, match=r"symptom: expected a word from .*, got 'loss hungry'"):
        mistakes_by_symptom("loss hungry")
