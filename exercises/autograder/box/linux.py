"""The Linux system calls that the sandbox needs and Python does not provide; all raise `OSError`."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

USER, NETWORK, MOUNTS, IPC, PROCESSES = 0x10000000, 0x40000000, 0x20000, 0x08000000, 0x20000000
HOST_NAME, CGROUP = 0x04000000, 0x02000000
NAMESPACES = USER | NETWORK | MOUNTS | IPC | PROCESSES | HOST_NAME | CGROUP
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT = 1, 2, 4, 8, 32
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SIGKILL = 9

MACHINE = platform.machine()
# System calls, with their numbers on x86_64 and on aarch64.
CALLS = """
    ptrace 101 117, pivot_root 155 41, mount 165 40, umount2 166 39, swapon 167 224, reboot 169 142,
    init_module 175 105, delete_module 176 106, finit_module 313 273, kexec_load 246 104, acct 163 89,
    add_key 248 217, request_key 249 218, keyctl 250 219, unshare 272 97, setns 308 268, bpf 321 280,
    perf_event_open 298 241, open_by_handle_at 304 265, process_vm_readv 310 270, kcmp 312 272,
    process_vm_writev 311 271, userfaultfd 323 282, io_uring_setup 425 425, io_uring_enter 426 426,
    io_uring_register 427 427, open_tree 428 428, move_mount 429 429, fsopen 430 430, fsmount 432 432,
    pidfd_getfd 438 438, mount_setattr 442 442, chroot 161 51, personality 135 92, quotactl 179 60,
    memfd_create 319 279, shmget 29 194, msgget 68 186, semget 64 190, syslog 103 116, setsid 112 157,
    open_tree_attr 467 467, clone 56 220, clone3 435 435, socket 41 198, socketpair 53 199, prctl 157 167
"""
_SPLIT = [call.split() for call in CALLS.split(",")]
NUMBERS = {
    "x86_64": {name: int(number) for name, number, _ in _SPLIT},
    "aarch64": {name: int(number) for name, _, number in _SPLIT},
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # how a filter recognises the machine
# Judged by their arguments, or refused with another answer than "not permitted".
JUDGED = {"clone", "clone3", "socket", "socketpair", "prctl"}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446  # the same on all machines

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move into new namespaces; a new one of processes takes effect from the next child on."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Attach a file system, or change how one is attached."""
    kind_bytes = kind.encode() if kind else None
    arguments = os.fsencode(source), os.fsencode(target), kind_bytes, ctypes.c_ulong(flags), options.encode()
    _checked(_libc.mount(*arguments), f"mount {target}")


def unmount(target: str) -> None:
    """Detach a file system; it is released once nobody uses it any more."""
    _checked(_libc.umount2(os.fsencode(target), DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make a mount point the root of this mount namespace."""
    _checked(_libc.syscall(NUMBERS[MACHINE]["pivot_root"], os.fsencode(new), os.fsencode(old)), "pivot_root")


def die_with_parent() -> None:
    """Be killed when the parent ends. Changing user or capabilities cancels this."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl")


def set_dumpable(on: bool) -> None:
    """Set whether other processes of the same user may look into this one: memory, files, and by ptrace."""
    _checked(_libc.prctl(PR_SET_DUMPABLE, int(on), 0, 0, 0), "prctl")


def drop_capabilities() -> None:
    """Drop all capabilities; no program that is started can bring any back."""
    header, none = struct.pack("<Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.capset(header, none), "capset")
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 for none."""
    return max(0, _libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


# The first version of Landlock to know a right: bits for access to files and to the network, and for scope.
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _DEVICE = 1, 2, 4, 8, 1 << 14, 1 << 15
_FILE_RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, _DEVICE))
_NETWORK_RIGHTS = 0b11  # since 4: to bind and to connect by TCP
_SCOPES = 0b11  # since 6: abstract sockets and signals
_SINGLE_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE


def landlock(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """From now on, open nothing but this, neither in this process nor in any that it starts.

    Args:
        readable: folders to read, list and execute from.
        writable: folders to do anything in.
        devices: files to read and write.
    """
    version = landlock_version()
    files = sum(bits for since, bits in _FILE_RIGHTS if version >= since)
    fields = [files] + [_NETWORK_RIGHTS] * (version >= 4) + [_SCOPES] * (version >= 6)
    attributes = struct.pack(f"<{len(fields)}Q", *fields)
    rules = _libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    _checked(rules, "landlock")
    wanted = [(path, _EXECUTE | _READ | _LIST) for path in readable]
    wanted += [(path, files) for path in writable]
    wanted += [(path, files & (_READ | _WRITE | _DEVICE)) for path in devices]
    for path, rights in wanted:
        _allow(rules, path, rights)
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _checked(_libc.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights &= _SINGLE_FILE_RIGHTS if not os.path.isdir(path) else -1
        rule = struct.pack("<Qi", rights, descriptor)
        _checked(_libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"landlock {path}")
    finally:
        os.close(descriptor)


# The instructions of a filter of system calls: load a word, compare, return a verdict.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # their offsets in the data that a filter is shown
_NEW_NAMESPACES = 0x7E020080
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_AF_UNIX = 1


def restrict_calls() -> None:
    """Refuse the system calls that no exercise needs and that lead out of the box, or deep into the kernel.

    These are new namespaces and mounts, sockets (a pair within the process stays possible), tracing, keys,
    BPF, io_uring, kernel modules and the kernel's log, memory that no limit counts. New sessions, too: the
    scheduler gives each its share of the machine, and other boxes would get less. `clone3` hides its flags
    from a filter, so it is reported not to exist; C libraries then use `clone`.
    """
    numbers = NUMBERS[MACHINE]
    program = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, AUDIT[MACHINE]), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _NUMBER))
    if MACHINE == "x86_64":  # the same calls under other numbers, for 32-bit pointers
        program += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    for name, number in numbers.items():
        if name not in JUDGED:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EPERM)]
    program += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _REFUSE | _ENOSYS)]
    program += [(_EQUAL, 0, 1, numbers["socket"]), (_RETURN, 0, 0, _REFUSE | _EAFNOSUPPORT)]
    program += _refuse_if(numbers["clone"], _ANY_BIT, _NEW_NAMESPACES)
    program += _refuse_if(numbers["prctl"], _EQUAL, PR_SET_PDEATHSIG)
    program += _refuse_if(numbers["socketpair"], _EQUAL, _AF_UNIX, is_not=True)
    program.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))
    filter_ = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(code))
    _checked(_libc.prctl(PR_SET_SECCOMP, 2, filter_, 0, 0), "seccomp")


def _refuse_if(number: int, comparison: int, value: int, is_not: bool = False) -> list[tuple[int, ...]]:
    """Refuse a call whose first argument compares so (`is_not`: does not); others pass on to what follows."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (comparison, int(is_not), int(not is_not), value),
        (_RETURN, 0, 0, _REFUSE | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
