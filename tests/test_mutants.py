"""The mutation tester: what it changes, how it tells killed from surviving, and what the package scores."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.mutant_report import arguments
from benchmarks.mutant_runs import KILLED, STUCK, SURVIVED, Project
from benchmarks.mutant_survey import affordable, modules, own_files, stages
from benchmarks.mutants import LEAST_KILLED, LESSONS, RECORD, helpers
from benchmarks.mutations import mutants

ROOT = Path(__file__).parent.parent


def changes(source: str) -> list[str]:
    return [mutant.mutation for mutant in mutants("m", textwrap.dedent(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["comparison: a < b → a <= b"]),
        ("x = a is not None", ["comparison: a is not None → a is None"]),
        ("x = a not in b", ["comparison: a not in b → a in b"]),
        (
            "x = 0 <= a < 9",
            [
                "comparison: 0 <= a < 9 → 0 < a < 9",
                "comparison: 0 <= a < 9 → 0 <= a <= 9",
                "constant: 0 → 1",
                "constant: 9 → 10",
            ],
        ),
        ("x = a + b * c", ["operator: a + b * c → a - b * c", "operator: b * c → b / c"]),
        ("x = a // b ** c @ d % e", []),
        ("x = a and b or c", ["operator: a and b or c → (a and b) and c", "operator: a and b → a or b"]),
        ("x = ~a & b", ["operator: ~a & b → ~a | b", "sign: ~a → a"]),
        ("x = -1.5", ["sign: -1.5 → 1.5", "constant: 1.5 → 3.0"]),
        ("x = True, 0.0", ["constant: True → False", "constant: 0.0 → 1.0"]),
        ("if a:\n    pass", ["condition: a → not a"]),
        ("if not a:\n    pass", ["sign: not a → a"]),
        ("if a == b:\n    pass", ["comparison: a == b → a != b"]),
        ("x = [a for a in b if a]", ["condition: a → not a"]),
        ("f(a)", ["dropped: f(a) → pass"]),
        ("x += a", ["dropped: x += a → pass", "operator: x += a → x -= a"]),
        ("x[a] = b", ["dropped: x[a] = b → pass"]),
        ("x = f(a, b=c, **d)", ["keyword: f(a, b=c, **d) → f(a, **d)"]),
        ("x = a.tril()", ["method: a.tril() → a.triu()"]),
        ("x = max(a), sum(a)", ["method: max(a) → min(a)"]),
        (
            "def f(a=1, b='c'):\n    return a",
            ["return: return a → return None", "constant: 1 → 2", "default: 'c' → 'c!'"],
        ),
    ],
)
def test_what_becomes_of_a_source(source, expected):
    assert sorted(changes(source)) == sorted(expected)


def test_what_stays_as_it_is():
    source = '''
        """A docstring."""
        from typing import TYPE_CHECKING
        __all__ = ["f"]
        __version__ = "1"
        if TYPE_CHECKING:
            x = 1

        def f(a: Float[Tensor, "batch 2"], b: int | None = None) -> Literal[3]:
            """Another."""
            raise ValueError(f"a: expected {b}, got 7")

        if __name__ == "__main__":
            f(1)
    '''
    assert changes(source) == []


def test_a_mutant_is_the_whole_file_with_one_change():
    source = "def f(a):\n    b = a + 1\n    return b\n"
    first = next(mutants("m", source))
    assert first.source == "def f(a):\n    b = a - 1\n    return b"
    assert first.id == "m:2:8 operator: a + 1 → a - 1"
    assert (first.text, first.lines) == ("b = a + 1", (2, 2))


def test_lines_that_run_together():
    source = """\
        X = 1
        def f(a=2):
            if g(
                3
            ):
                h(
                    4
                )
            return a
    """
    lines = {mutant.mutation: mutant.lines for mutant in mutants("m", textwrap.dedent(source))}
    assert lines["constant: 1 → 2"] is None  # on import
    assert lines["constant: 2 → 3"] == (3, 9)  # whatever runs the function
    assert lines["constant: 3 → 4"] == (3, 5)
    assert lines["constant: 4 → 5"] == (6, 8)


def test_own_tests_come_first_and_quick_ones_before_slow_ones():
    mutant = next(mutants("data/vocabulary", "def f(a):\n    return -a\n"))
    own, other = "tests/test_vocabulary.py::", "tests/test_model.py::"
    seconds = {own + "slow": 9, own + "quick": 1, own + "elsewhere": 0, other + "a": 2, other + "b": 3}
    known = {
        "seconds": seconds,
        "lines": {"data/vocabulary": {"2": [own + "slow", own + "quick", "tests/test_model.py"]}},
    }
    assert stages(LESSONS, mutant, known, 99) == [
        [own + "quick", own + "slow", own + "elsewhere"],
        [other + "a", other + "b"],
    ]
    assert stages(LESSONS, mutant, known, 2) == [[own + "quick", own + "elsewhere"], [other + "a"]]
    assert affordable([], {}, 2) == []
    assert affordable(["slow"], {"slow": 3}, 2) == ["slow"]


def test_modules_by_name():
    assert modules(LESSONS, ["data/vocabulary", "masks"]) == ["data/vocabulary", "masks"]
    assert "data/batches" in modules(LESSONS, ["data"])
    everything = modules(LESSONS, [])
    assert {"oracles/measure", "cli", "model"} <= set(everything)
    assert not any(name.startswith("checks") or name.endswith("_cases") for name in everything)
    assert "checks/judge" in modules(LESSONS, ["checks"])
    assert not any("catalogue" in name or name in ("__main__", "plotting") for name in everything)
    with pytest.raises(ValueError, match=r"MODULE: expected one of .*masks.*, got mask$"):
        modules(LESSONS, ["mask"])
    assert own_files(LESSONS, "data/vocabulary") == ["tests/test_vocabulary.py"]


def test_every_argument_is_about_a_mutant_and_says_why():
    argued = arguments(LESSONS)
    there = set()
    for module in {one["module"] for one in argued}:
        source = (ROOT / LESSONS.package / f"{module}.py").read_text(encoding="utf-8")
        there |= {(module, mutant.text, mutant.mutation) for mutant in mutants(module, source)}
    places = [(one["module"], one["line"], one["mutation"]) for one in argued]
    assert [place for place in places if place not in there] == []
    assert len(set(places)) == len(places)
    assert all(len(one["why"].split()) > 3 for one in argued)


TOY = {
    "toy/__init__.py": "",
    "toy/sums.py": '''\
        """Sums."""
        def add(a, b=0):
            return a + b
        def count(n):
            while n > 0:
                n = n - 1
            return n
        def twice(a):
            return a + a
        def unused(a):
            return -a
    ''',
    "tests/test_sums.py": """
        import subprocess, sys
        from toy.sums import add, count
        def test_add():
            assert add(2) == 2
        def test_count():
            assert count(3) == 0
        def test_elsewhere():
            code = "from toy.sums import add; print(add(2, 3))"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert done.stdout == "5\\n"
    """,
    "tests/test_others.py": """
        from toy.sums import twice
        def test_twice():
            assert twice(3) == 6
    """,
    "benchmarks/mutants_argued.toml": """
        [[argued]]
        module = "sums"
        line = "return -a"
        mutation = "sign: -a → a"
        why = "Nobody uses it."
        [[argued]]
        module = "sums"
        line = "while n > 0:"
        mutation = "comparison: n > 0 → n >= 0"
        why = "Not true, a test tells."
    """,
}
OUTCOMES = {
    "0 none:  → ": [SURVIVED] * 2,  # at both stages, like the other survivors
    "2 constant: 0 → 1": [KILLED],
    "3 return: return a + b → return None": [KILLED],
    "3 operator: a + b → a - b": [KILLED],  # by what runs in another process
    "5 comparison: n > 0 → n >= 0": [KILLED],
    "5 condition: n > 0 → not n > 0": [KILLED],
    "5 constant: 0 → 1": [KILLED],
    "6 operator: n - 1 → n + 1": [STUCK],
    "6 constant: 1 → 2": [KILLED],
    "7 return: return n → return None": [KILLED],
    "9 return: return a + a → return None": [SURVIVED, KILLED],  # by another file than its own
    "9 operator: a + a → a - a": [SURVIVED, KILLED],
    "11 return: return -a → return None": [SURVIVED],
    "11 sign: -a → a": [SURVIVED],
}
RUN = """
import sys
from pathlib import Path
from benchmarks import mutants
mutants.LEAST_SECONDS = 4
print("exit", mutants.main(sys.argv[2:], mutants.Project(Path(sys.argv[1]), "toy", ("hypothesis",))))
"""
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork: this system cannot fork")


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", RUN, str(root), "--jobs", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(textwrap.dedent(content), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A package with a line that no test runs, and what came out."""
    root = write(tmp_path_factory.mktemp("a toy"), TOY)
    return root, run(root)


