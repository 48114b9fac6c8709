"""Whatever is killed, full or locked while a batch is graded: no mark is lost or given twice.

The measure is a canonical dump of the gradebook, which must be that of an undisturbed run, line by line.
"""

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import nbformat
import psutil
import pytest
from sqlalchemy import Engine, event
from test_autograder_grade import MASTER, NAME, RELEASED, read, solved

from exercises.autograder.batch import grade, pool
from exercises.autograder.commands import output
from exercises.autograder.course import gradebook, marks
from exercises.autograder.course.folders import Course
from exercises.autograder.running.job import Job, Outcome
from exercises.autograder.running.worker import WorkerError

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader]

ROOT = Path(__file__).parent.parent
STUDENTS = ("ann", "bob", "carl", "dora")
ANSWERED = {"carl": "ps01-2-answer", "dora": "ps01-1-answer"}
POINTS = 7  # at which the writer is killed; each repetition takes others
DELAY = 0.005  # seconds by which each repetition kills later than the one before


def submissions(folder: Path) -> Path:
    """Four of different worth, one of them late, and a file that is no notebook."""
    answers = {cell.id: cell.source for cell in read(MASTER).cells}
    for number, student in enumerate(STUDENTS):
        notebook = solved() if student == "ann" else read(RELEASED)
        for cell in notebook.cells:
            if cell.id == ANSWERED.get(student):
                cell.source = answers[cell.id]
        (folder / student).mkdir(parents=True)
        nbformat.write(notebook, folder / student / f"{NAME}.ipynb")
        (folder / student / "timestamp.txt").write_text(f"2026-11-{19 + number // 2} 13:00:00 UTC")
    (folder / "eve").mkdir()
    (folder / "eve" / f"{NAME}.ipynb").write_text("no notebook")
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What there is to hand in, the dump of an undisturbed run, and what each grading gave, by its key."""
    source, folder = (
        submissions(tmp_path_factory.mktemp("in") / "all"),
        tmp_path_factory.mktemp("c") / "course",
    )
    kept = Recording()
    summary = grade.grade(source, folder, pool=kept)
    assert [one.student for one in summary.graded] == list(STUDENTS)
    assert not summary.failed
    assert len(summary.quarantined) == 1
    dump = marks.dump(Course(folder).gradebook)
    marked = [cell for cell in read(MASTER).cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert len([line for line in dump if line.startswith("grade")]) == 4 * len(marked)
    assert len({one.earned for one in summary.graded}) == 4
    return source, dump, kept.outcomes


class Recording(pool.InProcessPool):
    """Keeps what each job gave."""

    def __init__(self):
        self.outcomes: dict[str, Outcome] = {}

    def submit(self, job: Job) -> Future:
        future = super().submit(job)
        self.outcomes[job.key] = future.result()
        return future


class Replaying(pool.InProcessPool):
    """Gives again what was kept, so that a run takes a second."""

    def __init__(self, outcomes: dict[str, Outcome]):
        self._outcomes = outcomes

    def submit(self, job: Job) -> Future:
        future: Future = Future()
        future.set_result(self._outcomes[job.key])
        return future


# ---- The process that writes


def steps(done) -> None:
    """Have a function called before and after each change of a file's name, and before each commit."""
    replace = Path.replace

    def counted(self, target):
        done()
        found = replace(self, target)
        done()
        return found

    Path.replace = counted
    event.listen(Engine, "commit", lambda _: done())


def run_until(last: int | None, count, source: Path, folder: Path, outcomes: dict) -> None:
    """In a child: grade, and end without a word at the last of these steps."""

    def done():
        count.value += 1
        if count.value == last:
            os.kill(os.getpid(), signal.SIGKILL)

    steps(done)
    summary = grade.grade(source, folder, pool=Replaying(outcomes))
    os._exit(3 if summary.failed else 0)


def in_a_child(last: int | None, source: Path, folder: Path, outcomes: dict) -> tuple[int, int]:
    """The exit code, and how many steps there were."""
    context = get_context("fork")
    count = context.Value("i", 0)
    child = context.Process(target=run_until, args=(last, count, source, folder, outcomes))
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode, count.value


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Path:
    """A gradebook of which nbgrader has made the tables, for which it starts a program that takes seconds."""
    folder = tmp_path_factory.mktemp("empty")
    with grade.opened(folder):
        pass
    return folder / "gradebook.db"


