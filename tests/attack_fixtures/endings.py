"""Ending, crashing, doubling or replacing processes: one's own, the tests', the grader's."""

from tests.attack_fixtures.attack import Attack, embedding

__all__ = ["ATTACKS"]

NO_VECTORS = {"ps01-2-test": 0.0}
ENDED = "This cell was ended"


def _cell(name: str, tries: str, code: str, **more) -> Attack:
    return Attack(name, tries, 'print("attack ran")\n' + code, **{"shows": ENDED} | more)


def _answer(name: str, tries: str, body: str, **more) -> Attack:
    """Within the answer to task 2; its own points are lost, all others are not."""
    answers = {"ps01-2-answer": embedding(body)}
    more = {"earns": NO_VECTORS, "why": "it is no answer", "shows": "Your code ended the test"} | more
    return Attack(name, tries, answers=answers, **more)


ENDS = (
    _cell("os._exit", "an end without a word", "os._exit(0)"),
    _cell(
        "exec with the socket",
        "a program that keeps the socket open and says nothing",
        """
os.set_inheritable(line().fileno(), True)
os.execv("/bin/sleep", ["sleep", "98765.4321"])
""",
    ),
    _cell(
        "another socket",
        "the socket replaced by another",
        """
import socket
a, b = socket.socketpair()
os.dup2(a.fileno(), line().fileno())
""",
    ),
    _cell(
        "32 bits",
        "system calls as of a 32-bit program",
        """
import mmap, platform
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
code.write(bytes.fromhex("b8140000 00cd80c3".replace(" ", "")) if platform.machine() == "x86_64" else bytes(4))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
""",
    ),
    _answer("os._exit in an answer", "an end when the tests call", "os._exit(0)"),
    _answer("KeyboardInterrupt", "an exception that is no `Exception`", "raise KeyboardInterrupt"),
    _answer(
        "SystemExit",
        "the polite end",
        """
RAN[:] = ['attack ran']
raise SystemExit
""",
        shows="attack ran",
    ),
    _answer(
        "errors with known names",
        "errors named like those that the autograder knows",
        """
RAN[:] = ["attack ran"]
names = (
    "StopIteration AssertionError MemoryError RecursionError TimeoutError PeerGoneError WireError "
    "TimeLimitError _TestTimeLimitError LearnerError KeyboardInterrupt SystemExit GeneratorExit BaseException "
    "ExceptionGroup UnicodeDecodeError Warning __import__ print"
).split()
name = names[len(str(ids.tolist())) % len(names)]
raise type(name, (Exception,), {})("<b>\\x1b[31m" + name)
""",
        shows="attack ran",
    ),
    _answer(
        "an error that cannot be read",
        "an exception whose text and name are traps",
        """
RAN[:] = ["attack ran"]
class Trap(Exception):
    def __str__(self): raise KeyboardInterrupt("x") if RAN[1:] else RuntimeError("x")
Trap.__name__ = "T" * 1_000_000
raise Trap
""",
        shows="attack ran",
    ),
    _answer(
        "recursion",
        "a recursion without end",
        """
RAN[:] = ['attack ran']
return self.forward(ids)
""",
        shows="attack ran",
    ),
    _cell("SIGSTOP", "its own process stopped", "os.kill(os.getpid(), signal.SIGSTOP)", shows="attack ran"),
)

KILLS = tuple(
    Attack(name, tries, f'print("attack ran")\n{code}', alone=False)
    for name, tries, code in (
        (
            "everybody",
            "everybody killed, one number after the other",
            """
for number in range(2, 70_000):
    try: os.kill(number, signal.SIGKILL); print('broke out')
    except ProcessLookupError: pass
""",
        ),
        ("all at once", "everybody killed at once", "tried('kill', lambda: os.kill(-1, signal.SIGKILL))"),
        (
            "a signal from a file",
            "signals sent by the kernel: of a file's owner, of a timer",
            """
import fcntl
tried('owner', lambda: fcntl.fcntl(line().fileno(), 8, PLACES['pid']))
""",
        ),
    )
)

STAYS = (
    Attack(
        "a daemon",
        "a process that leaves parent, session and group, to outlive the grading",
        """
print("attack ran")
if os.fork() == 0:
    tried("setsid", os.setsid)
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "98765.4321"])
    os._exit(0)
""",
        alone=False,
    ),
    Attack(
        "at the end",
        "code that runs when the process ends, in every way there is",
        """
print("attack ran")
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
""",
        alone=False,
    ),
    Attack(
        "a parent's death ignored",
        "the wish to die with the parent taken back",
        """
print('attack ran')
tried('prctl', lambda: called('prctl', 1, 0, 0, 0, 0))
""",
        alone=False,
    ),
    Attack(
        "two that answer",
        "a copy of the learner's process, and both answer",
        "print('attack ran')\nos.fork()",
        after="ps01-5-capped-answer",
        at_most=True,
        why="nobody knows which of the two answers is meant, and the conversation ends at each",
    ),
    Attack(
        "a late end",
        "a thread that ends the process a little later, in another cell",
        """
print('attack ran')
threading.Timer(0.05, os._exit, (0,)).start()
""",
        after="ps01-5-capped-answer",
        at_most=True,
        why="an innocent cell or test is hit",
    ),
)

ATTACKS = (*ENDS, *KILLS, *STAYS)
