"""The isolation that this machine offers, found out by trying, and how to get more."""

import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from exercises.autograder.box import confine, linux

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from exercises.autograder.doctor import probe
probe()
"""
ADVICE = (
    "Grade on Linux on x86_64 or aarch64, or in a container, and allow user namespaces: on Ubuntu by `sudo "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0`, on Debian by `sudo sysctl "
    "kernel.unprivileged_userns_clone=1`, and if user.max_user_namespaces is 0 by `sudo sysctl "
    "user.max_user_namespaces=10000`; in a Docker container by the options `--security-opt "
    "seccomp=unconfined --security-opt apparmor=unconfined`."
)
# The layers of isolation that the probe checks, with the message if one is missing; learners' code is not run
# then. Landlock is not checked, because the files are hidden without it, too.
MISSING = {
    "files": "files are visible",
    "Python": "folders that it imports from are missing",
    "network": "sockets can be opened",
    "processes": "other processes are visible",
    "system calls": "forbidden system calls are possible",
}


@cache
def problem() -> str | None:
    """Why learners' code cannot be confined here; None if it can."""
    if platform.system() != "Linux" or linux.MACHINE not in linux.NUMBERS:
        return f"system: {platform.system()} on {platform.machine()}"
    seen = _run_probe()
    if "error" in seen:
        return f"namespaces: {seen['error']}"
    return "; ".join(f"{name}: {said}" for name, said in MISSING.items() if not seen[name]) or None


def _run_probe() -> dict:
    """What a process in the box sees; found out in a fresh process, as one with threads must not fork."""
    command = [sys.executable, "-I", "-c", PROBE, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}


def probe() -> None:
    """Print what a process in the box sees, as JSON."""
    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        try:
            boxed = confine.spawn_sandboxed(_probe_inside, folder, confine.Limits(memory=1 << 28))
        except confine.ConfinementError as error:
            print(json.dumps({"error": str(error)}))
            return
        print(boxed.connection.recv(10_000).decode())
        confine.terminate(boxed)


def _probe_inside(connection: socket.socket) -> None:
    seen = {
        "files": not _works(lambda: os.listdir("/etc")) and not _works(lambda: os.mkdir("/new")),
        "Python": all(_works(lambda path=path: os.listdir(path)) for path in confine.unresolved_folders()),
        "network": not _works(socket.socket),
        "processes": os.getpid() == 1 and not _works(lambda: os.kill(2, 0)),
        "system calls": not _works(lambda: linux.unshare(linux.USER)),
    }
    connection.sendall(json.dumps(seen).encode())


def _works(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return False
    return True


def exposed(folders: list[Path]) -> list[str]:
    """The given folders that learners' code could read, being inside those of Python or its libraries."""
    readable = [Path(folder) for folder in confine.readable_folders()]
    return [str(folder) for folder in folders if any(folder.resolve().is_relative_to(r) for r in readable)]
