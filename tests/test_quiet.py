"""Threads that wait do not spin for long, unless the user wants it: OpenMP itself says so as it is loaded."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP on Linux")
BEFORE = "torch was imported before transformer_lessons"


def said(statement: str, **chosen: str) -> tuple[str, int]:
    """How many turns OpenMP's threads wait spinning, and how often the package complains."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **chosen}
    command = [sys.executable, "-c", statement]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (turns,) = set(re.findall(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr))
    return turns, done.stderr.count(BEFORE)


# The last two import torch before the package: their folders see to it.
@pytest.mark.parametrize(
    "module", ["transformer_lessons.tools.cli", "benchmarks.measuring", "exercises.autograder.running.wire"]
)
def test_is_chosen_before_torch_is_loaded(module):
    assert said(f"import {module}") == ("2000", 0)


def test_what_the_user_has_chosen_stays():
    assert said("import transformer_lessons, torch", OMP_WAIT_POLICY="PASSIVE") == ("0", 0)
    assert said("import torch, transformer_lessons", GOMP_SPINCOUNT="7") == ("7", 0)


def test_too_late_is_said_once():
    turns, times = said("import torch, transformer_lessons.masks, transformer_lessons.config")
    assert (int(turns) > 2_000, times) == (True, 1)
