"""Add & Norm, encoder and decoder layers, a step of one, counting, and the whole model."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import AddAndNorm, EncoderLayer
from transformer_lessons.layers import DecoderLayer as PackageDecoderLayer
from transformer_lessons.layers import EncoderLayer as PackageEncoderLayer
from transformer_lessons.model import Transformer


class InOneLine(nn.Module):
    def __init__(self, config, sandwich=False):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.norm_after = nn.LayerNorm(config.d_model) if sandwich else nn.Identity()
        self.p, self.first = config.dropout, config.norm_first or sandwich

    def forward(self, x, sublayer):
        given = self.norm_after(sublayer(self.norm(x) if self.first else x))
        out = x + F.dropout(given, self.p, self.training)
        return out if self.first else self.norm(out)


class OtherNames(nn.Module):
    """The form of the Annotated Transformer, with a choice."""

    def __init__(self, config, sandwich=False):
        super().__init__()
        self.ln = nn.LayerNorm(config.d_model)
        if sandwich:
            self.ln_after = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre, self.both = config.norm_first, sandwich

    def forward(self, x, sublayer):
        if self.both:
            return x + self.dropout(self.ln_after(sublayer(self.ln(x))))
        return self.one(x, sublayer)

    def one(self, x, sublayer):
        if self.pre:
            return x + self.dropout(sublayer(self.ln(x)))
        return self.ln(x + self.dropout(sublayer(x)))


class ForAll(nn.Module):
    """With masks of its own, and PyTorch's norm."""

    def __init__(self, config, causal=False, cross=False):
        super().__init__()
        self.is_causal, self.has_memory = causal, cross
        self.add_norm_self, self.add_norm_feed_forward = AddAndNorm(config), InOneLine(config)
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        if cross:
            self.add_norm_cross = AddAndNorm(config)
            self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)

    def seen(self, x, mask):
        if not self.is_causal:
            return mask
        earlier = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        return earlier if mask is None else torch.logical_and(mask, earlier)

    def forward(self, x, memory=None, memory_mask=None, mask=None):
        y = self.add_norm_self(x, lambda z: self.self_attention(z, z, z, self.seen(x, mask)))
        if self.has_memory:
            y = self.across(y, memory, memory_mask)
        return self.add_norm_feed_forward(y, lambda z: self.feed_forward(z))

    def across(self, y, memory, mask):
        return self.add_norm_cross(y, lambda z: self.cross_attention(z, memory, memory, mask))


class InTurn(nn.Module):
    """A list of names, and what each of them reads."""

    def __init__(self, config, causal=False, cross=False):
        super().__init__()
        self.causal, self.names = causal, ["self", "cross", "feed_forward"][:: 1 if cross else 2]
        for name in self.names:
            self.add_module(f"add_norm_{name}", AddAndNorm(config))
            if name != "feed_forward":
                attention = MultiHeadAttention(config.d_model, config.num_heads)
                self.add_module(f"{name}_attention", attention)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)

    def forward(self, x, memory=None, memory_mask=None, mask=None):
        sublayers = {
            "self": lambda y: self.self_attention(y, mask=mask, is_causal=self.causal),
            "cross": lambda y: self.cross_attention(y, memory, mask=memory_mask),
            "feed_forward": self.feed_forward,
        }
        for name in self.names:
            x = getattr(self, f"add_norm_{name}")(x, sublayers[name])
        return x


class HalfOfMemory(ForAll):
    """A slip that is on no list."""

    def across(self, y, memory, mask):
        return super().across(y, memory / 2, mask)


class Decoder(nn.Module):
    """With a causal mask of its own."""

    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self, self.add_norm_cross = InOneLine(config), InOneLine(config)
        self.add_norm_feed_forward = InOneLine(config)

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        seen = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        seen = seen if tgt_mask is None else seen & tgt_mask
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=seen))
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, memory, src_mask))
        return self.add_norm_feed_forward(x, self.feed_forward)


class DroppedTwice(Decoder):
    """Dropout on the stream, and cross-attention without the source's mask."""

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        return F.dropout(super().forward(x, memory, None, tgt_mask), 0.5, self.training)


class TwoSlips(Decoder):
    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        causal = tgt_mask is None
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=tgt_mask, is_causal=causal))
        x = self.add_norm_cross(x, self.cross_attention)
        return self.add_norm_feed_forward(x, self.feed_forward)


class HalvedMemory(Decoder):
    """A slip that is on no list."""

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        return super().forward(x, memory / 2, src_mask, tgt_mask)


