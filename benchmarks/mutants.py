"""Mutation testing: break one thing at a time and see whether a test notices: ``python -m benchmarks.mutants``.

Each mutant (`benchmarks.mutations`) meets the tests that run its line: first those of its module's own files
(``masks`` → ``tests/test_masks*.py``), and if they let it pass, the others; the quickest first, up to the first
failure or until the budget of test seconds is spent. Results go to ``runs/mutants``: an interrupted run goes on.
A run over everything writes ``transformer_lessons/records/mutation.json``.

Survivors that no test can tell from the original are argued for in ``benchmarks/mutants_argued.toml``. They still
count as survivors.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tqdm import tqdm

from benchmarks.mutant_report import arguments, counted, record, report, stale, total
from benchmarks.mutant_runs import LEAST_SECONDS, SURVIVED, Project, Run, outcomes
from benchmarks.mutant_survey import digest, modules, own_files, stages, surveyed, test_files, work
from benchmarks.mutations import Mutant, mutants

LEAST_KILLED = 0.95
RECORD = "records/mutation.json"
LESSONS = Project(
    Path(__file__).parent.parent,
    "transformer_lessons",
    preload=(
        *(
            "torch",
            "beartype",
            "jaxtyping",
            "safetensors.torch",
            "hypothesis",
            "num2words",
            "sympy",
            "tokenizers",
        ),
        *(f"transformers.models.{name}.modeling_{name}" for name in ("marian", "bart", "llama")),
    ),
    left_out=(
        "test_book_*.py",
        "test_autograder_*.py",
        "test_checks_*.py",
        "test_exercises*.py",
        "test_structure.py",
        "test_docstrings.py",
        "test_mutants.py",
    ),
)


class Journal:
    """Outcomes by mutant and tests, one JSON line each, kept at once."""

    def __init__(self, project: Project):
        self.project, self.path = project, work(project) / "journal.jsonl"
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole, _, half = text.rpartition("\n")
        if half:  # a power cut
            self.path.write_text(whole + "\n" * bool(whole), encoding="utf-8")
        entries = map(json.loads, whole.splitlines())
        self.outcomes = {entry["key"]: entry["outcome"] for entry in entries}

    def key(self, run: Run, budget: float) -> str:
        """Changes with the mutant, its module, the test files used and what these use of tests/."""
        used = tuple(self.project.root / name for name in sorted(run.files()))
        files = [digest(path) for path in (*used, *helpers(self.project, used))]
        state = json.dumps([run.mutant.id, run.mutant.source, files, budget])
        return hashlib.sha256(state.encode()).hexdigest()[:24]

    def add(self, key: str, mutant: Mutant, outcome: str, seconds: float) -> None:
        """Keep an outcome."""
        self.outcomes[key] = outcome
        line = {"key": key, "mutant": mutant.id, "outcome": outcome, "seconds": round(seconds, 2)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Trial:
    """Mutants before the tests of one project."""

    project: Project
    known: dict
    journal: Journal
    options: argparse.Namespace

    def module(self, name: str) -> dict[Mutant, str]:
        """Every mutant of a module and its outcome.

        Raises:
            RuntimeError: if the tests fail for the module as it is, merely parsed and written again.
        """
        path = self.project.root / self.project.package / f"{name}.py"
        source = path.read_text(encoding="utf-8")
        if not (chosen := list(mutants(name, source))[:: self.options.every]):
            return {}
        same = Mutant(name, 0, 0, "none", "", "", "", None, ast.unparse(ast.parse(source)))
        if self.verdicts([same], "unchanged ")[same] != SURVIVED:
            raise RuntimeError(f"{name}: expected its tests to pass without a mutant, got a failure")
        return self.verdicts(chosen)

    def verdicts(self, chosen: list[Mutant], note: str = "") -> dict[Mutant, str]:
        """Outcomes for mutants of one module: its own tests first, then, of the survivors, the others."""
        found = dict.fromkeys(chosen, SURVIVED)
        with tqdm(total=len(chosen), desc=note + chosen[0].module, disable=None, leave=False) as bar:
            for stage in range(1 if self.options.own else 2):
                left = [mutant for mutant in chosen if found[mutant] == SURVIVED]
                for mutant, outcome in self.stage(stage, left):
                    found[mutant] = outcome
                    bar.update(outcome != SURVIVED)
        return found

    def stage(self, stage: int, chosen: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Each mutant with the outcome of its tests at that stage; one without such tests survives in silence."""
        keys = {}
        for mutant in chosen:
            run = self.run(mutant, stage)
            key = self.journal.key(run, self.options.seconds)
            if key in self.journal.outcomes:
                yield mutant, self.journal.outcomes[key]
            elif run.tests:
                keys[run] = key
        for run, outcome, seconds in outcomes(self.project, list(keys), self.options.jobs):
            if run.mutant.line or outcome == SURVIVED:  # tests that fail without a mutant are asked again
                self.journal.add(keys[run], run.mutant, outcome, seconds)
            yield run.mutant, outcome

    def run(self, mutant: Mutant, stage: int) -> Run:
        """The tests of that stage, and four times the time they need."""
        tests = stages(self.project, mutant, self.known, self.options.seconds)[stage]
        limit = LEAST_SECONDS + 4 * sum(self.known["seconds"][name] for name in tests)
        return Run(tuple(tests), frozenset(self.known["seconds"]), mutant, limit)


@cache
def helpers(project: Project, files: tuple[Path, ...]) -> list[Path]:
    """What these test files use of tests/: conftest.py, and files and folders whose names they mention."""
    folder = project.root / "tests"
    text = "\n".join(path.read_text(encoding="utf-8") for path in files) + "\nconftest"
    mentioned = [path for path in sorted(folder.iterdir()) if re.search(rf"\b{re.escape(path.stem)}\b", text)]
    parts = [part for path in mentioned for part in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [part for part in parts if part.suffix == ".py" and "test_" not in part.name]


def options_of(argv: list[str] | None) -> argparse.Namespace:
    """The command line, understood."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="masks, data/vocabulary, checks, …; all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="mutants at a time")
    parser.add_argument("--own", action="store_true", help="only each module's own test files: quick")
    parser.add_argument("--seconds", type=float, default=60, help="of tests a mutant may cost (60)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None, project: Project = LESSONS) -> int:
    """Everything the module's docstring says; 1 if fewer than 95 % were killed or an argument is stale."""
    options = options_of(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that children are stopped too
    names = modules(project, options.modules)
    project.load()
    files = test_files(project)
    if options.own:
        files = sorted({file for name in names for file in own_files(project, name)})
    trial = Trial(project, surveyed(project, files), Journal(project), options)
    verdicts = {}
    for name in names:
        verdicts |= trial.module(name)
    argued = arguments(project)
    report(verdicts, argued)
    if not options.modules and options.every == 1 and not options.own:
        write(project, record(verdicts, argued))
    old = stale(argued, verdicts) if options.every == 1 and not options.own else []
    for place in old:
        print(f"\nstale argument, no such survivor: {place}")
    summary = total(counted(verdicts, argued))
    return int(bool(old) or summary["killed"] < LEAST_KILLED * summary["mutants"])


def write(project: Project, content: dict) -> None:
    """The record, for the pages: whole or not at all."""
    path = project.root / project.package / RECORD
    path.parent.mkdir(exist_ok=True)
    # Not by `files.write_json`: the package must not be imported here, see `Project.load`.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
