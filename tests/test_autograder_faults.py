"""Whatever is killed, full or locked while a batch is graded: no mark is lost or given twice.

The measure is a canonical dump of the gradebook, which must be that of an undisturbed run, line by line.
"""

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, event

from exercises.autograder import __main__ as command
from exercises.autograder.batch import grade, grading, pool
from exercises.autograder.course import folders, marks
from exercises.autograder.course.folders import Course
from exercises.autograder.running import job as jobs
from exercises.autograder.running.job import Job
from exercises.autograder.running.worker import WorkerError
from tests.submissions import NAME, SOLVED, WORTH, dump, hand_in, with_answers

pytestmark = [pytest.mark.isolated, pytest.mark.nbgrader]

ROOT = Path(__file__).parent.parent
ANSWERED = {"ann": SOLVED, "bob": (), "carl": ("ps01-2-answer",), "dora": ("ps01-1-answer",)}
STUDENTS = tuple(ANSWERED)
POINTS = 3  # at which the writer is killed; each repetition takes others
DELAY = 0.005  # seconds by which each repetition kills later than the one before


def submissions(folder: Path) -> Path:
    """Four of different worth, one of them late, and a file that is no notebook."""
    for number, (student, answers) in enumerate(ANSWERED.items()):
        hand_in(folder, **{student: with_answers({cell: SOLVED[cell] for cell in answers})})
        (folder / student / "timestamp.txt").write_text(f"2026-11-{19 + number // 2} 13:00:00 UTC")
    (folder / "eve").mkdir()
    (folder / "eve" / f"{NAME}.ipynb").write_text("no notebook")
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, graded_once):
    """What there is to hand in, and the dump of an undisturbed run; what was graded then is not run again."""
    source, folder = submissions(tmp_path_factory.mktemp("in")), tmp_path_factory.mktemp("course")
    summary = grade.grade(source, folder)
    assert [one.student for one in summary.graded] == list(STUDENTS)
    assert not summary.failed
    assert len(summary.quarantined) == 1
    entries = dump(Course(folder).gradebook)
    assert len([line for line in entries if line.startswith("grade")]) == 4 * len(WORTH)
    assert len({one.earned for one in summary.graded}) == 4
    return source, entries


def assert_goes_on(folder: Path, undisturbed: tuple, **how) -> grade.Summary:
    """The next command does what is left, and the gradebook says what it says after an undisturbed run."""
    source, expected = undisturbed
    summary = grade.grade(source, folder, **how)
    assert (len(summary.quarantined), summary.failed) == (1, [])
    assert dump(Course(folder).gradebook) == expected
    return summary


# ---- The process that writes


def in_a_child(last: int | None, source: Path, folder: Path) -> tuple[int, int]:
    """Grade in a child that ends without a word at the last of these steps; its exit code, and how many it did.

    A step is done before and after each change of a file's name, and before each commit.
    """
    context = get_context("fork")
    count = context.Value("i", 0)

    def done() -> None:
        count.value += 1
        if count.value == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        replace = Path.replace

        def counted(self, target):
            done()
            found = replace(self, target)
            done()
            return found

        Path.replace = counted
        event.listen(Engine, "commit", lambda _: done())
        os._exit(3 if grade.grade(source, folder).failed else 0)

    child = context.Process(target=run)
    child.start()
    child.join(120)
    assert child.exitcode is not None
    return child.exitcode, count.value


