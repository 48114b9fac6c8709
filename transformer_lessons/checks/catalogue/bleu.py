"""BLEU with several references. Candidates as long as their only reference hide all but the precisions."""

import math
from collections import Counter

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
    """A corpus, its sentences written as letters."""
    return Call(([list(one) for one, _ in pairs], [[list(one) for one in several] for _, several in pairs]))


def varied(draw: Draw) -> list[tuple[list[int], list[list[int]]]]:
    """Three sentences by chance, each with a reference that ends differently."""
    corpus = []
    for length in (6, 9, 13):
        ids = draw.integers(0, 5, length).tolist()
        other = [*ids[: length - 2], *draw.integers(0, 5, 2).tolist()]
        corpus.append((ids, [other]))
    return corpus


def one_by_one(draw: Draw) -> list[Call]:
    """Each sentence a corpus of its own, which hides how corpora are added up."""
    return [*ALONE, *(Call(([candidate], [several])) for candidate, several in varied(draw))]


def together(draw: Draw) -> list[Call]:
    """All sentences in one corpus."""
    corpus = varied(draw)
    return [*CORPUS, Call(([candidate for candidate, _ in corpus], [several for _, several in corpus]))]


ALONE = [call(("abcde", ["abcdf"])), call(("abcdefgh", ["abcdxfgh"])), call(("aabcd", ["aabcd"]))]
ALONE += [Call(([[5, 6, 7, 8, 1, 11]], [[[5, 6, 7, 8, 11, 1]]]))]  # groups are no strings of digits
CORPUS = [
    call(("abcd", ["abcd"]), ("xyxy", ["zzzz"])),
    call(("abcde", ["abcdx"]), ("abcd", ["abcd"]), ("ab", ["ab"])),
]
CLIPPED = [call(("aaaabcd", ["aabcdef"])), call(("abcdabcd", ["abcdefgh"]))]
BREVITY = [  # short candidates, long ones, and both in one corpus
    call(("abcd", ["abcdefgh"])),
    call(("abcde", ["abcdexy"])),
    call(("abcdefgh", ["abcdef"])),
    call(("abcdexy", ["abcde"])),
    call(("abcd", ["abcdef"]), ("abcdef", ["abcd"])),
]
SEVERAL = [
    call(("abcdef", ["abcdxx", "yyyyef"])),
    call(("aabbcd", ["aaxbcd", "bbbbcd"])),
    call(("abcdab", ["abcdxx", "abcdyz"])),
    call(("abcdxy", ["zzzzzz", "abcdef"])),
]
CLOSEST = [
    call(("abcde", ["abcdefgh", "abcdef", "abc"])),
    call(("abcdef", ["abcd", "abcdefgh"])),
    call(("abcdef", ["abcdefgh", "abcd"])),
    call(("abcde", ["abcdefg", "abcdefghijk"])),
]
NOTHING = [call(("abcd", ["abce"])), call(("abc", ["abc"])), call(("", ["abcd"])), call(("xyz", ["abcd"]))]

TASK = Task(
    name="bleu",
    right=[bleu],
    probes={
        "precision": (one_by_one, ALONE),
        "corpus": (together, CORPUS),
        "clipping": (CLIPPED, CLIPPED),
        "brevity": (BREVITY, BREVITY),
        "several": (SEVERAL, SEVERAL),
        "closest": (CLOSEST, CLOSEST),
        "nothing": (NOTHING, NOTHING),
    },
)