def test_the_writer_is_killed_at_any_step(undisturbed, empty, tmp_path, repetition):
    source, dump, outcomes = undisturbed
    (tmp_path / "whole").mkdir()
    shutil.copy(empty, tmp_path / "whole")
    code, total = in_a_child(None, source, tmp_path / "whole", outcomes)
    assert code == 0
    assert marks.dump(Course(tmp_path / "whole").gradebook) == dump
    assert total > 60
    few = {1 + (repetition + number * (total - 1) // (POINTS - 1)) % total for number in range(POINTS)}
    assert len(few) == POINTS
    for last in sorted(few):
        folder = tmp_path / str(last)
        folder.mkdir()
        shutil.copy(empty, folder)
        code, _ = in_a_child(last, source, folder, outcomes)
        assert code == -signal.SIGKILL
        assert grade.grade(source, folder, pool=Replaying(outcomes)).failed == [], last
        assert marks.dump(Course(folder).gradebook) == dump, last
        assert sorted(one.student for one in Course(folder).results()) == list(STUDENTS)
        assert len(list(folder.glob("feedback/*/*/*.html"))) == len(STUDENTS)
        assert len(list(folder.glob("autograded/*/*/*.ipynb"))) == len(STUDENTS)
        assert not [path for path in folder.rglob(".*.ipynb.*") if path.is_file()]


def test_after_a_power_cut_only_the_gradebook_is_left_of_the_last_second(undisturbed, tmp_path):
    # A database waits until the disk has a commit; a renamed file may still be on its way there.
    source, dump, outcomes = undisturbed
    grade.grade(source, tmp_path, pool=Replaying(outcomes))
    for folder in ("journal", "autograded", "records", "feedback", "received"):
        for path in sorted((tmp_path / folder).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    again = grade.grade(source, tmp_path, pool=Replaying(outcomes))
    assert [one.student for one in again.graded] == list(STUDENTS)
    assert marks.dump(Course(tmp_path).gradebook) == dump


# ---- The processes that work


def descendants(of: int) -> list[psutil.Process]:
    try:
        return psutil.Process(of).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_in_turn(
    local: pool.ProcessPool, folder: Path, killed: list[str], stop: threading.Event, delay: float
) -> None:
    """Kill a worker when the first grading is kept, and a worker's child, its forking process, a while later."""
    while not list(folder.glob("journal/*/*.json")) and not stop.wait(0.01):
        pass
    stop.wait(delay)
    os.kill(next(iter(local._executor._processes)), signal.SIGKILL)
    killed.append("worker")
    while not stop.wait(0.01):
        workers = list((local._executor._processes or {}) if local._executor else {})
        below = [child for worker in workers for child in descendants(worker)]
        if below and len(list(folder.glob("journal/*/*.json"))) <= len(STUDENTS):
            below[0].kill()
            killed.append("forking process")
            return


def test_workers_and_their_forking_processes_are_killed(undisturbed, tmp_path, repetition):
    source, dump, _ = undisturbed
    local, killed, stop = pool.ProcessPool(2), [], threading.Event()
    killer = threading.Thread(target=kill_in_turn, args=(local, tmp_path, killed, stop, repetition * DELAY))
    killer.start()
    try:
        summary = grade.grade(source, tmp_path, pool=local)
    finally:
        stop.set()
        killer.join()
        below = [child for worker in local._executor._processes for child in descendants(worker)]
        local.close()
    assert "worker" in killed
    assert summary.failed == []
    assert marks.dump(Course(tmp_path).gradebook) == dump
    psutil.wait_procs(below, timeout=10)
    assert not [process for process in below if process.is_running()]


class Dying(pool.InProcessPool):
    """Workers die of one job, and of whatever is done beside it."""

    width = 2

    def __init__(self, bad: str, outcomes: dict, error: Exception):
        self.bad, self._outcomes, self._error, self.running, self.alone = bad, outcomes, error, [], 0

    def submit(self, job: Job) -> Future:
        future: Future = Future()
        self.running = [one for one in self.running if not one[1].done()]
        self.running.append((job, future))
        self.alone += len(self.running) == 1
        if len(self.running) == self.width or job.key in (self.bad, "flush") or len(self.running) == 1:
            threading.Timer(0.05, self._end).start()
        return future

    def _end(self) -> None:
        broken = any(job.key == self.bad for job, _ in self.running)
        for job, future in self.running:
            if not future.done():
                if broken:
                    future.set_exception(self._error)
                else:
                    future.set_result(self._outcomes[job.key])


@pytest.mark.parametrize("error", [BrokenProcessPool("killed"), WorkerError("its forking process has ended")])
def test_a_job_that_workers_die_of_is_given_up_alone(undisturbed, tmp_path, error):
    source, dump, outcomes = undisturbed
    bad = list(outcomes)[2]  # after the master's, and ann's
    summary = grade.grade(source, tmp_path, pool=Dying(bad, outcomes, error))
    assert [one.student for one in summary.graded] == [name for name in STUDENTS if name != "bob"]
    assert [one.path for one in summary.failed] == [f"bob/{NAME}.ipynb"]
    assert grade.grade(None, tmp_path, pool=Replaying(outcomes)).failed == []
    assert marks.dump(Course(tmp_path).gradebook) == dump


# ---- A cluster

CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def cluster(tmp_path):
    """A cluster of two workers in processes of their own; its address, and the process that keeps it."""
    pytest.importorskip("distributed")
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER)
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    keeper = subprocess.Popen([sys.executable, program], cwd=tmp_path, env={**os.environ, **quiet}, **pipes)
    yield keeper.stdout.readline().strip(), keeper
    below = descendants(keeper.pid)
    keeper.communicate()
    psutil.wait_procs(below, timeout=20)
    for process in below:
        if process.is_running():
            process.kill()


def when_kept(delay: float, folder: Path, act) -> threading.Thread:
    """Do something when the first grading is kept, or soon after."""

    def wait():
        while not list(folder.glob("journal/*/*.json")):
            if ended.wait(0.02):
                return
        ended.wait(delay)
        act()

    ended = threading.Event()
    thread = threading.Thread(target=wait)
    thread.end = ended.set
    thread.start()
    return thread


@pytest.mark.full
def test_a_worker_is_lost_then_the_scheduler(undisturbed, cluster, tmp_path, repetition):
    source, dump, outcomes = undisturbed
    address, keeper = cluster
    dask = pool.DaskPool(address)
    assert dask.width == 2
    killed = []

    def lose_a_worker():
        workers = [one for one in descendants(keeper.pid) if descendants(one.pid)]
        workers[0].kill()
        killed.append(workers[0].pid)

    losing = when_kept(repetition * DELAY, tmp_path / "first", lose_a_worker)
    summary = grade.grade(source, tmp_path / "first", pool=dask)
    losing.end()
    losing.join()
    assert killed
    assert summary.failed == []
    assert [one.student for one in summary.graded] == list(STUDENTS)
    assert marks.dump(Course(tmp_path / "first").gradebook) == dump

    losing = when_kept(repetition * DELAY, tmp_path / "second", lambda: os.kill(keeper.pid, signal.SIGKILL))
    with pytest.raises((pool.PoolGoneError, OSError)) as error:
        grade.grade(source, tmp_path / "second", pool=dask)
    losing.join()
    assert output.stopped(error.value)[0] == 3
    dask.close()
    assert grade.grade(None, tmp_path / "second", pool=Replaying(outcomes)).failed == []
    assert marks.dump(Course(tmp_path / "second").gradebook) == dump


def test_a_cluster_does_the_work(undisturbed, tmp_path, monkeypatch):
    """In threads of this process, where jobs are answered from memory: processes take long to start."""
    source, dump, outcomes = undisturbed
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "run", lambda job: outcomes[job.key])
    threads = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**threads) as made:
        dask = pool.DaskPool(made.scheduler_address)
        assert dask.width == 2
        summary = grade.grade(source, tmp_path, pool=dask)
        assert [one.student for one in summary.graded] == list(STUDENTS)
        assert marks.dump(Course(tmp_path).gradebook) == dump
        dask.close()


