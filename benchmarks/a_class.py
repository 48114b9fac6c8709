"""How fast is a class graded? ``python -m benchmarks.a_class`` (half an hour on two idle cores).

A made-up class of mixed quality, of which all submissions differ, is graded by the command itself, as an
instructor does: 10, 100 and 1,000 of them with two workers, 300 with one and two; then some by plain nbgrader, a
kernel each. Memory is that of the whole tree of processes; pages that are shared count once for each.

Writes ``transformer_lessons/records/a_class.json``.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import nbformat
import psutil
import torch
from tqdm import tqdm

from benchmarks.agreement import PLAIN, Course
from exercises import release
from exercises.autograder.rehearse import students
from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

RECORD = release.HERE.parent / "transformer_lessons" / "records" / "a_class.json"
ASSIGNMENT = "ps03_attention"
SIZES, WORKERS, ALONE = (10, 100, 1000), 2, 300
PLAIN_ONES = 50


def hand_in(folder: Path, notebooks: list[nbformat.NotebookNode]) -> Path:
    """A folder of submissions; each says which it is, so that no two are alike."""
    for number, notebook in enumerate(notebooks):
        place = folder / f"student-{number:04}"
        place.mkdir(parents=True)
        own = nbformat.v4.new_code_cell(f"# {number}", id=f"number-{number}")
        nbformat.write(
            nbformat.from_dict({**notebook, "cells": [*notebook.cells, own]}), place / f"{ASSIGNMENT}.ipynb"
        )
    return folder


class Watch:
    """Looks at a process and all below it, twice a second, until it has ended."""

    def __init__(self, pid: int):
        self._process = psutil.Process(pid)
        self.memory, self.main = 0, 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE:
            try:
                tree = [self._process, *self._process.children(recursive=True)]
                held = [one.memory_info().rss for one in tree]
                self.memory, self.main = max(self.memory, sum(held)), max(self.main, held[0])
            except psutil.NoSuchProcess:
                pass  # a box that has ended between two lines
            time.sleep(0.5)

    def end(self) -> None:
        """Wait for the last look."""
        self._thread.join()


def busy() -> float:
    """The CPU seconds of the whole machine so far: a worker that is ended takes the count of its own with it."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice


def timed(source: Path, course: Path, workers: int) -> dict:
    """Grade what a folder holds by the command; seconds, rate, and memory in MB at most."""
    line = [sys.executable, "-m", "exercises.autograder", "grade", str(source), "--course", str(course)]
    began, before = time.perf_counter(), busy()
    process = subprocess.Popen(
        [*line, "--workers", str(workers), "--json"],
        cwd=release.HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    watch = Watch(process.pid)
    said, _ = process.communicate()
    seconds, spent = time.perf_counter() - began, busy() - before
    watch.end()
    done = json.loads(said)
    number = len(done["graded"])
    assert not done["failed"] + done["quarantined"], done
    return {
        "submissions": number,
        "workers": workers,
        "seconds": round(seconds, 1),
        "a_minute": round(60 * number / seconds, 1),
        "cpu_seconds_each": round(spent / number, 3),
        "memory_mb": {"command": watch.main >> 20, "all": watch.memory >> 20},
        "mean_points": round(sum(one["earned"] for one in done["graded"]) / number, 2),
    }


def plain(folder: Path, notebooks: list[nbformat.NotebookNode]) -> dict:
    """The same by plain nbgrader, after its kernel's files have been read once."""
    course = Course(folder, PLAIN)
    course.grade("nobody", ASSIGNMENT, notebooks[0])
    began = time.perf_counter()
    for number, notebook in enumerate(tqdm(notebooks, unit="submission")):
        course.grade(f"student-{number}", ASSIGNMENT, notebook)
    seconds = time.perf_counter() - began
    number = len(notebooks)
    return {"submissions": number, "seconds": round(seconds, 1), "a_minute": round(60 * number / seconds, 1)}


def parts(most: int) -> list[tuple[int, int]]:
    """How many submissions by how many workers; the largest first."""
    sizes = sorted({*(size for size in SIZES if size < most), most}, reverse=True)
    alone = min(ALONE, most)
    return list(
        dict.fromkeys([(sizes[0], WORKERS), (alone, 1), (alone, WORKERS)] + [(n, WORKERS) for n in sizes])
    )


def main() -> int:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="a smaller class, to try it")
    options = parser.parse_args()
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    group = [one.notebook for one in students(2 * options.most, ASSIGNMENT) if one.notebook][: options.most]
    few, runs = min(PLAIN_ONES, options.most), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def one(size: int, workers: int) -> dict:
            source = hand_in(folder / f"in-{size}-{workers}", group[:size])
            return timed(source, folder / f"course-{size}-{workers}", workers)

        for part in parts(options.most):
            runs[part] = one(*part)
            print(json.dumps(runs[part]), flush=True)
        theirs = plain(folder / "plain", group[:few])
    alone = min(ALONE, options.most)
    found = {
        "assignment": ASSIGNMENT,
        "runs": list(runs.values()),
        "plain_nbgrader": theirs,
        "two_workers_over_one": round(runs[alone, 1]["seconds"] / runs[alone, WORKERS]["seconds"], 2),
        "over_plain_nbgrader": round(runs[options.most, WORKERS]["a_minute"] / theirs["a_minute"], 1),
    }
    print(json.dumps(found, indent=1))
    if options.most >= SIZES[-1]:
        write_json(RECORD, {**found, **versions(torch.device("cpu"))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
