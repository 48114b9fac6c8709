"""The sizes and switches of a Transformer, in one frozen record."""

from dataclasses import dataclass

from transformer_lessons import expect

CHOICES = {
    "norm": ("layer", "rms"),
    "activation": ("relu", "gelu", "swiglu"),
    "position": ("sinusoidal", "learned", "rotary"),
}
SWITCHES = ("norm_first", "tie_embeddings", "shared_vocabulary")
SIZES = (
    "source_vocab_size",
    "target_vocab_size",
    "d_model",
    "num_heads",
    "d_ff",
    "num_encoder_layers",
    "num_decoder_layers",
    "max_length",
)


@dataclass(frozen=True)
class TransformerConfig:
    """What `model.Transformer` is built from; defaults are the paper's base model (Table 3).

    Attributes:
        source_vocab_size, target_vocab_size: number of tokens on either side.
        d_model: width of the residual stream.
        num_heads: attention heads; a divisor of d_model.
        num_key_value_heads: fewer heads for keys and values; a divisor of num_heads, or None for as many.
        d_ff: inner width of the feed-forward networks.
        num_encoder_layers, num_decoder_layers: N, 6 in the paper.
        dropout: on embeddings and on every sub-layer's output while training (§5.4).
        norm_first: normalise before each sub-layer (pre-norm) rather than after the sum, as in the paper.
        norm: "layer" or "rms".
        activation: "relu", "gelu" or "swiglu" (which has a third matrix).
        position: "sinusoidal" or "learned", added to the embeddings, or "rotary", in every self-attention.
        tie_embeddings: output projection and target embedding are one matrix (§3.4).
        shared_vocabulary: source and target embedding are one matrix too, as in the paper.
        max_length: longest sequence, in tokens.
        pad_id, bos_id, eos_id: ids of padding, of the decoder's first input, and of the last output.

    A pitfall: two configs of equal weights shapes can be two models (pre- and post-norm, for one), so weights
    are saved together with theirs.

    Raises:
        ValueError: for values of another type, sizes below 1, heads that do not divide what they must, a
            dropout outside [0, 1), an unknown choice, special ids that collide or lie outside a vocabulary, or
            a shared vocabulary of two sizes.
    """

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1
    norm_first: bool = False
    norm: str = "layer"
    activation: str = "relu"
    position: str = "sinusoidal"
    tie_embeddings: bool = True
    shared_vocabulary: bool = False
    max_length: int = 1024
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    num_key_value_heads: int | None = None

    def __post_init__(self):
        expect.sizes(**{name: getattr(self, name) for name in SIZES})
        expect.probability(dropout=self.dropout)
        for name in SWITCHES:
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {getattr(self, name)!r}")
        self._check_heads()
        self._check_vocabularies()

    def _check_heads(self):
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of d_model = {self.d_model}, got {self.num_heads}"
            )
        if self.position == "rotary" and self.d_model // self.num_heads % 2:
            raise ValueError(
                f"num_heads: expected d_model / num_heads even, for rotary positions, "
                f"got {self.d_model} / {self.num_heads}"
            )
        groups = self.num_key_value_heads
        if groups is not None and (type(groups) is not int or groups < 1 or self.num_heads % groups):
            raise ValueError(
                f"num_key_value_heads: expected a divisor of num_heads = {self.num_heads}, got {groups!r}"
            )

    def _check_vocabularies(self):
        smaller = min(self.source_vocab_size, self.target_vocab_size)
        for name in ("pad_id", "bos_id", "eos_id"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number < smaller:
                raise ValueError(f"{name}: expected an integer, 0 to {smaller - 1}, got {number!r}")
        if len({self.pad_id, self.bos_id, self.eos_id}) < 3:
            raise ValueError(
                f"pad_id, bos_id, eos_id: expected three different ids, "
                f"got {self.pad_id}, {self.bos_id}, {self.eos_id}"
            )
        if self.shared_vocabulary and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"shared_vocabulary: expected vocabularies of one size, "
                f"got {self.source_vocab_size} and {self.target_vocab_size}"
            )

    @classmethod
    def base(cls, vocab_size: int = 37_000, **changes) -> "TransformerConfig":
        """The paper's base model with one vocabulary of about 37,000 tokens for both languages (§5.1)."""
        return cls(vocab_size, vocab_size, **{"shared_vocabulary": True, **changes})

    @classmethod
    def big(cls, vocab_size: int = 37_000, **changes) -> "TransformerConfig":
        """The paper's big model (Table 3): twice as wide, sixteen heads, dropout 0.3."""
        return cls.base(
            vocab_size, **{"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3, **changes}
        )
