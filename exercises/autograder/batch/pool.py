"""Where gradings run: in processes here, or on a cluster. Workers see jobs, and nothing of the course.

A worker may be killed at any time; its job is then run again. A job that kills workers again and again is
given up, alone. A pool has a `width`: the number of jobs that run at a time.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Future
from multiprocessing import connection, forkserver

from exercises.autograder.running.job import Job, Outcome, run
from exercises.autograder.running.worker import WorkerError

CONNECT = 10.0  # seconds to wait for a cluster
TRIES = 3  # attempts at a job that was alone when its worker died
DEATHS = (BrokenExecutor, WorkerError)  # errors from the death of a worker, or of its forking process


class InProcessPool:
    """A pool that runs a job in this process when it is submitted: for one notebook, and for tests."""

    width = 1

    def submit(self, job: Job) -> Future:
        """Run the job now."""
        future: Future = Future()
        try:
            future.set_result(run(job))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing."""


class ProcessPool:
    """A pool of so many processes of this machine, started again when one was killed.

    They are forked from a process that imports at once what they need: seconds in which submissions can be
    taken in. Forked from this one they would hold all it knows, such as the gradebook's address.
    """

    def __init__(self, workers: int):
        self.width = workers
        self._folder = tempfile.TemporaryDirectory(prefix="grading-", ignore_cleanup_errors=True)
        self._executor: futures.ProcessPoolExecutor | None = None
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([run.__module__])
        # Only this process handles Ctrl-C: what is started while a signal is ignored ignores it, too.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, before)

    def submit(self, job: Job) -> Future:
        """Have the next free process run a job."""
        about = {"initializer": _initialise_worker, "initargs": (self._folder.name,)}
        for _ in range(TRIES):
            self._executor = self._executor or futures.ProcessPoolExecutor(self.width, self._context, **about)
            try:
                return self._executor.submit(run, job)
            except BrokenExecutor:
                self._stop()
        raise RuntimeError("workers: expected processes that keep running, got some that end at once")

    def close(self) -> None:
        """End the processes; the jobs that they are running are lost."""
        # Otherwise a process that is just being started would complain that nobody waits for it any more.
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        if self._executor:
            processes = list((self._executor._processes or {}).values())
            self._executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
            self._executor = None


def _initialise_worker(folder: str) -> None:
    """Set up a new worker to end with the process that started it, however that ends."""
    warnings.simplefilter("ignore")  # nbgrader's libraries warn about each other
    tempfile.tempdir = folder
    parent = multiprocessing.parent_process()
    threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()


def _exit_with_parent(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


class DaskPool:
    """A pool of the workers of a running dask.distributed cluster, which looks after those that die.

    Raises:
        ValueError: if nobody answers there, or dask is not installed.
    """

    def __init__(self, address: str):
        try:
            import distributed
        except ImportError:
            raise ValueError("--scheduler: dask is not installed: pip install distributed") from None
        try:
            where = distributed.comm.resolve_address(address)  # a client of none would end in a traceback
            self._client = distributed.Client(where, timeout=CONNECT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"--scheduler: no answer from {address} ({error})") from None
        self._executor = self._client.get_executor()

    @property
    def width(self) -> int:
        """The number of threads of all workers, which come and go."""
        return max(1, sum(self._call(self._client.nthreads).values()))

    def submit(self, job: Job) -> Future:
        """Have the cluster run a job."""
        return self._call(self._executor.submit, run, job)

    def _call(self, what: Callable, *about: object):
        try:
            return what(*about)
        except Exception as error:  # several types, depending on how far the client has given up
            raise ConnectionError(f"the cluster no longer answers ({type(error).__name__})") from None

    def close(self) -> None:
        """Give back the jobs that are still running, and leave the cluster as it is."""
        self._client.close(timeout=CONNECT)


Pool = InProcessPool | ProcessPool | DaskPool


def run_jobs(pool: Pool, jobs: Iterator[Job]) -> Iterator[tuple[Job, Outcome | Exception]]:
    """Yield each job with its outcome, in the order in which they finish; only a few are submitted ahead.

    Jobs that were running when a worker died are run again one at a time, so that the one to blame is known.

    Raises:
        ConnectionError: if there is nobody left to run them.
    """
    waiting: dict[Future, tuple[Job, bool]] = {}
    again, tries = deque[Job](), Counter[str]()
    while _fill(pool, waiting, jobs, again):
        for future in futures.wait(waiting, return_when=futures.FIRST_COMPLETED).done:
            job, alone = waiting.pop(future)
            try:
                outcome = future.result()
            except DEATHS as error:
                tries[job.key] += alone
                if tries[job.key] < TRIES:
                    again.append(job)
                    continue
                outcome = error
            except futures.CancelledError:
                raise ConnectionError("the cluster has dropped a job that it was given") from None
            except Exception as error:
                outcome = error
            yield job, outcome


def _fill(pool: Pool, waiting: dict, jobs: Iterator[Job], again: deque[Job]) -> bool:
    """Submit as many jobs as there is room for, and one ahead; whether there is anything to wait for."""
    if again and not waiting:
        job = again.popleft()
        waiting[pool.submit(job)] = (job, True)
    while not again and len(waiting) <= pool.width and not any(alone for _, alone in waiting.values()):
        if (job := next(jobs, None)) is None:
            break
        waiting[pool.submit(job)] = (job, False)
    return bool(waiting)
