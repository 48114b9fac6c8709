"""Rotary positions in other words."""

import math

import torch

from transformer_lessons.checks.old.guarded import RotaryEncoding, shift_matrix


def refuse(x, positions):
    if x.size(-1) % 2 or positions.size(-1) != x.size(-2):
        raise ValueError("x, positions")


def angles(x, positions):
    omega = 10_000.0 ** (torch.arange(0, x.size(-1), 2).double() / -x.size(-1))
    return positions.unsqueeze(-1).unsqueeze(-3) * omega


def by_complex_numbers(x, positions):
    refuse(x, positions)
    angle = angles(x, positions)
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(x.dtype)


def by_partners(x, positions):
    """x cos + partner sin, each sine and cosine twice."""
    refuse(x, positions)
    cosine, sine = (
        f(angles(x, positions)).repeat_interleave(2, -1).to(x.dtype) for f in (torch.cos, torch.sin)
    )
    partner = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).reshape(x.shape)
    return x * cosine + partner * sine


def in_loops(x, positions):
    refuse(x, positions)
    positions = positions.expand(len(x), -1)
    columns = []
    for i in range(0, x.size(-1), 2):
        turn = positions[:, None].double() * 10_000 ** (-i / x.size(-1))
        a, b = x[..., i].double(), x[..., i + 1].double()
        columns += [a * turn.cos() - b * turn.sin(), a * turn.sin() + b * turn.cos()]
    return torch.stack(columns, dim=-1).type(x.dtype)


def by_matrices(x, positions):
    """A shift back for each position."""
    refuse(x, positions)
    d = x.size(-1)
    matrices = [shift_matrix(-t, d, dtype=torch.float64) for t in positions.flatten().tolist()]
    turn = torch.stack(matrices).reshape(*positions.shape, d, d).unsqueeze(-4)
    return (turn @ x.double().unsqueeze(-1)).squeeze(-1).to(x.dtype)


def by_the_package(x, positions):
    """The package's class, sentence by sentence."""
    refuse(x, positions)
    encoding = RotaryEncoding(x.size(-1), 6000).to(torch.float64)
    rows = positions.expand(len(x), -1)
    return torch.cat([encoding(one[None].double(), row) for one, row in zip(x, rows, strict=True)]).to(
        x.dtype
    )


def by_eighths(x, positions):
    """Products become sums: a cos φ − b sin φ = r cos(φ + ψ)."""
    refuse(x, positions)
    a, b = x.double().unflatten(-1, (-1, 2)).unbind(-1)
    phi, pi = angles(x, positions), math.pi
    first = a * phi.cos() + b * torch.cos(phi + pi / 2)
    return torch.stack([first, a * torch.cos(phi - pi / 2) + b * phi.cos()], dim=-1).flatten(-2).to(x.dtype)


ALTERNATES = [by_complex_numbers, by_partners, in_loops, by_matrices, by_the_package, by_eighths]
