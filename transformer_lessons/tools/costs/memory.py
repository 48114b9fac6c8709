"""Bytes that training holds, predicted from a config."""

from dataclasses import dataclass

from transformer_lessons.config import TransformerConfig
from transformer_lessons.losses import PART
from transformer_lessons.tools.costs.counts import parameters
from transformer_lessons.tools.costs.sizes import (
    BatchShape,
    check,
    key_width,
    matrices,
    number_width,
)


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of a training step, by what they hold.

    Attributes:
        weights, gradients: one float32 number a parameter.
        optimizer: two for AdamW, the moments.
        copies: of the matrices in 16 bits, which autocast makes and the backward pass needs.
        encoder, decoder: what the layers save for the backward pass.
        ends: dropout after the embeddings, final norms, the encoder's output.
        logits: the gradients of the projection and of what it is given (`losses.projected_loss`); in float16 the
            log-probabilities, and the vectors that are projected.
        logits_gradient: what comes on top: the logits of a part, or both gradients times their factor; in float16
            the gradient of the log-probabilities, in float32 and in 16 bits.
        again: with checkpointing, what one layer saves while it is computed again.

    A pitfall: these are the bytes of tensors. The allocator holds more, and libraries' workspaces come on top.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    encoder: int
    decoder: int
    ends: int
    logits: int
    logits_gradient: int
    again: int = 0

    @property
    def saved(self) -> int:
        """What the graph holds between forward and backward; ids, indices and truth values are left out."""
        return self.copies + self.encoder + self.decoder + self.ends + self.logits

    @property
    def peak(self) -> int:
        """The most at one time: when the backward pass begins or, in a small batch, when all gradients are there.

        ``weights + optimizer + max(gradients + again, saved + logits_gradient)``
        """
        passing = max(self.gradients + self.again, self.saved + self.logits_gradient)
        return self.weights + self.optimizer + passing

    @property
    def moved(self) -> int:
        """What a step moves at least, as each of these bytes is written once and read once."""
        return 2 * (self.weights + self.gradients + self.optimizer + self.saved)


def training_memory(
    config: TransformerConfig, shape: BatchShape, precision: str = "float32", *, recompute: bool = False
) -> TrainingMemory:
    """What a training step of `training_loss.batch_loss` with AdamW holds, in bytes.

    Weights, gradients and moments take ``4 + 4 + 8 = 16`` bytes a parameter. In "bfloat16" or "float16" that
    stays so: `torch.autocast` keeps weights, residual stream and norms in float32, and stores what goes into and
    comes out of matrix products in half of it. Attention is taken to be fused: its weights are never stored. With
    `recompute` a layer saves its input alone, and one layer at a time is computed again with all it saves.

    A pitfall: in float16, the log-probabilities of a large vocabulary are as large as several layers.

    Raises:
        ValueError: for arguments of other types, sentences longer than max_length, or an unknown precision.
    """
    check(config, shape)
    width, count, d = number_width(precision), parameters(config).total, config.d_model
    sources, targets = shape.sentences * shape.source, shape.sentences * shape.target
    encoder, decoder = (
        layer(config, shape, precision) for layer in (encoder_layer_bytes, decoder_layer_bytes)
    )
    again, output = 0, config.target_vocab_size * d
    logits, logits_gradient = _loss(config, shape, precision)
    # The projection's copy is not kept: its gradient is there.
    copied = matrices(config) - output * (precision == "bfloat16")
    # What the encoder hands over is saved once, unless each layer of the decoder has copies of its own.
    ends = 4 * sources * d if width == 4 or recompute else 0
    ends += (_norm(config, sources) + _norm(config, targets)) * config.norm_first
    ends += (sources + targets) * d * (config.dropout > 0)
    if recompute:
        again, copied = max(encoder, decoder), output if precision == "float16" else 0
        encoder, decoder = 4 * sources * d, 4 * targets * d
    return TrainingMemory(
        weights=4 * count,
        gradients=4 * count,
        optimizer=8 * count,
        copies=width * copied if width < 4 else 0,
        encoder=config.num_encoder_layers * encoder,
        decoder=config.num_decoder_layers * decoder,
        ends=ends,
        logits=logits,
        logits_gradient=logits_gradient,
        again=again,
    )


def encoder_layer_bytes(config: TransformerConfig, shape: BatchShape, precision: str = "float32") -> int:
    """What one encoder layer saves for the backward pass.

    For each token, in float32 and with the paper's layer: ``4 (9 d + d_ff)`` bytes and a few more. They are the
    inputs of both sub-layers, q, k, v, what attention gives and what is left of it after masking, what each norm
    is given, and the hidden layer. A pitfall: the graph keeps them by reference, so a tensor that two operations
    saved counts once.

    Raises:
        ValueError: as `training_memory`.
    """
    check(config, shape)
    width, tokens = number_width(precision), shape.sentences * shape.source
    lengths = shape.sentences, shape.source, shape.source
    attention = _attention(config, lengths, width, is_masked=True, is_self=True)
    attention += _projected(config, tokens, width, 3)
    return attention + _feed_forward(config, tokens, width) + 2 * _wrapped(config, tokens)


