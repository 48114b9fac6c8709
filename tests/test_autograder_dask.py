"""A dask.distributed cluster does the work: a lost worker costs nothing, a lost scheduler only time."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from test_autograder_faults import DELAY, ROOT, STUDENTS, Replaying, descendants, pytestmark, undisturbed

from exercises.autograder import commands
from exercises.autograder.batch import grade, pool
from exercises.autograder.course import marks
from exercises.autograder.course.folders import Course

pytest.importorskip("distributed")
__all__ = ["pytestmark", "undisturbed"]
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
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER)
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
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


def test_a_worker_is_lost_then_the_scheduler(undisturbed, cluster, tmp_path, repetition):
    source, dump, outcomes = undisturbed
    address, keeper = cluster
    dask = pool.Dask(address)
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
    assert commands.stopped(error.value)[0] == 3
    dask.close()
    assert grade.grade(None, tmp_path / "second", pool=Replaying(outcomes)).failed == []
    assert marks.dump(Course(tmp_path / "second").gradebook) == dump


def test_nobody_at_the_address(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "CONNECT", 0.5)
    with pytest.raises(pool.PoolGoneError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1"):
        pool.Dask("tcp://127.0.0.1:1")
    with pytest.raises(pool.PoolGoneError, match="no scheduler answers at nonsense"):
        pool.Dask("nonsense")
