"""No mark is lost or given twice, whatever is killed, full or locked while a batch is graded.

The criterion is a canonical dump of the gradebook, which must equal that of an undisturbed run.
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
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

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
KILLS = 3  # at so many steps the writer is killed; each repetition takes other steps
DELAY = 0.005  # seconds; each repetition kills this much later than the one before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, graded_once):
    """Four submissions, some late, and a file that is no notebook; and the dump after an undisturbed run."""
    source, folder = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("course")
    for number, (student, answers) in enumerate(ANSWERED.items()):
        hand_in(source, **{student: with_answers({cell: SOLVED[cell] for cell in answers})})
        (source / student / "timestamp.txt").write_text(f"2026-11-{19 + number // 2} 13:00:00 UTC")
    (source / "eve").mkdir()
    (source / "eve" / f"{NAME}.ipynb").write_text("no notebook")
    summary = grade.grade(source, folder)
    assert [one.student for one in summary.graded] == list(STUDENTS)
    assert not summary.failed
    assert len(summary.quarantined) == 1
    entries = dump(Course(folder).gradebook)
    assert len([line for line in entries if line.startswith("grade")]) == 4 * len(WORTH)
    assert len({one.earned for one in summary.graded}) == 4
    return source, entries


def assert_resumes(folder: Path, undisturbed: tuple, **how) -> grade.Summary:
    """Grade what is left, and check that the gradebook equals that of an undisturbed run."""
    source, expected = undisturbed
    summary = grade.grade(source, folder, **how)
    assert (len(summary.quarantined), summary.failed) == (1, [])
    assert dump(Course(folder).gradebook) == expected
    return summary


# ---- The process that writes


def grade_in_child(last: int | None, source: Path, folder: Path) -> tuple[int, int]:
    """Grade in a child process that kills itself at step `last`; return its exit code and the steps done.

    Steps are counted before and after each renaming of a file, and before each commit.
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
    return child.exitcode, count.value


