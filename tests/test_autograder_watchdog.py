"""The watchdog over the number of a box's processes and the memory of all together."""

import subprocess
import sys
from pathlib import Path

import pytest

from exercises.autograder.running.forker import Watchdog, processes_below, resident_memory

pytestmark = pytest.mark.skipif(
    not list(Path("/proc/self/task").glob("*/children")),
    reason="this kernel does not list the children of a process",
)
SIZE = 41 << 20
# A process whose children fill memory: one has a child of its own, the other is started by another thread.
FAMILY = """
import os, sys, threading
def child(then=None):
    if not os.fork():
        kept = b"x" * int(sys.argv[1])
        if then: then()
        os.write(1, b"ready\\n")
        sys.stdin.read()
        os._exit(0)
child(then=child)
thread = threading.Thread(target=child)
thread.start()
sys.stdin.read()
"""


@pytest.fixture
def family():
    """The process, each of whose children has filled `SIZE` bytes; the end of the test ends it."""
    command = [sys.executable, "-W", "ignore", "-c", FAMILY, str(SIZE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for _ in range(3):
            assert process.stdout.readline() == b"ready\n"
        yield process.pid


def test_too_many_processes_or_too_much_memory_is_reported_at_the_second_look(family):
    found = processes_below(family)
    assert len(set(found)) == len(found) == 3
    assert sum(pid in processes_below(found[0]) + processes_below(found[1]) for pid in found) == 1
    python = resident_memory(family)
    for memory, already, processes, expected in (
        (3.9 * SIZE, python, 3, True),  # four times: the grandchild's copy of the child's memory counts, too
        (4.1 * SIZE, python, 3, False),
        (0, python + 1.9 * SIZE, 3, True),
        (0, python + 2.1 * SIZE, 3, False),
        (1 << 40, 0, 2, True),
        (1 << 40, 0, 3, False),
    ):
        watch = Watchdog(family, memory, already, processes)
        assert [watch.exceeded() for _ in range(3)] == [False, expected, expected]
    assert (processes_below(2**30), resident_memory(2**30)) == ([], 0), "of a process that has ended"
