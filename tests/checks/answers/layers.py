"""Add & Norm, encoder and decoder layers, a step of one, counting, and the whole model."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import DecoderLayer as PackageDecoderLayer
from transformer_lessons.layers import EncoderLayer as PackageEncoderLayer


class InOneLine(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.p, self.first = config.dropout, config.norm_first

    def forward(self, x, sublayer):
        out = x + F.dropout(sublayer(self.norm(x) if self.first else x), self.p, self.training)
        return out if self.first else self.norm(out)


class OtherNames(nn.Module):
    """The form of the Annotated Transformer, with a choice."""

    def __init__(self, config):
        super().__init__()
        self.ln = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm_first

    def forward(self, x, sublayer):
        if self.pre:
            return x + self.dropout(sublayer(self.ln(x)))
        return self.ln(x + self.dropout(sublayer(x)))


class OnlyPreNorm(OtherNames):
    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.ln(x)))


class InPlace(OtherNames):
    def forward(self, x, sublayer):
        if not self.pre:
            return self.ln(x + self.dropout(sublayer(x)))
        x += self.dropout(sublayer(self.ln(x)))
        return x


class DroppedBefore(OtherNames):
    def forward(self, x, sublayer):
        if self.pre:
            return x + sublayer(self.dropout(self.ln(x)))
        return self.ln(x + sublayer(self.dropout(x)))


class WithoutSum(OtherNames):
    def forward(self, x, sublayer):
        return super().forward(x, sublayer) if self.pre else self.ln(self.dropout(sublayer(x)))


class Encoder(nn.Module):
    """With PyTorch's norm, and dropout inside."""

    def __init__(self, config):
        super().__init__()
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self, self.add_norm_feed_forward = InOneLine(config), InOneLine(config)

    def forward(self, x, mask=None):
        x = self.add_norm_self(x, lambda y: self.self_attention(y, y, y, mask))
        return self.add_norm_feed_forward(x, lambda y: self.feed_forward(y))


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


class CausalAcross(Decoder):
    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=tgt_mask, is_causal=True))
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=src_mask, is_causal=True))
        return self.add_norm_feed_forward(x, self.feed_forward)


class Exchanged(Decoder):
    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        return super().forward(x, memory, tgt_mask, src_mask)


class TwoSlips(Decoder):
    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        causal = tgt_mask is None
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=tgt_mask, is_causal=causal))
        x = self.add_norm_cross(x, self.cross_attention)
        return self.add_norm_feed_forward(x, self.feed_forward)


class DropsInside(Encoder):
    def __init__(self, config):
        super().__init__(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, dropout=config.dropout)


class Enclosed(Encoder):
    def forward(self, x, mask=None):
        x = self.add_norm_self(x, lambda y: self.self_attention(x, mask=mask))
        return self.add_norm_feed_forward(x, self.feed_forward)


class FeedsFirst(Encoder):
    def forward(self, x, mask=None):
        x = self.add_norm_feed_forward(x, self.feed_forward)
        return self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask))


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


