"""The shift matrix in other words."""

import cmath
import math

import torch


def refuse(d_model):
    if d_model < 2 or d_model % 2 == 1:
        raise ValueError("d_model")


def in_loops(k, d_model):
    refuse(d_model)
    matrix = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        turn = k / 10_000 ** (i / d_model)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(turn)
        matrix[i, i + 1], matrix[i + 1, i] = math.sin(turn), -math.sin(turn)
    return matrix


def three_diagonals(k, d_model):
    refuse(d_model)
    angle = k * 10_000.0 ** -(torch.arange(0, d_model, 2).double() / d_model)
    beside = torch.zeros(d_model, dtype=torch.float64)
    beside[::2] = angle.sin()
    matrix = torch.diag(angle.cos().repeat_interleave(2))
    return (matrix + torch.diag(beside[:-1], 1) - torch.diag(beside[:-1], -1)).float()


def by_exponential(k, d_model):
    """The matrix exponential of k times the generator of the rotations."""
    refuse(d_model)
    generator = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        generator[i, i + 1] = 10_000 ** (-i / d_model)
    generator = generator - generator.T
    return torch.linalg.matrix_power(torch.matrix_exp(generator), k).float()


def by_power(k, d_model):
    """k factors."""
    refuse(d_model)
    return torch.linalg.matrix_power(_one(d_model), k).float()


def _one(d_model):
    hands = [cmath.exp(1j * 10_000 ** (-i / d_model)) for i in range(0, d_model, 2)]
    blocks = [torch.tensor([[z.real, z.imag], [-z.imag, z.real]], dtype=torch.float64) for z in hands]
    return torch.block_diag(*blocks)


ALTERNATES = [in_loops, three_diagonals, by_exponential, by_power]
