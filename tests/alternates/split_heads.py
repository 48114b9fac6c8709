"""Splitting into heads in other words."""

import torch


def refuse(x, num_heads):
    if x.dim() != 3 or num_heads < 1 or x.size(2) % num_heads:
        raise ValueError("x or num_heads does not fit")


def viewed_and_permuted(x, num_heads):
    refuse(x, num_heads)
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).permute(0, 2, 1, 3).contiguous()


def chunks_stacked(x, num_heads):
    refuse(x, num_heads)
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def head_by_head(x, num_heads):
    refuse(x, num_heads)
    d_k = x.size(-1) // num_heads
    result = x.new_zeros(x.size(0), num_heads, x.size(1), d_k)
    for i in range(num_heads):
        result[:, i] = x[:, :, i * d_k : (i + 1) * d_k]
    return result


def turned_first(x, num_heads):
    """Features before positions, where a view may cut them."""
    refuse(x, num_heads)
    return x.mT.reshape(len(x), num_heads, -1, x.size(1)).mT


ALTERNATES = [viewed_and_permuted, chunks_stacked, head_by_head, turned_first]
