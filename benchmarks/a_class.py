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


def watch(pid: int, most: dict[str, int]) -> None:
    """Look at a process and all below it, twice a second, until it has ended; keep the most memory of both."""
    process = psutil.Process(pid)
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        try:
            held = [one.memory_info().rss >> 20 for one in (process, *process.children(recursive=True))]
            most.update(command=max(most["command"], held[0]), all=max(most["all"], sum(held)))
        except psutil.NoSuchProcess:
            pass  # a box that has ended between two lines
        time.sleep(0.5)


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
    memory = {"command": 0, "all": 0}
    watching = threading.Thread(target=watch, args=(process.pid, memory))
    watching.start()
    said, _ = process.communicate()
    seconds, spent = time.perf_counter() - began, busy() - before
    watching.join()
    done = json.loads(said)
    number = len(done["graded"])
    assert not done["failed"] + done["quarantined"], done
    return {
        "submissions": number,
        "workers": workers,
        "seconds": round(seconds, 1),
        "a_minute": round(60 * number / seconds, 1),
        "cpu_seconds_each": round(spent / number, 3),
        "memory_mb": memory,
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


def main() -> None:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=SIZES[-1], metavar="N", help="a smaller class, to try it")
    most = parser.parse_args().most
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    group = [one.notebook for one in students(2 * most, ASSIGNMENT) if one.notebook][:most]
    alone = min(ALONE, most)
    sizes = sorted({min(size, most) for size in SIZES}, reverse=True)
    runs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in dict.fromkeys(
            [(most, WORKERS), (alone, 1), (alone, WORKERS), *((n, WORKERS) for n in sizes)]
        ):
            size, workers = part
            source = hand_in(folder / f"in-{size}-{workers}", group[:size])
            runs[part] = timed(source, folder / f"course-{size}-{workers}", workers)
            print(json.dumps(runs[part]), flush=True)
        theirs = plain(folder / "plain", group[:PLAIN_ONES])
    found = {
        "assignment": ASSIGNMENT,
        "runs": list(runs.values()),
        "plain_nbgrader": theirs,
        "two_workers_over_one": round(runs[alone, 1]["seconds"] / runs[alone, WORKERS]["seconds"], 2),
        "over_plain_nbgrader": round(runs[most, WORKERS]["a_minute"] / theirs["a_minute"], 1),
    }
    print(json.dumps(found, indent=1))
    if most >= SIZES[-1]:
        write_json(RECORD, {**found, **versions(torch.device("cpu"))})


if __name__ == "__main__":
    main()
