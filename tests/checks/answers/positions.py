"""Token embedding, sinusoids and their shift, rotary positions, relative bias."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons.encodings import sinusoidal


class Annotated(nn.Module):
    """The form of the Annotated Transformer, with the start that the exercise asks for."""

    def __init__(self, vocab, d_model):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.lut.weight, mean=0, std=d_model**-0.5)
        self.d_model = d_model

    def forward(self, x):
        return self.lut(x) * math.sqrt(self.d_model)


class OneHot(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab_size, d_model) * math.sqrt(1 / d_model))

    def forward(self, ids):
        one_hot = F.one_hot(ids, self.table.size(0)).float()
        return torch.einsum("blv,vd->bld", one_hot, self.table * self.table.size(1) ** 0.5)


class Projected(nn.Module):
    """A linear map of one-hot rows, whose weight is transposed; and the root is a buffer."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.embed = nn.Linear(vocab_size, d_model, bias=False)
        nn.init.normal_(self.embed.weight, std=d_model**-0.5)
        self.register_buffer("root", torch.tensor(d_model).sqrt())

    def forward(self, ids):
        return self.embed(F.one_hot(ids, self.embed.in_features).float()) * self.root


class ScaledByBuffer(nn.Module):
    """The root as a buffer beside a parameter of another name; it is no weight, though as wide as one."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.theta = nn.Parameter(torch.randn(vocab_size, d_model) * d_model**-0.5)
        self.register_buffer("scale", torch.full((d_model,), d_model**0.5))

    def forward(self, ids):
        return self.theta[ids] * self.scale


def of_the_annotated_transformer(length, d_model):
    pe = torch.zeros(length, d_model)
    position = torch.arange(0, length).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


def by_columns_in_numpy(length, d_model):
    """The form of TensorFlow's tutorials."""
    angles = np.arange(length)[:, None] / np.power(10000, 2 * (np.arange(d_model)[None] // 2) / d_model)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return torch.from_numpy(angles)


def shift_in_loops(k, d_model):
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        turn = k / 10_000 ** (i / d_model)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(turn)
        matrix[i, i + 1], matrix[i + 1, i] = math.sin(turn), -math.sin(turn)
    return matrix


def power_of_one_step(k, d_model):
    return torch.linalg.matrix_power(shift_in_loops(1, d_model).double(), k)


def of_llama(x, positions):
    """Meta's code: complex numbers in float32, a pair for each."""
    freqs = 1.0 / (10000.0 ** (torch.arange(0, x.shape[-1], 2)[: (x.shape[-1] // 2)].float() / x.shape[-1]))
    freqs = positions.unsqueeze(-1).float() * freqs
    freqs_cis = torch.polar(torch.ones_like(freqs), freqs).unsqueeze(-3)
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * freqs_cis).flatten(3).type_as(x)


def of_roformer(x, positions):
    """x cos + partner sin, each sine and cosine twice."""
    angle = positions[..., None] * 10000 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    sin, cos = (torch.repeat_interleave(f(angle), 2, -1).unsqueeze(-3) for f in (torch.sin, torch.cos))
    x2 = torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape_as(x)
    return x * cos + x2 * sin


def embedded(table, queries, keys=None):
    """As in T5's code."""
    keys = keys or queries
    c = table.size(1) // 2
    context, memory = torch.arange(keys)[-queries:, None], torch.arange(keys)[None, :]
    return F.embedding((memory - context).clip(-c, c) + c, table.t()).permute(2, 0, 1)


class RootOfOneMore(OneHot):
    """A slip that is on no list."""

    def forward(self, ids):
        return self.table[ids] * math.sqrt(self.table.size(1) + 1)


def table_in_numpy(length, d_model):
    return by_columns_in_numpy(length, d_model).numpy()


def base_of_nobody(length, d_model):
    angle = torch.arange(length)[:, None] / 12345.0 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


def shift_of_base_1000(k, d_model):
    """A slip that is on no list."""
    angle = k / 1000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.block_diag(*[torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angle])


def without_signs(length, d_model, **options):
    return sinusoidal(length, d_model, **options).abs()


def turned_twice_as_far(x, positions):
    """A slip that is on no list."""
    return of_roformer(x, 2 * positions)


RIGHT = {
    "token_embedding": [Annotated, OneHot, Projected, ScaledByBuffer],
    "sinusoidal": [of_the_annotated_transformer, by_columns_in_numpy],
    "shift_matrix": [shift_in_loops, power_of_one_step],
    "rotary": [of_llama, of_roformer],
    "relative_bias": [embedded],
}
WRONG = {
    "token_embedding": [(RootOfOneMore, {"scale"}, set())],
    "sinusoidal": [
        (base_of_nobody, {"frequencies"}, set()),
        (without_signs, {"pairs"}, set()),
        (table_in_numpy, {"positions"}, {"no_tensor"}),
    ],
    "shift_matrix": [(shift_of_base_1000, {"frequencies"}, set())],
    "rotary": [(turned_twice_as_far, {"turn", "frequencies"}, set())],
}
