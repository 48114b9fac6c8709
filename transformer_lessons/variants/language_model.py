"""A modern language model, which is a Transformer without an encoder, and how it generates text."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons.config import TransformerConfig
from transformer_lessons.decoding import KeyValueCache, evaluating
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.layers import EncoderLayer
from transformer_lessons.norms import LayerNorm
from transformer_lessons.variants.rotary import rotary_attention
from transformer_lessons.variants.today import GroupedQueryAttention, RMSNorm, modern

Ids, Logits = Int[Tensor, "batch length"], Float[Tensor, "batch length vocab"]


class NormedQueryAttention(GroupedQueryAttention):
    """Grouped-query attention with q and k normalised per head, before the rotation (Dehghani et al. 2023).

    ``score = R_t norm(q) · R_s norm(k) / √d_k``: the two learned scales bound it, so softmax cannot saturate
    however large W_q and W_k grow. A pitfall: one norm over all heads together is a different model.
    """

    def __init__(self, d_model: int, num_heads: int, num_key_value_heads: int):
        super().__init__(d_model, num_heads, num_key_value_heads)
        self.norm_q = RMSNorm(self.d_k)
        self.norm_k = RMSNorm(self.d_k)

    def keys_and_values(self, key, value):
        """`MultiHeadAttention.keys_and_values` with k normalised."""
        k, v = super().keys_and_values(key, value)
        return self.norm_k(k), v

    def attention(self, query, key, value, mask=None, *, is_causal=False):
        """`rotary_attention` with q normalised."""
        return rotary_attention(self.norm_q(query), key, value, mask, is_causal=is_causal)


class LanguageModel(nn.Module):
    """A decoder-only model that predicts the next token (Radford et al. 2019, with modern parts).

    ``logits_t = norm(x_t) Eᵀ``, where x is the layers' output and position t has seen positions 1 … t

    The paper's decoder without a source is its encoder under a causal mask; the sizes are those of the target
    in `config`, which should have `norm_first`. A pitfall: the input is also the target, one token later.
    """

    def __init__(self, config: TransformerConfig, num_key_value_heads: int):
        super().__init__()
        self.config = c = config
        self.embedding = TransformerEmbedding(c.target_vocab_size, c.d_model, dropout=c.dropout)
        layers = (EncoderLayer(c) for _ in range(c.num_decoder_layers))
        self.layers = nn.ModuleList(layers)
        self.norm = LayerNorm(c.d_model)
        self.output = nn.Linear(c.d_model, c.target_vocab_size, bias=False)
        self.output.weight = self.embedding.token.weight
        modern(self, num_key_value_heads)
        for layer in self.layers:
            layer.self_attention = NormedQueryAttention(c.d_model, c.num_heads, num_key_value_heads)

    def forward(self, ids: Ids, past: Sequence[KeyValueCache] | None = None) -> Logits:
        """The logits of the token after each of `ids`; with `past`, the ids follow it and are added to it."""
        x = self.embedding(ids)
        for layer, kept in zip(self.layers, past or self.nothing_read(), strict=True):
            x = self.run_layer(x, layer, kept)
        return self.output(self.norm(x))

    def nothing_read(self) -> list[KeyValueCache]:
        """An empty cache for each layer."""
        return [KeyValueCache() for _ in self.layers]

    def run_layer(self, x: Tensor, layer: EncoderLayer, past: KeyValueCache) -> Tensor:
        """The output of one layer, causal; the last vector of x belongs to the newest position."""
        own = layer.self_attention
        x = layer.add_norm_self(
            x, lambda y: own.look(y, *past.append(*own.keys_and_values(y, y)), is_causal=True)
        )
        return layer.add_norm_feed_forward(x, layer.feed_forward)


@torch.no_grad()
def extend(
    model: LanguageModel, ids: Int[Tensor, "batch start"], choose: Callable[[Tensor], Tensor], length: int
) -> Ids:
    """A text of `length` tokens that begins with `ids`, read at once (prefill); the rest come one by one.

    `choose` turns logits ``(batch, vocab)`` into ids ``(batch,)``. A pitfall: all weights are read per token.
    """
    with evaluating(model):
        past, new = model.nothing_read(), ids
        while ids.size(1) < length:
            new = choose(model(new, past)[:, -1])[:, None]
            ids = torch.cat([ids, new], dim=1)
    return ids


@torch.no_grad()
def speculate(
    model: LanguageModel,
    draft: LanguageModel,
    ids: Int[Tensor, "1 start"],
    length: int,
    *,
    ahead: int = 4,
    distribution: Callable[[Tensor], Tensor] = lambda logits: logits.softmax(dim=-1),
) -> Int[Tensor, "1 length"]:
    """`extend` with fewer passes: a small draft model guesses `ahead` tokens, the model checks all at once.

    The text has the model's own distribution, whatever the draft (Leviathan et al. 2023). `distribution`
    turns logits into probabilities. A pitfall: rejected tokens must be removed from both caches.
    """
    with evaluating(model), evaluating(draft):
        past, drafted = model.nothing_read(), draft.nothing_read()
        while ids.size(1) < length:
            start, guessed, q = ids.size(1), ids, []
            for _ in range(ahead):
                logits = draft(unread(guessed, drafted), drafted)
                q.append(distribution(logits[0, -1]))
                guess = q[-1].multinomial(1)[None]
                guessed = torch.cat([guessed, guess], dim=1)
            logits = model(unread(guessed, past), past)
            p = distribution(logits[0, -ahead - 1 :])
            kept, token = accepted(guessed[0, start:], p, torch.stack(q))
            known = start + kept
            ids = torch.cat([guessed[:, :known], token[None]], dim=1)
            for cache in (*past, *drafted):
                cache.k, cache.v = cache.k[:, :, :known], cache.v[:, :, :known]
    return ids[:, :length]


def unread(ids: Ids, past: Sequence[KeyValueCache]) -> Int[Tensor, "batch unread"]:
    """The tokens that are not in the cache yet."""
    return ids if past[0].k is None else ids[:, past[0].k.size(2) :]


def accepted(
    guesses: Int[Tensor, " ahead"], p: Float[Tensor, "ahead_and_one vocab"], q: Float[Tensor, "ahead vocab"]
) -> tuple[int, Int[Tensor, " 1"]]:
    """The number of accepted guesses, and the model's own token after them.

    A guess x is accepted with probability ``min(1, p(x) / q(x))``; in place of the first rejected one, a
    token is drawn from ``max(0, p − q)``, scaled to sum to one. So each token is distributed as p.
    """
    for i, token in enumerate(guesses):
        if torch.rand(()) * q[i, token] >= p[i, token]:
            return i, (p[i] - q[i]).clamp(min=0).multinomial(1)
    return len(guesses), p[-1].multinomial(1)
