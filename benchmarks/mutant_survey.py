"""Which tests run which lines of a package, how long each takes, and so which to ask about a mutant."""

import hashlib
import json
import sys
import tempfile
import time
from functools import cache
from itertools import accumulate
from pathlib import Path

import coverage
import pytest

from benchmarks.mutant_runs import Project, copied, run_pytest, start, stop, tail
from benchmarks.mutations import Mutant

# Wrong on purpose; comparisons, in which another size or seed is no mistake; how things look; what only starts
# the program in a process of its own.
BY_NAME_ONLY = "checks"  # each of its tests diagnoses hundreds of wrong answers: hours of their own
NO_MUTANTS = ("checks/catalogue/*", "oracles/*_cases", "oracles/shapes", "plotting", "__main__")


def modules(project: Project, wanted: list[str]) -> list[str]:
    """Modules by name, ``masks`` or ``data/vocabulary``; a folder stands for all of its modules.

    Without names: all but `BY_NAME_ONLY`.

    Raises:
        ValueError: for a name that matches no module.
    """
    folder = project.root / project.package
    names = [path.relative_to(folder).with_suffix("") for path in sorted(folder.rglob("*.py"))]
    names = [name for name in names if not any(map(name.match, NO_MUTANTS))]
    if not wanted:
        names = [name for name in names if name.parts[0] != BY_NAME_ONLY]
    chosen = {one: [n for n in names if Path(one) in (n, *n.parents)] for one in wanted or ["."]}
    for one, found in chosen.items():
        if not found:
            raise ValueError(f"MODULE: expected one of {', '.join(map(str, names))}, got {one}")
    return sorted({name.as_posix() for found in chosen.values() for name in found})


class Survey:
    """A pytest plugin: how long each test takes, whether it passes, and which lines it runs.

    What a fixture of wider scope runs counts for all tests of its file.
    """

    def __init__(self, cover):
        self.cover, self.seconds = cover, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Time a test, and let coverage know which one it is."""
        self.cover.switch_context(item.nodeid)
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.perf_counter() - start, 3)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """A fixture that other tests find ready."""
        if fixturedef.scope != "function":
            self.cover.switch_context(request.node.nodeid.partition("::")[0])
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.cover.switch_context(request._pyfuncitem.nodeid)


def survey(project: Project, files: list[str]) -> dict:
    """Run the tests of `files` on the unchanged package: seconds of each test, and tests of each line.

    Raises:
        RuntimeError: if a test fails, or the copy of the package is not what was tested.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = copied(project, Path(name).resolve())
        process = start(project, folder, lambda: _look(project, folder, files))
        try:
            process.join()
        finally:
            stop(process)
        if process.exitcode != 0:
            raise RuntimeError(f"tests: expected to pass without a mutant, got\n{tail(folder)}")
        return json.loads((folder / "survey.json").read_text())


def _look(project: Project, folder: Path, files: list[str]) -> int:
    """In a child: pytest's exit code, and what was seen as ``survey.json``."""
    cover = coverage.Coverage(data_file=None, include=[f"{folder}/*"], config_file=False)
    seen = Survey(cover)
    cover.start()
    code = run_pytest(project, folder, files, seen)
    cover.stop()
    data, lines = cover.get_data(), {}
    for path in map(Path, data.measured_files()):
        name = path.relative_to(folder / project.package).with_suffix("").as_posix()
        lines[name] = {n: list(filter(None, c)) for n, c in data.contexts_by_lineno(str(path)).items()}
    (folder / "survey.json").write_text(json.dumps({"seconds": seen.seconds, "lines": lines}))
    return code


@cache
def digest(path: Path) -> str:
    """A file's content in short."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def surveyed(project: Project, files: list[str]) -> dict:
    """`survey`, kept for as long as neither the package nor a test changes."""
    sources = [*(project.root / project.package).rglob("*.py"), *(project.root / "tests").rglob("*.py")]
    state = json.dumps([files, sorted((str(path), digest(path)) for path in sources)])
    kept = work(project) / f"survey-{hashlib.sha256(state.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        print(f"Which tests run which lines? {len(files)} test files, once …", file=sys.stderr)
        content = survey(project, files)
        kept.write_text(json.dumps(content), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def work(project: Project) -> Path:
    """The folder for what must survive an interruption; git ignores it."""
    folder = project.root / "runs" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_files(project: Project) -> list[str]:
    """The test files that count, relative to the root."""
    files = sorted((project.root / "tests").glob("test_*.py"))
    return [f"tests/{path.name}" for path in files if not any(map(path.match, project.left_out))]


def own_files(project: Project, module: str) -> list[str]:
    """A module's own tests: ``test_<its name>*.py``, and those of its folder."""
    stems = tuple(f"test_{part}" for part in Path(module).parts if part != "__init__")
    return [name for name in test_files(project) if Path(name).stem.startswith(stems or "test_")]


def stages(project: Project, mutant: Mutant, known: dict, budget: float) -> list[list[str]]:
    """The tests for a mutant, in two stages.

    First its module's own, those that run its lines before the rest: a line may also run in a process that a test
    starts, or once for all tests behind a cache, or never in a test, as a default value. Then the other tests
    that run its lines. Each of the three gets the budget, so that many of one kind leave room for another.
    """
    first, last = mutant.lines or (0, sys.maxsize)
    lines = known["lines"].get(mutant.module, {})
    running = {name for line, names in lines.items() if first <= int(line) <= last for name in names}
    own, by_speed = set(own_files(project, mutant.module)), sorted(known["seconds"], key=known["seconds"].get)
    mine, rest, others = [], [], []
    for name in by_speed:
        file = name.partition("::")[0]
        runs = name in running or file in running
        (mine if runs else rest).append(name) if file in own else runs and others.append(name)
    mine, rest, others = (affordable(tests, known["seconds"], budget) for tests in (mine, rest, others))
    return [mine + rest, others]


def affordable(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    """The first tests, as long as their durations add up to no more than the budget; at least one."""
    spent = accumulate(seconds[name] for name in tests)
    return tests[: max(1, sum(so_far <= budget for so_far in spent))]
