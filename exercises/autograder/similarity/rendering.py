"""Two submissions beside each other, as text for a terminal."""

import difflib
from collections.abc import Iterator
from itertools import zip_longest

from exercises.autograder.similarity.fingerprints import tokens

__all__ = ["side_by_side"]

MOST_LINES = 1_000  # of a cell; comparing takes the square of it at worst
LEGEND = "= the same   ~ the same but for names, texts and layout   | different   < > only there"


def side_by_side(
    names: tuple[str, str],
    texts: tuple[dict[str, str], dict[str, str]],
    shares: dict[str, float] | None = None,
    width: int = 120,
) -> str:
    """The answers of two students, cell by cell, with a mark between the lines.

    Args:
        names: of the two.
        texts: of their answers, by cell.
        shares: of what is equal, by cell; cells with the greatest come first.
        width: of the whole, in characters.
    """
    shares = shares or {}
    cells = sorted(texts[0].keys() | texts[1].keys(), key=lambda cell: (-shares.get(cell, 0.0), cell))
    half = max(10, (width - 3) // 2)
    lines = [LEGEND, _row(_shown(names[0]), " ", _shown(names[1]), half)]
    for cell in cells:
        share = f" · {shares[cell]:.0%}" if cell in shares else ""
        lines += ["", f"── {_shown(cell)}{share} ──"]
        lines += _compared(*(_lines(text.get(cell, "")) for text in texts), half)
    return "\n".join(lines) + "\n"


def _lines(text: str) -> list[str]:
    found = text.splitlines()
    rest = len(found) - MOST_LINES
    return found if rest <= 0 else [*found[:MOST_LINES], f"[lines left out: {rest}]"]


def _compared(ours: list[str], theirs: list[str], half: int) -> Iterator[str]:
    """Lines that say the same stand beside each other."""
    keys = [[_key(line) for line in lines] for lines in (ours, theirs)]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for left, right in zip_longest(ours[a:b], theirs[c:d]):
            if left is None or right is None:
                mark = ">" if left is None else "<"
            else:
                mark = "|" if kind == "replace" else "=" if left.strip() == right.strip() else "~"
            yield from _wrapped(left or "", mark, right or "", half)


def _key(line: str) -> str:
    """What is compared of a line: its tokens, or all of it if there are none, as in a comment."""
    return " ".join(tokens(line)) or line.strip()


def _wrapped(left: str, mark: str, right: str, half: int) -> Iterator[str]:
    parts = [
        [text[start : start + half] for start in range(0, len(text), half)] or [""]
        for text in map(_shown, (left, right))
    ]
    for number, (one, other) in enumerate(zip_longest(*parts, fillvalue="")):
        yield _row(one, mark if number == 0 else " ", other, half)


def _row(left: str, mark: str, right: str, half: int) -> str:
    return f"{left:<{half}} {mark} {right}".rstrip()


def _shown(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text.expandtabs(4))
