"""Threads that wait do not spin for long, unless the user wants it."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torch brings GNU's OpenMP on Linux")
BEFORE = "torch was imported before transformer_lessons"
NO_TORCH = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')"  # importing it takes seconds


def outcome(statement: str, **chosen: str) -> tuple[str, str, int]:
    """GOMP_SPINCOUNT in the process, the value that OpenMP loaded, and the number of our warnings."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **chosen}
    code = f"{statement}\nimport os; print(os.environ.get('GOMP_SPINCOUNT', ''))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    turns = set(re.findall(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr))
    return done.stdout.strip(), "".join(turns), done.stderr.count(BEFORE)


@pytest.mark.parametrize("room", ["transformer_lessons", "benchmarks", "exercises"])
def test_the_spin_count_is_set_before_any_module_can_load_torch(room):
    assert outcome(f"import {room}") == ("4000", "", 0)


def test_openmp_uses_the_spin_count():
    assert outcome("import transformer_lessons, torch") == ("4000", "4000", 0)


def test_the_users_settings_are_kept():
    assert outcome("import transformer_lessons", OMP_WAIT_POLICY="PASSIVE") == ("", "", 0)
    assert outcome(f"{NO_TORCH}; import transformer_lessons", GOMP_SPINCOUNT="7") == ("7", "", 0)


def test_a_late_import_warns_once():
    assert outcome(f"{NO_TORCH}; import transformer_lessons, transformer_lessons.tools") == ("4000", "", 1)
