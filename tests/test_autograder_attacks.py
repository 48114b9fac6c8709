"""Every attack runs, and is contained: it earns no extra point, reads no secret and leaves nothing behind.

Observed from outside while the attacks run: world-readable and world-writable files with secrets in them,
secrets in the grader's environment and memory, listening sockets, and the machine's processes.
"""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path

import psutil
import pytest
from nbgrader.api import Gradebook

from exercises.autograder.batch import grade, grading
from exercises.autograder.box.confine import Limits
from exercises.autograder.running import notebook
from exercises.autograder.running.forker import processes_below
from exercises.autograder.running.runner import Cell
from exercises.autograder.running.worker import Worker
from tests.attack_fixtures.attack import ANSWERS, EARNS, EXTRA_TESTS, LAST, PRELUDE, Attack
from tests.attack_fixtures.notebooks import EARNS as FILE_EARNS
from tests.attack_fixtures.notebooks import NOTEBOOKS
from tests.attacks import ATTACKS, sharing_submission
from tests.submissions import MASTER, NAME, RELEASED, SOLVED, hand_in, read, with_answers
from transformer_lessons.tools.submission import is_ungraded

ROOT = Path(__file__).parents[1]
LIMITS = Limits(cell_seconds=2.0, seconds=40.0, memory=256 << 20)
# Seconds for a cell or test, for its reply, and for a new process if none comes, while each core has one process.
PATIENCE = 10.0
TESTS_MEMORY = 1200  # MiB that the tests' process may hold at once; Python and torch take about 370 of them
MASTER_CELLS = read(MASTER).cells
MARK = "attack-mark"  # in the name of every file that an attack makes
LINGERS = "98765.4321"  # an argument of every process that an attack tries to leave behind
GRADED = ("ps01-1", "ps01-2", "ps01-4", "ps01-5", "ps01-6")  # and ps01-3 for attacks with `whole`
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END", re.DOTALL)
HIDDEN_WORDS = {"ABDE", "bound_is_right", "entropy_is_right"}  # that occur in hidden tests only


# The submissions


def cells_of(attacks: tuple[Attack, ...], places: dict) -> list[Cell]:
    """The cells of the honest submission with these attacks in it, as the grader passes them on."""
    parts = GRADED + ("ps01-3",) * any(attack.whole for attack in attacks)
    found = [Cell("", "learner", PRELUDE.replace("RAN = []", f"PLACES = {places!r}\nRAN = []", 1))]
    for shown in MASTER_CELLS:
        about = shown.metadata.get("nbgrader", {})
        name = about.get("grade_id", "")
        wanted = name in ("ps01-imports", "ps01-4-broken") or name.startswith(parts)
        left_out = name.endswith("check") or is_ungraded(name) or name == "ps01-4-repaired-test"
        if shown.cell_type != "code" or not wanted or left_out:
            continue
        role = "learner" if about.solution else "test" if about.grade else "instructor"
        source = ANSWERS.get(name, shown.source) if role == "learner" else shown.source
        for attack in attacks:
            source = attack.answers.get(name, source)
        found.append(Cell(name, role, source, float(about.get("points", 0))))
        behind = (attack.code for attack in attacks if attack.after == name and attack.code)
        found += [Cell("", "learner", code) for code in behind]
    tests = EXTRA_TESTS | {name: text for attack in attacks for name, text in attack.tests.items()}
    hidden = "### BEGIN HIDDEN TESTS\n{}\n### END"
    found += [Cell(name, "test", hidden.format(text), 1.0) for name, text in tests.items()]
    return [*found, Cell("", "learner", LAST)]


@cache
def hidden_lines() -> list[str]:
    """Lines of hidden tests that the student version does not have, and words that occur only there."""
    texts = [cell.source for cell in MASTER_CELLS]
    lines = {line.strip() for text in texts for found in HIDDEN.findall(text) for line in found.splitlines()}
    released = RELEASED.read_text(encoding="utf-8")
    found = [line for line in lines if len(line) > 12 and json.dumps(line)[1:-1] not in released]
    return [*found, *HIDDEN_WORDS]


