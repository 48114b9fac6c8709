"""The known mistakes of `limit_lengths`, and the steps that they change."""

from collections.abc import Callable
from dataclasses import dataclass

from transformer_lessons.checks.old.core import Mistake

__all__ = ["END", "MISTAKES", "Steps", "assemble"]

LENGTHS = "#ch04-lengths"
END = 2


def _accept_choice(too_long: str) -> None:
    if too_long not in ("refuse", "truncate"):
        raise ValueError("too_long: expected 'refuse' or 'truncate'")


def _accept_length(max_length: int, sentences: list) -> None:
    if max_length < 1:
        raise ValueError("max_length: expected 1 or more")


def _complain(which: list[int]) -> None:
    raise ValueError(f"sentences {which} are too long")


def _with_end(ids: list[int], m: int) -> list[int]:
    return [*ids[: m - 1], END] if ids[-1] == END else list(ids[:m])


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    default: Callable = lambda given: "refuse" if given is None else given
    accept_choice: Callable = _accept_choice
    accept_length: Callable = _accept_length
    is_long: Callable = lambda ids, m: len(ids) > m
    is_refused: Callable = lambda too_long, which, count: too_long == "refuse"
    refuse: Callable = _complain
    shorten: Callable = _with_end
    leave: Callable = lambda ids, m: list(ids)
    gather: Callable = lambda kept, which: kept
    numbers: Callable = lambda which, sentences: which
    result: Callable = lambda kept, cut: (kept, cut)


def assemble(steps: Steps) -> Callable:
    """The limit in these steps."""

    def limit_lengths(sentences, max_length, *, too_long=None):
        too_long = steps.default(too_long)
        steps.accept_choice(too_long)
        steps.accept_length(max_length, sentences)
        which = [number for number, ids in enumerate(sentences) if steps.is_long(ids, max_length)]
        if which and steps.is_refused(too_long, which, len(sentences)):
            steps.refuse(which)
        kept = [
            steps.shorten(ids, max_length) if number in which else steps.leave(ids, max_length)
            for number, ids in enumerate(sentences)
        ]
        return steps.result(steps.gather(kept, which), steps.numbers(which, sentences))

    return limit_lengths


def _no_keyword(given: str | None) -> str:
    if given is not None:
        raise TypeError("limit_lengths() got an unexpected keyword argument 'too_long'")
    return "refuse"


def _cut_in_place(ids: list[int], m: int) -> list[int]:
    has_end = ids[-1] == END
    del ids[m:]
    ids[-1] = END if has_end else ids[-1]
    return list(ids)


def _always_ended(ids: list[int], m: int) -> list[int]:
    return [*ids[: m - 1], END]


def _marks_removed(ids: list[int], m: int) -> list[int]:
    words = [token for token in ids if token != END]
    return [*words[: m - 1], END] if ids[-1] == END else words[:m]


def _marks_removed_if_ended(ids: list[int], m: int) -> list[int]:
    return _marks_removed(ids, m) if ids[-1] == END else list(ids[:m])


def _raises(error: Exception) -> Callable:
    def fail(*_) -> None:
        raise error

    return fail


def _unless_long_enough(noticed: Callable, error: Exception | None = None) -> Callable:
    """Fails for a max_length below 1, where that is noticed."""

    def accept(m: int, sentences: list) -> None:
        if m < 1 and noticed(m, sentences):
            raise error or ValueError("max_length")

    return accept


def _unless_within(words: str) -> Callable:
    def accept(too_long: str) -> None:
        if too_long not in words:
            raise ValueError("too_long")

    return accept


def _unless_begins(beginnings: tuple[str, ...]) -> Callable:
    def accept(too_long: str) -> None:
        if not too_long.startswith(beginnings):
            raise ValueError("too_long")

    return accept


def _read_as(change: Callable) -> Callable:
    return lambda given: "refuse" if given is None else change(given)


