"""The decoder layer in other words."""

import torch
import torch.nn.functional as F
from torch import nn

from alternates.encoder_layer import Packing
from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.checks.old.guarded import DecoderLayer, TransformerConfig
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.masks import causal_mask


class Packaged(DecoderLayer):
    """The package's own layer."""

    def __init__(self, settings):
        super().__init__(TransformerConfig(3, 3, **settings))


class Unrolled(nn.Module):
    """Line by line, with the parts of the package and one mask for causality and padding."""

    def __init__(self, settings):
        super().__init__()
        sizes = settings["d_model"], settings["num_heads"]
        self.feed_forward = FeedForward(settings["d_model"], settings["d_ff"])
        self.cross_attention, self.self_attention = MultiHeadAttention(*sizes), MultiHeadAttention(*sizes)
        self.add_norm_feed_forward, self.add_norm_cross = Packing(settings), Packing(settings)
        self.add_norm_self = Packing(settings)

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        seen = causal_mask(x.size(1))
        if tgt_mask is not None:
            seen = seen & tgt_mask
        read = self.add_norm_self.enter(x)
        x = self.add_norm_self.leave(x, self.self_attention(read, read, read, seen))
        read = self.add_norm_cross.enter(x)
        x = self.add_norm_cross.leave(x, self.cross_attention(read, memory, memory, src_mask))
        read = self.add_norm_feed_forward.enter(x)
        return self.add_norm_feed_forward.leave(x, self.feed_forward(read))


class Maps(nn.Module):
    """Linear maps in holders of the right names; everything else by hand, in one loop over the sub-layers."""

    def __init__(self, settings):
        super().__init__()
        d, d_ff, self.heads = settings["d_model"], settings["d_ff"], settings["num_heads"]
        if d % self.heads:
            raise ValueError("num_heads")
        for name in ("self", "cross"):
            maps = nn.ModuleDict({f"W_{letter}": nn.Linear(d, d) for letter in "qkvo"})
            self.add_module(f"{name}_attention", maps)
        self.feed_forward = nn.ModuleDict({"W_1": nn.Linear(d, d_ff), "W_2": nn.Linear(d_ff, d)})
        for name in ("self", "cross", "feed_forward"):
            self.add_module(f"add_norm_{name}", nn.ModuleDict({"norm": nn.LayerNorm(d)}))
        self.p, self.norm_first = settings["dropout"], settings["norm_first"]

    def attend(self, maps, y, source, mask):
        inputs = zip("qkv", (y, source, source), strict=True)
        q, k, v = (maps[f"W_{c}"](z).unflatten(-1, (self.heads, -1)).transpose(1, 2) for c, z in inputs)
        return maps["W_o"](scaled_dot_product_attention(q, k, v, mask)[0].transpose(1, 2).flatten(2))

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        past = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
        seen = past if tgt_mask is None else past.logical_and(tgt_mask)
        maps = self.feed_forward
        for name, f in (
            ("self", lambda y: self.attend(self.self_attention, y, y, seen)),
            ("cross", lambda y: self.attend(self.cross_attention, y, memory, src_mask)),
            ("feed_forward", lambda y: maps["W_2"](maps["W_1"](y).clamp(min=0))),
        ):
            norm = getattr(self, f"add_norm_{name}")["norm"]
            y = F.dropout(f(norm(x) if self.norm_first else x), self.p, training=self.training)
            x = x + y if self.norm_first else norm(x + y)
        return x


ALTERNATES = [Packaged, Unrolled, Maps]
