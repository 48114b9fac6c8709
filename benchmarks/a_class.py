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
import time
import warnings
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
import torch
from tqdm import tqdm

from benchmarks import RECORDS
from benchmarks.agreement import PLAIN, Course
from exercises import release
from exercises.autograder.rehearse import students
from transformer_lessons.data.files import write_json
from transformer_lessons.trainer.runs import versions

ASSIGNMENT = "ps01_embeddings_attention"
SIZES, WORKERS, ALONE = (10, 100, 1000), 2, 300
PLAIN_ONES = 50


def hand_in(folder: Path, notebooks: list[nbformat.NotebookNode]) -> Path:
    """A folder of submissions; each says which it is, so that no two are alike."""
    for number, notebook in enumerate(notebooks):
        place = folder / f"student-{number:04}"
        place.mkdir(parents=True)
        own = nbformat.v4.new_code_cell(f"# {number}", id=f"number-{number}")
        numbered = nbformat.from_dict({**notebook, "cells": [*notebook.cells, own]})
        nbformat.write(numbered, place / f"{ASSIGNMENT}.ipynb")
    return folder


def watched(process: psutil.Popen) -> tuple[str, dict[str, int]]:
    """What it says, and the most memory, in MB, of it and of all below it, seen twice a second."""
    most = {"command": 0, "all": 0}
    while True:
        try:
            return process.communicate(timeout=0.5)[0], most
        except subprocess.TimeoutExpired:
            with suppress(psutil.NoSuchProcess):  # a box that has ended between two lines
                held = [one.memory_info().rss >> 20 for one in (process, *process.children(recursive=True))]
                most = {"command": max(most["command"], held[0]), "all": max(most["all"], sum(held))}


def busy() -> float:
    """The CPU seconds of the whole machine so far: a worker that is ended takes the count of its own with it."""
    times = psutil.cpu_times()
    return times.user + times.system + times.nice


def timed(source: Path, course: Path, workers: int) -> dict:
    """Grade what a folder holds by the command; seconds, rate, and memory in MB at most."""
    line = [sys.executable, "-m", "exercises.autograder", "grade", str(source), "--course", str(course)]
    began, before = time.perf_counter(), busy()
    process = psutil.Popen(
        [*line, "--workers", str(workers), "--json"],
        cwd=release.HERE.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    said, memory = watched(process)
    seconds, spent = time.perf_counter() - began, busy() - before
    done = json.loads(said)
    number = len(done["graded"])
    assert not done["failed"] + done["quarantined"], done
    return {
        "submissions": number,
        "workers": workers,
        **rate(number, seconds),
        "cpu_seconds_each": round(spent / number, 3),
        "memory_mb": memory,
        "mean_points": round(sum(one["earned"] for one in done["graded"]) / number, 2),
    }


def rate(number: int, seconds: float) -> dict:
    """As records keep it."""
    return {"seconds": round(seconds, 1), "a_minute": round(60 * number / seconds, 1)}


def plain(folder: Path, notebooks: list[nbformat.NotebookNode]) -> dict:
    """The same by plain nbgrader, after its kernel's files have been read once."""
    course = Course(folder, PLAIN)
    course.grade("nobody", ASSIGNMENT, notebooks[0])
    began = time.perf_counter()
    for number, notebook in enumerate(tqdm(notebooks, unit="submission")):
        course.grade(f"student-{number}", ASSIGNMENT, notebook)
    return {"submissions": len(notebooks), **rate(len(notebooks), time.perf_counter() - began)}


def main() -> None:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="a smaller class, to try it")
    most = parser.parse_args().most
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    group = [one.notebook for one in students(2 * most, ASSIGNMENT) if one.notebook][:most]
    parts = [(SIZES[-1], WORKERS), (ALONE, 1), *((size, WORKERS) for size in (ALONE, *SIZES[-2::-1]))]
    runs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, workers in parts:
            source = hand_in(folder / f"in-{size}-{workers}", group[:size])
            runs[size, workers] = timed(source, folder / f"course-{size}-{workers}", workers)
            print(json.dumps(runs[size, workers]), flush=True)
        theirs = plain(folder / "plain", group[:PLAIN_ONES])
    over = {
        "two_workers_over_one": round(runs[ALONE, 1]["seconds"] / runs[ALONE, WORKERS]["seconds"], 2),
        "over_plain_nbgrader": round(runs[SIZES[-1], WORKERS]["a_minute"] / theirs["a_minute"], 1),
    }
    found = {"assignment": ASSIGNMENT, "runs": list(runs.values()), "plain_nbgrader": theirs, **over}
    print(json.dumps(found, indent=1))
    if most >= SIZES[-1]:
        write_json(RECORDS / "a_class.json", {**found, **versions(torch.device("cpu"))})


if __name__ == "__main__":
    main()
