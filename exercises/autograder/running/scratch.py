"""Folders for temporary files; what a killed process leaves, the next one that makes such a folder removes."""

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

__all__ = ["Scratch"]


class Scratch:
    """A new folder among the temporary files, and a lock beside it that its process holds as long as it lives.

    Args:
        prefix: what its name begins with. Folders of the same prefix whose lock nobody holds any more are removed
            first, as far as this user may.
    """

    def __init__(self, prefix: str):
        _remove_orphans(Path(tempfile.gettempdir()), prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        lock_file = self.path.with_name(f"{self.path.name}.lock")
        # Locked under another name: there is no moment in which the lock is there and nobody holds it.
        new = lock_file.with_suffix(".new")
        lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(lock_file)
        # Called at the latest when Python ends; a second call does nothing.
        self.remove = weakref.finalize(self, _remove, self.path, lock_file, lock)


def _remove(path: Path, lock_file: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    lock_file.unlink(missing_ok=True)
    os.close(lock)


def _remove_orphans(folder: Path, prefix: str) -> None:
    for path in folder.glob(f"{prefix}*.lock"):
        try:
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # another user's, or just removed
            continue
        try:
            fcntl.flock(
                lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # the kernel gives it back, however a process ends
        except BlockingIOError:  # still in use
            os.close(lock)
            continue
        _remove(path.with_suffix(""), path, lock)
