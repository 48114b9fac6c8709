"""What of a text is compared: fingerprints that stay as they are under another layout, comments and names.

Every run of `LENGTHS` tokens is hashed, and of every `WINDOW` hashes in a row the least is kept: winnowing, as
MOSS does it (Schleimer, Wilkerson and Aiken: Winnowing: local algorithms for document fingerprinting, SIGMOD
2003). Texts with a run of at least length + WINDOW − 1 tokens in common have a fingerprint in common, wherever in
them that is.
"""

import builtins
import hashlib
import keyword
import math
import re
from collections.abc import Iterable, Set
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F

__all__ = ["LENGTHS", "WINDOW", "Kind", "handed_out", "prints_of", "tokens", "words"]

Kind = Literal["code", "names", "words"]  # code under any names, code with its names, an answer in words
LENGTHS: dict[Kind, int] = {"code": 12, "names": 12, "words": 5}  # tokens that are hashed together
WINDOW = 4
# A text is read piece by piece, so that code that cannot be parsed has tokens too.
PIECE = re.compile(
    r"""
      \#[^\n]*
    | (?:[rbuf]|rb|br|rf|fr)?(?:  # a text, which may lack its end
          \"{3}(?:[^\\]|\\.?)*?(?:\"{3}|\Z) | '{3}(?:[^\\]|\\.?)*?(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\.?)*(?:"|(?=\n)|\Z) | '(?:[^'\\\n]|\\.?)*(?:'|(?=\n)|\Z) )
    | (?P<number> 0[xob][\da-f_]+ | (?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d[\d_]*)?j? )
    | (?P<name> \w+ )
    | (?P<operator>
          \*\*= | //= | >>= | <<= | \.\.\. | != | -> | := | [-+*/%&|^@<>=]= | \*\* | // | << | >> | [^\s\w] )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
LEFT_OUT = set("(),;\\")  # what is added and removed when code is laid out
PYTHON = {*dir(builtins), *keyword.kwlist}
KINDS = (torch, torch.Tensor, torch.nn, F, math, str, list, dict, set)
LIBRARY = {name for kind in KINDS for name in dir(kind) if not name.startswith("__")}
NAME = "x"  # stands for all names that a student chooses


def tokens(code: str, *, names: bool = False) -> list[str]:
    """What Python reads, without texts, comments, round brackets and commas.

    Args:
        code: valid or not.
        names: False puts `NAME` for every name but those of Python's own, and of libraries behind a dot. What a
            student keeps in `self` is a name of theirs.
    """
    found: list[str] = []
    before = last = ""
    for piece in PIECE.finditer(code):
        text = piece[0]
        if not piece.lastgroup:
            continue
        if piece["name"]:
            is_known = text in PYTHON if last != "." else text in LIBRARY and before != "self"
            found.append(text if is_known or names else NAME)
        elif text not in LEFT_OUT:
            found.append(text.lower().replace("_", ""))
        before, last = last, text
    return found


def words(text: str) -> list[str]:
    """The words of an answer, in small letters."""
    return re.findall(r"\w+", text.casefold())


def prints_of(text: str, kind: Kind, without: Set[int] = frozenset()) -> frozenset[int]:
    """The fingerprints of an answer; none if it is shorter than one.

    Args:
        text: of a cell.
        kind: what of it is compared.
        without: hashes that count for nothing, see `handed_out`.
    """
    hashes = [number for number in _hashes(text, kind) if number not in without]
    starts = range(max(1, len(hashes) - WINDOW + 1))
    return frozenset(min(hashes[start : start + WINDOW]) for start in starts if hashes)


def handed_out(texts: Iterable[str]) -> frozenset[int]:
    """All hashes of texts that everybody has, whatever kind of text they are."""
    return frozenset(number for text in texts for kind in LENGTHS for number in _hashes(text, kind))


@lru_cache(maxsize=10_000)  # many of a class hand in the same text
def _hashes(text: str, kind: Kind) -> tuple[int, ...]:
    """A hash for every run of tokens, the same in every process; that of words is no tokens'."""
    found = words(text) if kind == "words" else tokens(text, names=kind == "names")
    length = LENGTHS[kind]
    runs = (" ".join(found[start : start + length]) for start in range(len(found) - length + 1))
    data = (f"{kind} {run}".encode("utf-8", "surrogatepass") for run in runs)
    return tuple(int.from_bytes(hashlib.blake2b(run, digest_size=7).digest(), "big") for run in data)
