"""Would the exercises' checks notice? ``python -m benchmarks.check_mutants [TASK …]`` (minutes for all).

Takes the right answer of each task, makes every small change to it that `mutations` knows (a sign, a constant, a
comparison, a dropped line, tril for triu, …) where the check runs it, and hands the result in. At least 98 of 100
must fail; the others are listed with the argument why they are right, from ``check_mutants_argued.toml``.

The right answer is the one in steps that the catalogue's mistakes are made from, which the tests hold to the
package's: that one does more than an exercise asks for, and what nobody asks for no check should notice.

Writes ``transformer_lessons/records/check_mutants.json``, if all tasks were asked for.
"""

import argparse
import ast
import importlib
import inspect
import re
import signal
import sys
import types
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from benchmarks.mutant_report import arguments, counted, record, report, stale, total
from benchmarks.mutant_runs import KILLED, SURVIVED
from benchmarks.mutants import LESSONS
from benchmarks.mutations import Mutant, mutants
from transformer_lessons import checks
from transformer_lessons.data.files import write_json

ARGUED = "benchmarks/check_mutants_argued.toml"
RECORD = LESSONS.root / LESSONS.package / "records" / "check_mutants.json"
LEAST_CAUGHT = 0.98
SECONDS = 20  # for one check of a mutant that may have come to run in circles


def answer_of(task: checks.Task) -> tuple[types.ModuleType, list[str]]:
    """The module of the right answer, and the names in it that make it up."""
    module = importlib.import_module(task.assemble.__module__)
    return module, [task.assemble.__name__, type(task.steps).__name__]


def lines_of(source: str, roots: list[str]) -> set[int]:
    """The lines that define some names, and what of the same file these use."""
    defined = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        if name in defined and name not in found:
            found.add(name)
            left += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return {n for name in found for n in range(defined[name].lineno, defined[name].end_lineno + 1)}


def changed(task: checks.Task) -> Iterator[tuple[Mutant, object]]:
    """Every mutant of a task's answer, and what it makes of the answer; None where it is no longer made."""
    module, roots = answer_of(task)
    source = inspect.getsource(module)
    lines, run = lines_of(source, roots), lines_run(task, module.__file__)
    for mutant in mutants(task.name, source):
        if says_nothing(mutant) or without_hook(mutant, task.steps):
            continue
        first, last = mutant.lines or (0, sys.maxsize)  # on import: always
        if mutant.line in lines and any(first <= line <= last for line in run):
            yield mutant, answer_in(module, mutant.source, roots)


def says_nothing(mutant: Mutant) -> bool:
    """zip's `strict`, which only asserts what holds."""
    strict = mutant.kind == "keyword" and "strict=" in mutant.before and "strict=" not in mutant.after
    return strict or (mutant.before in ("True", "False") and f"strict={mutant.before}" in mutant.text)


def without_hook(mutant: Mutant, steps: object) -> bool:
    """Whether a step was dropped that does nothing in the right answer, only in a mistake."""
    named = re.match(r"(?:self\.)?steps\.(\w+)\(", mutant.before)
    step = getattr(steps, named[1], None) if named and mutant.kind == "dropped" else None
    return isinstance(step, types.FunctionType) and step.__code__.co_code == (lambda: None).__code__.co_code


def lines_run(task: checks.Task, file: str) -> set[int]:
    """The lines of a file that a check of the right answer runs; shared steps may be there for another task."""
    found: set[int] = set()

    def trace(frame, event, argument):
        if frame.f_code.co_filename != file:
            return None
        found.add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        passes(task.name, task.assemble(task.steps), 0)
    finally:
        sys.settrace(None)
    return found


def answer_in(module: types.ModuleType, source: str, roots: list[str]) -> object:
    """The answer as another source of its module makes it."""
    other = types.ModuleType(module.__name__)
    other.__file__, other.__package__ = module.__file__, module.__package__
    try:
        exec(compile(source, module.__file__, "exec"), other.__dict__)
        assemble, steps = (getattr(other, name) for name in roots)
        return assemble(steps())
    except Exception:
        return None


def outcome(name: str, candidate: object) -> str:
    """Whether a check fails, on one of two seeds."""
    for seed in (0, 1):
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS)
        try:
            if not passes(name, candidate, seed):
                return KILLED
        except TimeoutError:
            return KILLED
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    return SURVIVED


def passes(name: str, candidate: object, seed: int) -> bool:
    """Whether all requirements are met; without looking for the mistake, which takes most of a check's time."""
    task = checks.task(name)
    adapter, probes = task.local(candidate), checks.exam(task, seed)
    shown = {name: task.observe(adapter, probe) for name, (probe, _) in probes.items()}
    return all(
        checks.find(task, requirement, probes[name][0], shown[name], probes[name][1]) is None
        for requirement in task.requirements
        for name in requirement.probes
    )


def _too_long(*_) -> None:
    raise TimeoutError


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 if too few were caught or an argument is stale."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.check_mutants", description=__doc__.split("\n")[0]
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="all")
    chosen = parser.parse_args(argv)
    argued, verdicts = arguments(LESSONS, ARGUED), {}
    for name in chosen.tasks or checks.tasks():
        found = list(changed(checks.task(name)))
        for mutant, candidate in tqdm(found, desc=name, disable=None, leave=False):
            verdicts[mutant] = outcome(name, candidate)
    report(verdicts, argued)
    if not chosen.tasks:
        write_json(RECORD, record(verdicts, argued))
    old = stale(argued, verdicts)
    for place in old:
        print(f"\nstale argument, no such survivor: {place}")
    summary = total(counted(verdicts, argued))
    return int(bool(old) or summary["killed"] < LEAST_CAUGHT * summary["mutants"])


if __name__ == "__main__":
    sys.exit(main())
