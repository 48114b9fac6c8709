"""What a trained model gets right, and which errors it makes."""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from transformer_lessons import decoding
from transformer_lessons.config import expect
from transformer_lessons.data.corpus import in_chunks
from transformer_lessons.data.number_words import english, english_tokens, german_tokens
from transformer_lessons.data.vocabulary import pad
from transformer_lessons.fast import PLAIN
from transformer_lessons.fast import decoding as fast_decoding
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import Tokeniser

BATCH = 100  # sentences translated at a time


def translate(
    model: Transformer,
    source: Tokeniser,
    target: Tokeniser,
    sentences: Sequence[str | Sequence[str]],
    *,
    beam_size: int = 1,
    extra_tokens: int | None = None,
) -> list[str] | list[list[str]]:
    """Translate sentences: texts, or for a `Vocabulary` the tokens of each.

    Sentences of similar length share a batch, padded to its longest. ValueError for one that `source` cannot
    encode or that exceeds max_length. A pitfall: with `extra_tokens`, the length limit depends on the batch.

    Args:
        beam_size: 1 for `decoding.greedy`, more for `decoding.beam`.
        extra_tokens: how many tokens more than the batch's longest sentence a translation may have, 50 in the
            paper (§6.1); None for as many as the model has positions.
    """
    expect(beam_size >= 1, "beam_size", "1 or more", beam_size)
    most = model.config.max_length
    ids = [source.encode(sentence) for sentence in sentences]
    device, found = next(model.parameters()).device, {}
    chosen = fast_decoding if any(type(part) in PLAIN for part in model.modules()) else decoding
    search = chosen.greedy if beam_size == 1 else partial(chosen.beam, beam_size=beam_size)
    for numbers in in_chunks(sorted(range(len(ids)), key=lambda number: len(ids[number])), BATCH):
        src = pad([ids[number] for number in numbers], source.pad_id).to(device)
        length = most if extra_tokens is None else min(most, src.size(1) + extra_tokens)
        found |= zip(numbers, search(model, src, max_length=length).tolist(), strict=True)
    return [target.decode(found[number]) for number in range(len(ids))]


def report_too_long(count: int, pairs: int, most: int) -> None:
    """Print how many of the pairs are too long to be used, if any; ValueError if all are."""
    expect(count < pairs, "pairs", f"some with at most {most} tokens per side", 0)
    if count and not distributed.rank():
        print(f"left out {count:,} of {pairs:,} pairs, which are longer than {most} tokens", file=sys.stderr)


def evaluate_number_words(
    model: Transformer, source: Tokeniser, target: Tokeniser, numbers: Sequence[int], *, beam_size: int = 1
) -> dict:
    """Translate each number, greedily or with a beam, and compare with the one right answer.

    Returns ``exact_match`` (the share that is right to the letter), ``n``, ``errors`` (how many of each kind,
    see `error_kind`) and ``examples`` (up to five wrong ones). A pitfall: numbers from the training set would
    be counted too; use `data.number_words.held_out`.
    """
    errors, examples = Counter(), []
    sentences = [english_tokens(english(n)) for n in numbers]
    translated = translate(model, source, target, sentences, beam_size=beam_size)
    for n, tokens in zip(numbers, translated, strict=True):
        if tokens != german_tokens(n):
            errors[error_kind(tokens, german_tokens(n))] += 1
            examples.append({"number": n, "expected": "".join(german_tokens(n)), "got": "".join(tokens)})
    return {
        "exact_match": (len(numbers) - errors.total()) / len(numbers),
        "n": len(numbers),
        "errors": dict(errors.most_common()),
        "examples": examples[:5],
    }


def error_kind(got: Sequence[str], expected: Sequence[str]) -> str:
    """The kind of error in a wrong translation: the order of its parts, or a missing, added or wrong part."""
    missing, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
    if missing and extra:
        return "wrong part"
    return "missing part" if missing else "added part" if extra else "order"