# What attacks aim at


@dataclass
class Surroundings:
    """Files with secrets and listening sockets that attacks try to reach."""

    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    listeners: list[socket.socket] = field(default_factory=list)
    places: dict = field(default_factory=dict)

    def state(self) -> dict[Path, tuple[int, bytes]]:
        """The mode and content of every file, by path."""
        return {
            path: (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in self.folder.rglob("*")
        }


@contextmanager
def surroundings() -> Iterator[Surroundings]:
    """Make world-readable and world-writable files and listening sockets in a fresh folder."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder, ExitStack() as stack:
        made = Surroundings(Path(folder))
        made.folder.chmod(0o777)
        for file in ("gradebook.db", "other.ipynb", "config.py", "master.ipynb"):
            name, path = file.partition(".")[0], made.folder / file
            made.tokens[name] = f"canary-{name}-{secrets.token_hex(16)}"
            path.write_text(f"{made.tokens[name]}\n{MASTER.read_text(encoding='utf-8')}", encoding="utf-8")
            path.chmod(0o666)
            made.places[name] = str(path)
        unix, abstract = f"{folder}/socket", f"canary-{secrets.token_hex(8)}"
        for address in (("127.0.0.1", 0), unix, f"\0{abstract}"):
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.bind(address)
            listener.setblocking(False)
            listener.listen(50)
            made.listeners.append(listener)
        os.chmod(unix, 0o777)
        tcp = made.listeners[0].getsockname()[1]
        made.places |= {"folder": folder, "unix": unix, "abstract": abstract, "tcp": tcp}
        made.places |= {"pid": os.getpid(), "repository": str(ROOT), "home": str(Path.home())}
        yield made


# The run


@dataclass
class Graded:
    """The results of one submission."""

    earned: dict[str, float] = field(default_factory=dict)  # by test
    shown: dict[int, str] = field(default_factory=dict)  # the outputs of the learner's cells, by number
    told: str = ""  # the tests' messages
    all: str = ""
    slowest: float = 0.0  # the most seconds between two outcomes
    memory: int = 0  # the most that the tests' process held, in MiB
    left: list[int] = field(default_factory=list)  # the processes that were still running afterwards


class Bench:
    """One worker for all submissions, and its surroundings."""

    def __init__(self, worker: Worker, around: Surroundings):
        self.worker, self.around = worker, around
        self.before = around.state()
        self._graded: dict[tuple, Graded] = {}

    def graded(self, attacks: tuple[Attack, ...]) -> Graded:
        """The results of these attacks; a shared submission is graded once."""
        key = tuple(id(attack) for attack in attacks)
        if key in self._graded and len(attacks) > 1:
            return self._graded[key]
        found = self._graded[key] = Graded()
        submitted, started, last = cells_of(attacks, self.around.places), forker(), time.monotonic()
        for outcome in self.worker.grade(submitted, LIMITS):
            found.slowest = max(found.slowest, time.monotonic() - last)
            found.memory, last = max(found.memory, most_memory(started)), time.monotonic()
            found.all += json.dumps(outcome, default=str)
            if "result" in outcome:
                found.earned[submitted[outcome["cell"]].id] = outcome["result"]["earned"]
                found.told += json.dumps(outcome["result"]["messages"])
            elif "cell" in outcome:
                found.shown[outcome["cell"]] = outcome["outputs"]
        found.left = processes_below(forker())
        return found


def most_memory(started: int) -> int:
    """The most MiB that any process below the forking one has held: the tests', as a box's limit is lower."""
    most = 0
    for pid in processes_below(started):
        with suppress(OSError):  # if it has just ended
            held = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
            most = max(most, int(held[1]) >> 10 if held else 0)
    return most


def forker() -> int | None:
    """The id of the forking process, a child of this one, found by its command line."""
    name = "exercises.autograder.running.forker"
    return next((one.pid for one in psutil.Process().children() if name in "".join(one.cmdline())), None)


@pytest.fixture(scope="module")
def around() -> Iterator[Surroundings]:
    """The surroundings, with secrets also in this process's environment and memory."""
    with surroundings() as made, pytest.MonkeyPatch.context() as patch:
        for name in ("memory", "environment"):
            made.tokens[name] = f"canary-{name}-{secrets.token_hex(16)}"
        patch.setenv("CANARY_PASSWORD", made.tokens["environment"])
        yield made


@pytest.fixture(scope="module")
def bench(around) -> Iterator[Bench]:
    with closing(Worker()) as worker:
        list(worker.grade([], LIMITS))  # starts the worker
        assert forker(), "its processes could not be counted"
        yield Bench(worker, around)


@pytest.mark.isolated
@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name, bench):
    attack, attacks = ATTACKS[name], sharing_submission(name)
    submitted = cells_of(attacks, bench.around.places)
    found = bench.graded(attacks)
    own_cell = next((n for n, cell in enumerate(submitted) if cell.source == attack.code), None)
    own_output = found.all
    if own_cell is not None and not attack.alone:
        own_output = found.shown.get(own_cell, "") + found.shown.get(len(submitted) - 1, "")
    assert re.search(attack.shows, own_output), f"the attack was not executed: {own_output[-2000:]}"
    if not attack.alone:
        bugs = re.search(r'"ename": "(NameError|SyntaxError|TypeError|AttributeError)".{300}', own_output)
        assert not bugs, f"the attack itself is broken: {bugs[0]}"
    assert "broke out" not in own_output, own_output[own_output.index("broke out") :][:1000]

    earns = EARNS | {test: points for other in attacks for test, points in other.earns.items()}
    wanted = {cell.id: earns[cell.id] for cell in submitted if cell.role == "test"}
    more = {test: points for test, points in found.earned.items() if points > wanted[test]}
    assert not more, f"forged: {more}"
    if not any(other.at_most for other in attacks):
        assert found.earned == wanted

    leaked = [name for name, token in bench.around.tokens.items() if token in found.all]
    said = "".join(found.shown.values()) + found.told
    leaked += [word for word in hidden_lines() if json.dumps(word)[1:-1] in said]
    assert not leaked
    assert found.slowest < PATIENCE * max(1.0, os.getloadavg()[0] / os.cpu_count())
    assert found.memory < TESTS_MEMORY
    assert not found.left


