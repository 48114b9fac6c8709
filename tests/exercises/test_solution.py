"""Answers for learners who gave up: for each task with a check, the answer that the check takes as right."""

import pytest

from transformer_lessons import checks
from transformer_lessons.checks.solution import solution
from transformer_lessons.tools.cli import main
from transformer_lessons.tools.submission import assignments

SOLVED = [
    (name, number, tasks) for name, one in assignments().items() for number, tasks in one["checks"].items()
]


@pytest.mark.parametrize(("name", "number", "tasks"), SOLVED)
def test_a_solution_holds_the_right_answer_and_its_requirements(name, number, tasks):
    text = solution(name[:4], number)
    for task in map(checks.task, tasks):
        assert task.source.rstrip() in text
        assert all(requirement.text in text for requirement in task.requirements)


def test_every_task_that_a_check_knows_has_one():
    assert {task for *_, tasks in SOLVED for task in tasks} == set(checks.tasks()) - {"rms_norm"}


def test_the_command_and_what_it_refuses(capsys):
    assert main(["solution", "ps02", "4"]) == 0
    assert capsys.readouterr().out.startswith("def local_window_mask(")
    assert main(["solution", "ps99", "4"]) == 2
    assert "assignment: expected one of ps01_embeddings_attention, " in capsys.readouterr().err
    assert main(["solution", "ps02", "9"]) == 2
    assert (
        "task: expected one of 2, 3, 4, 5 of ps02_masks, the tasks whose answers the checks know"
        in capsys.readouterr().err
    )
