"""Near-identical pairs of submissions, for a person to look at; no mark depends on them.

The tasks are short and most have one natural solution, so how much two have in common says little; how many
others have as much in common with either of them says more. Within a cell the similarity of two answers is
the share s of runs of `RUN` tokens that are in both (Jaccard). If r of the class's n students are at least as
similar to one of the two, that is worth s² · log2(n/r) bits. A run records which names are the same, not how
they are spelled (Baker: Parameterized duplication in strings, SIAM J. Comput. 26, 1997). A pair is reported
if its sum over cells is greater by log2(16n) bits than what either has in common with the others nearest to
them, leaving out the first few of these: good students resemble each other in all they do. The same code with
the same names, whatever its comments and layout, is reported however few bits it is worth.

In nine made-up classes of 100 for each assignment (``tests/test_autograder_similarity.py``) there were 0.02
false pairs on average, 0.11 in the worst. Of copies of all code, all were found with comments and line breaks
changed, 71% with all local names changed. Real classes may be more alike. It is not reported who wrote first,
or whether two asked the same friend, page or program. Two or three answers in common, and rewritten answers,
are seldom found.
"""

import builtins
import difflib
import keyword
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest

import nbformat
import numpy as np

from exercises import release
from exercises.autograder.course.folders import Course
from exercises.autograder.feedback.text import clean
from exercises.autograder.intake.cells import normalize_source
from exercises.autograder.intake.repair import cells_by_id, is_answer
from transformer_lessons.tools.submission import grade_id

OWN = "own cells"  # the name under which a student's own code cells are compared
RUN = 5  # tokens, or words
NAME_DISTANCE = 20  # tokens, so that a run depends only on its neighbourhood
FEWEST_RUNS = 25  # runs, about 30 tokens, below which even the same text says nothing
RUNS_PER_CELL = 8  # runs of an answer in words that count like a cell of code, as words leave more choice
NEIGHBOURS = 8  # the most students with whom anybody may have much in common without that saying anything
MOST_LINES = 1_000  # lines of a cell that are shown; comparing takes quadratic time at worst
LEGEND = "= the same   ~ the same except for names, texts and layout   | different"
EXACT = "identical except for comments and layout"
WIDTH = 58  # of a side, in characters