@pytest.mark.isolated
def test_nothing_outside_was_touched(bench):
    assert bench.around.state() == bench.before
    for listener in bench.around.listeners:
        with pytest.raises(BlockingIOError):  # nobody has connected to it
            listener.accept()
    assert not [one.pid for one in psutil.process_iter(["cmdline"]) if LINGERS in (one.info["cmdline"] or ())]
    temporary = (tempfile.gettempdir(), "/dev/shm", "/var/tmp")
    places = (*temporary, Path.home(), ROOT, ROOT / "exercises", sys.prefix)
    assert not [path for place in places for path in Path(place).glob(f"*{MARK}*")]
    assert not list(Path(sys.prefix).glob(f"lib/*/site-packages/**/*{MARK}*"))


# Without protection, attacks succeed

# Cells and tests in one process, as a notebook is graded without this protection.
UNPROTECTED = """
import gc, json, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from exercises.autograder.running import cells
from transformer_lessons import checks
secret = os.environ["CANARY_PASSWORD"] + " "
task = checks.task("soft_capped_attention")
checks.check("soft_capped_attention", task.define(task.source), seed=4669)
torch.set_num_threads(1)
shell = cells.get_shell()

def points(outputs, most):
    if any(output["output_type"] == "error" for output in outputs): return 0.0
    text = outputs[-1].get("data", {}).get("text/plain", "") if outputs else ""
    try: return min(float({"True": most, "False": 0}.get(text, text)), most)
    except ValueError: return most

shell.run("import torch; torch.testing.assert_close(1.0, 2.0)")
gc.collect()
gc.freeze()
for text in sys.stdin:
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            signal.alarm(60)
            earned, shown = {}, []
            for name, role, source, most in json.loads(text):
                outputs = shell.run(source)
                if role == "test": earned[name] = points(outputs, most)
                else: shown.append(json.dumps(outputs)[:50_000])
            os.write(writing, json.dumps([earned, "".join(shown)[:60_000]]).encode())
        finally: os._exit(0)
    os.close(writing)
    with open(reading) as file: print(file.read() or "[{}, \\"it ended\\"]", flush=True)
    os.wait()
"""
CONTROLS = [name for name, attack in ATTACKS.items() if attack.control]


