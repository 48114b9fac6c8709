"""What the processes of a box hold together: many small ones are one large one.

The kernel holds each of them to limits of its own, and `Watchdog` looks after what all of them hold.
"""

import re
from pathlib import Path

__all__ = ["Watchdog", "filled", "processes_below"]

PROCESSES = Path("/proc")
FILLED = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)  # without files, which are read-only


class Watchdog:
    """Looks at a box, again and again.

    Args:
        keeper: the process whose descendants are in the box.
        memory: bytes they may fill together; a page that two of them share counts twice.
        already: bytes of each that do not count, as it began with them.
        processes: how many there may be; the kernel holds a box to that, too, unless its user is root outside.
    """

    def __init__(self, keeper: int, memory: int, already: int, processes: int):
        self._keeper, self._memory, self._already = keeper, memory, already
        self._processes = processes
        self._before = False

    def exceeded(self) -> bool:
        """Whether they are too many or fill too much, now and at the last look.

        Twice, as a child that is about to start another program is a copy of its parent for a moment.
        """
        pids = processes_below(self._keeper)
        held = sum(max(0, filled(pid) - self._already) for pid in pids[: self._processes])
        now = held > self._memory or len(pids) > self._processes
        before, self._before = self._before, now
        return now and before


def processes_below(pid: int) -> list[int]:
    """The children of all threads of a process, and theirs."""
    try:
        found = [
            int(word)
            for thread in (PROCESSES / str(pid) / "task").iterdir()
            for word in (thread / "children").read_text().split()
        ]
    except OSError:  # it has just ended
        return []
    return [*found, *(other for child in found for other in processes_below(child))]


def filled(pid: int) -> int:
    """The bytes of memory that a process fills, files that are mapped not counted; 0 if it has ended."""
    try:
        return 1024 * sum(map(int, FILLED.findall((PROCESSES / str(pid) / "status").read_text())))
    except OSError:
        return 0
