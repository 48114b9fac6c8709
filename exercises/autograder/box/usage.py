"""What the processes of a box hold together: many small ones are one large one.

Where the machine's administrator has delegated a control group to the grader, the kernel holds a box to its
limits; else each process has limits of its own, and `Watchdog` looks after what all of them hold.
"""

import os
import re
from pathlib import Path

__all__ = ["Group", "Watchdog", "delegated", "filled", "make_room", "processes_below"]

PROCESSES = Path("/proc")
FILLED = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)  # without files, which are read-only
MOUNT = Path("/sys/fs/cgroup")
NEEDED = {"memory", "pids"}


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


def delegated(mount: Path = MOUNT, process: Path = Path("/proc/self")) -> Path | None:
    """The grader's own group, if it may make groups with limits below it; else None.

    Args:
        mount: where the unified hierarchy is.
        process: whose group is meant.
    """
    try:
        lines = (process / "cgroup").read_text().splitlines()
        own = mount / next(line for line in lines if line.startswith("0::"))[3:].strip().lstrip("/")
        controllers = set((own / "cgroup.controllers").read_text().split())
    except (OSError, StopIteration):
        return None
    may_write = os.access(own, os.W_OK) and os.access(own / "cgroup.procs", os.W_OK)
    return own if may_write and controllers >= NEEDED else None


def make_room(parent: Path) -> None:
    """Let groups below this one have limits: the calling process moves into one, as the kernel wants it.

    Args:
        parent: as `delegated` found it.

    Raises:
        OSError: if the kernel refuses, for example as other processes are in the group.
    """
    keeper = parent / f"grader-{os.getpid()}"
    keeper.mkdir(exist_ok=True)
    (keeper / "cgroup.procs").write_text(str(os.getpid()))
    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(NEEDED)))


class Group:
    """A group for one box after the other.

    Args:
        parent: where `make_room` was called.
        memory: bytes, of all processes together.
        processes: processes and threads together.
    """

    def __init__(self, parent: Path, memory: int, processes: int):
        self._folder = parent / f"box-{os.getpid()}"
        self._folder.mkdir(exist_ok=True)
        (self._folder / "memory.max").write_text(str(memory))
        (self._folder / "pids.max").write_text(str(processes))

    def take(self, pid: int) -> None:
        """Put a process, and all that it will start, under the limits."""
        (self._folder / "cgroup.procs").write_text(str(pid))
