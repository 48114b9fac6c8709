"""The sinusoidal encoding in other words."""

import math

import numpy as np
import torch


def refuse(length, d_model):
    if length < 0 or d_model < 1:
        raise ValueError("length, d_model")


def in_loops(length, d_model):
    refuse(length, d_model)
    table = torch.zeros(length, d_model)
    for t in range(length):
        for i in range(d_model):
            angle = t / 10_000 ** ((i - i % 2) / d_model)
            table[t, i] = (math.cos if i % 2 else math.sin)(angle)
    return table


def stacked_and_cut(length, d_model):
    """Exponential and logarithm; pairs laid side by side, and one column cut off."""
    refuse(length, d_model)
    omega = torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(10_000.0) / d_model))
    angle = torch.arange(length).unsqueeze(1) * omega
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)[:, :d_model].float()


def by_complex_numbers(length, d_model):
    refuse(length, d_model)
    k = np.arange((d_model + 1) // 2)
    hands = np.exp(1j * np.arange(length)[:, None] / 10_000.0 ** (2 * k / d_model))
    table = np.empty((length, d_model))
    table[:, ::2], table[:, 1::2] = hands.imag, hands.real[:, : d_model // 2]
    return torch.from_numpy(table).float()


def shifted_sines(length, d_model):
    """A cosine is a sine a quarter of a turn ahead."""
    refuse(length, d_model)
    column = torch.arange(d_model, dtype=torch.float64)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 10_000 ** (-2 * (column // 2) / d_model)
    return torch.sin(angle + column % 2 * math.pi / 2).to(torch.float32)


ALTERNATES = [in_loops, stacked_and_cut, by_complex_numbers, shifted_sines]
