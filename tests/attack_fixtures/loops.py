"""Using up the time: in cells, in what tests call, in what cannot be interrupted."""

from tests.attack_fixtures.attack import Attack, embedding

__all__ = ["ALIKE", "ATTACKS"]

NO_VECTORS = {"ps01-2-test": 0.0}
ITS_ANSWER = "the endless loop is its answer to this task"
# What neither an alarm nor an exception ends.
STUBBORN = """
while True:
    try:
        while True: time.sleep(0.1)
    except BaseException: pass
"""


def _cell(name: str, tries: str, code: str, **more) -> Attack:
    return Attack(name, tries, 'print("attack ran")\n' + code, **more)


def _answer(name: str, tries: str, body: str, **more) -> Attack:
    """Within the answer to task 2; what is printed there is dropped, so the test's fate shows that it ran."""
    answers = {"ps01-2-answer": embedding(body)}
    more = {"earns": NO_VECTORS, "why": ITS_ANSWER, "shows": "took too long"} | more
    return Attack(name, tries, answers=answers, **more)


def _slow_value(name: str, more: str, **about) -> Attack:
    code = f"""
import numbers
class Slow:
    {more}
    def __float__(self):
        while True:
            try: time.sleep(1000)
            except BaseException: pass
numbers.Real.register(Slow)
spread = Slow()
print("attack ran")
"""
    tries = "a number that takes forever to say what it is, whenever a test asks for it"
    return Attack(name, tries, code, after="ps01-1-answer", **about)


ATTACKS = (
    _cell("endless", "an endless loop in a cell", "while True: pass"),
    _cell(
        "asleep",
        "a cell that sleeps, in a task of asyncio",
        """
import asyncio
await asyncio.sleep(1000)
""",
    ),
    _cell(
        "waiting",
        "a cell that waits for what never comes: a pipe that nobody writes to",
        """
os.mkfifo("pipe")
open("pipe").read()
""",
    ),
    _cell(
        "stubborn",
        "a loop that catches everything, also the time limit",
        STUBBORN,
        shows="This cell was ended",
    ),
    _cell("within C", "one call of C that takes forever", "sum(range(10**15))", shows="This cell was ended"),
    _cell(
        "a number",
        "a number too large to compute",
        """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
10 ** 10 ** 10
""",
        shows="This cell was ended",
    ),
    _cell(
        "a thread that lets nobody in",
        "a thread that never gives up Python's lock",
        """
sys.setswitchinterval(1e9)
t = threading.Thread(target=exec, args=('while True: pass',), daemon=True)
t.start()
t.join()
""",
        shows="This cell was ended",
    ),
    _cell(
        "a regular expression",
        "one that backtracks forever",
        """
import re
re.match('(a+)+b', 'a' * 60)
""",
        shows="took longer than",
    ),
    _cell(
        "when it is deleted",
        "a loop when an object is freed",
        """
class A:
    def __del__(self):
        time.sleep(1000)
a = A()
del a
""",
    ),
    _cell(
        "a clock that stands still",
        "the clock replaced",
        """
time.monotonic = time.time = lambda: 0.0
time.perf_counter = time.monotonic
""",
    ),
    _answer("in an answer", "an endless loop in a function that the tests call", "while True: pass"),
    _answer("stubborn in an answer", "the same, and it catches everything", STUBBORN),
    _answer(
        "no alarm",
        "the alarm cancelled and its handler replaced, then an endless loop",
        """
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
sum(range(10**15))
""",
    ),
    _answer(
        "a little late",
        "each call takes a second",
        """
time.sleep(1)
return F.embedding(ids, self.weight) * self.weight.size(1) ** 0.5
""",
        earns={},
        at_most=True,
        why="an answer that is right but for its start, within the time",
    ),
    _slow_value("in a value", "", earns={"ps01-1-test": 3.0}, why="one of its numbers is none"),
    _slow_value(
        "in a value, and it lies",
        '__module__ = "builtins"',
        earns={"ps01-1-test": 0.0},
        why="no value of it ever arrives",
        at_most=True,
    ),
    Attack(
        "slow cells, and an end",
        "cells that take most of their time, run again after a test has ended the process",
        """
print('attack ran')
time.sleep(1.5)
""",
        answers={"ps01-2-answer": embedding("os._exit(0)", "time.sleep(1.5)")},
        earns=NO_VECTORS,
        why="its answer ends the process",
    ),
    Attack(
        "a drip",
        "replies of one byte a second",
        """
def change(connection, reply):
    if type(reply["value"]) is dict and "kind" in reply["value"]:
        for _ in range(1000):
            connection.send(bytes(1))
            time.sleep(1)
    return reply
forge(change)
print("attack ran")
""",
        after="ps01-5-capped-answer",
    ),
)
# Of each mechanism one way is tried at each commit; these are other ways.
ALIKE = {
    "endless": (
        "asleep",
        "waiting",
        "a regular expression",
        "when it is deleted",
        "a clock that stands still",
    ),
    "stubborn": ("within C", "a number", "a thread that lets nobody in"),
    "in an answer": ("a little late",),
    "stubborn in an answer": ("no alarm",),
    "in a value": ("in a value, and it lies",),
}
