"""Which pairs of submissions have more in common than chance would have it.

The tasks are short and most have one natural solution, so a share of equal lines says little. A fingerprint that
d of n students have is worth log2(n/d) bits: nothing if all have it. What is shared within a cell hangs together,
so a cell counts with the mean over all fingerprints that either has there, what is not shared being worth 0; with
names or without, whichever says more. Answers in words leave more to choose: there every `ROW` fingerprints count
like a cell. Cells are added up. A pair is reported if that is more by log2(2n) bits, as chance gives once in 2n,
than what either of the two has in common with the others nearest to them, the first few of these left aside: the
good ones resemble each other in all they do.

Two who hand in the same code but for comments and layout, with the same names, are reported whatever it is
worth.

Measured in classes of 100 honest students who were made up: of the masters' answers, those of the checks'
catalogue and typical mistakes, with idioms and names changed at random (``tests/test_autograder_similarity.py``).
In nine classes for each of the ten assignments there were 0.12 false pairs on average; on masks, whose answers
are the shortest, 0.56. Where somebody had copied all answers to code and changed comments and line breaks, 99.8%
were found; with all local names changed, too, 42%: from 24% (the clinic) to 62%, by how much an assignment leaves
to choose. Real classes may be more alike. 1,000 submissions take 3 seconds.

What it cannot tell: who wrote first, and whether two asked the same friend, page or program. What more than about
ten share looks like the usual solution. Two who solve everything in the most usual way, with the most usual
names, are reported only if they write the same code, as such pairs arise by chance. Two or three answers in
common are seldom enough, and a copy in which every line is written anew is not found. For answers in words there
were no classes to measure on.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from exercises.autograder.intake.cells import normalize_source
from exercises.autograder.similarity.fingerprints import Kind, handed_out, prints_of, tokens

__all__ = ["Pair", "compare", "pairs"]

LEAST = 0.1  # the least share of equal fingerprints in a pair that is reported
ENOUGH = 8  # fingerprints, about 30 tokens, without which even the same text says nothing
ROW = 8  # fingerprints of an answer in words, about 20 words, that count like a cell
NEAR = 10  # students at most, with whom anybody has much in common without that saying anything
COLUMNS = 4096  # fingerprints that are compared at once
LEAST_BITS = 3  # by which a pair must stand out, however small the class

Prints = dict[str, frozenset[int]]  # a student's, of the cells that are long enough to have some


@dataclass(frozen=True)
class Pair:
    """Two submissions that have much in common.

    Attributes:
        first, second: the students, in the order of their ids.
        score: the share of fingerprints, without names, that both have; of all in cells that both answered.
        cells: the same for each of these cells; a text that was moved to another cell counts, too.
        exact: whether all their answers are the same text, but for white space at the ends of lines.
        bits: how surprising it is in its class.
    """

    first: str
    second: str
    score: float
    cells: dict[str, float]
    exact: bool
    bits: float = 0.0


def pairs(
    texts: dict[str, dict[str, str]], released: dict[str, str], words: Collection[str] = ()
) -> list[Pair]:
    """The pairs that a person should look at, those with most in common first.

    Of several students with the same code each is paired with the first of them, and only that one with others.

    Args:
        texts: of each student the texts of their answers, by cell.
        released: what was handed out, by cell; it counts for nothing. More may be added, say a chapter's code.
        words: the cells that are answers in words.
    """
    given = _Given(released, words)
    answers = {student: given.answers(texts[student]) for student in sorted(texts)}
    students = [student for student in answers if answers[student]]
    prints = [given.prints(answers[student]) for student in students]
    like = _first_alike([given.read(answers[student]) for student in students])
    bits = _bits(prints, [given.prints(answers[student], "names") for student in students], given.words)
    found = []
    for one, other in sorted({*_surprising(bits, like), *_same(like, prints)}):
        cells, score = _shares(prints[one], prints[other])
        exact = answers[students[one]] == answers[students[other]]
        score = 1.0 if exact else score
        if score >= LEAST:
            found.append(Pair(students[one], students[other], score, cells, exact, float(bits[one, other])))
    return sorted(found, key=lambda pair: (-pair.score, -pair.bits, pair.first, pair.second))


def compare(
    first: dict[str, str], second: dict[str, str], released: dict[str, str], words: Collection[str] = ()
) -> Pair:
    """What two have in common, whatever others have; their names are "first" and "second".

    Args:
        first, second: the texts of their answers, by cell.
        released: what was handed out, by cell.
        words: the cells that are answers in words.
    """
    given = _Given(released, words)
    ours, theirs = given.answers(first), given.answers(second)
    cells, score = _shares(given.prints(ours), given.prints(theirs))
    exact = bool(ours) and ours == theirs
    return Pair("first", "second", 1.0 if exact else score, cells, exact)


class _Given:
    """What everybody has.

    Args:
        released: what was handed out, by cell.
        words: the cells that are answers in words.
    """

    def __init__(self, released: dict[str, str], words: Collection[str]):
        self._texts = {normalize_source(text) for text in released.values()} | {""}
        self._hashes, self.words = handed_out(released.values()), frozenset(words)

    def answers(self, texts: dict[str, str]) -> dict[str, str]:
        """What was answered, without what editors change of themselves."""
        found = {cell: normalize_source(text) for cell, text in texts.items()}
        return {cell: text for cell, text in found.items() if text not in self._texts}

    def read(self, answers: dict[str, str]) -> dict[str, str]:
        """What Python reads of answers in code, names included: comments and line breaks are easily changed."""
        return {
            cell: text if cell in self.words else " ".join(tokens(text, names=True)) or text
            for cell, text in answers.items()
        }

    def prints(self, answers: dict[str, str], kind: Kind = "code") -> Prints:
        """The fingerprints of answers; those in words are of their own kind."""
        found = {
            cell: prints_of(text, "words" if cell in self.words else kind, self._hashes)
            for cell, text in answers.items()
        }
        return {cell: some for cell, some in found.items() if some}


def _shares(ours: Prints, theirs: Prints) -> tuple[dict[str, float], float]:
    """The share of equal fingerprints for each cell, and in all."""
    everywhere = [frozenset(chain.from_iterable(prints.values())) for prints in (theirs, ours)]
    cells, both, either = {}, 0.0, 0.0
    for cell in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(cell, frozenset()), theirs.get(cell, frozenset())
        shared = (len(mine & everywhere[0]) + len(other & everywhere[1])) / 2
        if shared or (mine and other):
            cells[cell] = shared / (len(mine) + len(other) - shared)
            both, either = both + shared, either + len(mine) + len(other) - shared
    return cells, both / either if either else 0.0


def _first_alike(answers: list[dict[str, str]]) -> list[int]:
    """Of each the number of the first that says the same."""
    first: dict[frozenset, int] = {}
    return [first.setdefault(frozenset(one.items()), number) for number, one in enumerate(answers)]


def _same(like: list[int], prints: list[Prints]) -> Iterator[tuple[int, int]]:
    """Those that say the same as an earlier one, and enough of it."""
    for number, first in enumerate(like):
        if first != number and sum(map(len, prints[number].values())) >= ENOUGH:
            yield first, number


def _surprising(bits: np.ndarray, like: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs that stand out; of those that say the same only the first counts."""
    first = [number for number, same in enumerate(like) if number == same]
    found = bits[np.ix_(first, first)]
    np.fill_diagonal(found, 0)
    number = len(first)
    if number > 1:
        near = min(NEAR, max(number // 12, min(3, number // 4), 1))
        others = np.partition(found, number - 1 - near, axis=1)[:, number - 1 - near]
        needed = np.maximum(others[:, None], others) + max(LEAST_BITS, np.log2(2 * number))
        for one, other in np.argwhere(np.triu(found > needed, 1)).tolist():
            yield first[one], first[other]


def _bits(without: list[Prints], named: list[Prints], words: frozenset[str]) -> np.ndarray:
    """How surprising each pair is, (students, students): by fingerprints without names, or those with names."""
    total = np.zeros((len(without), len(without)), np.float32)
    some, others = _bits_by_cell(without, words), _bits_by_cell(named, words)
    for cell, bits in some.items():
        total += bits if cell in words else np.maximum(bits, others[cell])
    return total


def _bits_by_cell(prints: list[Prints], words: frozenset[str]) -> dict[str, np.ndarray]:
    """What each pair has in common in a cell, divided by the fingerprints there or by `ROW`."""
    anywhere: dict[int, list[int]] = defaultdict(list)  # of each fingerprint the students who have it
    cells: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for student, own in enumerate(prints):
        for print_ in frozenset(chain.from_iterable(own.values())):
            anywhere[print_].append(student)
        for cell, some in own.items():
            for print_ in some:
                cells[cell][print_].append(student)
    number, found = len(prints), {}
    for cell, holders in cells.items():
        shared, worth = np.zeros((2, number, number), np.float32)
        # Nobody shares what one student alone has.
        columns = [print_ for print_ in sorted(holders) if len(anywhere[print_]) > 1]
        for start in range(0, len(columns), COLUMNS):
            some = columns[start : start + COLUMNS]
            here, everywhere = (_table(number, (of[print_] for print_ in some)) for of in (holders, anywhere))
            shared += here @ everywhere.T
            worth += here * np.log2(number / everywhere.sum(0)) @ everywhere.T
        sizes = np.array([len(own.get(cell, ())) for own in prints], np.float32)
        either = ROW if cell in words else sizes[:, None] + sizes - (shared + shared.T) / 2
        found[cell] = (worth + worth.T) / 2 / np.maximum(either, 0.5)
    return found


def _table(students: int, holders: Iterable[list[int]]) -> np.ndarray:
    """1 where a student has a fingerprint, (students, fingerprints)."""
    columns = list(holders)
    table = np.zeros((students, len(columns)), np.float32)
    for column, rows in enumerate(columns):
        table[rows, column] = 1
    return table
