"""What a trained model gets right, and how it fails where it does not."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from transformer_lessons.data.lengths import limit_lengths
from transformer_lessons.data.number_words import english, english_tokens, german_tokens
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.decoding import greedy
from transformer_lessons.model import Transformer


def in_chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items, the last one perhaps shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def translate(
    model: Transformer, source: Vocabulary, target: Vocabulary, sentences: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Greedy translations of tokenised sentences, in one batch; target tokens of each.

    Raises:
        ValueError: for tokens outside the vocabulary, or sentences longer than the model's max_length.
    """
    device = next(model.parameters()).device
    ids, _ = limit_lengths([source.encode(sentence) for sentence in sentences], model.config.max_length)
    src = pad(ids, source.pad_id).to(device)
    ids = greedy(model, src, max_length=model.config.max_length)
    return [target.decode(row) for row in ids.tolist()]


def evaluate_number_words(
    model: Transformer, source: Vocabulary, target: Vocabulary, numbers: Sequence[int]
) -> dict:
    """Translate each number greedily and compare with the one right answer.

    Returns:
        ``exact_match`` (the share that is right to the letter), ``n``, ``errors`` (how many of each kind, see
        `error_kind`) and ``examples`` (up to five wrong ones).
    """
    errors, examples = Counter(), []
    for chunk in in_chunks(numbers, 250):
        sentences = [english_tokens(english(n)) for n in chunk]
        for n, tokens in zip(chunk, translate(model, source, target, sentences), strict=True):
            if tokens != german_tokens(n):
                errors[error_kind(tokens, german_tokens(n))] += 1
                examples.append({"number": n, "expected": "".join(german_tokens(n)), "got": "".join(tokens)})
    wrong = sum(errors.values())
    return {
        "exact_match": (len(numbers) - wrong) / len(numbers),
        "n": len(numbers),
        "errors": dict(errors.most_common()),
        "examples": examples[:5],
    }


def error_kind(got: Sequence[str], expected: Sequence[str]) -> str:
    """How a wrong translation is wrong: the order of its parts, a part missing or added, or another part."""
    missing, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
    if not missing and not extra:
        return "order"
    if not extra:
        return "missing part"
    return "added part" if not missing else "wrong part"
