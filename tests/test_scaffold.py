"""`lessons new-…`: what it begins passes the tests of its kind at once, and what cannot be begun is one line."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scaffold import __main__ as commands
from scaffold.files import ROOT, filled, formatted, with_line
from scaffold.misconception import with_mistake
from transformer_lessons import checks
from transformer_lessons.checks.catalogue import TASKS
from transformer_lessons.tools import cli

CHAPTER = ["new-chapter", "sparse_attention", "Sparse attention", "--exercise", "ps09_speed_memory"]
TASK = ["new-task", "row_size", "ch10-rms-norm"]
SLOWLY = "lambda step, warmup_steps: (step * warmup_steps) ** -0.25"
MISCONCEPTION = ["new-misconception", "warmup", "falls_slowly", "fall", SLOWLY]
# Several commands in one process, which starts slowly; the exit code is the sum of theirs.
ALL = "import sys; from scaffold.__main__ import main; sys.exit(sum(main(command) for command in {}))"
NEW = {
    "book/chapters/19_sparse_attention.ipynb",
    "tests/alternates/row_size.py",
    "transformer_lessons/checks/catalogue/row_size.py",
}
CHANGED = {
    *(f"book/{page}" for page in ("_toc.yml", "how_to_use.md", "index.md", "topics.md", "zh.md")),
    *(f"transformer_lessons/checks/catalogue/{name}.py" for name in ("__init__", "warmup")),
}
# The tests that look at all chapters, tasks and mistakes; of these, what is new, and what is about all at once.
TESTS = "book_notebooks book_pages checks checks_catalogue structure docstrings".split()
ABOUT = "19_sparse row_size falls_slowly warmup.py there_are chapter in_the_order enough point_at".split()


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, check=False)


def contents(root: Path) -> dict[str, bytes]:
    names = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name: (root / name).read_bytes() for name in names if name}


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of the repository as it is here, in a folder with a space in its name."""
    root = tmp_path_factory.mktemp("a clone") / "the course"
    for name, content in contents(ROOT).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    return root


@pytest.fixture(scope="module")
def begun(clone) -> tuple[Path, str]:
    """The copy with one new thing of each kind, and what the commands said."""
    first = python(clone, "-m", "transformer_lessons", *TASK)  # which hands over to the clone's own command
    others = python(clone, "-c", ALL.format([MISCONCEPTION, CHAPTER]))
    for done in (first, others):
        assert done.returncode == 0, done.stderr
    return clone, first.stdout + others.stdout


def test_new_files_are_written_and_lists_extended(begun):
    clone, said = begun
    before, after = contents(ROOT), contents(clone)
    assert after.keys() - before.keys() == NEW
    assert {name for name in before if after[name] != before[name]} == CHANGED
    assert set(re.findall(r"^written: (.+)$", said, re.MULTILINE)) == NEW | CHANGED
    for name in CHANGED:  # apart from the catalogue that a misconception goes to, only lines are added
        if not name.endswith("warmup.py"):
            lines = set(after[name].splitlines())
            assert [line for line in before[name].splitlines() if line not in lines] == []


def test_what_was_begun_passes_the_tests(begun, tmp_path):
    clone, _ = begun
    files, report = [f"tests/test_{name}.py" for name in TESTS], tmp_path / "report.xml"
    done = python(clone, "-m", "pytest", *files, "-k", " or ".join(ABOUT), "--junitxml", str(report))
    assert done.returncode == 0, done.stdout
    passed = [case.get("name") for case in ElementTree.parse(report).iter("testcase") if not len(case)]
    expected = {"19_sparse_attention": 8, "row_size": 20, "falls_slowly": 1, "test_there_are_chapters": 1}
    for part, least in expected.items():
        assert sum(part in name for name in passed) >= least, part


def test_what_was_begun_has_the_repositorys_style(begun):
    clone, _ = begun
    changed = [name for name in NEW | CHANGED if name.endswith(".py")]
    for options in (["check"], ["format", "--check"]):
        done = python(clone, "-m", "ruff", *options, *changed)
        assert done.returncode == 0, done.stdout
    text = [name for name in NEW | CHANGED if not name.endswith(".ipynb")]
    assert python(clone, "-m", "codespell_lib", *text).returncode == 0


def test_beginning_it_again_is_refused_and_changes_nothing(begun):
    clone, _ = begun
    before = contents(clone)
    done = python(clone, "-c", ALL.format([TASK, MISCONCEPTION, CHAPTER]))
    assert done.returncode == 6
    found = re.findall(r"^lessons new-\w+: \w+: expected a new one, (.+?) '", done.stderr, re.MULTILINE)
    assert found == ["there is a task", "warmup.py has", "there is a chapter"]
    assert contents(clone) == before


# ---- What cannot be begun