@pytest.fixture(scope="module")
def unprotected(around, tmp_path_factory) -> dict[str, tuple[dict, str]]:
    """By attack, the points and outputs if it shares one process with the tests, without a box."""
    solved = ("ps01-1-", "ps01-2-", "ps01-3-")  # their tests give full points anyway
    backend = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    command, folder = [sys.executable, "-c", UNPROTECTED, str(ROOT)], tmp_path_factory.mktemp("unprotected")
    about = {"env": os.environ | backend, "cwd": folder, "capture_output": True, "text": True}
    with surroundings() as others:
        lines = []
        for name in CONTROLS:
            submitted = cells_of((ATTACKS[name],), others.places)
            kept = (one for one in submitted if one.role != "test" or not one.id.startswith(solved))
            lines.append(json.dumps(list(map(astuple, kept))) + "\n")
        done = subprocess.run(command, input="".join(lines), **about)
    return dict(zip(CONTROLS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.isolated
@pytest.mark.parametrize("name", CONTROLS)
def test_attack_succeeds_without_protection(name, unprotected):
    earned, shown = unprotected[name]
    assert "attack ran" in shown
    honest = {test: max(points, ATTACKS[name].earns.get(test, 0)) for test, points in EARNS.items()}
    assert "broke out" in shown or any(points > honest[test] for test, points in earned.items())


# Attacks by the file that is handed in


@pytest.fixture(scope="module")
def batch(bench, tmp_path_factory):
    """All notebooks, graded in one batch by the worker that has run all other attacks."""
    source, course = tmp_path_factory.mktemp("handed in"), tmp_path_factory.mktemp("batch") / "course"
    answered = {f"ps01-{task}-answer" for task in ("1", "2", "4", "5-largest")}
    for number, handed in enumerate(NOTEBOOKS.values()):
        made = with_answers({cell: text for cell, text in (SOLVED | ANSWERS).items() if cell in answered})
        handed.change(made, {cell.id: cell for cell in made.cells})
        hand_in(source, **{f"student{number:02}": made})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebook, "worker", lambda _: bench.worker)
        patch.setattr(grading, "Limits", lambda: LIMITS)
        return grade.grade(source, course), course


@pytest.mark.isolated
@pytest.mark.nbgrader
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name, batch, bench):
    summary, course = batch
    handed, student = NOTEBOOKS[name], f"student{list(NOTEBOOKS).index(name):02}"
    results = [one for one in summary.graded if one.student == student]
    aside = [one for one in (*summary.quarantined, *summary.failed) if student in str(one)]
    if handed.refused and summary.quarantined and not results:
        assert aside
        return
    assert not aside
    [one] = results
    earned = {cell.cell: cell.earned for cell in one.cells}
    assert not {test: points for test, points in earned.items() if points > FILE_EARNS[test]}
    if not handed.at_most:
        assert earned == FILE_EARNS
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        assert gradebook.find_submission(NAME, student).score == sum(earned.values())
    written = course / "autograded" / student / NAME / f"{NAME}.ipynb"
    assert written.stat().st_size < 1_000_000
    shown = read(written).cells
    assert sum(len(json.dumps(cell.outputs, indent=1)) for cell in shown if "outputs" in cell) < 200_000
    page = (course / "feedback" / student / NAME / f"{NAME}.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 1_000_000
    assert not [line for line in hidden_lines() if line in page]
    assert not [token for token in bench.around.tokens.values() if token in page]
    assert "<script" not in page.lower().replace("&lt;script", "")