def token_by_token(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """One token after the other, one head after the other."""

    def linear(name, y):
        return y @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, y):
        name = f"add_norm_{name}.norm"
        return F.layer_norm(y, y.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    def attend(q, k, v, mask=None):
        found = []
        for h, query in enumerate(q.chunk(num_heads, -1)):
            scores = query[:, None] @ k[:, h].mT / math.sqrt(query.size(-1))
            scores = scores if mask is None else scores.masked_fill(~mask[:, 0], float("-inf"))
            found.append((scores.softmax(-1) @ v[:, h])[:, 0])
        return torch.cat(found, -1)

    outputs = []
    for token in x.unbind(1):
        k, v = (linear(f"self_attention.W_{c}", token).view(len(x), num_heads, 1, -1) for c in "kv")
        keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        own = attend(linear("self_attention.W_q", token), keys, values)
        y = norm("self", token + linear("self_attention.W_o", own))
        other = attend(linear("cross_attention.W_q", y), memory_keys, memory_values, src_mask)
        z = norm("cross", y + linear("cross_attention.W_o", other))
        hidden = linear("feed_forward.W_1", z).relu()
        outputs.append(norm("feed_forward", z + linear("feed_forward.W_2", hidden)))
    return torch.stack(outputs, 1), keys, values


class Flat(nn.Module):
    """The whole model with the package's layers, written in its own way."""

    def __init__(self, config):
        super().__init__()

        whole = Transformer(config)
        self.config = config
        self.source_embedding, self.target_embedding = whole.source_embedding, whole.target_embedding
        self.encoder_layers = nn.ModuleList([PackageEncoderLayer(config) for _ in whole.encoder_layers])
        self.decoder_layers = nn.ModuleList([PackageDecoderLayer(config) for _ in whole.decoder_layers])
        self.encoder_norm, self.decoder_norm = whole.encoder_norm, whole.decoder_norm
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.output.weight = self.target_embedding.token.weight

    def embedded(self, src):
        """Word by word."""
        words, table = self.source_embedding.token(src), self.source_embedding.position.table
        rows = []
        for sentence in src != self.config.pad_id:
            before = [int(sentence[:i].sum()) for i in range(len(sentence))]
            rows.append(table[before])
        return self.source_embedding.dropout(words + torch.stack(rows))

    def forward(self, src, tgt):
        visible = (src != self.config.pad_id).unsqueeze(1).unsqueeze(2)
        memory, x = self.embedded(src), self.target_embedding(tgt)
        for layer in self.encoder_layers:
            memory = layer(memory, visible)
        memory = self.encoder_norm(memory)
        for layer in self.decoder_layers:
            x = layer(x, memory, src_mask=visible)
        return self.output(self.decoder_norm(x))


class TargetsHidden(Flat):
    """The target's padding is hidden as well."""

    def forward(self, src, tgt):
        visible, own = ((x != self.config.pad_id)[:, None, None] for x in (src, tgt))
        memory, x = self.embedded(src), self.target_embedding(tgt)
        for layer in self.encoder_layers:
            memory = layer(memory, visible)
        for layer in self.decoder_layers:
            x = layer(x, self.encoder_norm(memory), visible, own)
        return self.output(self.decoder_norm(x))


class PaddingMoved(Flat):
    """All padding goes to the right first."""

    def embedded(self, src):
        return self.source_embedding(src)

    def forward(self, src, tgt):
        order = (src == self.config.pad_id).long().argsort(dim=1, stable=True)
        return super().forward(src.gather(1, order), tgt)


class SeesTheFuture(Flat):
    """A slip that is on no list."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.decoder_layers:
            attend = layer.self_attention.forward
            layer.self_attention.forward = lambda y, attend=attend, **given: attend(y)


RIGHT = {
    "residual": [InOneLine, OtherNames],
    "layer": [ForAll, InTurn],
    "decoder_layer": [Decoder],
    "decoder_layer_step": [token_by_token],
    "transformer": [Flat, TargetsHidden, PaddingMoved],
}
WRONG = {
    "layer": [
        (HalfOfMemory, {"cross"}, set()),
        (EncoderLayer, {"mask", "causal", "cross", "memory_mask", "parts"}, set()),
    ],
    "decoder_layer": [
        (DroppedTwice, {"source_mask", "dropout"}, set()),
        (HalvedMemory, {"wiring", "pre_norm"}, set()),
        (TwoSlips, {"wiring", "causal", "source_mask"}, {"cross_is_self_attention", "causal_unless_masked"}),
    ],
    "transformer": [(SeesTheFuture, {"logits"}, set())],
}
