"""The box in which a learner's code runs: made of namespaces, Landlock, a filter of system calls, and limits.

A process in it sees no network, no other processes, and of the file system nothing but Python and the
libraries (read-only) and a small scratch folder in memory that vanishes with the box. Every layer by itself
would stop most of what code may try; all of them are there because each has had holes.
"""

import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import transformer_lessons
from exercises.autograder.box import linux

HOME = "/home/student"
USER = 1000  # the user in the box
NOBODY = 65533  # the same user outside, if the grader runs as root
SETUP_SECONDS = 20.0  # seconds within which a box must be set up
DEVICES = ("null", "zero", "full", "random", "urandom")


class ConfinementError(Exception):
    """Raised when a layer of the box could not be set up; nothing of the learner's has run."""


@dataclass
class SandboxedProcess:
    """A process in a box."""

    pid: int  # of the keeper of its box, or its own where there is no box
    connection: socket.socket  # a socket to it
    # The signal that ends it: the keeper ends what is in its box first
    stop_signal: int = signal.SIGTERM


@dataclass(frozen=True)
class Limits:
    """What a submission may use."""

    cell_seconds: float = 30.0  # the wall-clock time of one cell, of the learner's or of the tests
    seconds: float = 240.0  # the wall-clock time of the whole submission
    memory: int = 2 << 30  # bytes, beyond what Python and torch take by themselves
    scratch: int = 64 << 20  # bytes of files
    processes: int = 64  # processes and threads together
    output: int = 200_000  # bytes of output in the graded notebook, pictures included


def readable_folders() -> list[str]:
    """The folders Python needs: its own, the system's libraries, the course's package without the exercises.

    A pitfall: a gradebook inside one of these would be readable as well; the grader checks for that.
    """
    kept: list[Path] = []
    for path in sorted({p.resolve() for p in map(Path, unresolved_folders()) if p.exists()}):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return [str(path) for path in kept]


def unresolved_folders() -> list[str]:
    """The names by which Python knows these folders; a symbolic link may be on the way to the folder."""
    package = os.path.dirname(os.path.abspath(transformer_lessons.__file__))
    return ["/usr", "/lib", "/lib64", "/bin", sys.base_prefix, sys.prefix, package]


def spawn_sandboxed(work: Callable, folder: str, limits: Limits, close: tuple = ()) -> SandboxedProcess:
    """Fork a process that does `work` in a box of its own, and nothing else.

    Args:
        work: gets the box's end of a socket, and no other open file.
        folder: an empty one, where the box's file system is put together. Nothing of it is visible outside.
        limits: what the code may use.
        close: what the new process closes at once.

    Raises:
        ConfinementError: if a layer cannot be set up; nothing has been done then.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(SETUP_SECONDS)
    pid = fork_child(lambda: _run_in_box(work, folder, limits, theirs), (ours, *close))
    theirs.close()
    try:
        _expect_byte(ours, b"u")
        _map_users(pid)
        ours.sendall(b"m")
        _expect_byte(ours, b"r")
    except (OSError, ConfinementError) as error:
        terminate(SandboxedProcess(pid, ours))
        raise ConfinementError(str(error)) from error
    return SandboxedProcess(pid, ours)


def terminate(boxed: SandboxedProcess) -> None:
    """End everything in a box."""
    boxed.connection.close()
    os.kill(boxed.pid, boxed.stop_signal)
    os.waitpid(boxed.pid, 0)


def fork_child(work: Callable[[], None], close: tuple) -> int:
    """Fork a child that closes files not needed, does `work` and ends, whatever happens; return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for one in close:
            one.close()
        work()
    finally:
        os._exit(0)


def _expect_byte(connection: socket.socket, expected: bytes) -> None:
    received = connection.recv(1)
    if received != expected:
        message = connection.recv(1000) if received == b"!" else b"the process ended while its box was built"
        raise ConfinementError(message.decode(errors="replace"))


def _run_in_box(work: Callable, folder: str, limits: Limits, connection: socket.socket) -> None:
    """Build the box, in the new process, which becomes its keeper; its child does what goes on within."""
    try:
        in_use = memory_in_use()
        _enter_namespaces(folder, limits, connection)
        child = os.fork()
        if child:
            _supervise(child)
        _drop_privileges(limits, in_use, connection)
    except Exception as error:
        connection.sendall(b"!" + f"{type(error).__name__}: {error}".encode()[:1000])
        return
    connection.sendall(b"r")
    work(connection)


def _enter_namespaces(folder: str, limits: Limits, connection: socket.socket) -> None:
    """Enter new namespaces, and in them a file system that holds nothing to find or to break."""
    linux.die_with_parent()
    if os.geteuid() == 0:
        os.setgroups([])
    linux.set_dumpable(True)  # or /proc/PID/uid_map could not be written
    linux.unshare(linux.NAMESPACES)
    connection.sendall(b"u")
    if connection.recv(1) != b"m":
        raise OSError("the user could not be mapped")
    linux.set_dumpable(False)
    linux.die_with_parent()
    _build_root(folder, limits)


