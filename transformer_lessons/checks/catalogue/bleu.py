"""BLEU with several references. Candidates as long as their only reference hide all but the precisions.

Pairs of corpora show the rest: with equally many right groups they score the same, with fewer they do not.
"""

import math
from collections import Counter
from dataclasses import replace

from transformer_lessons.checks.definitions import Call, Draw, Task


def bleu(candidates, references):
    """Corpus BLEU, 0 to 100, with one or more references for each candidate."""

    def groups(tokens, n):
        return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))

    right, total, c, r = [0] * 4, [0] * 4, 0, 0
    for candidate, several in zip(candidates, references, strict=True):
        c += len(candidate)
        r += min((len(one) for one in several), key=lambda n: (abs(n - len(candidate)), n))
        for n in range(1, 5):
            most = Counter()
            for one in several:
                most |= groups(one, n)
            own = groups(candidate, n)
            right[n - 1] += (own & most).total()
            total[n - 1] += own.total()
    if 0 in right:
        return 0.0
    precision = math.prod(a / b for a, b in zip(right, total, strict=True)) ** (1 / 4)
    return 100 * min(1, math.exp(1 - r / c)) * precision


def call(*pairs: tuple[str, list[str]]) -> Call:
    """A call on a corpus whose sentences are strings, each letter a token."""
    return Call(([list(one) for one, _ in pairs], [[list(one) for one in several] for _, several in pairs]))


def compare(one: list, other: list) -> Call:
    """A call that shows whether two corpora score the same."""
    return replace(call(*one), same_as=call(*other).args)


def first_scores(pairs: list[Call]) -> list[Call]:
    """Calls that show what the first corpus of each pair scores."""
    return [replace(pair, same_as=None) for pair in pairs]


def one_by_one(draw: Draw) -> list[Call]:
    """Corpora of one sentence, whose reference ends differently; this hides how counts are added up."""
    calls = [*ALONE]
    for length in (6, 9, 13):
        ids, end = draw.integers(0, 5, length).tolist(), draw.integers(0, 5, 2).tolist()
        calls.append(Call(([ids], [[[*ids[:-2], *end]]])))
    return calls


ALONE = [call(("abcde", ["abcdf"])), call(("abcdefgh", ["abcdxfgh"])), call(("aabcdx", ["aabcdy"]))]
ALONE += [Call(([[5, 6, 7, 8, 1, 11]], [[[5, 6, 7, 8, 11, 1]]]))]  # as joined digits, 1 11 equals 11 1
CORPUS = [call(("abcd", ["abcd"]), ("xyxy", ["zzzz"]))]
CORPUS += [call(("abcde", ["abcdx"]), ("abcd", ["abcd"]), ("ab", ["ab"]))]
BREVITY = [  # short candidates, long ones, and both in one corpus
    call(("abcd", ["abcdefgh"])),
    call(("abcde", ["abcdexy"])),
    call(("abcdefgh", ["abcdef"])),
    call(("abcdexy", ["abcde"])),
    call(("abcd", ["abcdef"]), ("abcdef", ["abcd"])),
]
NOTHING = [call(("abcd", ["abce"])), call(("abc", ["abc"])), call(("", ["abcd"])), call(("xyz", ["abcd"]))]
PERFECT, ONE, OTHER = ("abcdefg", ["abcdefg"]), ("xab", ["yab"]), ("cdw", ["cdv"])
TWO_PARTS = [("abcd0efgh12", ["abcd3efgh45"]), ("ijklmno", ["rstuvwx"])]
A_PART_EACH = [("abcd0123456", ["abcd789ijkl"]), ("efghijk", ["efghlmn"])]
ADDED = [
    compare(TWO_PARTS, A_PART_EACH),
    compare([ONE, OTHER, PERFECT], [OTHER, ONE, PERFECT]),  # if sentences were joined, abcd would match
    compare([PERFECT, ("abxy", ["abzz"])], [PERFECT]),
    compare([PERFECT, ("ab", ["ab"])], [PERFECT]),
]
AS_OFTEN = [
    compare([("aaaabcd", ["aabcdef"])], [("xyaabcd", ["aabcdef"])]),
    compare([("abcdabcd", ["abcdefgh"])], [("abcdxyzw", ["abcdefgh"])]),
    compare([("aaaabcd", ["aabcdef"])], [("xaaabcd", ["aaabcdf"])]),
]
OF_ALL = [
    compare([("abcdef", ["abcdxx", "yyyyef"])], [("abcdef", ["efabcd"])]),
    compare([("abcdab", ["abcdxx", "abcdyz"])], [("abcdab", ["abcdxx"])]),
    compare([("abcdxy", ["zzzzzz", "abcdef"])], [("abcdxy", ["abcdef"])]),
    compare([("abcdef", ["abcdxx", "yyyyef"])], [("abcdef", ["abcdxx"])]),
]
LENGTHS = [
    compare([("abcde", ["abcdefgh", "abcdef", "abc"])], [("abcde", ["abcdef"])]),
    compare([("abcdef", ["abcd", "abcdefgh"])], [("abcdef", ["abcdef"])]),
    compare([("abcdef", ["abcdefgh", "abcd"])], [("abcdef", ["abcdef"])]),
    compare([("abcde", ["abcdefg", "abcdefghijk"])], [("abcde", ["abcdefg"])]),
    compare([("abcdef", ["abcdxx"])], [("abcdef", ["abcdef"])]),
    compare([("abcdef", ["abcdef", "abcdefghijkl"]), PERFECT], [("abcdef", ["abcdef"]), PERFECT]),
]

TASK = Task(
    name="bleu",
    solution=[bleu],
    probes={
        "precision": (one_by_one, ALONE),
        "corpus": (ADDED, CORPUS),
        "clipping": (AS_OFTEN, first_scores(AS_OFTEN)),
        "brevity": (BREVITY, BREVITY),
        "several": (OF_ALL, first_scores(OF_ALL)),
        "closest": (LENGTHS, first_scores(LENGTHS)),
        "nothing": ([*NOTHING, compare([PERFECT], [("abcd", ["abce"])])], NOTHING),
    },
)
