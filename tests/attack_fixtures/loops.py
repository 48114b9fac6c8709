"""Using up the time: in cells, in functions that tests call, in code that cannot be interrupted."""

from tests.attack_fixtures.attack import Attack, cell, embedding, forged

NO_VECTORS = {"ps01-2-test": 0.0}
# A loop that neither an alarm nor an exception ends.
STUBBORN = """
while True:
    try:
        while True: time.sleep(0.1)
    except BaseException: pass
"""


def _answer(body: str) -> Attack:
    """An attack within the answer to task 2; prints are dropped, but the timeout shows that it ran."""
    return Attack(answers={"ps01-2-answer": embedding(body)}, earns=NO_VECTORS, shows="took too long")


ATTACKS = {
    "endless": cell("while True: pass"),
    "stubborn": cell(STUBBORN, shows="This cell was ended"),
    "in an answer": _answer("while True: pass"),
    "stubborn in an answer": _answer(STUBBORN),
    "in a value": cell(
        """
# A number that takes forever to say what it is, whenever a test asks for it.
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
        earns={"ps01-1-test": 3.0},  # one of its numbers is not a number
    ),
    "a drip": forged(
        "check",
        """
# Replies of one byte a second.
for _ in range(1000):
    c.send(bytes(1))
    time.sleep(1)
""",
        after="ps01-5-capped-answer",
        shows="took too long",
    ),
}
