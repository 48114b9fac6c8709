"""The sizes and switches of a Transformer, in one frozen record."""

from dataclasses import dataclass, fields

CHOICES = {"activation": ("relu", "gelu"), "position": ("sinusoidal", "learned")}


@dataclass(frozen=True)
class TransformerConfig:
    """What a `model.Transformer` is built from; the defaults are the paper's base model (Table 3).

    Attributes:
        source_vocab_size, target_vocab_size: number of tokens on either side.
        d_model: width of the residual stream.
        num_heads: attention heads; a divisor of d_model.
        d_ff: inner width of the feed-forward networks.
        num_encoder_layers, num_decoder_layers: N, 6 in the paper.
        dropout: on embeddings and on every sub-layer's output while training (§5.4).
        norm_first: normalise before each sub-layer (pre-norm) rather than after the sum, as in the paper.
        activation: "relu" or "gelu".
        position: "sinusoidal" or "learned".
        tie_embeddings: output projection and target embedding are one matrix (§3.4).
        shared_vocabulary: source and target embedding are one matrix too, as in the paper.
        max_length: longest sequence, in tokens.
        pad_id, bos_id, eos_id: ids of padding, of the decoder's first input, and of the last output.

    A pitfall: weights of the same shapes can belong to different models (pre-norm and post-norm, say), so
    weights are saved together with their config.

    Raises:
        ValueError: for values of the wrong type, sizes below 1, heads that do not divide d_model, a dropout
            outside [0, 1), an unknown choice, special ids that coincide or are outside a vocabulary, or a
            shared vocabulary with two different sizes.
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
    activation: str = "relu"
    position: str = "sinusoidal"
    tie_embeddings: bool = True
    shared_vocabulary: bool = False
    max_length: int = 1024
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self):
        special = (self.pad_id, self.bos_id, self.eos_id)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            expect(type(value) is field.type, field.name, f"{field.type.__name__}", value)
            if field.type is int and not field.name.endswith("_id"):
                expect(value >= 1, field.name, "1 or more", value)
            if field.name in CHOICES:
                choices = CHOICES[field.name]
                expect(value in choices, field.name, f"one of {', '.join(choices)}", value)
        expect(0 <= self.dropout < 1, "dropout", "0 or more, below 1", self.dropout)
        divides = self.d_model % self.num_heads == 0
        expect(divides, "num_heads", f"a divisor of d_model = {self.d_model}", self.num_heads)
        smaller = min(self.source_vocab_size, self.target_vocab_size)
        inside = all(0 <= number < smaller for number in special) and len({*special}) == 3
        expect(inside, "pad_id, bos_id, eos_id", f"three different ids, 0 to {smaller - 1}", special)
        vocabularies = self.source_vocab_size, self.target_vocab_size
        fits = not self.shared_vocabulary or len({*vocabularies}) == 1
        expect(fits, "shared_vocabulary", "vocabularies of one size", vocabularies)

    @classmethod
    def base(cls, vocab_size: int = 37_000, **changes) -> "TransformerConfig":
        """The paper's base model with one vocabulary of about 37,000 tokens for both languages (§5.1)."""
        return cls(vocab_size, vocab_size, **{"shared_vocabulary": True, **changes})

    @classmethod
    def big(cls, vocab_size: int = 37_000, **changes) -> "TransformerConfig":
        """The paper's big model (Table 3): twice as wide, sixteen heads, dropout 0.3."""
        wider = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
        return cls.base(vocab_size, **{**wider, **changes})


def expect(is_so: bool, name: str, expected: str, got: object) -> None:
    """Raise a ValueError of one line unless `is_so`."""
    if not is_so:
        raise ValueError(f"{name}: expected {expected}, got {got!r}")
