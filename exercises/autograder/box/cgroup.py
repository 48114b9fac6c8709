"""Limits on a whole box by a control group, where the machine's administrator has delegated one to the grader.

Without, every process in a box has its own limits, and `watchdog` looks after what all of them hold.
"""

import os
from pathlib import Path

__all__ = ["Group", "delegated", "make_room"]

MOUNT = Path("/sys/fs/cgroup")
NEEDED = {"memory", "pids"}


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
