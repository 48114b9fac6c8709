"""Threads that wait do not spin for long, unless the user wants it."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP on Linux")
BEFORE = "torch was imported before transformer_lessons"
NO_TORCH = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')"  # which takes seconds


def said(statement: str, **chosen: str) -> tuple[str, str, int]:
    """What the process has in the end, what OpenMP was told as it was loaded, and how often we complain."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **chosen}
    code = f"{statement}\nimport os; print(os.environ.get('GOMP_SPINCOUNT', ''))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    turns = set(re.findall(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr))
    return done.stdout.strip(), "".join(turns), done.stderr.count(BEFORE)


@pytest.mark.parametrize("room", ["transformer_lessons", "benchmarks", "exercises"])
def test_is_chosen_before_any_module_of_a_room_can_load_torch(room):
    assert said(f"import {room}") == ("2000", "", 0)


def test_openmp_takes_it():
    assert said("import transformer_lessons, torch") == ("2000", "2000", 0)


def test_what_the_user_has_chosen_stays():
    assert said("import transformer_lessons", OMP_WAIT_POLICY="PASSIVE") == ("", "", 0)
    assert said(f"{NO_TORCH}; import transformer_lessons", GOMP_SPINCOUNT="7") == ("7", "", 0)


def test_too_late_is_said_once():
    assert said(f"{NO_TORCH}; import transformer_lessons, transformer_lessons.tools") == ("2000", "", 1)