# Text is read piece by piece, so that code that cannot be parsed has tokens, too.
PIECE = re.compile(
    r"""
      \#[^\n]*
    | (?:[rbuf]|rb|br|rf|fr)?(?:  # a text, which may lack its end
          \"{3}(?:[^\\]|\\.?)*?(?:\"{3}|\Z) | '{3}(?:[^\\]|\\.?)*?(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\.?)*(?:"|(?=\n)|\Z) | '(?:[^'\\\n]|\\.?)*(?:'|(?=\n)|\Z) )
    | (?P<token> \w+ | [^\s\w(),;\\] )  # but for what is added and removed when code is laid out
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
PYTHON = {*dir(builtins), *keyword.kwlist}

Texts = dict[str, str]  # a student's answers, by cell
Runs = dict[str, frozenset[tuple[str, ...]]]  # a student's runs of tokens, by cell
Read = frozenset[tuple[str, str]]  # what is read of a student's answers, by cell


@dataclass(frozen=True)
class Pair:
    """Two submissions that have much in common."""

    first: str  # the students, in the order of their ids
    second: str
    score: float  # the share of runs of tokens that both have, among all in cells that both answered
    cells: dict[str, float]  # the same for each of these cells
    exact: bool  # whether all their answers are the same, but for comments and layout


# ---- Which pairs stand out


def pairs(texts: dict[str, Texts], released: Collection[str], words: Collection[str] = ()) -> list[Pair]:
    """The pairs that a person should look at, those with most in common first.

    Several students with the same code are each paired with the first of them, and only that one with others.

    Args:
        texts: each student's answers, by cell.
        released: texts that were handed out, which do not count. More may be added, say a chapter's code.
        words: the cells that are answers in words.
    """
    read, runs = own_runs(texts, released, words)
    first: dict[Read, str] = {}
    representative = {student: first.setdefault(own, student) for student, own in read.items()}
    different = list(first.values())
    bits = _bits([runs[student] for student in different], words)
    enough = {student for student, own in runs.items() if sum(map(len, own.values())) >= FEWEST_RUNS}
    found = [(one, student) for student, one in representative.items() if one != student and one in enough]
    found += [(different[n], different[m]) for n, m in _standing_out(bits)]
    made = [Pair(a, b, *shares(runs[a], runs[b]), representative[a] == representative[b]) for a, b in found]
    return sorted(made, key=lambda pair: (-pair.score, pair.first, pair.second))


def own_runs(
    texts: dict[str, Texts], released: Collection[str], words: Collection[str] = ()
) -> tuple[dict[str, Read], dict[str, Runs]]:
    """What is read of each student's answers, and the runs in them that were not handed out; by student's id.

    Of answers in words, all is read; of code, what Python reads, names included, because comments and line
    breaks are easily changed. Students who answered nothing are left out. For the arguments see `pairs`.
    """
    given = {normalize_source(text) for text in released} | {""}
    common = frozenset().union(*(_runs(text, of) for text in released for of in (_masked_tokens, _words)))
    read, runs = {}, {}
    for student in sorted(texts):
        own = {cell: normalize_source(text) for cell, text in texts[student].items()}
        if own := {cell: text for cell, text in own.items() if text not in given}:
            code = {cell: " ".join(_tokens(text)) or text for cell, text in own.items() if cell not in words}
            read[student] = frozenset((own | code).items())
            kinds = {cell: _words if cell in words else _masked_tokens for cell in own}
            runs[student] = {cell: _runs(text, kinds[cell]) - common for cell, text in own.items()}
    return read, runs


def shares(ours: Runs, theirs: Runs) -> tuple[float, dict[str, float]]:
    """The share of equal runs in all cells that both answered, and in each of them."""
    cells = [cell for cell in sorted(ours.keys() & theirs.keys()) if ours[cell] | theirs[cell]]
    both = {cell: len(ours[cell] & theirs[cell]) for cell in cells}
    either = {cell: len(ours[cell] | theirs[cell]) for cell in cells}
    score = sum(both.values()) / max(sum(either.values()), 1)
    return score, {cell: both[cell] / either[cell] for cell in cells}


def _bits(runs: list[Runs], words: Collection[str]) -> np.ndarray:
    """How surprising it is what each pair has in common, of shape (students, students)."""
    number = len(runs)
    total = np.zeros((number, number))
    for cell in sorted(set(chain.from_iterable(runs))):
        own = [some.get(cell, frozenset()) for some in runs]
        shared = np.array([[len(one & other) for other in own] for one in own])
        sizes = shared.diagonal()
        share = shared / np.maximum(sizes[:, None] + sizes - shared, 1)
        nearest = np.sort(share, axis=1)
        rank = np.stack([number - np.searchsorted(*row) for row in zip(nearest, share, strict=True)])
        worth = share**2 * np.log2(number / np.maximum(rank, rank.T))
        total += worth * shared / RUNS_PER_CELL if cell in words else worth
    np.fill_diagonal(total, 0)
    return total


def _standing_out(bits: np.ndarray) -> list[list[int]]:
    """The pairs that have more in common than either has with the others near to them."""
    number = len(bits)
    if number < 2:
        return []
    last = number - 1 - min(NEIGHBOURS, max(number // 12, 1))
    others = np.partition(bits, last, axis=1)[:, last]
    needed = np.maximum(others[:, None], others) + np.log2(16 * number)
    return np.argwhere(np.triu(bits > needed, 1)).tolist()


# ---- What is compared of a text


def _tokens(code: str) -> list[str]:
    """What Python reads, without strings, comments, round brackets and commas; the code may be invalid."""
    return [piece["token"] for piece in PIECE.finditer(code) if piece["token"]]


def _masked_tokens(code: str) -> list[str]:
    """The tokens, each name a student chose replaced by how many tokens ago it was last used, if near.

    Names after a dot are those of libraries, except for what a student keeps in `self`.
    """
    found: list[str] = []
    last: dict[str, int] = {}
    before = ("", "")
    for place, token in enumerate(_tokens(code)):
        if before[0] == "self" if before[1] == "." else token.isidentifier() and token not in PYTHON:
            distance = place - last.get(token, -NAME_DISTANCE)
            found.append(f"x{distance if distance < NAME_DISTANCE else 0}")
            last[token] = place
        else:
            found.append(token.replace("_", ""))
        before = before[1], token
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


@lru_cache(maxsize=10_000)  # many of a class hand in the same text
def _runs(text: str, kind: Callable[[str], list[str]]) -> frozenset[tuple[str, ...]]:
    found = kind(text)
    return frozenset(tuple(found[start : start + RUN]) for start in range(len(found) - RUN + 1))


# ---- A course


def course_pairs(course: Course, assignment: str) -> list[Pair]:
    """The pairs of an assignment that a person should look at."""
    return pairs(*_answers(course, assignment, [student for student, _ in course.submissions(assignment)]))


def compare(course: Course, assignment: str, first: str, second: str) -> str:
    """Two submissions side by side, with what they have in common.

    Raises:
        FileNotFoundError: if one of the two has no submission.
    """
    texts, *given = _answers(course, assignment, [first, second])
    read, runs = own_runs(texts, *given)
    score, by_cell = shares(runs.get(first, {}), runs.get(second, {}))
    exact = f"; {EXACT}" if read and read.get(first) == read.get(second) else ""
    head = f"{assignment}: {score:.0%} of what both answered is the same{exact}"
    return f"{head}\n{side_by_side((first, second), (texts[first], texts[second]), by_cell)}"


def _answers(course: Course, assignment: str, students: list[str]) -> tuple[dict, list[str], set[str]]:
    """The students' answers by cell, everything that was handed out, and which cells are answers in words.

    Several versions of an assignment may have been handed out, and a student may have worked on any.
    """
    current = release.HERE / "release" / assignment / f"{assignment}.ipynb"
    versions = [*course.versions(assignment), nbformat.read(current, as_version=4)]
    known = {name: cell for version in versions for name, cell in cells_by_id(version).items()}
    wanted = {name for name, cell in known.items() if is_answer(cell)}
    released = [cell.source for version in versions for cell in version.cells]
    given = {normalize_source(text) for text in released}
    texts: dict[str, Texts] = {}
    for student in students:
        path = course.received(student, assignment)
        if not path.exists():
            raise FileNotFoundError(f"{student}: expected a submission of {assignment}, got none")
        cells = nbformat.v4.reads(path.read_text(encoding="utf-8")).cells  # checked at the intake
        texts[student] = {grade_id(cell): cell.source for cell in cells if grade_id(cell) in wanted}
        own = [cell.source for cell in cells if grade_id(cell) not in known and cell.cell_type == "code"]
        if own := [text for text in own if normalize_source(text) not in given]:
            texts[student][OWN] = "\n\n".join(own)
    return texts, released, {name for name in wanted if known[name].cell_type == "markdown"}


# ---- Side by side


def side_by_side(names: tuple[str, str], texts: tuple[Texts, Texts], by_cell: dict[str, float]) -> str:
    """The answers of two students, cell by cell, with a mark between the lines.

    Cells come in the order of `by_cell`, the share of equal runs.
    """
    lines = [LEGEND, *_row(names[0], " ", names[1])]
    for cell in sorted(texts[0].keys() | texts[1].keys(), key=lambda cell: (-by_cell.get(cell, 0.0), cell)):
        share = f" · {by_cell[cell]:.0%}" if cell in by_cell else ""
        lines += ["", f"── {clean(cell)}{share} ──"]
        for row in _compared(*(text.get(cell, "").splitlines()[:MOST_LINES] for text in texts)):
            lines += _row(*row)
    return "\n".join(lines) + "\n"


def _compared(ours: list[str], theirs: list[str]) -> Iterator[tuple[str, str, str]]:
    """The lines of both, those that say the same beside each other, with a mark between."""
    # A line's tokens, or all of it if there are none, as in a comment.
    keys = [[" ".join(_masked_tokens(line)) or line.strip() for line in lines] for lines in (ours, theirs)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for left, right in zip_longest(ours[a:b], theirs[c:d], fillvalue=""):
            mark = "|" if kind != "equal" else "=" if left.strip() == right.strip() else "~"
            yield left, mark, right


def _row(left: str, mark: str, right: str) -> Iterator[str]:
    """Two lines side by side, in as many lines as they take."""
    sides = [clean(text.expandtabs(4)) for text in (left, right)]
    for start in range(0, max(map(len, sides)) or 1, WIDTH):
        one, other = (side[start : start + WIDTH] for side in sides)
        yield f"{one:<{WIDTH}} {mark if start == 0 else ' '} {other}".rstrip()