def journal(root: Path) -> dict[str, list[str]]:
    found = {}
    for line in (root / "runs/mutants/journal.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        place, _, mutation = entry["mutant"].removeprefix("sums:").partition(" ")
        found.setdefault(f"{place.split(':')[0]} {mutation}", []).append(entry["outcome"])
    return found


@FORKS
def test_what_is_killed_and_what_survives(toy):
    root, done = toy
    assert done.returncode == 0, done.stderr
    assert journal(root) == OUTCOMES


@FORKS
def test_what_is_reported(toy):
    root, done = toy
    record = json.loads((root / "toy" / RECORD).read_text(encoding="utf-8"))
    row = {"mutants": 13, "killed": 11, "timed_out": 1, "survived": 2, "argued": 1}
    assert record["modules"] == {"sums": row}
    assert record["total"] == row
    assert [(one["mutation"], one["why"]) for one in record["survivors"]] == [
        ("return: return -a → return None", None),
        ("sign: -a → a", "Nobody uses it."),
    ]
    assert "stale argument, no such survivor: sums: while n > 0:: comparison: n > 0 → n >= 0\n" in done.stdout
    assert done.stdout.endswith("exit 1\n")  # too few are killed, and an argument is stale
    assert (root / "toy/sums.py").read_text(encoding="utf-8") == textwrap.dedent(TOY["toy/sums.py"])


@FORKS
def test_it_goes_on_where_it_was(toy):
    root, first = toy
    path = root / "runs/mutants/journal.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:-2], lines[-2][:20]]), encoding="utf-8")  # as after a power cut
    assert run(root).stdout == first.stdout
    again = path.read_text(encoding="utf-8").splitlines()
    assert again[:-2] == lines[:-2]
    assert len(again) == len(lines)


@FORKS
def test_what_tests_use_of_their_folder(tmp_path):
    """It counts in the journal's keys; what other tests use does not."""
    folder = tmp_path / "tests"
    for name in (
        "conftest.py",
        "answers/one.py",
        "answers/test_two.py",
        "compare.py",
        "test_a.py",
        "test_b.py",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "test_a.py").write_text("from compare import close\n")
    (folder / "test_b.py").write_text("import_module(f'answers.{name}')\n")
    project = Project(tmp_path, "toy")

    def used(*names):
        return [path.name for path in helpers(project, tuple(folder / name for name in names))]

    assert used("test_a.py") == ["compare.py", "conftest.py"]
    assert used("test_b.py") == ["one.py", "conftest.py"]
    assert used("test_a.py", "test_b.py") == ["one.py", "compare.py", "conftest.py"]


def test_tests_that_fail_anyway_stop_it(tmp_path):
    write(tmp_path, TOY | {"tests/test_others.py": "def test_wrong():\n    assert 1 == 2\n"})
    done = run(tmp_path)
    assert "tests: expected to pass without a mutant, got" in done.stderr
    assert "test_wrong" in done.stderr
    assert not (tmp_path / "runs/mutants/journal.jsonl").exists()


@FORKS
@pytest.mark.full
def test_the_package():
    """Hours at first; what is in the journal already takes no time."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutants"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    record = json.loads((ROOT / LESSONS.package / RECORD).read_text(encoding="utf-8"))
    assert record["total"]["killed"] >= LEAST_KILLED * record["total"]["mutants"]
