"""Sentences longer than the model has positions: refused, or cut, as the caller says, and always named."""

from collections.abc import Sequence

from transformer_lessons.data.vocabulary import Vocabulary


def limit_lengths(
    sentences: Sequence[Sequence[int]], max_length: int, *, too_long: str = "refuse"
) -> tuple[list[list[int]], list[int]]:
    """Sentences of at most `max_length` ids, and the numbers (from 0) of those that were cut to it.

    A cut keeps the beginning, and an `eos_id` at the end. A pitfall: what is cut is lost, so look at the
    numbers; a translation of half a sentence is no translation. With `too_long` "refuse", the other value
    being "truncate", a sentence that is too long is a ValueError, which says how many there are, which, and
    how long.
    """
    if too_long not in ("refuse", "truncate"):
        raise ValueError(f"too_long: expected 'refuse' or 'truncate', got {too_long!r}")
    numbers = [number for number, sentence in enumerate(sentences) if len(sentence) > max_length]
    if numbers and too_long == "refuse":
        which = ", ".join(f"number {number} with {len(sentences[number])}" for number in numbers[:3])
        got = f"{len(numbers)} longer: {which}{', …' if len(numbers) > 3 else ''}"
        raise ValueError(f"sentences: expected at most {max_length} tokens each, got {got}")
    return [_cut(sentence, max_length) for sentence in sentences], numbers


def _cut(sentence: Sequence[int], max_length: int) -> list[int]:
    cut = list(sentence[:max_length])
    if cut and sentence[-1] == Vocabulary.eos_id:
        cut[-1] = Vocabulary.eos_id
    return cut
