"""Reading data that learners must not see: files, the environment, memory, other processes."""

from tests.attack_fixtures.attack import cell, escaping, shared

FILES = {
    "the gradebook": escaping("""
# Reading files whose paths are known and which anybody may read.
for name in ("gradebook", "other", "master", "config"):
    tried(name, lambda: open(PLACES[name], "rb").read())
"""),
    "the course": escaping("""
# The course's own masters and tests.
master = "exercises/source/ps01_embeddings_attention/ps01_embeddings_attention.ipynb"
for name in (master, "exercises/release.py", "tests/typical_answers.py", ".git/config"):
    tried(name, lambda: open(PLACES["repository"] + "/" + name).read(300))
tried("modules", lambda: __import__("tests.typical_answers"))
"""),
    "folders": escaping("""
# What lies in other folders.
# Of devices, those without content may be seen.
known = {"null", "zero", "full", "random", "urandom", "shm", "student"} | ways
system = "/etc /root /home /tmp /var /proc /sys /run /dev /mnt /opt".split()
for name in (*system, PLACES["folder"], PLACES["home"], PLACES["repository"]):
    tried(name, lambda: [x for x in os.listdir(name) if x not in known and "attack" not in x] or 1 / 0)
"""),
    "links": shared("""
# A link of one's own to what is not.
os.symlink(PLACES['gradebook'], 'attack-mark-link')
tried('link', lambda: open('attack-mark-link', 'rb').read())
tried('hard link', lambda: os.link(PLACES['gradebook'], 'attack-mark-hard'))
os.remove('attack-mark-link')
"""),
    "upwards": shared("""
# Out of the folder, step by step, and by a number.
here = os.open(".", os.O_RDONLY)
tried("upwards", lambda: open("/".join([".."] * 50) + PLACES["gradebook"], "rb").read())
tried("openat", lambda: os.open("../../.." + PLACES["gradebook"], os.O_RDONLY, dir_fd=here))
os.mkdir("attack-mark-root")
tried("chroot", lambda: os.chroot("attack-mark-root"))
handle = ctypes.create_string_buffer(bytes([8, 0, 0, 0, 1, 0, 0, 0, 2]), 32)
tried("handle", lambda: syscall("open_by_handle_at", here, handle, 0))
os.close(here)
"""),
    "open files": shared("""
# Files that were left open.
import socket, stat
for number in range(256):
    try: mode = os.fstat(number).st_mode
    except OSError: continue
    if stat.S_ISDIR(mode) or stat.S_ISREG(mode): print("broke out: file", number)
    if stat.S_ISSOCK(mode) and number != line().fileno():
        with socket.socket(fileno=os.dup(number)) as one:
            maker = int.from_bytes(one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), "little")
        if maker != os.getpid(): print("broke out: a socket of another process", number)
"""),
    "/proc": escaping("""
# Everything of /proc.
own = "self/environ self/maps self/mem self/mountinfo 1/environ 1/root/etc/passwd kallsyms version".split()
for name in (*own, f'{PLACES["pid"]}/environ', f'{PLACES["pid"]}/cmdline'):
    tried(name, lambda: open('/proc/' + name, 'rb').read(400))
"""),
}

MEMORY = {
    "environment": escaping("""
# Variables of the grader's: passwords.
tried('variables', lambda: {k: v for k, v in os.environ.items() if 'CANARY' in k or 'SECRET' in k} or 1 / 0)
library = ctypes.CDLL(None)
pointer = ctypes.POINTER(ctypes.c_char_p).in_dll(library, 'environ')
n = 0
while pointer[n]:
    n += b'canary' in pointer[n] and print('broke out', pointer[n]) or 1
"""),
    "gc": shared("""
# All objects of the process.
import gc
gc.unfreeze()  # what is frozen is not listed
for found in gc.get_objects():
    for value in list(found.values()) if type(found) is dict else [found]:
        if type(value) is str and value.startswith("".join(["can", "ary-"])): print("broke out:", value)
        kind = type(value).__name__
        if kind in ("Gradebook", "TestRunner", "Worker", "Popen"): print("broke out:", kind)
frames = sys._current_frames()
for frame in frames.values():
    while frame:
        if frame.f_code.co_name in ("grade", "_run_test", "_run_tests", "outcomes"): print("broke out:", frame)
        frame = frame.f_back
"""),
    "all memory": escaping(
        """
# Every page of the process, found by asking the kernel what can be read.
def pages(begin, end, step=1 << 16):
    # A pipe takes a page only if there is one.
    r, w = os.pipe2(os.O_NONBLOCK)
    library = ctypes.CDLL(None, use_errno=True)
    for at in range(begin, end, step):
        n = library.write(w, ctypes.c_void_p(at), ctypes.c_size_t(step))
        while n > 0:
            got = os.read(r, n)
            n -= len(got)
            yield at, got
    os.close(r); os.close(w)
import re
prefix = "".join(["can", "ary-"]).encode()
around = id(object()) & ~0xFFFF
looked = 0
library = ctypes.addressof(ctypes.c_int.in_dll(ctypes.CDLL(None), "opterr")) & ~0xFFFF
for begin in {around - (48 << 20), (id(sys.modules) & ~0xFFFF) - (16 << 20), library - (8 << 20)}:
    for at, got in pages(max(begin, 1 << 16), begin + (64 << 20)):
        looked += len(got)
        for found in re.findall(prefix + b"[a-z]+-[0-9a-f]{16,}", got): print("broke out", found)
print("looked at", looked >> 20, "MiB")
""",
        shows="looked at [1-9]",
    ),
}

PROCESSES = {
    "dumpable": shared("""
# Itself made readable, its children too.
called('prctl', 4, 1, 0, 0, 0)
tried('memory', lambda: open('/proc/self/mem', 'rb').read(1))
called('prctl', 4, 0, 0, 0, 0)
"""),
    "watching": shared("""
# A watch on files of others.
library = ctypes.CDLL(None, use_errno=True)
watch = library.inotify_init()
for name in (PLACES['folder'], '/tmp/..', '/etc'):
    watched = lambda: called('inotify_add_watch', watch, os.fsencode(name), 0xFFF)
    tried(name, lambda: watched() and name != '/tmp/..' or 1 / 0)
os.close(watch)
"""),
}

LEFT_BEHIND = {
    "leaving something": cell("""
# A file for the next student.
open('attack-mark-letter', 'w').write('for the next')
open('/dev/shm/attack-mark-letter', 'w').write('x')
"""),
    "finding something": cell("""
# A file of the student before.
tried('letter', lambda: open('attack-mark-letter').read())
tried('letter', lambda: open('/dev/shm/attack-mark-letter').read())
"""),
}

ATTACKS = FILES | MEMORY | PROCESSES | LEFT_BEHIND
