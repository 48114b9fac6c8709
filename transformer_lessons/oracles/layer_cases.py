"""Encodings, embeddings, norms, the feed-forward network and the layers beside PyTorch's own."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from transformer_lessons import encodings, norms
from transformer_lessons.config import TransformerConfig
from transformer_lessons.embeddings import TokenEmbedding
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.masks import causal_mask, padding_mask
from transformer_lessons.oracles.measure import Deviation, distance, same_function, same_module
from transformer_lessons.oracles.names import layer_to_torch, renamed
from transformer_lessons.oracles.shapes import (
    BATCH,
    D_FF,
    D_MODEL,
    HEADS,
    IDS,
    KEYS,
    QUERIES,
    SIZES,
    each,
    random_vectors,
)


def same_call(
    ours: nn.Module, theirs: nn.Module, dtype: torch.dtype, *inputs: Tensor, translate=dict
) -> Deviation:
    """Two modules called alike."""
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    call = lambda module, *x: module(*x)  # noqa: E731
    return same_module(ours, theirs, translate, call, call, *inputs)


def norm(dtype: torch.dtype, ours: type, theirs: type) -> Deviation:
    """A norm over features, with an ε so large that its place shows."""
    return same_call(ours(D_MODEL, 0.5), theirs(D_MODEL, 0.5), dtype, 3 * random_vectors(dtype) + 2)


def batch_norm(dtype: torch.dtype, training: bool) -> Deviation:
    """Batch norm after two batches, with its running statistics as further values."""
    ours, theirs = (
        norms.BatchNorm(D_MODEL, 0.5, 0.3).to(dtype),
        nn.BatchNorm1d(D_MODEL, 0.5, 0.3, dtype=dtype),
    )
    for _ in range(2):
        x = 3 * random_vectors(dtype) + 2
        ours(x)
        theirs(x.mT)
    statistics = [
        distance(getattr(ours, name).double(), getattr(theirs, name).double())
        for name in ("running_mean", "running_var", "num_batches_tracked")
    ]
    ours.train(training)
    theirs.train(training)
    x = 3 * random_vectors(dtype) + 2
    found = same_module(ours, theirs, dict, lambda m, x: m(x), lambda m, x: m(x.mT).mT, x)
    return Deviation(max(found.value, *statistics), found.gradient)


def feed_forward(dtype: torch.dtype, activation: str) -> Deviation:
    """The feed-forward network as a row of PyTorch's modules."""
    middle = {"relu": nn.ReLU(), "gelu": nn.GELU()}[activation]
    theirs = nn.Sequential(nn.Linear(D_MODEL, D_FF), middle, nn.Linear(D_FF, D_MODEL))
    names = partial(renamed, names={"W_1": "0", "W_2": "2"})
    ours = FeedForward(D_MODEL, D_FF, activation=activation)
    return same_call(ours, theirs, dtype, random_vectors(dtype), translate=names)


def token_embedding(dtype: torch.dtype) -> Deviation:
    """Looked up by nn.Embedding, scaled by √d_model."""
    ids = torch.randint(0, 17, (BATCH, KEYS))
    return same_module(
        TokenEmbedding(17, D_MODEL).to(dtype),
        nn.Embedding(17, D_MODEL, dtype=dtype),
        dict,
        lambda ours: ours(ids),
        lambda theirs: theirs(ids) * math.sqrt(D_MODEL),
    )


def learned_encoding(dtype: torch.dtype) -> Deviation:
    """Rows of nn.Embedding, added."""
    return same_module(
        encodings.LearnedEncoding(D_MODEL, 13).to(dtype),
        nn.Embedding(13, D_MODEL, dtype=dtype),
        lambda state: {"weight": state["table"]},
        lambda ours, x: ours(x, 2),
        lambda theirs, x: x + theirs(torch.arange(2, 2 + KEYS)),
        random_vectors(dtype),
    )


def rotary(dtype: torch.dtype) -> Deviation:
    """Pairs of entries as complex numbers, times e^(i t ω)."""
    length, d_k = 11, 14
    ours = encodings.RotaryEncoding(d_k, length).to(dtype)
    frequency = 10_000.0 ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    turn = torch.polar(
        *torch.broadcast_tensors(torch.ones(()).double(), torch.arange(length)[:, None] * frequency)
    )

    def theirs(x: Tensor) -> Tensor:
        numbers = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
        return torch.view_as_real(numbers * turn).flatten(-2).to(dtype)

    heads = torch.randn(BATCH, HEADS, length, d_k, dtype=dtype)
    return same_function(lambda x: ours(x, torch.arange(length)), theirs, heads)


def encoder_layer(dtype: torch.dtype, norm_first: bool, activation: str) -> Deviation:
    """An encoder layer with padding in its batch."""
    options = {"norm_first": norm_first, "activation": activation}
    return same_module(
        EncoderLayer(TransformerConfig(17, 19, **SIZES, **options)).to(dtype),
        nn.TransformerEncoderLayer(D_MODEL, HEADS, D_FF, 0.0, batch_first=True, dtype=dtype, **options),
        layer_to_torch,
        lambda ours, x: ours(x, padding_mask(IDS, 0)),
        lambda theirs, x: theirs(x, src_key_padding_mask=IDS == 0),
        random_vectors(dtype),
    )


def decoder_layer(dtype: torch.dtype, norm_first: bool, activation: str) -> Deviation:
    """A decoder layer, causal, with padding in its source."""
    options = {"norm_first": norm_first, "activation": activation}
    hidden = {"tgt_mask": ~causal_mask(QUERIES)[0, 0], "memory_key_padding_mask": IDS == 0}
    return same_module(
        DecoderLayer(TransformerConfig(17, 19, **SIZES, **options)).to(dtype),
        nn.TransformerDecoderLayer(D_MODEL, HEADS, D_FF, 0.0, batch_first=True, dtype=dtype, **options),
        layer_to_torch,
        lambda ours, x, memory: ours(x, memory, padding_mask(IDS, 0)),
        lambda theirs, x, memory: theirs(x, memory, **hidden),
        random_vectors(dtype, QUERIES),
        random_vectors(dtype),
    )


NORM_FIRST = [{"norm_first": first, "activation": a} for first in (False, True) for a in ("relu", "gelu")]

CASES = [
    *each("encodings.LearnedEncoding", "nn.Embedding", learned_encoding),
    *each("encodings.RotaryEncoding", "complex numbers, torch.polar", rotary),
    *each("embeddings.TokenEmbedding", "nn.Embedding", token_embedding),
    *each("norms.LayerNorm", "nn.LayerNorm", partial(norm, ours=norms.LayerNorm, theirs=nn.LayerNorm)),
    *each("norms.RMSNorm", "nn.RMSNorm", partial(norm, ours=norms.RMSNorm, theirs=nn.RMSNorm)),
    *each("norms.BatchNorm", "nn.BatchNorm1d", batch_norm, {"training": True}, {"training": False}),
    *each(
        "feed_forward.FeedForward",
        "nn.Sequential",
        feed_forward,
        {"activation": "relu"},
        {"activation": "gelu"},
    ),
    *each("layers.EncoderLayer", "nn.TransformerEncoderLayer", encoder_layer, *NORM_FIRST),
    *each("layers.DecoderLayer", "nn.TransformerDecoderLayer", decoder_layer, *NORM_FIRST),
]
