"""Using up the time: in cells, in what tests call, in what cannot be interrupted."""

from tests.attack_fixtures.attack import Attack, embedding

__all__ = ["ATTACKS"]

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


ATTACKS = (
    _cell("endless", "an endless loop in a cell", "while True: pass"),
    _cell(
        "stubborn",
        "a loop that catches everything, also the time limit",
        STUBBORN,
        shows="This cell was ended",
    ),
    _answer("in an answer", "an endless loop in a function that the tests call", "while True: pass"),
    _answer("stubborn in an answer", "the same, and it catches everything", STUBBORN),
    _cell(
        "in a value",
        "a number that takes forever to say what it is, whenever a test asks for it",
        """
import numbers
class Slow:
    def __float__(self):
        while True:
            try: time.sleep(1000)
            except BaseException: pass
numbers.Real.register(Slow)
spread = Slow()
""",
        after="ps01-1-answer",
        earns={"ps01-1-test": 3.0},
        why="one of its numbers is none",
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
