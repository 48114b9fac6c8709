"""The whole encoder-decoder (§3, Figure 1)."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lessons.config import TransformerConfig
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.encodings import LearnedEncoding, SinusoidalEncoding
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.masks import padding_mask
from transformer_lessons.norms import LayerNorm

POSITIONS = {"sinusoidal": SinusoidalEncoding, "learned": LearnedEncoding}


class Transformer(nn.Module):
    """A model that maps source tokens and the target so far to a score for each possible next token (§3.1).

    ``memory = encoder(src)``, ``logits = decoder(tgt_in, memory) Eᵀ``

    Sequences are padded on the right with ``config.pad_id``. Then the decoder's self-attention needs no padding
    mask: causality already hides the padding from every real token. A pitfall: with padding on the left that no
    longer holds.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = c = config
        self.source_embedding = self.embedding(c.source_vocab_size)
        self.target_embedding = self.embedding(c.target_vocab_size)
        if c.shared_vocabulary:
            self.source_embedding.token = self.target_embedding.token
        self.encoder_layers = nn.ModuleList(EncoderLayer(c) for _ in range(c.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(c) for _ in range(c.num_decoder_layers))
        last = LayerNorm if c.norm_first else nn.Identity  # post-norm layers end with a norm
        self.encoder_norm = last(c.d_model)
        self.decoder_norm = last(c.d_model)
        self.output = nn.Linear(c.d_model, c.target_vocab_size, bias=False)
        if c.tie_embeddings:
            self.output.weight = self.target_embedding.token.weight

    def embedding(self, vocab_size: int) -> TransformerEmbedding:
        """The embedding of one side: tokens, positions, dropout."""
        c = self.config
        position = POSITIONS[c.position](c.d_model, c.max_length)
        return TransformerEmbedding(vocab_size, c.d_model, position=position, dropout=c.dropout)

    def forward(
        self, src: Int[Tensor, "batch source"], tgt_in: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits: at position t, for the token that follows ``tgt_in[:, :t + 1]``, which begins with `bos_id`."""
        src_mask = padding_mask(src, self.config.pad_id)
        memory = self.encode(src, src_mask)
        return self.output(self.decode(tgt_in, memory, src_mask))

    def encode(
        self, src: Int[Tensor, "batch source"], src_mask: Bool[Tensor, "batch 1 #source source"]
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's output, called memory: one vector for each source token."""
        x = self.source_embedding(src)
        for layer in self.encoder_layers:
            x = layer(x, src_mask)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt_in: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: Bool[Tensor, "batch 1 #target source"],
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output: one vector for each target token, to be projected by `output`."""
        x = self.target_embedding(tgt_in)
        for layer in self.decoder_layers:
            x = layer(x, memory, src_mask)
        return self.decoder_norm(x)
