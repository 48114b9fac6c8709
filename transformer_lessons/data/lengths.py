"""Sentences longer than the model has positions: refused, or cut, as the caller says, and always named."""

from collections.abc import Sequence

from transformer_lessons import expect
from transformer_lessons.data.batches import Pair, separate
from transformer_lessons.data.vocabulary import Vocabulary

SHOWN = 3


def limit_lengths(
    sentences: Sequence[Sequence[int]], max_length: int, *, too_long: str = "refuse"
) -> tuple[list[list[int]], list[int]]:
    """Sentences of at most `max_length` ids, and the numbers (from 0) of those that were cut to it.

    A cut keeps the beginning. A sentence that ended with `eos_id` still does: the mark takes the last place kept.
    A pitfall: what is cut is lost, so look at the numbers; a translation of half a sentence is no translation.

    Args:
        sentences: ids of each sentence.
        max_length: most ids of a sentence.
        too_long: "refuse" or "truncate".

    Raises:
        ValueError: if a sentence is too long and to be refused, saying how many there are, which, and how long;
            for another value of `too_long`, a max_length below 1, or what are no sentences of ids.
    """
    expect.sizes(max_length=max_length)
    expect.several(sentences=sentences)
    return _limit(sentences, max_length, too_long, "sentences")


def limit_pairs(
    pairs: Sequence[Pair], max_length: int, *, too_long: str = "refuse"
) -> tuple[list[Pair], list[int]]:
    """Pairs that a model with `max_length` positions can train on, and the numbers of those that were cut to it.

    A source may have ``max_length`` ids, a target ``max_length − 1``: `make_batch` adds a mark to each target,
    `bos_id` before what the decoder reads and `eos_id` after what it must write.

    A pitfall: a target that was cut is followed by `eos_id` all the same, and teaches the model to stop early.

    Raises:
        ValueError: as in `limit_lengths`, for sources first; for a max_length below 2, or what are no pairs.
    """
    expect.sizes(max_length=max_length)
    if max_length < 2:
        raise ValueError("max_length: expected 2 or more, for a target and a mark, got 1")
    sources, targets = separate(pairs)
    sources, cut_sources = _limit(sources, max_length, too_long, "sources")
    targets, cut_targets = _limit(targets, max_length - 1, too_long, "targets")
    return list(zip(sources, targets, strict=True)), sorted({*cut_sources, *cut_targets})


def _limit(
    sentences: Sequence[Sequence[int]], longest: int, too_long: str, name: str
) -> tuple[list[list[int]], list[int]]:
    if too_long not in ("refuse", "truncate"):
        raise ValueError(f"too_long: expected 'refuse' or 'truncate', got {too_long!r}")
    for sentence in sentences:
        expect.several(**{name: sentence})
    numbers = [number for number, sentence in enumerate(sentences) if len(sentence) > longest]
    if numbers and too_long == "refuse":
        which = ", ".join(f"number {number} with {len(sentences[number])}" for number in numbers[:SHOWN])
        more = ", …" if len(numbers) > SHOWN else ""
        raise ValueError(
            f"{name}: expected at most {longest} tokens each, got {len(numbers)} longer: {which}{more}"
        )
    return [_cut(sentence, longest) for sentence in sentences], numbers


def _cut(sentence: Sequence[int], longest: int) -> list[int]:
    cut = list(sentence[:longest])
    if cut and sentence[-1] == Vocabulary.eos_id:
        cut[-1] = Vocabulary.eos_id
    return cut
