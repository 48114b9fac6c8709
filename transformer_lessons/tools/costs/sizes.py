"""What the other modules of the cost model share: the shape of a batch, and the sizes of matrices and numbers."""

from dataclasses import dataclass

from transformer_lessons import expect
from transformer_lessons.config import TransformerConfig

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}  # bytes of a number in matrix products


@dataclass(frozen=True)
class BatchShape:
    """The sizes of what is computed at once; padding counts, since it is computed with.

    Attributes:
        sentences: pairs of sentences, padded to common lengths.
        source, target: tokens of each sentence on either side, padding included.
        projected: target positions that are projected to the vocabulary, in the whole batch; all of them unless
            given. `training_loss.batch_loss` projects only the real ones.

    A pitfall: "25,000 tokens" in a batch are so many in ``sentences · source``, not in one of the two.

    Raises:
        ValueError: for sizes below 1, or more projected positions than there are.
    """

    sentences: int
    source: int
    target: int
    projected: int | None = None

    def __post_init__(self):
        expect.sizes(sentences=self.sentences, source=self.source, target=self.target)
        most = self.sentences * self.target
        if self.projected is not None:
            expect.lengths(projected=self.projected)
            if self.projected > most:
                raise ValueError(
                    f"projected: expected at most sentences · target = {most}, got {self.projected}"
                )

    @property
    def outputs(self) -> int:
        """The number of positions that are projected."""
        return self.sentences * self.target if self.projected is None else self.projected


def key_width(config: TransformerConfig) -> int:
    """The width of all keys of a position together, less than d_model if heads share them."""
    groups = config.num_key_value_heads or config.num_heads
    return groups * (config.d_model // config.num_heads)


def attention_matrices(config: TransformerConfig) -> int:
    """The entries of W_q, W_k, W_v and W_o of one attention."""
    return 2 * config.d_model * (config.d_model + key_width(config))


def feed_forward_matrices(config: TransformerConfig) -> int:
    """The entries of the matrices of one feed-forward network."""
    return (3 if config.activation == "swiglu" else 2) * config.d_model * config.d_ff


def matrices(config: TransformerConfig) -> int:
    """The entries of all matrices that are multiplied with."""
    attention = (config.num_encoder_layers + 2 * config.num_decoder_layers) * attention_matrices(config)
    networks = (config.num_encoder_layers + config.num_decoder_layers) * feed_forward_matrices(config)
    return attention + networks + config.target_vocab_size * config.d_model


def decoding_matrices(config: TransformerConfig) -> int:
    """The entries of the matrices that a new target token meets: the decoder's, and the output's.

    W_k and W_v of cross-attention are not among them: they have made their keys and values before.
    """
    d, own = config.d_model, attention_matrices(config)
    layer = own + (own - 2 * d * key_width(config)) + feed_forward_matrices(config)
    return config.num_decoder_layers * layer + d * config.target_vocab_size


def check(config: TransformerConfig, shape: BatchShape) -> None:
    """Refuse what is no config or shape, or sentences that the model would refuse.

    Raises:
        ValueError: naming the argument.
    """
    expect.kind(TransformerConfig, config=config)
    expect.kind(BatchShape, shape=shape)
    for name in ("source", "target"):
        length = getattr(shape, name)
        if length > config.max_length:
            raise ValueError(f"{name}: expected at most max_length = {config.max_length}, got {length}")


def number_width(precision: str) -> int:
    """The bytes of a number.

    Raises:
        ValueError: for an unknown precision.
    """
    if precision not in tuple(WIDTHS):
        raise ValueError(f"precision: expected one of {', '.join(WIDTHS)}, got {precision!r}")
    return WIDTHS[precision]