def last_token_only(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """Of several tokens, only the last one's output."""
    given = weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask
    output, keys, values = token_by_token(*given)
    return output[:, -1:], keys, values


def values_first(*given):
    output, keys, values = token_by_token(*given)
    return output, values, keys


def output_only(*given):
    return token_by_token(*given)[0]


class Flat(nn.Module):
    """The whole model with the package's layers, written in its own way."""

    def __init__(self, config):
        super().__init__()
        from transformer_lessons.model import Transformer

        whole = Transformer(config)
        self.config = config
        self.source_embedding, self.target_embedding = whole.source_embedding, whole.target_embedding
        self.encoder_layers = nn.ModuleList([PackageEncoderLayer(config) for _ in whole.encoder_layers])
        self.decoder_layers = nn.ModuleList([PackageDecoderLayer(config) for _ in whole.decoder_layers])
        self.encoder_norm, self.decoder_norm = whole.encoder_norm, whole.decoder_norm
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.output.weight = self.target_embedding.token.weight

    def forward(self, src, tgt):
        visible = (src != self.config.pad_id).unsqueeze(1).unsqueeze(2)
        memory, x = self.source_embedding(src), self.target_embedding(tgt)
        for layer in self.encoder_layers:
            memory = layer(memory, visible)
        memory = self.encoder_norm(memory)
        for layer in self.decoder_layers:
            x = layer(x, memory, src_mask=visible)
        return self.output(self.decoder_norm(x))


class PaddingSeen(Flat):
    def forward(self, src, tgt):
        memory, x = self.source_embedding(src), self.target_embedding(tgt)
        for layer in self.encoder_layers:
            memory = layer(memory)
        for layer in self.decoder_layers:
            x = layer(x, self.encoder_norm(memory))
        return self.output(self.decoder_norm(x))


class TargetsHidden(Flat):
    """The target's padding is hidden as well."""

    def forward(self, src, tgt):
        visible, own = ((x != self.config.pad_id)[:, None, None] for x in (src, tgt))
        memory, x = self.source_embedding(src), self.target_embedding(tgt)
        for layer in self.encoder_layers:
            memory = layer(memory, visible)
        for layer in self.decoder_layers:
            x = layer(x, self.encoder_norm(memory), visible, own)
        return self.output(self.decoder_norm(x))


class CopiedMatrix(Flat):
    def __init__(self, config):
        super().__init__(config)
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        self.output.weight.data = self.target_embedding.token.weight.data.clone()


class AsManyDecoders(Flat):
    def __init__(self, config):
        super().__init__(config)
        self.decoder_layers = nn.ModuleList([PackageDecoderLayer(config) for _ in self.encoder_layers])


class Probable(Flat):
    def forward(self, src, tgt):
        return super().forward(src, tgt).softmax(-1)


class BiasedOutput(Flat):
    def __init__(self, config):
        super().__init__(config)
        self.output = nn.Linear(config.d_model, config.target_vocab_size)
        self.output.weight = self.target_embedding.token.weight


class SeesTheFuture(Flat):
    """A slip that is on no list."""

    def __init__(self, config):
        super().__init__(config)
        for layer in self.decoder_layers:
            attend = layer.self_attention.forward
            layer.self_attention.forward = lambda y, attend=attend, **given: attend(y)


RIGHT = {
    "residual": [InOneLine, OtherNames],
    "encoder_layer": [Encoder],
    "decoder_layer": [Decoder],
    "decoder_layer_step": [token_by_token],
    "transformer": [Flat, TargetsHidden],
}
WRONG = {
    "residual": [
        (OnlyPreNorm, {"post_norm"}, {"always_pre_norm"}),
        (InPlace, {"pre_norm"}, {"in_place"}),
        (DroppedBefore, {"dropout"}, {"dropped_before"}),
        (WithoutSum, {"post_norm"}, {"no_residual_in_post_norm"}),
    ],
    "encoder_layer": [
        (DropsInside, {"dropout"}, {"dropout_within"}),
        (Enclosed, {"pre_norm"}, {"input_around_the_norm"}),
        (FeedsFirst, {"wiring"}, {"feed_forward_first"}),
    ],
    "decoder_layer": [
        (DroppedTwice, {"source_mask", "dropout"}, set()),
        (HalvedMemory, {"wiring", "pre_norm"}, set()),
        (CausalAcross, {"wiring"}, {"causal_on_memory"}),
        (Exchanged, {"causal", "source_mask"}, {"masks_exchanged"}),
        (TwoSlips, {"wiring", "causal", "source_mask"}, {"cross_is_self_attention", "causal_unless_masked"}),
    ],
    "decoder_layer_step": [
        (last_token_only, {"several"}, set()),
        (values_first, {"later"}, {"keys_and_values_exchanged"}),
        (output_only, {"later"}, {"output_alone"}),
    ],
    "transformer": [
        (PaddingSeen, {"padding"}, {"padding_seen"}),
        (CopiedMatrix, {"tied"}, {"not_tied"}),
        (AsManyDecoders, {"logits"}, {"layers_counted_once"}),
        (Probable, {"logits"}, {"probabilities"}),
        (BiasedOutput, {"logits"}, {"output_bias"}),
        (SeesTheFuture, {"logits", "pre_norm"}, set()),
    ],
}
