"""How fast is a class graded? ``python -m benchmarks.throughput`` (half an hour on two idle cores).

A made-up class of mixed quality, with no two submissions alike, is graded by the command that instructors
use: 10, 100 and 1,000 submissions with two workers, 300 with one and two; then some by plain nbgrader, with a
kernel each. Memory is that of the whole process tree; shared pages count once per process.

Writes ``transformer_lessons/records/throughput.json``, which the README quotes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
from tqdm import tqdm

from benchmarks.agreement import Course
from benchmarks.measuring import program, write
from exercises import release
from exercises.autograder.rehearse import students

ASSIGNMENT = "ps01_embeddings_attention"
LARGEST, ALONE, WORKERS = 1000, 300, 2
RUNS = [(LARGEST, WORKERS), (ALONE, 1), (ALONE, WORKERS), (100, WORKERS), (10, WORKERS)]
PLAIN_ONES = 50
HERE = release.HERE.parent


def hand_in(folder: Path, notebooks: list[nbformat.NotebookNode]) -> Path:
    """A folder of submissions; each contains its number, so that no two are alike."""
    for number, notebook in enumerate(notebooks):
        path = folder / f"student-{number:04}" / f"{ASSIGNMENT}.ipynb"
        path.parent.mkdir(parents=True)
        own = nbformat.v4.new_code_cell(f"# {number}")
        nbformat.write(nbformat.from_dict({**notebook, "cells": [*notebook.cells, own]}), path)
    return folder


def output_and_peak_memory(process: psutil.Popen) -> tuple[str, int]:
    """The output of a process, and the peak memory of its process tree in MB, sampled twice a second."""
    most = 0
    while True:
        try:
            return process.communicate(timeout=0.5)[0], most
        except subprocess.TimeoutExpired:
            with suppress(psutil.NoSuchProcess):  # a sandbox that has ended between two lines
                tree = [process, *process.children(recursive=True)]
                most = max(most, sum(one.memory_info().rss >> 20 for one in tree))


def grade_by_command(folder: Path, notebooks: list[nbformat.NotebookNode], workers: int) -> dict:
    """Grade by the command; return seconds, rate, and peak memory in MB."""
    given = [hand_in(folder / "in", notebooks), "--course", folder / "course", "--workers", str(workers)]
    command, alone = [sys.executable, "-m", "exercises.autograder", "grade", *given], {"OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    process = psutil.Popen(command, cwd=HERE, env=os.environ | alone, stdout=subprocess.PIPE, text=True)
    output, memory = output_and_peak_memory(process)
    assert (process.returncode, f"Graded: {len(notebooks)}." in output.splitlines()) == (0, True), output
    return {"workers": workers, **rate(len(notebooks), time.perf_counter() - began), "memory_mb": memory}


def rate(number: int, seconds: float) -> dict:
    """The submissions, seconds and rate, as in the record."""
    a_minute = round(60 * number / seconds, 1)
    return {"submissions": number, "seconds": round(seconds, 1), "a_minute": a_minute}


def grade_by_nbgrader(folder: Path, notebooks: list[nbformat.NotebookNode]) -> dict:
    """Grade by plain nbgrader, after its kernel's files have been read once; return the speed."""
    course = Course(folder)
    course.grade("nobody", ASSIGNMENT, notebooks[0])
    began = time.perf_counter()
    for number, notebook in enumerate(tqdm(notebooks, unit="submission")):
        course.grade(f"student-{number}", ASSIGNMENT, notebook)
    return rate(len(notebooks), time.perf_counter() - began)


if __name__ == "__main__":
    program("throughput", __doc__).parse_args()
    notebooks, runs = [notebook for _, notebook in students(2 * LARGEST, ASSIGNMENT) if notebook], []
    with tempfile.TemporaryDirectory() as name:
        for number, (size, workers) in enumerate(RUNS):
            runs.append(grade_by_command(Path(name) / str(number), notebooks[:size], workers))
            print(json.dumps(runs[-1]), flush=True)
        theirs = grade_by_nbgrader(Path(name) / "plain", notebooks[:PLAIN_ONES])
    over = round(runs[0]["a_minute"] / theirs["a_minute"], 1)
    print(f"plain nbgrader: {json.dumps(theirs)}; ours is {over} times as fast")
    write("throughput", assignment=ASSIGNMENT, runs=runs, plain_nbgrader=theirs, over_plain_nbgrader=over)
