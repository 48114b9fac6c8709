"""Text from strangers, made harmless: nothing invisible, no terminal commands, no more than fits; and code."""

import itertools
import re
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer
from pygments.token import Token

__all__ = ["NOTHING", "Room", "clean", "code", "cut", "short", "terminal", "text_of"]

NAME = 200  # characters of a name, or of a picture's description
NOTHING = Markup("")

# Controls, also of direction; zero width; fillers; selectors and tags, which can carry a text; lone surrogates.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# What a terminal obeys and does not show: colours and movements; titles and hyperlinks; other commands.
COMMANDS = re.compile(
    r"((?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\r\b])"
)
COLOURS = {
    Token.Keyword: "k",
    Token.Operator.Word: "k",
    Token.Literal.String: "s",
    Token.Literal.Number: "m",
    Token.Comment: "c",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Decorator: "f",
    Token.Name.Builtin: "b",
}
LEXER = PythonLexer(stripnl=False, ensurenl=False)


class Room:
    """How much of something is left."""

    def __init__(self, size: int):
        self.left = size

    def take(self, size: int) -> bool:
        """Whether it fits; if so, it counts."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def clean(text: str) -> str:
    """Text in which nothing is invisible or turns the reading direction: such characters show by their number.

    A space of any kind is left alone, as are the two selectors that make ✔ of one kind or the other.
    """
    return INVISIBLE.sub(_number, text.replace("\r\n", "\n").replace("\r", "\n"))


def _number(match: re.Match) -> str:
    return f"⟨U+{ord(match[0]):04X}⟩"


def short(text: str) -> str:
    """A name of bearable length."""
    return text if len(text) <= NAME else text[: NAME - 1] + "…"


def cut(text: str, most: int, lines: int = 1_000_000) -> str:
    """Beginning and end of a text that is too long, and how much is missing between them."""
    if len(text) > most:
        gap = f"\n… {len(text) - most:,} characters are left out here …\n"
        text = text[: most * 2 // 3] + gap + text[-(most // 3) :]
    found = text.split("\n")
    if len(found) > lines:
        gap = f"… {len(found) - lines:,} lines are left out here …"
        found = [*found[: lines * 2 // 3], gap, *found[-(lines // 3) :]]
    return "\n".join(found)


def text_of(value: Any) -> str:
    """A notebook's text, which may come as a list of lines; "" for what is no text."""
    lines = value if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))


def terminal(text: str) -> str:
    """What a terminal would show in the end, without colours: after a carriage return, the last writing wins."""
    return "\n".join(map(_overwritten, text.replace("\r\n", "\n").split("\n")))


def _overwritten(line: str) -> str:
    shown: list[str] = []
    column = 0
    for number, piece in enumerate(COMMANDS.split(line)):
        if number % 2 == 0:
            shown[column : column + len(piece)] = piece
            column += len(piece)
            continue
        if piece in ("\r", "\x1b[2K"):
            column = 0
        if piece in ("\x1b[K", "\x1b[0K", "\x1b[2K"):
            del shown[column:]
        if piece == "\b":
            column = max(0, column - 1)
    return "".join(shown)


@lru_cache(maxsize=256)  # the course's own cells are in every notebook of a class
def code(source: str) -> Markup:
    """Highlighted Python.

    Args:
        source: cleaned. White space at the end of its lines, and of many empty lines all but two, are taken away:
            the lexer takes the square of the number of characters of white space in a row.
    """
    lines = "\n".join(line.rstrip() for line in source.split("\n"))
    tidy = re.sub(r"\n{4,}", "\n\n\n", lines.strip("\n"))
    tokens = ((_colour(kind), text) for kind, text in LEXER.get_tokens(tidy))
    found = NOTHING.join(
        _span(colour, "".join(text for _, text in run))
        for colour, run in itertools.groupby(tokens, lambda token: token[0])
    )
    return found if len(found) < 5 * len(tidy) + 2_000 else escape(tidy)


def _colour(kind: Any) -> str:
    return next((colour for token, colour in COLOURS.items() if kind in token), "")


def _span(colour: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(colour, text) if colour else escape(text)
