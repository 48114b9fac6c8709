"""The check of `bleu` with several references: requirements, calls that probe them, and the known mistakes."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

AT, WRONG = "#ch15-bleu", "#ch15-wrong"
ORDERS = (1, 2, 3, 4)


def _sizes(seed: int) -> dict[str, int]:
    sentences, length = random.Random(seed).sample([3, 5, 7], 2)
    return {"sentences": sentences, "length": length + 5, "seed": seed}


def _sentence(chance: random.Random, length: int) -> list[str]:
    return [chance.choice("abcdefg") for _ in range(length)]


def _near(chance: random.Random, sentence: list[str], *, longer: int = 0) -> list[str]:
    """The same with another token towards its end, and some of its own tokens again, or some less."""
    other = list(sentence)
    other[-2 if len(other) > 5 else -1] = chance.choice("xyz")
    return other + other[:longer] if longer >= 0 else other[:longer]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    chance = random.Random(s["seed"])
    truth = [_sentence(chance, s["length"] + n % 3) for n in range(s["sentences"])]
    one = [[sentence] for sentence in truth]
    same = [_near(chance, sentence) for sentence in truth]
    again = [[*_near(chance, sentence), sentence[0], sentence[0], sentence[0]] for sentence in truth]
    shorter = [_near(chance, sentence, longer=-2) for sentence in truth]
    longer = [_near(chance, sentence, longer=3) for sentence in truth]
    uneven = [shorter[0][:3], *longer[1:]] if len(truth) > 1 else shorter
    several = [[[*t, t[0]], [*t, t[0], t[0]], t[1:]] for t in truth]  # the candidate has the first more often
    # Longer by 6, shorter by 4, longer by 1; and, of two that are equally close, the shorter one last.
    apart = [[[*t, *t[:5], "z"], t[:-4], [*t, "z"]] for t in truth]
    tied = [[t[:-3], [*t, "y", "z"], t[:-2]] for t in truth]
    words = ["ein", "zwei", "drei", "vier"]
    run_on, turned = [1, 11, 2, 3, 4], [11, 1, 2, 3, 4]  # written without spaces, the same
    return {
        "same_length": Probe([same, one]),
        "shorter": Probe([shorter, one]),
        "longer": Probe([longer, one]),
        "again": Probe([again, one]),
        "uneven": Probe([uneven, one]),
        "several": Probe([again, several]),
        "apart": Probe([same, apart]),
        "tied": Probe([same, tied]),
        "ids": Probe(
            [[*_numbered(again), run_on], [*[_numbered(references) for references in several], [turned] * 3]]
        ),
        "nothing": Probe([[[*words[:3], "x", "y"]], [[[*words]]]]),
        "short": Probe([[words[:2]], [[words[:2]]]]),
        "perfect": Probe([truth, one]),
        "unequal": Probe([same, [*one, [truth[0]]]], refused="more lists of references than candidates"),
        "without": Probe([same, [*one[:-1], []]], refused="a candidate without any reference"),
    }


def _numbered(sentences: list[list[str]]) -> list[list[int]]:
    return [[ord(token) for token in sentence] for sentence in sentences]


Tokens = Sequence[str | int]


def _accept(candidates: list, references: list) -> None:
    if len(candidates) != len(references) or [] in references:
        raise ValueError("references: expected one or more for each candidate")


def _grams(tokens: Tokens, n: int) -> Counter:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _most(references: list[Counter]) -> Counter:
    """Of each group, the largest number of times that a reference has it."""
    most = Counter()
    for counts in references:
        most |= counts
    return most


def _closest(candidate: Tokens, references: list[Tokens]) -> int:
    return min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]


def _geometric(precisions: list[float]) -> float:
    return math.exp(sum(map(math.log, precisions)) / len(precisions))


def _no_match(pairs: list[tuple[int, int]]) -> float | None:
    return 0.0 if not all(right for right, _ in pairs) else None


def _share(right: int, total: int) -> float:
    return right / total


def _brevity(c: int, r: int) -> float:
    return min(1.0, math.exp(1 - r / c))


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    corpus: Callable = lambda score, candidates, references: score(candidates, references)
    grams: Callable = _grams
    orders: tuple = ORDERS
    allowed: Callable = _most
    right: Callable = lambda found, allowed: (found & allowed).total()
    total: Callable = lambda found, references: found.total()
    closest: Callable = _closest
    no_match: Callable = _no_match
    share: Callable = _share
    mean: Callable = _geometric
    brevity: Callable = _brevity
    scale: float = 100.0


def assemble(steps: Steps) -> Callable:
    """Corpus BLEU in these steps."""

    def counted(candidate, references, n):
        found, of = steps.grams(candidate, n), [steps.grams(r, n) for r in references]
        return steps.right(found, steps.allowed(of)), steps.total(found, of)

    def score(candidates, references):
        every = [(c, references[n]) for n, c in enumerate(candidates)]
        pairs = []
        for n in steps.orders:
            counts = [counted(c, rs, n) for c, rs in every]
            pairs.append((sum(right for right, _ in counts), sum(total for _, total in counts)))
        nothing = steps.no_match(pairs)
        if nothing is not None:
            return nothing
        c, r = sum(len(c) for c, _ in every), sum(steps.closest(c, rs) for c, rs in every)
        return steps.scale * steps.brevity(c, r) * steps.mean([steps.share(*pair) for pair in pairs])

    def bleu(candidates, references):
        steps.accept(candidates, references)
        return steps.corpus(score, candidates, references)

    return bleu


def _mean_of_sentences(score: Callable, candidates: list, references: list) -> float:
    every = [score([c], [r]) for c, r in zip(candidates, references, strict=False)]
    return sum(every) / len(every)


def _joined(score: Callable, candidates: list, references: list) -> float:
    """One long sentence, each reference a long one too; as many as the candidate with the fewest has."""
    columns = [[token for tokens in column for token in tokens] for column in zip(*references, strict=False)]
    return score([[token for candidate in candidates for token in candidate]], [columns])


def _product(values: list[float]) -> float:
    return math.prod(values)


def _arithmetic(values: list[float]) -> float:
    return sum(values) / len(values)


MISTAKES = (
    Mistake(
        "not_clipped",
        "you do not limit counts: a group is right at most as often as it occurs in a reference",
        "“Is it in the reference?” is the first idea of precision.",
        "“the the the the” gets full marks for its words.",
        AT,
        ({"right": lambda found, allowed: sum(count for gram, count in found.items() if gram in allowed)},),
    ),
    Mistake(
        "kinds_counted",
        "you count each group once, however often it occurs",
        "A set is the shortest way to compare.",
        "Saying something twice costs nothing.",
        AT,
        ({"grams": lambda tokens, n: Counter(_grams(tokens, n).keys())},),
    ),
    Mistake(
        "tokens_run_together",
        "you join a group's tokens to one text, and other tokens may give the same one",
        "A text can be a key, and a list cannot; but so can a tuple.",
        "The tokens 1 and 11 pass for 11 and 1.",
        AT,
        (
            {
                "grams": lambda tokens, n: Counter(
                    "".join(map(str, gram)) for gram in _grams(tokens, n).elements()
                )
            },
        ),
    ),
    Mistake(
        "recall",
        "you divide by the references' number of groups; precision divides by the candidates'",
        "Either is a share of what is shared.",
        "Long candidates gain instead of losing.",
        AT,
        (
            {"total": lambda found, references: references[0].total()},
            {"total": lambda found, references: max(r.total() for r in references)},
        ),
    ),
    Mistake(
        "brevity_ignored",
        "you left out the brevity penalty",
        "Precision looks complete.",
        "Whoever says only what is certain wins.",
        AT,
        ({"brevity": lambda c, r: 1.0},),
    ),
    Mistake(
        "brevity_upside_down",
        "your brevity penalty has the lengths the wrong way round: exp(1 − r/c), r of the references",
        "Which of the two is c is easily forgotten.",
        "Long translations are punished, short ones not.",
        AT,
        ({"brevity": lambda c, r: min(1.0, math.exp(1 - c / r))},),
    ),
    Mistake(
        "brevity_rewards",
        "your brevity penalty exceeds 1 for long candidates; it is at most 1",
        "The minimum in front was overlooked.",
        "Talking on is rewarded.",
        AT,
        ({"brevity": lambda c, r: math.exp(1 - r / c)},),
    ),
    Mistake(
        "brevity_linear",
        "your brevity penalty is the ratio of the lengths; it is exp(1 − r/c)",
        "The ratio is 1 where it should be, and falls too.",
        "Close to BLEU, and never equal to it for short candidates.",
        AT,
        ({"brevity": lambda c, r: min(1.0, c / r)},),
    ),
    Mistake(
        "mean_of_sentences",
        "you average the scores of sentences; BLEU adds up counts and lengths over the corpus first",
        "A score for each sentence is the natural thing to print.",
        "Short sentences weigh as much as long ones, and many are 0.",
        WRONG,
        ({"corpus": _mean_of_sentences},),
    ),
    Mistake(
        "corpus_joined",
        "you join all sentences to one: groups then reach across their ends",
        "Adding up over the corpus sounds like that.",
        "Groups are counted that nobody said.",
        AT,
        ({"corpus": _joined},),
    ),
    Mistake(
        "arithmetic_mean",
        "you take the arithmetic mean of the four precisions; it is the geometric one",
        "“Mean” without another word.",
        "A translation without any right group of four scores well above 0.",
        AT,
        ({"mean": _arithmetic},),
    ),
    Mistake(
        "no_root",
        "you multiply the four precisions and take no fourth root",
        "The exponent 1/4 looks like decoration.",
        "Scores are far too low.",
        AT,
        ({"mean": _product},),
    ),
    Mistake(
        "other_orders",
        "you count groups of other lengths: BLEU takes those of 1, 2, 3 and 4 tokens",
        "range(1, 4) stops at 3.",
        "Scores are too high, or too low, by much.",
        AT,
        (
            {"orders": (1, 2, 3)},
            {"orders": (4,)},
            {"orders": (1, 2)},
            {"orders": (1,)},
            {"orders": (1, 2, 3, 4, 5)},
        ),
    ),
    Mistake(
        "smoothed",
        "you smooth the counts; this BLEU is not smoothed",
        "Libraries do so by default, since sentences often have no group of four right.",
        "What should be 0 is not, and all other scores move.",
        WRONG,
        (
            {"share": lambda right, total: (right + 1) / (total + 1), "no_match": lambda pairs: None},
            {"share": lambda right, total: (right + 1) / (total + 1)},
        ),
    ),
    Mistake(
        "from_0_to_1",
        "your score lies between 0 and 1; it is wanted between 0 and 100",
        "The formula gives 0 to 1, papers print 0 to 100.",
        "Everything is a hundred times too small.",
        AT,
        ({"scale": 1.0},),
    ),
    Mistake(
        "first_reference_only",
        "you look at the first reference only",
        "Most test sets have one.",
        "A translation that matches another one is wrong.",
        AT,
        (
            {
                "allowed": lambda references: references[0],
                "closest": lambda candidate, references: len(references[0]),
            },
        ),
    ),
    Mistake(
        "clipped_by_the_sum",
        "you limit a count by the sum over all references; the largest number in any one of them counts",
        "Counters are added with +.",
        "With several references, repeating oneself is allowed.",
        AT,
        ({"allowed": lambda references: sum(references, Counter())},),
    ),
    Mistake(
        "all_must_have_it",
        "you limit a count by what all references have; the largest number in any one of them counts",
        "& is the minimum, which is right between candidate and reference.",
        "The more references, the lower the score.",
        AT,
        (
            {
                "allowed": lambda references: Counter(
                    {gram: min(r[gram] for r in references) for gram in references[0]}
                )
            },
        ),
    ),
    Mistake(
        "other_reference_length",
        "you take another reference's length: for each candidate the one closest to its own length counts",
        "The shortest, the longest and the first all have been used.",
        "The brevity penalty is too mild or too strict.",
        AT,
        (
            {"closest": lambda candidate, references: min(map(len, references))},
            {"closest": lambda candidate, references: max(map(len, references))},
            {"closest": lambda candidate, references: len(references[0])},
        ),
    ),
    Mistake(
        "tie_not_to_the_shorter",
        "if two references are equally close in length, the shorter one counts",
        "min takes the first of equal ones.",
        "The score depends on the order of the references, or punishes for nothing.",
        AT,
        (
            {
                "closest": lambda candidate, references: len(
                    min(references, key=lambda r: abs(len(r) - len(candidate)))
                )
            },
            {
                "closest": lambda candidate, references: (
                    min((abs(len(r) - len(candidate)), -len(r)) for r in references)[1] * -1
                )
            },
        ),
    ),
    Mistake(
        "no_match_crashes",
        "a corpus without a single right group of some length crashes; its score is 0",
        "The logarithm of 0, or 0 divided by 0.",
        "An evaluation of a bad model ends with an error.",
        AT,
        (
            {"no_match": lambda pairs: None},
            {"no_match": lambda pairs: None, "mean": lambda values: math.prod(values) ** (1 / len(values))},
        ),
    ),
    Mistake(
        "numbers_unchecked",
        "you do not check that there is a reference for each candidate",
        "zip stops at the shorter list without a word.",
        "A score of the sentences that happen to have a partner.",
        AT,
        (
            {"accept": lambda candidates, references: None},
            {"accept": lambda candidates, references: [of_one[0] for of_one in references] and None},
        ),
    ),
)


class NumberTask(Task):
    """A task whose answer is a number: an int, a float or a tensor of one, all taken for the same."""

    def observe(self, adapter: Adapter, probe: Probe) -> Reply:
        """Ask once."""
        reply = super().observe(adapter, probe)
        value = reply.value
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if type(value) not in (int, float):
            return reply
        return replace(reply, value=torch.tensor(float(value), dtype=torch.float64), kind="number")


TASK = NumberTask(
    name="bleu",
    signature="bleu(candidates, references)",
    arguments=("candidates", "references"),
    returns=("score",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns one number.", ("same_length",), AT, ("structure",)),
        Requirement(
            "values",
            "without brevity, BLEU is 100 times the geometric mean of the precisions p₁ … p₄.",
            ("same_length", "longer"),
            AT,
        ),
        Requirement("brevity", "short candidates are punished by exp(1 − r/c).", ("shorter",), AT),
        Requirement("clipping", "a group counts at most as often as the reference has it.", ("again",), AT),
        Requirement("corpus", "counts and lengths are added up over all sentences.", ("uneven",), AT),
        Requirement(
            "several",
            "with several references, a group may occur as often as in the one that has it most often.",
            ("several",),
            AT,
        ),
        Requirement(
            "closest",
            "of several references the length closest to the candidate's counts; of two as close, the shorter.",
            ("apart", "tied"),
            AT,
        ),
        Requirement("ids", "tokens may be numbers.", ("ids",), AT),
        Requirement(
            "nothing",
            "without any right group of four, or without any group of four, BLEU is 0; of the references "
            "themselves it is 100.",
            ("nothing", "short", "perfect"),
            AT,
        ),
        Requirement(
            "refusals",
            "another number of lists of references than of candidates, or none for one of them, is refused with "
            "ValueError.",
            ("unequal", "without"),
            AT,
        ),
    ),
    sizes=_sizes,
    small=({"sentences": 1, "length": 5, "seed": 0}, {"sentences": 2, "length": 6, "seed": 1}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
