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


class Inherited(nn.Embedding):
    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)
        self.weight.data.uniform_(-math.sqrt(3 / d_model), math.sqrt(3 / d_model))

    def forward(self, ids):
        return super().forward(ids) * self.embedding_dim**0.5


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


class Indexed(OneHot):
    def forward(self, ids):
        rows = [torch.stack([self.table[i] for i in sentence]) for sentence in ids]
        return torch.stack(rows) * self.table.shape[-1] ** 0.5


def of_the_annotated_transformer(length, d_model):
    pe = torch.zeros(length, d_model)
    position = torch.arange(0, length).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


def of_dive_into_deep_learning(length, num_hiddens):
    P = torch.zeros((1, length, num_hiddens))
    positions = torch.arange(length, dtype=torch.float32).reshape(-1, 1)
    X = positions / torch.pow(10000, torch.arange(0, num_hiddens, 2, dtype=torch.float32) / num_hiddens)
    P[:, :, 0::2], P[:, :, 1::2] = torch.sin(X), torch.cos(X)
    return P[0]


def table_in_loops(length, d_model):
    table = torch.zeros(length, d_model)
    for t in range(length):
        for k in range(d_model // 2):
            table[t, 2 * k] = math.sin(t / 10000 ** (2 * k / d_model))
            table[t, 2 * k + 1] = math.cos(t / 10000 ** (2 * k / d_model))
    return table


def by_columns_in_numpy(length, d_model):
    """The form of TensorFlow's tutorials."""
    angles = np.arange(length)[:, None] / np.power(10000, 2 * (np.arange(d_model)[None] // 2) / d_model)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return torch.from_numpy(angles)


def one_cosine(length, d_model):
    """A sine is a cosine that starts a quarter of a turn later; cos(π/2) is 0 but for rounding."""
    column = torch.arange(d_model)
    angle = torch.arange(length)[:, None] * 10_000.0 ** (-(column // 2 * 2) / d_model)
    return torch.cos(angle - math.pi / 2 * (column % 2 == 0))


def pairs_stacked(length, d_model):
    omega = 1.0 / 10000 ** (torch.arange(0, d_model, 2).float() / d_model)
    angle = torch.einsum("i,j->ij", torch.arange(length).float(), omega)
    return torch.stack((angle.sin(), angle.cos()), dim=2).view(length, d_model)


def shift_in_loops(k, d_model):
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        turn = k / 10_000 ** (i / d_model)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(turn)
        matrix[i, i + 1], matrix[i + 1, i] = math.sin(turn), -math.sin(turn)
    return matrix


def three_diagonals(k, d_model):
    angle = k * 10_000.0 ** -(torch.arange(0, d_model, 2) / d_model)
    beside = torch.zeros(d_model)
    beside[::2] = angle.sin()
    return angle.cos().repeat_interleave(2).diag() + beside[:-1].diag(1) - beside[:-1].diag(-1)


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


def turned_in_loops(x, positions):
    positions = positions.expand(len(x), -1)
    columns = []
    for i in range(0, x.size(-1), 2):
        turn = positions[:, None] / 10_000 ** (i / x.size(-1))
        a, b = x[..., i], x[..., i + 1]
        columns += [a * turn.cos() - b * turn.sin(), a * turn.sin() + b * turn.cos()]
    return torch.stack(columns, dim=-1)


def by_matrices(x, positions):
    """The shift matrix, transposed."""
    d = x.size(-1)
    turn = torch.stack([shift_in_loops(int(t), d).T for t in positions.flatten()]).view(
        *positions.shape, d, d
    )
    return torch.einsum("btij,bhtj->bhti", turn.expand(len(x), -1, -1, -1), x)


def bias_in_loops(table, queries, keys=None):
    keys = queries if keys is None else keys
    c = (table.size(1) - 1) // 2
    bias = torch.zeros(table.size(0), queries, keys)
    for i in range(queries):
        for j in range(keys):
            distance = j - (i + keys - queries)
            bias[:, i, j] = table[:, c + max(-c, min(c, distance))]
    return bias


def embedded(table, queries, keys=None):
    """As in T5's code."""
    keys = keys or queries
    c = table.size(1) // 2
    context, memory = torch.arange(keys)[-queries:, None], torch.arange(keys)[None, :]
    return F.embedding((memory - context).clip(-c, c) + c, table.t()).permute(2, 0, 1)


def slid(table, queries, keys=None):
    """One long row of biases, of which each query sees a window."""
    keys = queries if keys is None else keys
    c = table.size(1) // 2
    row = table[:, torch.arange(1 - keys, queries).clamp(-c, c) + c]
    return row.unfold(1, keys, 1).flip(1)


def gathered(table, queries, keys=None):
    keys = queries if keys is None else keys
    column = torch.arange(keys) - torch.arange(keys - queries, keys)[:, None] + table.size(1) // 2
    column = column.clamp(0, table.size(1) - 1).flatten().expand(len(table), -1)
    return table.gather(1, column).view(-1, queries, keys)


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


def shift_by_exponentials(k, d_model):
    omega = 1e4 ** -(torch.arange(0, d_model, 2) / d_model)
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    return torch.block_diag(*[torch.matrix_exp(k * w * turn) for w in omega])


def shift_with_a_late_sign(k, d_model):
    """−b ** x is −(b ** x)."""
    angle = k * -(10_000.0 ** (torch.arange(0, d_model, 2) / d_model))
    return torch.block_diag(*[torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angle])


def nothing_at_0(length, d_model):
    """As an embedding with padding_idx=0 has it."""
    return sinusoidal(length, d_model).index_fill(0, torch.tensor([0]), 0.0)


def divided_by_nothing(length, d_model):
    """A slip that is on no list: NaN at position 0."""
    angle = torch.arange(length)[:, None] / torch.arange(0, d_model, 2) / 10_000
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


def without_signs(length, d_model, **options):
    return sinusoidal(length, d_model, **options).abs()


def turned_twice_as_far(x, positions):
    """A slip that is on no list."""
    return of_roformer(x, 2 * positions)


RIGHT = {
    "token_embedding": [Annotated, Inherited, OneHot, Projected, ScaledByBuffer, Indexed],
    "sinusoidal": [
        of_the_annotated_transformer,
        of_dive_into_deep_learning,
        table_in_loops,
        by_columns_in_numpy,
        pairs_stacked,
        one_cosine,
    ],
    "shift_matrix": [shift_in_loops, three_diagonals, power_of_one_step, shift_by_exponentials],
    "rotary": [of_llama, of_roformer, turned_in_loops, by_matrices],
    "relative_bias": [bias_in_loops, embedded, slid, gathered],
}
WRONG = {
    "token_embedding": [(RootOfOneMore, {"scale"}, set())],
    "sinusoidal": [
        (base_of_nobody, {"frequencies"}, set()),
        (without_signs, {"pairs"}, set()),
        (nothing_at_0, {"pairs"}, set()),
        (divided_by_nothing, {"pairs", "frequencies"}, set()),
        (table_in_numpy, {"positions"}, {"no_tensor"}),
    ],
    "shift_matrix": [
        (shift_of_base_1000, {"frequencies"}, set()),
        (shift_with_a_late_sign, {"frequencies"}, {"frequency_inverted"}),
    ],
    "rotary": [(turned_twice_as_far, {"turn", "frequencies"}, set())],
}
