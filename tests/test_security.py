"""All tests and attacks named in SECURITY.md exist; also tests a promise that no other file covers."""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from exercises.autograder.batch import grade
from tests.attack_fixtures.notebooks import NOTEBOOKS
from tests.attacks import ATTACKS, THEMES

TESTS = Path(__file__).parent
NAME = "ps02_masks"


def test_every_test_and_attack_that_is_named_exists():
    text = (TESTS.parent / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text)
    attacks = re.findall(r"`(\w[\w ]*: [^`]+)`", text)
    assert len(named) > 25 < len(attacks)
    for file, test in named:
        assert f"\ndef {test}(" in (TESTS / file).read_text(encoding="utf-8"), (file, test)
    assert set(attacks) <= set(ATTACKS)
    assert set(re.findall(r"`test_notebook\[([^…]+?)\]`", text)) <= set(NOTEBOOKS)
    assert set(re.findall(r"all of `([^`]+)`", text)) <= set(THEMES)


@pytest.mark.nbgrader
def test_a_worker_knows_no_student_and_no_file(tmp_path, monkeypatch):
    source = tmp_path / f"ann-example__{NAME}.ipynb"
    shutil.copyfile(TESTS.parent / "exercises" / "release" / NAME / f"{NAME}.ipynb", source)
    with grade.open_course(tmp_path / "course") as grading:
        grading.collect(source)
        monkeypatch.setattr(grading, "master", lambda _: ())  # entering a master takes seconds
        [(student, assignment)] = grading.course.submissions()
        job = json.dumps(asdict(grading.job(student, assignment)))
    assert student == "ann-example"
    assert student not in job
    assert str(tmp_path) not in job
