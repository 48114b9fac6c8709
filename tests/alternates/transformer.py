"""The whole model in other words."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from alternates.decoder_layer import Maps as DecoderMaps
from alternates.encoder_layer import Maps as EncoderMaps
from transformer_lessons.checks.old.guarded import (
    DecoderLayer,
    EncoderLayer,
    SinusoidalEncoding,
    TokenEmbedding,
    TransformerConfig,
)
from transformer_lessons.encodings import sinusoidal
from transformer_lessons.masks import padding_mask


def refuse(src, tgt):
    if src.size(0) != tgt.size(0) or tgt.size(1) < 2:
        raise ValueError("src and tgt")


class Packaged(nn.Module):
    """With the package's parts."""

    def __init__(self, settings):
        super().__init__()
        names = ("d_model", "num_heads", "d_ff", "dropout", "norm_first")
        config = TransformerConfig(97, 97, **{name: settings[name] for name in names})
        d, count = config.d_model, settings["num_layers"]
        self.embedding = TokenEmbedding(settings["vocab_size"], d)
        self.position = SinusoidalEncoding(d, 64)
        self.encoder_layers = nn.ModuleList([EncoderLayer(config) for _ in range(count)])
        self.decoder_layers = nn.ModuleList([DecoderLayer(config) for _ in range(count)])
        self.encoder_norm = nn.LayerNorm(d) if config.norm_first else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d) if config.norm_first else nn.Identity()
        self.pad_id, self.dropout = settings["pad_id"], nn.Dropout(config.dropout)

    def forward(self, src, tgt):
        refuse(src, tgt)
        mask = padding_mask(src, self.pad_id)
        x = self.dropout(self.position(self.embedding(src)))
        for layer in self.encoder_layers:
            x = layer(x, mask)
        memory = self.encoder_norm(x)
        y = self.dropout(self.position(self.embedding(tgt[:, :-1])))
        for layer in self.decoder_layers:
            y = layer(y, memory, mask)
        return self.scores(self.decoder_norm(y))

    def scores(self, y):
        return F.linear(y, self.embedding.weight)


class OwnLayers(nn.Module):
    """With layers written by hand, a norm only where there is one, and both texts embedded at once."""

    def __init__(self, settings):
        super().__init__()
        self.settings, d = settings, settings["d_model"]
        self.embedding = nn.Embedding(settings["vocab_size"], d)
        self.embedding.weight.data /= math.sqrt(d)
        times = range(settings["num_layers"])
        self.decoder_layers = nn.ModuleList(DecoderMaps(settings) for _ in times)
        self.encoder_layers = nn.ModuleList(EncoderMaps(settings) for _ in times)
        if settings["norm_first"]:
            self.decoder_norm, self.encoder_norm = nn.LayerNorm(d), nn.LayerNorm(d)

    def finished(self, name, x):
        return getattr(self, name)(x) if self.settings["norm_first"] else x

    def forward(self, src, tgt):
        refuse(src, tgt)
        both = torch.cat([src, tgt[:, : tgt.size(1) - 1]], dim=1)
        d = self.settings["d_model"]
        x = math.sqrt(d) * self.embedding(both)
        lengths = src.size(1), tgt.size(1) - 1
        x = x + torch.cat([sinusoidal(length, d) for length in lengths]).to(x.dtype)
        x, y = F.dropout(x, self.settings["dropout"], self.training).split(lengths, dim=1)
        mask = src.ne(self.settings["pad_id"])[:, None, None]
        for layer in self.encoder_layers:
            x = layer(x, mask)
        x = self.finished("encoder_norm", x)
        for layer in self.decoder_layers:
            y = layer(y, x, mask)
        return torch.einsum("btd,vd->btv", self.finished("decoder_norm", y), self.embedding.weight)


class LateSlice(Packaged):
    """The whole target goes through; its last row is cut off at the end, which causality allows."""

    def forward(self, src, tgt):
        refuse(src, tgt)
        return super().forward(src, F.pad(tgt, (0, 1), value=self.pad_id))[:, :-1]


class Tied(Packaged):
    """The projection is a layer with the embedding's matrix: one parameter of two names."""

    def __init__(self, settings):
        super().__init__(settings)
        self.output = nn.Linear(settings["d_model"], settings["vocab_size"], bias=False)
        self.output.weight = self.embedding.weight

    def scores(self, y):
        return self.output(y)


ALTERNATES = [Packaged, OwnLayers, LateSlice, Tied]