def test_nobody_at_the_address(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "CONNECT", 0.5)
    with pytest.raises(pool.PoolGoneError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1"):
        pool.DaskPool("tcp://127.0.0.1:1")
    with pytest.raises(pool.PoolGoneError, match="no scheduler answers at nonsense"):
        pool.DaskPool("nonsense")


# ---- The command


def started(*arguments: str) -> subprocess.Popen:
    line = [sys.executable, "-m", "exercises.autograder", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def wait_for(number: int, folder: Path, process: subprocess.Popen) -> None:
    while len(list(folder.glob("journal/*/*.json"))) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_the_command_is_interrupted_then_killed_and_then_goes_on(undisturbed, tmp_path, repetition):
    source, dump, outcomes = undisturbed
    arguments = ("grade", str(source), "--course", str(tmp_path), "--workers", "1", "--json")
    first = started(*arguments)
    wait_for(1, tmp_path, first)
    time.sleep(repetition * DELAY)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert said.splitlines()[-1] == "Stopped. What was done is kept: the same command goes on from there."

    kept = len(list(tmp_path.glob("journal/*/*.json")))
    second = started(*arguments)
    wait_for(kept + 1, tmp_path, second)
    time.sleep(repetition * DELAY)
    below = descendants(second.pid)
    second.kill()
    second.communicate()
    psutil.wait_procs(below, timeout=10)
    assert below
    assert not [process for process in below if process.is_running()]

    third = grade.grade(source, tmp_path, pool=Replaying(outcomes))
    assert (len(third.quarantined), third.failed) == (1, [])
    assert marks.dump(Course(tmp_path).gradebook) == dump


# ---- The disk and the gradebook


def test_a_full_disk_stops_the_batch_and_leaves_nothing_half_written(undisturbed, tmp_path, monkeypatch):
    source, dump, outcomes = undisturbed
    room, sync, stops = [0], os.fsync, []

    def full(file):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    while len(stops) < 50:
        room[0] = 6
        try:
            summary = grade.grade(source, tmp_path, pool=Replaying(outcomes))
            break
        except OSError as error:
            stops.append(output.stopped(error))
        for path in tmp_path.rglob("*.json"):
            json.loads(path.read_text(encoding="utf-8"))
        assert not [path for path in tmp_path.rglob(".*.*.*") if path.is_file()]
    assert summary.failed == []
    assert len(stops) >= 4
    assert {code for code, _ in stops} == {3}
    assert all(said.startswith("There is no room left on the disk: make some.") for _, said in stops)
    assert marks.dump(Course(tmp_path).gradebook) == dump


class Locking(Replaying):
    """Has another program take the gradebook for itself as soon as the first job is done."""

    def __init__(self, outcomes: dict, path: Path):
        super().__init__(outcomes)
        self.other = sqlite3.connect(path, isolation_level=None)
        self.is_locked = False

    def submit(self, job: Job) -> Future:
        if not self.is_locked:
            self.other.execute("BEGIN EXCLUSIVE")
            self.is_locked = True
        return super().submit(job)


def test_a_locked_gradebook_is_waited_for_a_minute(undisturbed, tmp_path, monkeypatch):
    source, dump, outcomes = undisturbed
    with grade.opened(tmp_path) as grading:
        grading.assignments.master(NAME)
    impatient = property(lambda course: f"sqlite:///{course.folder / 'gradebook.db'}?timeout=0.01")
    monkeypatch.setattr(Course, "gradebook", impatient)
    locking, waited = Locking(outcomes, tmp_path / "gradebook.db"), []

    monkeypatch.setattr(gradebook, "sleep", waited.append)
    with pytest.raises(gradebook.LockedError) as error:
        grade.grade(source, tmp_path, pool=locking)
    assert 60 < sum(waited) < 70
    assert output.stopped(error.value)[0] == 3

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            locking.other.execute("ROLLBACK")

    waited.clear()
    monkeypatch.setattr(gradebook, "sleep", wait)
    locking.other.execute("ROLLBACK")
    locking.is_locked = False
    assert grade.grade(source, tmp_path, pool=locking).failed == []
    assert waited == [0.125, 0.25, 0.5]
    assert marks.dump(Course(tmp_path).gradebook) == dump
    locking.other.close()
