"""Time and price: what a card could do at best, and at an assumed utilisation."""

from dataclasses import dataclass

from transformer_lessons import expect
from transformer_lessons.config import TransformerConfig
from transformer_lessons.tools.costs.counts import decoding_operations, training_operations
from transformer_lessons.tools.costs.decoding import decoding_bytes
from transformer_lessons.tools.costs.memory import training_memory
from transformer_lessons.tools.costs.sizes import BatchShape, number_width


@dataclass(frozen=True)
class Card:
    """What a data sheet says of an accelerator; ``costs.cards.CARDS`` has P100, T4, A100, H100 and H200 by name.

    Attributes:
        name: what it is called.
        precision: of the matrix products that `rate` is for.
        rate: operations a second in matrix products at best, dense.
        bandwidth: bytes a second between its memory and its arithmetic at best.
        memory: bytes.
        source: the address where these numbers stand.
        price: of an hour, in dollars; None where nobody has said. Nothing else depends on it.

    A pitfall: data sheets like to print the rate with "sparsity", which is twice the dense one.

    Raises:
        ValueError: for an unknown precision, numbers not above 0, a negative price, or a name or source that is
            no str.
    """

    name: str
    precision: str
    rate: float
    bandwidth: float
    memory: float
    source: str
    price: float | None = None

    def __post_init__(self):
        expect.kind(str, name=self.name, source=self.source)
        number_width(self.precision)
        _positive(rate=self.rate, bandwidth=self.bandwidth, memory=self.memory)
        if self.price is not None:
            expect.number(price=self.price)


def _positive(**given: float) -> None:
    expect.number(**given)
    for name, value in given.items():
        if not value:
            raise ValueError(f"{name}: expected a number above 0, got {value!r}")


_NVIDIA = "https://www.nvidia.com/"
CARDS = {
    card.name: card
    for card in (
        # The rate that the paper assumes (footnote 5); bandwidth and memory from NVIDIA's data sheet.
        Card(
            *("P100", "float32", 9.5e12, 732e9, 16e9),
            "https://images.nvidia.com/content/tesla/pdf/nvidia-tesla-p100-datasheet.pdf",
        ),
        Card(
            *("T4", "float16", 65e12, 300e9, 16e9),
            f"{_NVIDIA}content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf",
        ),
        Card(
            *("A100", "bfloat16", 312e12, 2039e9, 80e9),  # SXM, 80 GB
            f"{_NVIDIA}content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
        ),
        # SXM; the page prints 1,979 with sparsity.
        Card("H100", "bfloat16", 989e12, 3350e9, 80e9, f"{_NVIDIA}en-us/data-center/h100/"),
        Card("H200", "bfloat16", 989e12, 4800e9, 141e9, f"{_NVIDIA}en-us/data-center/h200/"),
    )
}


def training_seconds(
    config: TransformerConfig,
    shape: BatchShape,
    card: Card,
    *,
    utilisation: float,
    recompute: bool = False,
) -> float:
    """The time of one training step of one card, which computes `shape`, in seconds.

    ``max(operations / (rate · utilisation), bytes / bandwidth)``: the arithmetic, or moving the least that has to
    be moved (`TrainingMemory.moved`), whichever takes longer (the roofline of Williams et al. 2009).

    Two pitfalls: the utilisation is an assumption, and the answer is only as good. And cards that share a batch
    exchange their gradients, which is not in it.

    Raises:
        ValueError: as `training_operations`, for what is no `Card`, or a utilisation that is not above 0 and at
            most 1.
    """
    _check(card, utilisation)
    operations = training_operations(config, shape, recompute=recompute)
    memory = training_memory(config, shape, card.precision, recompute=recompute)
    return max(operations / (card.rate * utilisation), memory.moved / card.bandwidth)


def decoding_seconds(
    config: TransformerConfig, shape: BatchShape, card: Card, *, utilisation: float
) -> float:
    """The time of one step of decoding, a token for each of the sentences, in seconds.

    ``max(operations / (rate · utilisation), bytes / bandwidth)``, where the bytes are the decoder's matrices,
    once for all sentences, and the cache (`decoding_bytes`), both in the card's precision.

    A pitfall: with few sentences it is the bandwidth that counts, so more sentences cost little more.

    Raises:
        ValueError: as `decoding_operations`, or for a card or a utilisation as `training_seconds`.
    """
    _check(card, utilisation)
    operations = decoding_operations(config, shape)
    moved = decoding_bytes(config, shape, card.precision)
    return max(operations / (card.rate * utilisation), moved / card.bandwidth)


def dollars(seconds: float, card: Card, *, cards: int = 1) -> float:
    """What so many cards cost for that time: ``seconds / 3600 · cards · price``.

    A pitfall: rented cards also cost while data is loaded, and while somebody looks for a mistake.

    Raises:
        ValueError: for a negative time, fewer than one card, or a card whose price nobody has said.
    """
    expect.number(seconds=seconds)
    expect.sizes(cards=cards)
    expect.kind(Card, card=card)
    if card.price is None:
        raise ValueError(f"card: expected one with a price an hour, got {card.name} without")
    return seconds / 3600 * cards * card.price


def _check(card: Card, utilisation: float) -> None:
    expect.kind(Card, card=card)
    _positive(utilisation=utilisation)
    if utilisation > 1:
        raise ValueError(f"utilisation: expected at most 1, got {utilisation!r}")
