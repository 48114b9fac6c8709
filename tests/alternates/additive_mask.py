"""Additive masks in other words."""

import math

import torch


def refuse(mask, like):
    if mask.dtype != torch.bool:
        raise ValueError("mask: expected booleans")
    if not torch.is_floating_point(like):
        raise ValueError("like: expected floats")


def logarithm(mask, like):
    refuse(mask, like)
    return mask.to(like.dtype).log()


def chosen(mask, like):
    refuse(mask, like)
    return torch.where(mask, like.new_zeros(()), like.new_tensor(-math.inf))


def filled(mask, like):
    refuse(mask, like)
    return like.new_full(mask.shape, float("-inf")).masked_fill(mask, 0)


def one_by_one(mask, like):
    refuse(mask, like)
    flat = [0.0 if visible else -math.inf for visible in mask.flatten().tolist()]
    return torch.tensor(flat, dtype=like.dtype).view(mask.shape)


def assigned(mask, like):
    refuse(mask, like)
    numbers = torch.zeros_like(mask, dtype=like.dtype)
    numbers[~mask] = -torch.inf
    return numbers


ALTERNATES = [logarithm, chosen, filled, one_by_one, assigned]