REFUSED = [
    (["new-chapter", "Sparse", "Sparse"], "name: expected lower case letters"),
    (["new-chapter", "sparse-attention", "Sparse"], "name: expected lower case letters"),
    (["new-chapter", "../sparse", "Sparse"], "name: expected lower case letters"),
    (["new-chapter", "masks", "Masks"], "name: expected a new one, there is a chapter 'masks'"),
    (["new-chapter", "sparse", "a | b"], "title: expected a line of text"),
    (["new-chapter", "sparse", ""], "title: expected a line of text"),
    (["new-chapter", "sparse", "Sparse", "--exercise", "ps99"], "exercise: expected one of ps01_"),
    (["new-task", "RowSize", "ch10-rms-norm"], "name: expected lower case letters"),
    (["new-task", "lambda", "ch10-rms-norm"], "name: expected lower case letters"),
    (["new-task", "warmup", "ch10-rms-norm"], "name: expected a new one, there is a task 'warmup'"),
    (["new-task", "masks", "ch04-wrong"], "name: expected a new one, there is a file transformer_lessons/"),
    (["new-task", "row_size", "ch10-nowhere"], "anchor: expected one of ch10-scale, "),
    (["new-task", "row_size", "ch99-wrong"], "anchor: expected one of a chapter, got 'ch99-wrong'"),
    (["new-task", "row_size", "rms"], "anchor: expected one such as ch05-wrong, got 'rms'"),
    (["new-misconception", "warm", "slow", "fall", "min"], "task: expected one of ['token_embedding'"),
    (["new-misconception", "warmup", "Slow", "fall", "min"], "id: expected lower case letters"),
    (
        ["new-misconception", "warmup", "no_warmup", "fall", "min"],
        "id: expected a new one, warmup.py has 'no_w",
    ),
    (
        ["new-misconception", "warmup", "schedule", "fall", "min"],
        "id: expected a new one, warmup.py has 'schedule'",
    ),
    (
        ["new-misconception", "warmup", "slow", "drop", "min"],
        "step: expected one of accept_step, accept_sizes",
    ),
    (
        ["new-misconception", "warmup", "slow", "fall", "lambda:"],
        "code: expected what runs in warmup.py, got",
    ),
    (
        ["new-misconception", "warmup", "slow", "fall", "math.nothing"],
        "code: expected what runs in warmup.py",
    ),
    (
        ["new-misconception", "warmup", "slow", "fall", "lambda step, _: 1 / step**0.5"],
        "code: expected a mistake; with it, warmup meets all requirements",
    ),
    (
        ["new-misconception", "warmup", "slow", "fall", "lambda step, _: 1 / step"],
        "code: expected a new mistake; with it, warmup makes falls_linearly, which is known",
    ),
    ([*MISCONCEPTION, "--anchor", "ch14-nowhere"], "anchor: expected one of ch14-"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_cannot_be_begun_is_one_line(arguments, message, capsys, no_shape_checks):
    before = git(ROOT, "status", "--short")
    assert commands.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"lessons {arguments[0]}: {message}")
    assert shown.err.count("\n") == 1
    assert git(ROOT, "status", "--short") == before


def test_a_wrong_command_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        commands.main(["new-task", "row_size"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_outside_a_clone_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(TASK) == 2
    expected = f"lessons new-task: expected the folder of a clone of the repository, got {tmp_path}\n"
    assert capsys.readouterr().err == expected


# ---- The parts


@pytest.mark.parametrize("task", checks.tasks())
def test_every_tasks_catalogue_can_be_extended(task):
    """However it is written: by name, or as a tuple of parts."""
    file, constant = TASKS[task].split(".")
    path = Path(importlib.import_module(f"{checks.__name__}.catalogue.{file}").__file__)
    values = {"constant": "ONE_MORE", "name": "one_more", "anchor": "#ch05-wrong", "step": "a", "code": "min"}
    before = path.read_text(encoding="utf-8")
    after = formatted(with_mistake(before, constant, filled("mistake.py.txt", **values)), path)
    old, new = (ast.parse(source).body for source in (before, after))
    added = [node for node in new if ast.unparse(node) not in map(ast.unparse, old)]
    assert [ast.unparse(node.targets[0]) for node in added] == ["ONE_MORE", constant]
    assert len(new) == len(old) + 1
    assert ast.unparse(added[1]).count("ONE_MORE") == 1
    assert re.search(r"mistakes=\(.*, ONE_MORE\)", ast.unparse(added[1]))


def test_a_line_goes_after_the_last_one_that_matches():
    assert with_line("a\nb 1\nb 2\nc\n", "^b", "b 3") == "a\nb 1\nb 2\nb 3\nc\n"
    with pytest.raises(ValueError, match=r"expected a line that matches '\^d', found none"):
        with_line("a\n", "^d", "d")
