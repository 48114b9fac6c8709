"""The encoder layer in other words."""

import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.checks.old.guarded import EncoderLayer, TransformerConfig
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.norms import LayerNorm


class Packaged(EncoderLayer):
    """The package's own layer."""

    def __init__(self, settings):
        super().__init__(TransformerConfig(3, 3, **settings))


class Packing(nn.Module):
    """A norm and a rate."""

    def __init__(self, settings):
        super().__init__()
        self.norm = nn.LayerNorm(settings["d_model"])
        self.p, self.norm_first = settings["dropout"], settings["norm_first"]

    def enter(self, x):
        return self.norm(x) if self.norm_first else x

    def leave(self, x, given):
        total = x + F.dropout(given, self.p, self.training)
        return total if self.norm_first else self.norm(total)


class Unrolled(nn.Module):
    """Line by line, with the parts of the package."""

    def __init__(self, settings):
        super().__init__()
        self.add_norm_self, self.add_norm_feed_forward = Packing(settings), Packing(settings)
        self.self_attention = MultiHeadAttention(settings["d_model"], settings["num_heads"])
        self.feed_forward = FeedForward(settings["d_model"], settings["d_ff"])

    def forward(self, x, mask=None):
        read = self.add_norm_self.enter(x)
        x = self.add_norm_self.leave(x, self.self_attention(read, read, read, mask))
        return self.add_norm_feed_forward.leave(x, self.feed_forward(self.add_norm_feed_forward.enter(x)))


class Maps(nn.Module):
    """Linear maps in holders of the right names; everything else by hand, heads in a loop."""

    def __init__(self, settings):
        super().__init__()
        d, self.heads = settings["d_model"], settings["num_heads"]
        if d % self.heads != 0:
            raise ValueError("num_heads")
        self.self_attention = nn.ModuleDict({f"W_{letter}": nn.Linear(d, d) for letter in "qkvo"})
        self.feed_forward = nn.ModuleDict(
            {"W_1": nn.Linear(d, settings["d_ff"]), "W_2": nn.Linear(settings["d_ff"], d)}
        )
        self.add_norm_self = nn.ModuleDict({"norm": nn.LayerNorm(d)})
        self.add_norm_feed_forward = nn.ModuleDict({"norm": LayerNorm(d)})
        self.p, self.norm_first = settings["dropout"], settings["norm_first"]

    def mix(self, x, mask):
        q, k, v = (self.self_attention[f"W_{letter}"](x).chunk(self.heads, -1) for letter in "qkv")
        rows = None if mask is None else mask.expand(x.size(0), self.heads, -1, -1)
        heads = [
            scaled_dot_product_attention(q[h], k[h], v[h], None if rows is None else rows[:, h])[0]
            for h in range(self.heads)
        ]
        return self.self_attention["W_o"](torch.cat(heads, -1))

    def forward(self, x, mask=None):
        for packing, f in (
            (self.add_norm_self, lambda y: self.mix(y, mask)),
            (
                self.add_norm_feed_forward,
                lambda y: self.feed_forward["W_2"](F.relu(self.feed_forward["W_1"](y))),
            ),
        ):
            norm = packing["norm"]
            y = F.dropout(f(norm(x) if self.norm_first else x), self.p, training=self.training)
            x = x + y if self.norm_first else norm(x + y)
        return x


ALTERNATES = [Packaged, Unrolled, Maps]
