"""Commands that begin something new in the course: ``lessons new-chapter``, ``new-task``, ``new-misconception``.

They add to files that only a clone of the repository has, and so live there, in its module `scaffold`; an
installed package says where they are to be run.
"""

import argparse
import subprocess
import sys
from pathlib import Path

NEW = {
    "new-chapter": "in a clone: begin a chapter of the book",
    "new-task": "in a clone: begin a task that exercises can check",
    "new-misconception": "in a clone: add a known mistake to a task",
}


def begin(chosen: argparse.Namespace) -> int:
    """Hand the arguments to the clone's own command; its exit code.

    Raises:
        ValueError: if the folder is not that of a clone.
    """
    if not Path("scaffold", "__main__.py").is_file():
        raise ValueError(f"expected the folder of a clone of the repository, got {Path.cwd()}")
    command = [sys.executable, "-m", "scaffold", chosen.command, *chosen.arguments]
    return subprocess.run(command, check=False).returncode
