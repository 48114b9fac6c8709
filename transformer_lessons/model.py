"""The whole encoder-decoder (§3, Figure 1)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer_lessons import expect
from transformer_lessons.attention import KeyValueCache, MultiHeadAttention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.packing import Places, check_places
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.encodings import LearnedEncoding, SinusoidalEncoding
from transformer_lessons.layers import NORMS, DecoderLayer, EncoderLayer, LayerCache
from transformer_lessons.masks import padding_mask, segment_mask

__all__ = ["Transformer", "TransformerConfig", "attention_maps"]

POSITIONS = {"sinusoidal": SinusoidalEncoding, "learned": LearnedEncoding}


class Transformer(nn.Module):
    """From source tokens and the target so far to a score for each possible next token (§3.1).

    ``memory = encoder(src)``, ``logits = decoder(tgt_in, memory) Eᵀ``

    Sequences are padded on the right with ``config.pad_id``. Then the decoder's self-attention needs no
    padding mask: causality already hides the padding from every real token, and the fast causal kernel stays
    available. A pitfall: with padding on the left that no longer holds.

    With `recompute` (`TrainingConfig.recompute` sets it), a layer keeps only its input, and is computed again on
    the way back: less memory for one more forward pass (Chen et al. 2016, https://arxiv.org/abs/1604.06174). It
    is in no state dict and no config.

    Args:
        config: the sizes and switches.

    Raises:
        ValueError: for what is no `TransformerConfig`.
    """

    recompute: bool = False

    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect.kind(TransformerConfig, config=config)
        self.config = config
        self.source_embedding = self._embedding(config.source_vocab_size)
        self.target_embedding = self._embedding(config.target_vocab_size)
        if config.shared_vocabulary:
            self.source_embedding.token = self.target_embedding.token
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Pre-norm layers end with a sum, which nothing normalises yet; post-norm layers end with a norm.
        last = NORMS[config.norm] if config.norm_first else nn.Identity
        self.encoder_norm, self.decoder_norm = last(config.d_model), last(config.d_model)
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        if config.tie_embeddings:
            self.output.weight = self.target_embedding.token.weight

    def _embedding(self, vocab_size: int) -> TransformerEmbedding:
        d_model, encoding = self.config.d_model, POSITIONS.get(self.config.position)
        # Rotary positions come in later, in the layers' attention.
        position = encoding(d_model, self.config.max_length) if encoding else None
        return TransformerEmbedding(vocab_size, d_model, position=position, dropout=self.config.dropout)

    def _check_ids(self, name: str, ids: Tensor, places: Places | None = None) -> None:
        expect.ids(**{name: ids})
        expect.same_device(self.output.weight, **{name: ids})
        longest = self.config.max_length
        if places is not None:  # the row may be longer, as positions start anew with every sentence
            check_places(places, name, ids)
            expect.below(longest, ", below max_length", positions=places.positions)
        elif ids.size(1) > longest:
            raise ValueError(f"{name}: expected at most max_length = {longest} tokens, got {ids.size(1)}")

    def _through(self, layer: nn.Module, *given: Tensor | None, **options) -> Tensor:
        """A layer's output. A cache would be appended to twice; in decoding nothing goes back anyway."""
        if self.recompute and options.get("cache") is None:
            return checkpoint(layer, *given, use_reentrant=False, **options)  # and with the same random state
        return layer(*given, **options)

    def encode(
        self, src: Int[Tensor, "batch source"], places: Places | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """The encoder's output, called memory: one vector for each source token.

        Raises:
            ValueError: for what is no int64 or int32 of two axes on the model's device, ids outside the
                vocabulary, more than max_length tokens, or `places` (of packed rows) that do not fit.
        """
        self._check_ids("src", src, places)
        mask, packed = padding_mask(src, self.config.pad_id), {}
        if places is not None:
            mask, packed = segment_mask(places.segments, places.segments), {"positions": places.positions}
        x = self.source_embedding(src, **packed)
        for layer in self.encoder_layers:
            x = self._through(layer, x, mask, **packed)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt_in: Int[Tensor, "batch target"],
        memory: Float[Tensor, "batch source d_model"],
        src_mask: Bool[Tensor, "batch 1 #target source"],
        caches: list[LayerCache] | None = None,
        places: Places | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """The decoder's output for `tgt_in`; with `caches` (`new_caches`), for its next tokens alone.

        Raises:
            ValueError: as `encode`, for a memory, mask or caches that do not fit, or caches for packed rows.
        """
        self._check_ids("tgt_in", tgt_in, places)
        if caches and places:
            raise ValueError(f"caches: expected none for packed rows, got {len(caches)}")
        layers, masked, packed = self.decoder_layers, {}, {}
        if places is not None:
            packed = {"positions": places.positions}
            masked = {"tgt_mask": segment_mask(places.segments, places.segments)}
        if caches is not None and len(caches) != len(layers):
            raise ValueError(f"caches: expected {len(layers)}, one a layer, got {len(caches)}")
        for cache in caches or ():
            expect.kind(LayerCache, caches=cache)
        x = self.target_embedding(tgt_in, caches[0].self_attention.position if caches else 0, **packed)
        for layer, cache in zip(layers, caches or [None] * len(layers), strict=True):
            x = self._through(layer, x, memory, src_mask, cache=cache, **masked, **packed)
        return self.decoder_norm(x)

    def hidden(
        self,
        src: Int[Tensor, "batch source"],
        tgt_in: Int[Tensor, "batch target"],
        src_places: Places | None = None,
        tgt_places: Places | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """Encoder and decoder, without the projection to the vocabulary.

        Training projects only the positions that have a target: `project` is a good part of all work.

        Raises:
            ValueError: as `forward`.
        """
        self._check_ids("src", src, src_places)
        self._check_ids("tgt_in", tgt_in, tgt_places)
        if src.size(0) != tgt_in.size(0):
            raise ValueError(f"tgt_in: expected batch size {src.size(0)}, as src, got {tgt_in.size(0)}")
        src_mask = self._src_mask(src, src_places, tgt_places)
        return self.decode(tgt_in, self.encode(src, src_places), src_mask, places=tgt_places)

    def _src_mask(self, src: Tensor, src_places: Places | None, tgt_places: Places | None) -> Tensor:
        """The whole source, or of a packed row the one of the own pair."""
        if (src_places is None) != (tgt_places is None):
            given, missing = ("src", "tgt") if tgt_places is None else ("tgt", "src")
            raise ValueError(f"{missing}_places: expected Places, as {given}_places, got None")
        if src_places is None:
            return padding_mask(src, self.config.pad_id)
        return segment_mask(tgt_places.segments, src_places.segments)

    def project(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Scores over the target vocabulary; their softmax is the next token's distribution (§3.4).

        Raises:
            ValueError: for vectors of another width, dtype or device than the weights'.
        """
        expect.width(hidden, self.output.weight, name="hidden", same_dtype=True)
        return self.output(hidden)

    def forward(
        self, src: Int[Tensor, "batch source"], tgt_in: Int[Tensor, "batch target"], *places: Places | None
    ) -> Float[Tensor, "batch target vocab"]:
        """Logits: at position t, for the token that follows ``tgt_in[:, :t + 1]``.

        Args:
            src: source ids, padded on the right.
            tgt_in: target ids from `bos_id` on, padded on the right.
            places: of packed rows (`data.packing`), for the source and the target: which sentence a token belongs
                to, and where in it. Then each pair gets the logits that it would get in rows of its own.

        Raises:
            ValueError: for batch sizes that differ, ids outside the vocabulary, more than max_length tokens (in
                packed rows: positions), or places of one side only or other shapes.
        """
        return self.project(self.hidden(src, tgt_in, *places))

    def new_caches(self, batch: int, max_length: int) -> list[LayerCache]:
        """Empty caches, one for each decoder layer, for `max_length` target tokens.

        Raises:
            ValueError: for a batch or a max_length that is negative or no integer.
        """
        weight = self.output.weight

        def empty(length: int, attention: MultiHeadAttention) -> KeyValueCache:
            heads, d_k, d_v = attention.num_key_value_heads, attention.d_k, attention.d_v
            return KeyValueCache(batch, length, heads, d_k, d_v, dtype=weight.dtype, device=weight.device)

        return [
            LayerCache(empty(max_length, layer.self_attention), empty(0, layer.cross_attention))
            for layer in self.decoder_layers
        ]


@torch.no_grad()
def attention_maps(
    model: nn.Module, *inputs: Tensor | Places
) -> dict[str, Float[Tensor, "batch heads queries keys"]]:
    """Run ``model(*inputs)`` and return every `MultiHeadAttention`'s weights by its name in the model.

    The modules themselves keep nothing. A pitfall: weights stored on a module, as some do to look at them, hold
    the whole graph of the last call alive.

    Raises:
        ValueError: for what is no module, or what the model refuses.
    """
    expect.kind(nn.Module, model=model)
    maps, hooks = {}, []

    def ask(module, args, kwargs):
        return args, {**kwargs, "need_weights": True}

    def keep(name):
        def hook(module, args, output):
            maps[name] = output[1]
            return output[0]

        return hook

    try:
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                hooks.append(module.register_forward_pre_hook(ask, with_kwargs=True))
                hooks.append(module.register_forward_hook(keep(name)))
        model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return maps
