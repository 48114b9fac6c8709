"""Corpus BLEU in steps, and the known wrong ways to write it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "Steps", "assemble"]

AT, WRONG = "#ch15-bleu", "#ch15-wrong"
ORDERS = (1, 2, 3, 4)
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
    counted_in: Callable = lambda candidate, references, n: references
    grams: Callable = _grams
    orders: tuple = ORDERS
    allowed: Callable = _most
    right: Callable = lambda found, allowed: (found & allowed).total()
    total: Callable = lambda found, references, length, n: found.total()
    length: Callable = len
    closest: Callable = _closest
    no_match: Callable = _no_match
    share: Callable = _share
    mean: Callable = _geometric
    brevity: Callable = _brevity
    scale: float = 100.0


def assemble(steps: Steps) -> Callable:
    """Corpus BLEU in these steps."""

    def counted(candidate, references, n):
        references = steps.counted_in(candidate, references, n)
        found, of = steps.grams(candidate, n), [steps.grams(r, n) for r in references]
        return steps.right(found, steps.allowed(of)), steps.total(found, of, len(candidate), n)

    def score(candidates, references):
        every = list(zip(candidates, references, strict=False))
        pairs = []
        for n in steps.orders:
            counts = [counted(c, rs, n) for c, rs in every]
            pairs.append((sum(right for right, _ in counts), sum(total for _, total in counts)))
        nothing = steps.no_match(pairs)
        if nothing is not None:
            return nothing
        c, r = sum(steps.length(c) for c, _ in every), sum(steps.closest(c, rs) for c, rs in every)
        return steps.scale * steps.brevity(c, r) * steps.mean([steps.share(*pair) for pair in pairs])

    def bleu(candidates, references):
        steps.accept(candidates, references)
        return steps.corpus(score, candidates, references)

    return bleu


def _no_fewer(candidates: list, references: list) -> None:
    _accept(candidates[: len(references)], references)


def _no_more(candidates: list, references: list) -> None:
    _accept(candidates, references[: len(candidates)])


def _not_shorter(candidate: Tokens, references: list[Tokens]) -> int:
    lengths = [len(r) for r in references]
    return min((n for n in lengths if n >= len(candidate)), default=max(lengths))


def _not_longer(candidate: Tokens, references: list[Tokens]) -> int:
    lengths = [len(r) for r in references]
    return max((n for n in lengths if n <= len(candidate)), default=min(lengths))


def _mean_length(candidate: Tokens, references: list[Tokens]) -> float:
    return sum(map(len, references)) / len(references)


def _middle_length(candidate: Tokens, references: list[Tokens]) -> int:
    return sorted(map(len, references))[len(references) // 2]


def _matches(candidate: Tokens, reference: Tokens, orders: tuple) -> int:
    return sum((_grams(candidate, n) & _grams(reference, n)).total() for n in orders)


def _best(orders: Callable) -> Callable:
    """The one reference that has most in common with the candidate, in groups of these sizes."""
    return lambda candidate, references, n: [
        max(references, key=lambda reference: _matches(candidate, reference, orders(n)))
    ]


def _nearest(candidate: Tokens, references: list[Tokens], n: int) -> list[Tokens]:
    return [min(references, key=lambda r: (abs(len(r) - len(candidate)), len(r)))]


def _without(shorter_than: int) -> Callable:
    def corpus(score, candidates, references):
        pairs = [pair for pair in zip(candidates, references, strict=False) if len(pair[0]) >= shorter_than]
        return score([c for c, _ in pairs], [rs for _, rs in pairs])

    return corpus


def _mean_of_sentences(score: Callable, candidates: list, references: list) -> float:
    every = [score([c], [r]) for c, r in zip(candidates, references, strict=False)]
    return sum(every) / len(every)


def _joined(score: Callable, candidates: list, references: list) -> float:
    """One long sentence, each reference a long one too; as many as the candidate with the fewest has."""
    columns = [[token for tokens in column for token in tokens] for column in zip(*references, strict=False)]
    return score([[token for candidate in candidates for token in candidate]], [columns])


def _divided_first(pairs: list[tuple[int, int]]) -> float | None:
    """The same, after a division by the length of all candidates."""
    _share(1, pairs[0][1])
    return _no_match(pairs)


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
            {"total": lambda found, references, length, n: references[0].total()},
            {"total": lambda found, references, length, n: max(r.total() for r in references)},
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
        "short_ones_skipped",
        "you skip candidates that are empty or short; their tokens and their references' lengths count too",
        "Where there is no group to count there seems to be nothing to do.",
        "Whoever says nothing to a hard sentence is not punished for it.",
        AT,
        (
            {"corpus": _without(1)},
            {"closest": lambda candidate, references: _closest(candidate, references) if candidate else 0},
            {"corpus": _without(4)},
            {"length": lambda candidate: len(candidate) if len(candidate) >= 4 else 0},
        ),
    ),
    Mistake(
        "negative_totals",
        "you count len − n + 1 groups even where that is negative; a sentence shorter than n has none",
        "The formula is right for sentences of usual length.",
        "An empty candidate takes away from what others said, and precision rises.",
        AT,
        ({"total": lambda found, references, length, n: length - n + 1},),
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
        "one_reference_chosen",
        "you choose one reference for all groups; each counts as often as in the one that has most of it",
        "The best translation is looked for, and then it alone is compared with.",
        "A translation that takes its words from several references loses.",
        AT,
        tuple(
            {"counted_in": chosen}
            for chosen in (_best(lambda n: (n,)), _best(lambda n: ORDERS), _best(lambda n: (1,)), _nearest)
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
        "length_on_average",
        "you take the references' mean or median length; the length of the one that is closest counts",
        "One number for several is their mean.",
        "A reference far longer than the others punishes every candidate.",
        AT,
        ({"closest": _mean_length}, {"closest": _middle_length}),
    ),
    Mistake(
        "closest_on_one_side",
        "you look for the closest length on one side only; it may be shorter or longer than the candidate",
        "A bound was kept where a distance is meant.",
        "The brevity penalty is too mild or too strict, if the closest lies on the other side.",
        AT,
        ({"closest": _not_shorter}, {"closest": _not_longer}),
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
        "empty_crashes",
        "a corpus of empty candidates crashes; there is no group at all, and its score is 0",
        "r/c divides by the length of all candidates.",
        "The evaluation of a model that says nothing ends with an error.",
        AT,
        ({"no_match": _divided_first},),
    ),
    Mistake(
        "numbers_unchecked",
        "you do not check that there are as many lists of references as candidates, and none of them empty",
        "zip stops at the shorter list without a word.",
        "A score of the sentences that happen to have a partner.",
        AT,
        (
            {"accept": lambda candidates, references: None},
            {"accept": lambda candidates, references: [of_one[0] for of_one in references] and None},
            {
                "accept": lambda candidates, references: (
                    [references[n] for n in range(len(candidates))] and None
                )
            },
            {
                "accept": lambda candidates, references: (
                    [references[n][0] for n in range(len(candidates))] and None
                )
            },
            {"accept": _no_fewer},
            {"accept": _no_more},
        ),
    ),
)