def _map_users(pid: int) -> None:
    """Map the user of a process that has just entered a new user namespace; only the one that forked it may.

    Root is mapped as well, for the mounts, if the grader is root; the learner's code never runs as root.
    """
    process = Path(f"/proc/{pid}")
    (process / "setgroups").write_text("deny")
    own = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    for name, number in own.items():
        text = f"0 0 1\n{USER} {NOBODY} 1" if os.geteuid() == 0 else f"{USER} {number} 1"
        (process / name).write_text(text)


def _build_root(folder: str, limits: Limits) -> None:
    """Build the new root, which has only what is readable of the old file system; then detach the old one."""
    linux.mount("none", "/", None, linux.RECURSIVE | linux.PRIVATE)
    linux.mount("tmpfs", folder, "tmpfs", linux.NO_SUID | linux.NO_DEVICES, "mode=755,size=1m")
    _build_scratch(folder, limits.scratch)  # first, as what is readable may be inside one of its places
    for path in readable_folders():
        _bind(path, folder + path, linux.RECURSIVE)
        linux.mount("none", folder + path, None, linux.BIND | linux.REMOUNT | linux.READ_ONLY | _flags(path))
    for name in unresolved_folders():
        if os.path.exists(name) and not os.path.lexists(folder + name):
            os.makedirs(os.path.dirname(folder + name), exist_ok=True)
            os.symlink(os.path.realpath(name), folder + name)
    for device in DEVICES:
        _bind(f"/dev/{device}", f"{folder}/dev/{device}", 0)
    os.chdir(folder)
    linux.pivot_root(".", ".")
    linux.unmount(".")
    linux.mount("none", "/", None, linux.REMOUNT | linux.READ_ONLY | linux.NO_SUID | linux.NO_DEVICES)
    os.chdir(HOME)


def _build_scratch(folder: str, size: int) -> None:
    """Build the only place to write, under three names."""
    options = f"mode=700,uid={USER},gid={USER},size={size},nr_inodes=2048"
    os.makedirs(folder + HOME)
    linux.mount("tmpfs", folder + HOME, "tmpfs", linux.NO_SUID | linux.NO_DEVICES | linux.NO_EXEC, options)
    for name in ("/tmp", "/dev/shm"):
        _bind(folder + HOME, folder + name, 0)


def _bind(source: str, target: str, flags: int) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT))
    linux.mount(source, target, None, linux.BIND | flags)


def _flags(path: str) -> int:
    """The flags with which a folder is mounted already; a user namespace may add to them, not remove any."""
    flags = os.statvfs(path).f_flag
    return flags & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC) | linux.NO_SUID | linux.NO_DEVICES


def _supervise(child: int) -> None:
    """Wait for the box's first process, whose end ends all others in it; told to end, kill that process."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    _close_all()
    os.waitpid(child, 0)
    os._exit(0)


def _drop_privileges(limits: Limits, in_use: dict[str, int], connection: socket.socket) -> None:
    """Become, in the box, an ordinary user who has limits and no rights to regain."""
    linux.die_with_parent()
    os.setsid()
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    linux.drop_capabilities()
    linux.die_with_parent()
    _close_all(connection.fileno())
    _set_limits(limits, in_use)
    if linux.landlock_version():
        linux.landlock(["/"], [HOME], [f"/dev/{device}" for device in DEVICES])
    linux.restrict_calls()
    linux.set_dumpable(False)


def memory_in_use() -> dict[str, int]:
    """The bytes that Python and torch hold already: of data, and of everything that is mapped."""
    status = Path("/proc/self/status").read_text()
    found = dict(re.findall(r"^(VmData|VmSize):\s+(\d+) kB$", status, re.MULTILINE))
    return {name: 1024 * int(size) for name, size in found.items()}


def _set_limits(limits: Limits, in_use: dict[str, int]) -> None:
    """Set limits that the kernel enforces; a hard limit cannot be raised again."""
    wanted = {
        resource.RLIMIT_DATA: in_use["VmData"] + limits.memory,
        resource.RLIMIT_AS: in_use["VmSize"] + limits.memory,  # shared memory does not count as data
        resource.RLIMIT_FSIZE: limits.scratch,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_CPU: int(limits.seconds) + 5,
    }
    for what, most in wanted.items():
        resource.setrlimit(what, (most, most))


def _close_all(but: int = -1) -> None:
    """Close every open file but one; standard input, output and error become /dev/null."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.closerange(3, but)
    os.closerange(max(3, but + 1), 1 << 20)