def _unless_known(error: Exception) -> Callable:
    def accept(too_long: str) -> None:
        if too_long not in ("refuse", "truncate"):
            raise error

    return accept


MISTAKES = (
    Mistake(
        "end_lost",
        "your cut loses the end mark; where a sentence ended with it, it takes the last place kept",
        "A slice is all it takes to make a list shorter.",
        "The model never sees long sentences end, and learns not to.",
        LENGTHS,
        ({"shorten": lambda ids, m: list(ids[:m])},),
    ),
    Mistake(
        "end_everywhere",
        "you end every cut with the end mark; a sentence that had none gets none",
        "Sentences usually have one.",
        "Halves of a longer text look like whole ones.",
        LENGTHS,
        ({"shorten": _always_ended},),
    ),
    Mistake(
        "end_appended",
        "you append the end mark after the cut, which makes it one id too long",
        "Cut first, then add what was lost.",
        "The longest sentences still do not fit.",
        LENGTHS,
        (
            {"shorten": lambda ids, m: [*ids[:m], END]},
            {"shorten": lambda ids, m: [*ids[:m], END] if ids[-1] == END else list(ids[:m])},
        ),
    ),
    Mistake(
        "end_if_anywhere",
        "you look for the end mark anywhere in the sentence; what counts is its last id",
        "`in` was quicker to write.",
        "A sentence with a mark in the middle is given another.",
        LENGTHS,
        (
            {"shorten": lambda ids, m: _always_ended(ids, m) if END in ids else list(ids[:m])},
            {"shorten": lambda ids, m: _always_ended(ids, m) if END in ids[m:] else list(ids[:m])},
            {"shorten": lambda ids, m: _always_ended(ids, m) if END in (ids[m], ids[-1]) else list(ids[:m])},
        ),
    ),
    Mistake(
        "end_marks_removed",
        "you remove every end mark before you put one back; a cut keeps what stands inside a sentence",
        "A filter finds the mark wherever it is.",
        "Two texts in one sentence run into each other.",
        LENGTHS,
        ({"shorten": _marks_removed_if_ended}, {"shorten": _marks_removed}),
    ),
    Mistake(
        "beginning_lost",
        "you keep the end of a sentence; its beginning is wanted",
        "A negative index in the slice.",
        "Translations start in the middle.",
        LENGTHS,
        ({"shorten": lambda ids, m: list(ids[-m:])},),
    ),
    Mistake(
        "one_too_short",
        "your cut is one id too short: max_length ids fit",
        "A place was kept free for a mark that is counted already.",
        "A word is lost for nothing.",
        LENGTHS,
        (
            {"shorten": lambda ids, m: list(ids[: m - 1])},
            {
                "shorten": lambda ids, m: (
                    [*ids[: max(m - 2, 0)], END] if ids[-1] == END else list(ids[: m - 1])
                )
            },
            {"shorten": lambda ids, m: _always_ended(ids, m) if ids[-1] == END else list(ids[: m - 1])},
        ),
    ),
    Mistake(
        "exact_is_too_long",
        "you take a sentence of exactly max_length ids for too long",
        "≥ for >.",
        "Sentences that fit are refused, or reported as cut.",
        LENGTHS,
        ({"is_long": lambda ids, m: len(ids) >= m},),
    ),
    Mistake(
        "one_too_lenient",
        "you let a sentence pass that is one id too long",
        "The end mark was thought not to count.",
        "The model gets a position that it does not have.",
        LENGTHS,
        ({"is_long": lambda ids, m: len(ids) > m + 1},),
    ),
    Mistake(
        "dropped",
        "you leave long sentences out; they should be cut",
        "A filter is shorter than a cut.",
        "Sources and targets no longer belong together.",
        LENGTHS,
        ({"gather": lambda kept, which: [ids for n, ids in enumerate(kept) if n not in which]},),
    ),
    Mistake(
        "only_the_cut",
        "you return only the sentences that were cut; all are wanted, in their order",
        "The others need no work, so they were left out of the loop.",
        "Most of the data is gone.",
        LENGTHS,
        ({"gather": lambda kept, which: [kept[n] for n in which]},),
    ),
    Mistake(
        "padded",
        "you fill short sentences up to max_length; they stay as they are",
        "Cutting and padding are often one function.",
        "Padding is in the data before there are batches, and cannot be told apart.",
        LENGTHS,
        ({"leave": lambda ids, m: [*ids, *[0] * (m - len(ids))]},),
    ),
    Mistake(
        "numbers_from_one",
        "you number the sentences from 1; numbers start at 0",
        "People count so.",
        "Whoever looks them up finds their neighbours.",
        LENGTHS,
        ({"numbers": lambda which, sentences: [n + 1 for n in which]},),
    ),
    Mistake(
        "numbers_of_the_others",
        "you list the sentences that were not cut",
        "“Kept” was read as “kept whole”.",
        "Nobody looks at those that lost something.",
        LENGTHS,
        ({"numbers": lambda which, sentences: [n for n in range(len(sentences)) if n not in which]},),
    ),
    Mistake(
        "numbers_looked_up",
        "you look for each sentence with index, which finds the first of several that are equal",
        "A loop over sentences has no number at hand.",
        "Of two equal sentences, one is named twice.",
        LENGTHS,
        ({"numbers": lambda which, sentences: [sentences.index(sentences[n]) for n in which]},),
    ),
    Mistake(
        "flags_for_numbers",
        "you return True or False for each sentence; the numbers of those cut are wanted",
        "A comparison in a loop gives a flag each.",
        "Used as numbers, they mean sentences 0 and 1.",
        LENGTHS,
        ({"numbers": lambda which, sentences: [n in which for n in range(len(sentences))]},),
    ),
    Mistake(
        "count_for_numbers",
        "you return how many were cut; it should say which",
        "A count is all that a log file shows.",
        "The sentences that lost their ends cannot be found.",
        LENGTHS,
        ({"numbers": lambda which, sentences: len(which)},),
    ),
    Mistake(
        "numbers_forgotten",
        "you return the sentences alone; the numbers of those cut are wanted too",
        "A cut looks like a function of one list.",
        "What was lost is lost without a trace.",
        LENGTHS,
        ({"result": lambda kept, cut: kept},),
    ),
    Mistake(
        "values_swapped",
        "you return (cut, kept); the sentences come first",
        "Any order works as long as one unpacks it oneself.",
        "Callers take numbers for sentences.",
        LENGTHS,
        ({"result": lambda kept, cut: (cut, kept)},),
    ),
    Mistake(
        "always_cuts",
        "you cut whatever too_long says",
        "Cutting never fails, and that feels safe.",
        "Data is lost without anybody having decided so.",
        LENGTHS,
        ({"is_refused": lambda too_long, which, count: False},),
    ),
    Mistake(
        "only_first_refused",
        "you refuse only if the first sentence is too long, and cut any other",
        "A check was tried on one sentence.",
        "Data is lost without anybody having decided so.",
        LENGTHS,
        ({"is_refused": lambda too_long, which, count: too_long == "refuse" and which[0] == 0},),
    ),
    Mistake(
        "only_last_refused",
        "you refuse only if the last sentence is too long, and cut any other",
        "The check stands behind the loop, where its variable still holds the last sentence.",
        "Data is lost without anybody having decided so.",
        LENGTHS,
        ({"is_refused": lambda too_long, which, count: too_long == "refuse" and which[-1] == count - 1},),
    ),
    Mistake(
        "refused_only_if_all",
        "you refuse only if all sentences are too long; one is enough",
        "all for any.",
        "Data is lost without anybody having decided so.",
        LENGTHS,
        ({"is_refused": lambda too_long, which, count: too_long == "refuse" and len(which) == count},),
    ),
    Mistake(
        "cuts_by_default",
        "you cut unless told otherwise; refusing is the default",
        "The default was taken from the more frequent use.",
        "Whoever does not think of long sentences loses their ends.",
        LENGTHS,
        ({"default": lambda given: "truncate" if given is None else given},),
    ),
    Mistake(
        "always_refuses",
        "you refuse whatever too_long says",
        "The switch is read nowhere.",
        "Nobody can choose to cut.",
        LENGTHS,
        ({"is_refused": lambda too_long, which, count: True},),
    ),
    Mistake(
        "no_switch",
        "your function does not take too_long",
        "One behaviour seemed enough.",
        "Callers who choose get a TypeError.",
        LENGTHS,
        ({"default": _no_keyword}, {"default": lambda given: _no_keyword(given) and "truncate"}),
    ),
    Mistake(
        "refused_otherwise",
        "you refuse with something other than a ValueError",
        "assert is short, and a bare Exception is quickly raised.",
        "Callers cannot tell bad data from a broken program.",
        LENGTHS,
        (
            {"refuse": _raises(RuntimeError("too long"))},
            {
                "refuse": _raises(AssertionError("too long")),
                "accept_choice": _unless_known(AssertionError("too_long")),
            },
        ),
    ),
    Mistake(
        "choice_unchecked",
        "you accept any word for too_long, as if it were one of the two",
        "if … else covers everything.",
        "A typo cuts sentences, or refuses them.",
        LENGTHS,
        (
            {"accept_choice": lambda too_long: None},
            {"accept_choice": _unless_known(KeyError("too_long"))},
        ),
    ),
    Mistake(
        "choice_lenient",
        "you accept words for too_long that only resemble the two: a part, other capitals, spaces around",
        "lower and strip are meant kindly; and two strings without a comma between them are one, of which in "
        "finds any part.",
        "A typo cuts sentences, or is half understood.",
        LENGTHS,
        (
            {"accept_choice": _unless_within("refusetruncate")},
            {"default": _read_as(str.lower)},
            {"default": _read_as(str.strip)},
            {"default": _read_as(lambda word: word.lower().strip())},
            {"accept_choice": _unless_begins(("r", "t"))},
            {"accept_choice": _unless_begins(("refuse", "trunc"))},
        ),
    ),
    Mistake(
        "empty_word_as_none",
        "you take an empty too_long for none given",
        "`too_long or …` reads well, and an empty string counts as False.",
        "A setting that got lost on its way is not noticed.",
        LENGTHS,
        ({"default": lambda given: given or "refuse"},),
    ),
    Mistake(
        "choice_checked_late",
        "you look at too_long only once a sentence is too long",
        "The check stands inside the branch that needs it.",
        "A typo is found on the day of the first long sentence.",
        LENGTHS,
        (
            {
                "accept_choice": lambda too_long: None,
                "is_refused": lambda too_long, which, count: _accept_choice(too_long) or too_long == "refuse",
            },
        ),
    ),
    Mistake(
        "length_unchecked",
        "you accept a max_length below 1",
        "A slice works with any number.",
        "Every sentence becomes empty.",
        LENGTHS,
        (
            {"accept_length": lambda m, sentences: None},
            {"accept_length": _unless_long_enough(lambda m, sentences: True, IndexError("list index"))},
            {"accept_length": _unless_long_enough(lambda m, sentences: sentences, IndexError("list index"))},
            {"accept_length": _unless_long_enough(lambda m, sentences: m == 0)},
            {"accept_length": _unless_long_enough(lambda m, sentences: sentences)},
        ),
    ),
    Mistake(
        "caller_cut",
        "you cut the caller's own lists",
        "`del ids[max_length:]` is shorter than a new list, and the result looks the same.",
        "Whoever calls twice, with a smaller and then a larger max_length, gets the short sentences again.",
        LENGTHS,
        ({"shorten": _cut_in_place},),
    ),
)
