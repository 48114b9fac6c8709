"""What both tokenisers, `byte_pair` and `subwords`, ask of their arguments."""

from collections.abc import Iterable, Iterator

from transformer_lessons.data.vocabulary import Vocabulary

SMALLEST = Vocabulary.eos_id + 1 + 256


def check_vocab_size(vocab_size: int) -> None:
    """A byte-level vocabulary holds the special three and every byte. A pitfall: it is not the number of merges.

    Raises:
        ValueError: for fewer than 259, or no whole number.
    """
    if type(vocab_size) is not int or vocab_size < SMALLEST:
        least = f"{SMALLEST} or more, for 3 special tokens and 256 bytes"
        raise ValueError(f"vocab_size: expected {least}, got {vocab_size!r}")


def check_text(text: str, *, name: str = "text") -> None:
    """What can be encoded as UTF-8. A pitfall: a Python str may hold half a surrogate pair, which cannot.

    Raises:
        ValueError: naming the type, or the character and its place.
    """
    if not isinstance(text, str):
        raise ValueError(f"{name}: expected a str, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"half a surrogate pair, {text[error.start]!r} at position {error.start}"
        raise ValueError(f"{name}: expected what UTF-8 can express, got {half}") from None


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """The texts to learn from as they are, each checked when its turn comes.

    A pitfall: a str is itself an iterable of str, so one text where several belong would be taken apart.

    Raises:
        ValueError: for a single str, and for an element that is no text.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"texts: expected several texts, such as a list, got one {type(texts).__name__}")
    for number, text in enumerate(texts):
        check_text(text, name=f"texts[{number}]")
        yield text