def test_the_writer_is_killed_at_any_step(undisturbed, tmp_path, repetition):
    source, expected = undisturbed
    code, total = in_a_child(None, source, tmp_path / "whole")
    assert code == 0
    assert dump(Course(tmp_path / "whole").gradebook) == expected
    assert total > 60
    few = {1 + (repetition + number * (total - 1) // (POINTS - 1)) % total for number in range(POINTS)}
    assert len(few) == POINTS
    for last in sorted(few):
        folder = tmp_path / str(last)
        code, _ = in_a_child(last, source, folder)
        assert code == -signal.SIGKILL
        assert set(dump(Course(folder).gradebook)) <= {*expected}, "it is entered whole or not at all"
        assert_goes_on(folder, undisturbed)
        assert sorted(one.student for one in Course(folder).results()) == list(STUDENTS)
        assert len(list(folder.glob("feedback/*/*/*.html"))) == len(STUDENTS)
        assert len(list(folder.glob("autograded/*/*/*.ipynb"))) == len(STUDENTS)


def test_a_submission_is_entered_whole_or_not_at_all(undisturbed, tmp_path, monkeypatch):
    source, expected = undisturbed
    score = marks._score

    def fails_once(*_, **more):
        monkeypatch.setattr(marks, "_score", score)
        raise ZeroDivisionError

    monkeypatch.setattr(marks, "_score", fails_once)
    [one] = grade.grade(source, tmp_path).failed
    entries = dump(Course(tmp_path).gradebook)
    assert set(entries) == {line for line in expected if f" {one.student}" not in line}
    assert_goes_on(tmp_path, undisturbed)


def test_after_a_power_cut_only_the_gradebook_is_left_of_the_last_second(undisturbed, tmp_path):
    # A database waits until the disk has a commit; a renamed file may still be on its way there.
    assert_goes_on(tmp_path, undisturbed)
    for folder in ("journal", "autograded", "records", "feedback", "received"):
        for path in sorted((tmp_path / folder).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    again = assert_goes_on(tmp_path, undisturbed)
    assert [one.student for one in again.graded] == list(STUDENTS)


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


def test_workers_and_their_forking_processes_are_killed(undisturbed, tmp_path, monkeypatch, repetition):
    monkeypatch.setattr(pool, "run", jobs.run)  # in processes of their own
    local, killed, stop = pool.ProcessPool(1), [], threading.Event()
    killer = threading.Thread(target=kill_in_turn, args=(local, tmp_path, killed, stop, repetition * DELAY))
    killer.start()
    try:
        assert_goes_on(tmp_path, undisturbed, pool=local)
    finally:
        stop.set()
        killer.join()
        below = [child for worker in local._executor._processes for child in descendants(worker)]
        local.close()
    assert "worker" in killed
    psutil.wait_procs(below, timeout=10)
    assert not [process for process in below if process.is_running()]


class Dying(pool.InProcessPool):
    """Workers die of the third job, after the master's and ann's, and of whatever is done beside it."""

    width = 2

    def __init__(self, error: Exception):
        self._error, self._keys, self._running = error, {}, []

    def submit(self, job: Job) -> Future:
        self._keys[job.key] = None
        future: Future = Future()
        self._running = [*(one for one in self._running if not one[1].done()), (job, future)]
        threading.Timer(0.05, self._end).start()
        return future

    def _end(self) -> None:
        bad = list(self._keys)[2:3]
        broken = any([job.key] == bad for job, _ in self._running)
        for job, future in self._running:
            if not future.done():
                future.set_exception(self._error) if broken else future.set_result(pool.run(job))


def test_a_job_that_workers_die_of_is_given_up_alone(undisturbed, tmp_path):
    source, _ = undisturbed
    for error in (BrokenProcessPool("killed"), WorkerError("its forking process has ended")):
        folder = tmp_path / type(error).__name__
        summary = grade.grade(source, folder, pool=Dying(error))
        assert [one.student for one in summary.graded] == [name for name in STUDENTS if name != "bob"]
        assert [one.path for one in summary.failed] == [f"bob/{NAME}.ipynb"]
        assert_goes_on(folder, undisturbed)


# ---- A cluster


def test_a_cluster_does_the_work_and_one_that_is_gone_stops_the_batch(undisturbed, tmp_path, monkeypatch):
    """In threads of this process, where jobs are answered from memory: processes take long to start."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "CONNECT", 1.0)
    threads = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**threads) as made:
        dask = pool.DaskPool(made.scheduler_address)
        assert dask.width == 2
        assert_goes_on(tmp_path / "whole", undisturbed, pool=dask)
    with pytest.raises(OSError, match="the cluster no longer answers") as error:
        grade.grade(undisturbed[0], tmp_path / "stopped", pool=dask)
    assert command.describe_stop(error.value)[0] == 3
    dask.close()
    assert_goes_on(tmp_path / "stopped", undisturbed)


def test_what_a_cluster_has_dropped_stops_the_batch(monkeypatch):
    dropped = Future()
    dropped.cancel()
    dropped.set_running_or_notify_cancel()
    monkeypatch.setattr(pool.InProcessPool, "submit", lambda *_: dropped)
    with pytest.raises(OSError, match="the cluster has dropped a job that it was given"):
        next(pool.run_jobs(pool.InProcessPool(), iter(["a job"])))


def test_nobody_at_the_address(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "CONNECT", 0.5)
    for address in "tcp://127.0.0.1:1", "nonsense":
        with pytest.raises(ValueError, match=f"--scheduler: no answer from {address}"):
            pool.DaskPool(address)


# ---- The command


def started(source: Path, folder: Path, until: str) -> subprocess.Popen:
    """The command, at work until there is such a file; it leads a group, as in a terminal."""
    line = [sys.executable, "-m", "exercises.autograder", "grade", str(source), "--course", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*line, "--workers", "1"], cwd=ROOT, env=environment, **pipes)
    while not list(folder.glob(until)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def test_ctrl_c_while_workers_start_is_told_by_the_command_alone_which_then_goes_on(undisturbed, tmp_path):
    process = started(undisturbed[0], tmp_path, "received")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said.endswith("Stopped. What was done is kept: run the same command again to continue.\n")
    assert "Traceback" not in said
    assert_goes_on(tmp_path, undisturbed)


def test_the_command_is_killed_and_nothing_of_it_stays_and_then_it_goes_on(undisturbed, tmp_path, repetition):
    process = started(undisturbed[0], tmp_path, "journal/*/*.json")
    time.sleep(repetition * DELAY)
    below = descendants(process.pid)
    process.kill()
    process.communicate()
    psutil.wait_procs(below, timeout=10)
    assert below
    assert not [process for process in below if process.is_running()]
    assert_goes_on(tmp_path, undisturbed)


def test_an_interruption_that_python_drops_is_heeded_all_the_same(undisturbed, tmp_path, monkeypatch):
    def dropped(*_):
        with suppress(KeyboardInterrupt):  # as Python does while it disposes of an object
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    grading.handle_interrupts()
    monkeypatch.setattr(grading.Grading, "check_masters", dropped)
    with pytest.raises(KeyboardInterrupt):
        grade.grade(undisturbed[0], tmp_path)
    grading.handle_interrupts()
    signal.signal(signal.SIGINT, before)


# ---- The disk and the gradebook


def test_a_full_disk_stops_the_batch_and_leaves_nothing_half_written(undisturbed, tmp_path, monkeypatch):
    source, expected = undisturbed
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
            summary = grade.grade(source, tmp_path)
            break
        except OSError as error:
            stops.append(command.describe_stop(error))
        for path in tmp_path.rglob("*.json"):
            json.loads(path.read_text(encoding="utf-8"))
        assert not [path for path in tmp_path.rglob(".*.*.*") if path.is_file()]
    assert summary.failed == []
    assert len(stops) >= 4
    assert {code for code, _ in stops} == {3}
    assert all(said.startswith("[Errno 28] No space left on device. What was done") for _, said in stops)
    assert dump(Course(tmp_path).gradebook) == expected


def test_a_locked_gradebook_is_waited_for_and_at_last_given_up(undisturbed, tmp_path, monkeypatch):
    with grade.open_course(tmp_path) as grading:
        grading.master(NAME)
    other = sqlite3.connect(tmp_path / "gradebook.db", isolation_level=None, check_same_thread=False)
    run = pool.run

    def locked(job: Job) -> jobs.Outcome:
        """Another program takes the gradebook for itself as soon as there is a job."""
        if not other.in_transaction:
            other.execute("BEGIN EXCLUSIVE")
        return run(job)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "run", locked)
        patch.setattr(folders, "PATIENCE", 0.2)
        with pytest.raises(OSError, match="The gradebook is in use: close the program") as error:
            grade.grade(undisturbed[0], tmp_path)
    assert command.describe_stop(error.value)[0] == 3

    threading.Timer(1.0, other.execute, ["ROLLBACK"]).start()
    assert_goes_on(tmp_path, undisturbed)
    other.close()
