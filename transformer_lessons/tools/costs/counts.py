"""Parameters and operations of a model, counted from its config: no model is built for it."""

from dataclasses import astuple, dataclass

from transformer_lessons import expect
from transformer_lessons.config import TransformerConfig
from transformer_lessons.tools.costs.sizes import (
    BatchShape,
    attention_matrices,
    check,
    decoding_matrices,
    feed_forward_matrices,
    key_width,
)


@dataclass(frozen=True)
class Parameters:
    """The numbers that are learned, by where they are. A pitfall: a matrix that is used twice counts once."""

    embeddings: int
    positions: int
    attention: int
    feed_forward: int
    norms: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))


@dataclass(frozen=True)
class Operations:
    """Floating-point operations in matrix products, a multiplication and an addition being two.

    Attributes:
        projections: W_q, W_k, W_v and W_o of every attention.
        scores: queries with keys, and weights with values: the part that is quadratic in the length.
        feed_forward: two matrices a layer, or three.
        output: the projection to the vocabulary.

    A pitfall: looking up embeddings, softmax, norms and sums are no matrix products. They are few of the
    operations, and more of the time, since they wait for memory.
    """

    projections: int
    scores: int
    feed_forward: int
    output: int

    @property
    def layers(self) -> int:
        """Those of encoder and decoder, which is what checkpointing computes again."""
        return self.projections + self.scores + self.feed_forward

    @property
    def total(self) -> int:
        """All of them."""
        return self.layers + self.output


def parameters(config: TransformerConfig) -> Parameters:
    """The parameters of ``Transformer(config)``, exactly.

    An attention has ``2 d² + 2 d d_kv`` in its matrices, ``d_kv = d`` unless heads share keys and values, and a
    bias for each output; a feed-forward network ``2 d d_ff + d_ff + d``, or ``3 d d_ff`` with SwiGLU.

    A pitfall: tied, the target embedding and the output are one matrix, and with a shared vocabulary the source
    embedding is the same one.

    Raises:
        ValueError: for what is no `TransformerConfig`.
    """
    expect.kind(TransformerConfig, config=config)
    encoder, decoder, d = config.num_encoder_layers, config.num_decoder_layers, config.d_model
    biases = 0 if config.activation == "swiglu" else config.d_ff + d
    norms = 2 * encoder + 3 * decoder + 2 * config.norm_first
    sources = 0 if config.shared_vocabulary else config.source_vocab_size
    return Parameters(
        embeddings=(sources + config.target_vocab_size) * d,
        positions=2 * config.max_length * d if config.position == "learned" else 0,
        attention=(encoder + 2 * decoder) * (attention_matrices(config) + 2 * d + 2 * key_width(config)),
        feed_forward=(encoder + decoder) * (feed_forward_matrices(config) + biases),
        norms=norms * d * (2 if config.norm == "layer" else 1),
        output=0 if config.tie_embeddings else config.target_vocab_size * d,
    )


def forward_operations(config: TransformerConfig, shape: BatchShape) -> Operations:
    """The operations of a forward pass, exactly those that PyTorch's `FlopCounterMode` counts.

    A matrix of M entries costs ``2 M`` for each vector; attention between n queries and m keys ``4 n m d``.

    Two pitfalls: the counter has no formula for the fused attention kernel of the CPU, so it must be shown the
    unfused one; and causal attention counts in full, though a kernel may leave out the half that is hidden.

    Raises:
        ValueError: for arguments of other types, or sentences longer than the config's max_length.
    """
    check(config, shape)
    encoder, decoder, d = config.num_encoder_layers, config.num_decoder_layers, config.d_model
    sources, targets = shape.sentences * shape.source, shape.sentences * shape.target
    own, keys = attention_matrices(config), 2 * d * key_width(config)
    vectors = encoder * sources + decoder * targets
    return Operations(
        # Cross-attention: queries and outputs are the target's, keys and values the source's.
        projections=2 * (vectors * own + decoder * (targets * (own - keys) + sources * keys)),
        scores=4 * d * (encoder * sources * shape.source + decoder * targets * (shape.target + shape.source)),
        feed_forward=2 * vectors * feed_forward_matrices(config),
        output=2 * shape.outputs * d * config.target_vocab_size,
    )


def training_operations(config: TransformerConfig, shape: BatchShape, *, recompute: bool = False) -> int:
    """The operations of a training step: forward, and twice as many backward.

    Each product ``X W`` has two in the backward pass, for the gradients of X and of W; so has each of attention.
    That holds for all of them, the first layer's too: its input comes from the embeddings, which learn. (With
    frozen embeddings the first layer's ``X`` would need none.) With `recompute` every layer's forward pass is
    computed again: four times forward instead of three, except for the output.

    A pitfall: the gradient of an embedding is a sum of rows, no product; it adds nothing here.

    Raises:
        ValueError: as `forward_operations`.
    """
    forward = forward_operations(config, shape)
    return 3 * forward.total + (forward.layers if recompute else 0)


def decoding_operations(config: TransformerConfig, shape: BatchShape) -> int:
    """The operations of one step of decoding with a cache: a token for each sentence.

    `shape` is what the cache has room for: this is the step that fills the last of its ``target`` slots, or on a
    GPU any, as all slots are attended to there. The source has been read, and its keys and values are kept.

    A pitfall: without a cache a step costs a whole `forward_operations` of the decoder.

    Raises:
        ValueError: as `forward_operations`.
    """
    check(config, shape)
    scores = 4 * config.d_model * (shape.target + shape.source)
    return shape.sentences * (2 * decoding_matrices(config) + config.num_decoder_layers * scores)
