"""What isolation this machine offers, found out by trying; and how to get more."""

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
from typing import NamedTuple

from exercises.autograder.box import linux
from exercises.autograder.box.confine import (
    ConfinementError,
    Limits,
    end,
    known_as,
    readable_folders,
    spawn_sandboxed,
)

ROOT = Path(__file__).resolve().parents[2]
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from exercises.autograder.doctor import probe
probe()
"""
ADVICE = (
    "On Ubuntu `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, on Debian `sudo sysctl "
    "kernel.unprivileged_userns_clone=1`, and where it is 0 `sudo sysctl user.max_user_namespaces=10000`. In a "
    "container, allow user namespaces: with Docker `--security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined`."
)
# What is said of what the probe sees, if it is so, and if not.
SAID = {
    "files": ("only Python, libraries and a scratch folder are there", "files are visible"),
    "Python": ("all that it imports from is there", "not all that it imports from is there"),
    "network": ("no connection can be made", "a connection could be made"),
    "processes": ("no other process is visible", "other processes are visible"),
    "system calls": ("dangerous system calls are refused", "all system calls are possible"),
}


class Layer(NamedTuple):
    """One layer of isolation, and whether this machine has it; learners' code is not run without it."""

    name: str
    there: bool
    found: str
    advice: str = ""


@cache
def problem() -> str | None:
    """Why learners' code cannot be confined here; None if it can."""
    return "; ".join(f"{layer.name}: {layer.found}" for layer in layers() if not layer.there) or None


def layers() -> list[Layer]:
    """All layers of the box but Landlock, without which the files are hidden, too."""
    if platform.system() != "Linux" or linux.MACHINE not in linux.NUMBERS:
        found = f"{platform.system()} on {platform.machine()}"
        return [Layer("system", False, found, "Grade on Linux on x86_64 or aarch64, or in a container.")]
    seen = _seen()
    if "error" in seen:
        return [Layer("namespaces", False, seen["error"], ADVICE)]
    return [Layer(name, seen[name], said[not seen[name]]) for name, said in SAID.items()]


def _seen() -> dict:
    """What a process sees in the box; found out in a fresh process, as one with threads must not fork."""
    command = [sys.executable, "-I", "-c", PROBE, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}


def probe() -> None:
    """Print what a process sees in the box, as JSON."""
    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        try:
            boxed = spawn_sandboxed(_look_around, folder, Limits(memory=1 << 28))
        except ConfinementError as error:
            print(json.dumps({"error": str(error)}))
            return
        print(boxed.connection.recv(10_000).decode())
        end(boxed)


def _look_around(connection: socket.socket) -> None:
    seen = {
        "files": not _works(lambda: os.listdir("/etc")) and not _works(lambda: os.mkdir("/new")),
        "Python": all(_works(lambda path=path: os.listdir(path)) for path in known_as()),
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
    """Which of these folders learners' code could read, as they lie where Python or its libraries do."""
    readable = [Path(folder) for folder in readable_folders()]
    return [str(folder) for folder in folders if any(folder.resolve().is_relative_to(r) for r in readable)]


def report() -> str:
    """For a person: each layer, what was found, and what to do."""
    lines = []
    for layer in layers():
        lines.append(f"{'yes' if layer.there else 'NO':>3}  {layer.name}: {layer.found}")
        if layer.advice:
            lines.append(f"     {layer.advice}")
    can = "CANNOT" if problem() else "can"
    return "\n".join([*lines, "", f"Learners' code {can} be confined here."])