def test_the_writer_is_killed_at_any_step(undisturbed, tmp_path, repetition):
    source, expected = undisturbed
    code, total = grade_in_child(None, source, tmp_path / "whole")
    assert code == 0
    assert dump(Course(tmp_path / "whole").gradebook) == expected
    assert total > 60
    few = {1 + (repetition + number * (total - 1) // (KILLS - 1)) % total for number in range(KILLS)}
    assert len(few) == KILLS
    for last in sorted(few):
        folder = tmp_path / str(last)
        code, _ = grade_in_child(last, source, folder)
        assert code == -signal.SIGKILL
        assert set(dump(Course(folder).gradebook)) <= {*expected}, "each is entered whole or not at all"
        assert_resumes(folder, undisturbed)
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
    assert_resumes(tmp_path, undisturbed)


def test_grading_resumes_if_only_the_gradebook_survives_a_power_cut(undisturbed, tmp_path):
    # SQLite waits until a commit is on the disk; a renamed file may not have been written yet.
    assert_resumes(tmp_path, undisturbed)
    for folder in ("journal", "autograded", "records", "feedback", "received"):
        for path in sorted((tmp_path / folder).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    again = assert_resumes(tmp_path, undisturbed)
    assert [one.student for one in again.graded] == list(STUDENTS)


# ---- The processes that work


def test_a_worker_that_is_killed_is_replaced(undisturbed, tmp_path, monkeypatch, repetition):
    monkeypatch.setattr(pool, "run", jobs.run)  # in other processes, without stored results
    local, enter, killed = pool.ProcessPool(1), grading.Grading.enter, []

    def kills_first(*about):
        """Kill the worker, which has the next job by now, when the first result is entered."""
        if not killed:
            time.sleep(repetition * DELAY)
            killed.append(next(iter(local._executor._processes)))
            os.kill(killed[0], signal.SIGKILL)
        return enter(*about)

    monkeypatch.setattr(grading.Grading, "enter", kills_first)
    with closing(local):
        assert_resumes(tmp_path, undisturbed, pool=local)
    assert killed


class DyingPool(pool.InProcessPool):
    """A pool that fails the third job, after the master's and ann's, and all jobs that run beside it."""

    width = 2

    def __init__(self, error: Exception):
        self._error, self._keys, self._running = error, {}, {}

    def submit(self, job: Job) -> Future:
        self._keys[job.key] = None
        future: Future = Future()
        self._running[future] = job
        threading.Timer(0.05, self._end).start()
        return future

    def _end(self) -> None:
        running, self._running = self._running, {}
        broken = any(list(self._keys)[2:3] == [job.key] for job in running.values())
        for future, job in running.items():
            future.set_exception(self._error) if broken else future.set_result(pool.run(job))


def test_only_the_job_that_kills_workers_is_given_up(undisturbed, tmp_path):
    source, _ = undisturbed
    for error in (BrokenProcessPool("killed"), WorkerError("its forking process has ended")):
        folder = tmp_path / type(error).__name__
        summary = grade.grade(source, folder, pool=DyingPool(error))
        assert [one.student for one in summary.graded] == [name for name in STUDENTS if name != "bob"]
        assert [one.path for one in summary.failed] == [f"bob/{NAME}.ipynb"]
        assert_resumes(folder, undisturbed)


# ---- A cluster


def test_cluster_grades_a_batch_and_a_lost_or_unreachable_one_stops_it(undisturbed, tmp_path, monkeypatch):
    """The cluster runs in threads of this process, where stored results are used: processes start slowly."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(pool, "CONNECT", 0.5)
    for address in "tcp://127.0.0.1:1", "nonsense":
        with pytest.raises(ValueError, match=f"--scheduler: no answer from {address}"):
            pool.DaskPool(address)
    threads = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**threads) as made:
        dask = pool.DaskPool(made.scheduler_address)
        assert dask.width == 2
        assert_resumes(tmp_path / "whole", undisturbed, pool=dask)
    with pytest.raises(OSError, match="the cluster no longer answers") as error:
        grade.grade(undisturbed[0], tmp_path / "stopped", pool=dask)
    assert command.describe_stop(error.value)[0] == 3
    dask.close()
    assert_resumes(tmp_path / "stopped", undisturbed)


def test_job_dropped_by_the_cluster_stops_the_batch(monkeypatch):
    dropped = Future()
    dropped.cancel()
    dropped.set_running_or_notify_cancel()
    monkeypatch.setattr(pool.InProcessPool, "submit", lambda *_: dropped)
    with pytest.raises(OSError, match="the cluster has dropped a job that it was given"):
        next(pool.run_jobs(pool.InProcessPool(), iter(["a job"])))


# ---- The command


def start_command(source: Path, folder: Path, until: str) -> subprocess.Popen:
    """Start the command and wait for such a file; the command leads a process group, as in a terminal."""
    line = [sys.executable, "-m", "exercises.autograder", "grade", str(source), "--course", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*line, "--workers", "1"], cwd=ROOT, env=environment, **pipes)
    while not list(folder.glob(until)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def test_ctrl_c_while_workers_start_shows_no_traceback_and_grading_resumes(undisturbed, tmp_path):
    process = start_command(undisturbed[0], tmp_path, "received")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert said.endswith("Stopped. What was done is kept: run the same command again to continue.\n")
    assert "Traceback" not in said
    assert_resumes(tmp_path, undisturbed)


def test_killed_command_leaves_no_process_and_grading_resumes(undisturbed, tmp_path, repetition):
    process = start_command(undisturbed[0], tmp_path, "journal/*/*.json")
    time.sleep(repetition * DELAY)
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    psutil.wait_procs(below, timeout=10)
    assert below
    assert not [process for process in below if process.is_running()]
    assert_resumes(tmp_path, undisturbed)


def test_interrupt_that_python_swallows_still_stops_the_batch(undisturbed, tmp_path, monkeypatch):
    def dropped(*_):
        with suppress(KeyboardInterrupt):  # as Python does for exceptions in `__del__`
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


def test_locked_gradebook_is_waited_for_up_to_a_limit(undisturbed, tmp_path, monkeypatch):
    with grade.open_course(tmp_path) as grading:
        grading.master(NAME)
    other = sqlite3.connect(tmp_path / "gradebook.db", isolation_level=None, check_same_thread=False)
    run = pool.run

    def locked(job: Job) -> jobs.Outcome:
        """Let another program lock the gradebook as soon as there is a job."""
        if not other.in_transaction:
            other.execute("BEGIN EXCLUSIVE")
        return run(job)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "run", locked)
        patch.setattr(folders, "PATIENCE", 0.2)
        with pytest.raises(OperationalError) as error:
            grade.grade(undisturbed[0], tmp_path)
    code, said = command.describe_stop(error.value)
    assert code == 3
    assert said.startswith("The gradebook is in use: close the program")

    threading.Timer(1.0, other.execute, ["ROLLBACK"]).start()
    assert_resumes(tmp_path, undisturbed)
    other.close()
