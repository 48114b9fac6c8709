"""Ending, crashing, copying or replacing processes: the attack's own, the tests' or the grader's."""

from functools import partial

from tests.attack_fixtures.attack import Attack, cell, embedding, shared

NO_VECTORS = {"ps01-2-test": 0.0}


def _answer(body: str, **more) -> Attack:
    """An attack within the answer to task 2, which loses the points of that task only."""
    answers = {"ps01-2-answer": embedding(body)}
    return Attack(answers=answers, **{"earns": NO_VECTORS, "shows": "Your code ended the test"} | more)


_cell = partial(cell, shows="This cell was ended")
_telling = partial(_answer, shows="attack ran")

ENDS = {
    "os._exit": _cell("os._exit(0)"),
    "exec with the socket": _cell("""
# A program that keeps the socket open and says nothing.
os.set_inheritable(line().fileno(), True)
os.execv("/bin/sleep", ["sleep", "98765.4321"])
"""),
    "another socket": _cell("""
# The socket replaced by another.
import socket
a, b = socket.socketpair()
os.dup2(a.fileno(), line().fileno())
"""),
    "32 bits": _cell("""
# System calls as of a 32-bit program.
import mmap, platform
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
code.write(bytes.fromhex("b8140000 00cd80c3".replace(" ", "")) if platform.machine() == "x86_64" else bytes(4))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""),
    "os._exit in an answer": _answer("os._exit(0)"),
    # An exception that is not an `Exception`.
    "KeyboardInterrupt": _answer("raise KeyboardInterrupt"),
    "SystemExit": _telling("""
# The polite end.
RAN[:] = ['attack ran']
raise SystemExit
"""),
    "errors with known names": _telling("""
# Errors named like those that the autograder knows.
RAN[:] = ["attack ran"]
names = (
    "StopIteration AssertionError MemoryError RecursionError TimeoutError PeerGoneError WireError "
    "TimeLimitError _TestTimeLimitError LearnerError KeyboardInterrupt SystemExit GeneratorExit BaseException "
    "ExceptionGroup UnicodeDecodeError Warning __import__ print"
).split()
name = names[len(str(ids.tolist())) % len(names)]
raise type(name, (Exception,), {})("<b>\\x1b[31m" + name)
"""),
    "an error that cannot be read": _telling("""
# An exception whose text and name are traps.
RAN[:] = ["attack ran"]
class Trap(Exception):
    def __str__(self): raise KeyboardInterrupt("x") if RAN[1:] else RuntimeError("x")
Trap.__name__ = "T" * 1_000_000
raise Trap
"""),
    "recursion": _telling("""
# A recursion without end.
RAN[:] = ['attack ran']
return self.forward(ids)
"""),
    "SIGSTOP": cell("os.kill(os.getpid(), signal.SIGSTOP)"),
}

KILLS = {
    "everybody": shared("""
# Everybody killed, one number after the other.
for number in range(2, 70_000):
    try: os.kill(number, signal.SIGKILL); print('broke out')
    except ProcessLookupError: pass
"""),
    "all at once": shared("tried('kill', lambda: os.kill(-1, signal.SIGKILL))"),
    "a signal from a file": shared("""
# A signal sent by the kernel, to a file's owner.
import fcntl
tried('owner', lambda: fcntl.fcntl(line().fileno(), 8, PLACES['pid']))
"""),
}

STAYS = {
    "a daemon": shared("""
# A process that leaves parent, session and group, to outlive the grading.
if os.fork() == 0:
    tried("setsid", os.setsid)
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "98765.4321"])
    os._exit(0)
"""),
    "at the end": shared("""
# Code that runs when the process ends, in every way there is.
import atexit, weakref
def stay(*_):
    if os.fork() == 0: os.execv("/bin/sleep", ["sleep", "98765.4321"])
class Kept:
    def __del__(self): stay()
kept = Kept()
weakref.finalize(kept, stay)
atexit.register(stay)
signal.signal(signal.SIGTERM, stay)
threading._register_atexit(stay)
"""),
    "a parent's death ignored": shared("""
# The wish to die with the parent taken back.
tried('prctl', lambda: called('prctl', 1, 0, 0, 0, 0))
"""),
    # The learner's process is copied, and both copies answer.
    "two that answer": cell(
        "os.fork()",
        after="ps01-5-capped-answer",
        at_most=True,  # the tests cannot know which answer is meant, and either one ends the conversation
    ),
    # A thread that ends the process a little later, in another cell.
    "a late end": cell(
        "threading.Timer(0.05, os._exit, (0,)).start()",
        after="ps01-5-capped-answer",
        at_most=True,  # an unrelated cell or test is hit
    ),
}

ATTACKS = ENDS | KILLS | STAYS