def decoder_layer_bytes(config: TransformerConfig, shape: BatchShape, precision: str = "float32") -> int:
    """What one decoder layer saves for the backward pass, without the encoder's output that all of them share.

    A pitfall: cross-attention saves keys and values of the source in every layer, so long sources cost here too.

    Raises:
        ValueError: as `training_memory`.
    """
    check(config, shape)
    width, tokens, d = number_width(precision), shape.sentences * shape.target, config.d_model
    inputs = width * tokens * d + _projected(config, tokens, width, 3)
    # All layers share the encoder's output, unless each has copies of its own.
    sources = shape.sentences * shape.source
    inputs += _projected(config, sources, width, 2) - (width * sources * d if width == 4 else 0)
    lengths = shape.sentences, shape.target
    own = _attention(config, (*lengths, shape.target), width, is_masked=False, is_self=True)
    cross = _attention(config, (*lengths, shape.source), width, is_masked=True, is_self=False)
    return inputs + own + cross + _feed_forward(config, tokens, width) + 3 * _wrapped(config, tokens)


def _attention(
    config: TransformerConfig, shape: tuple[int, int, int], width: int, *, is_masked: bool, is_self: bool
) -> int:
    """q, k and v of every head (shared ones are repeated), the output, a logarithm for each query and head."""
    (sentences, queries, keys), d = shape, config.d_model
    saved = width * sentences * d * (2 * queries + 2 * keys) + 4 * sentences * config.num_heads * queries
    if is_masked:  # the output with blind queries zeroed, and the mask in numbers
        saved += width * sentences * (queries * d + keys)
    if is_self and _is_one_product(config, sentences * queries, 3):
        # Its result lies in one piece, and is kept whole if a part of it is used as it is.
        turned, shared = config.position == "rotary", key_width(config) < d
        kept_whole = 2 * d * (turned and not shared) + 2 * key_width(config) * (shared and not turned)
        saved += width * sentences * queries * kept_whole
    if is_self and config.position == "rotary":  # sines and cosines, for queries and for keys
        saved += 4 * 2 * queries * d // config.num_heads
        # Turned queries lie otherwise in memory, and so do the heads that are put side by side.
        saved += 0 if is_masked else width * sentences * queries * d
    return saved


def _projected(config: TransformerConfig, tokens: int, width: int, projections: int) -> int:
    """What comes in, once or (in 16 bits) once for each product, and in float32 the matrices put side by side."""
    d = config.d_model
    if not _is_one_product(config, tokens, projections):
        return (1 if width == 4 else projections) * width * tokens * d
    # In 16 bits they take the place of each one's copy.
    matrices = _widths(config, projections) * d if width == 4 else 0
    return width * (tokens * d + matrices)


def _is_one_product(config: TransformerConfig, tokens: int, projections: int) -> bool:
    """Whether `attention.MultiHeadAttention` puts W_q, W_k and W_v (or the last two) side by side."""
    return tokens >= _widths(config, projections)


def _widths(config: TransformerConfig, projections: int) -> int:
    return (projections - 2) * config.d_model + 2 * key_width(config)


def _feed_forward(config: TransformerConfig, tokens: int, width: int) -> int:
    """The input, and of the hidden layer what the activation's gradient and the last matrix need."""
    hidden = {"relu": 1, "gelu": 2, "swiglu": 4}[config.activation]
    inputs = 2 if config.activation == "swiglu" and width < 4 else 1
    return width * tokens * (inputs * config.d_model + hidden * config.d_ff)


def _loss(config: TransformerConfig, shape: BatchShape, precision: str) -> tuple[int, int]:
    """What the loss saves, and what is there on top of it for a moment."""
    vectors, matrix = (rows * config.d_model for rows in (shape.outputs, config.target_vocab_size))
    if precision == "float16":
        scores = shape.outputs * config.target_vocab_size
        return 4 * scores + 2 * vectors, (4 + 2) * scores
    scores = min(PART, shape.outputs) * config.target_vocab_size
    # In bfloat16 there are the logits and the matrix in 16 bits, too.
    part = 4 * scores if precision == "float32" else (4 + 2) * scores + 2 * matrix
    return 4 * (matrix + vectors), max(part, 4 * (matrix + vectors))


def _norm(config: TransformerConfig, tokens: int) -> int:
    """In float32, for each token: what comes in, its mean and its scale; without a kernel, what comes out too."""
    return 4 * tokens * (config.d_model + 2 if config.norm == "layer" else 2 * config.d_model + 1)


def _wrapped(config: TransformerConfig, tokens: int) -> int:
    """The norm of a sub-layer, and a byte for each entry that may be dropped."""
    return _norm(config, tokens) + tokens * config.d_model * (config.dropout > 0)
