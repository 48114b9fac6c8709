"""Tiled attention in other words."""

import math

import torch
from torch.utils.checkpoint import checkpoint


class OwnBackward(torch.autograd.Function):
    """As FlashAttention does: the logarithm of the sums is kept, and scores are computed again from it."""

    @staticmethod
    def forward(ctx, query, key, value, block):
        scale = query.size(-1) ** -0.5
        log_sum = torch.full_like(query[..., :1], -torch.inf)
        output = torch.zeros(*query.shape[:-1], value.size(-1), dtype=query.dtype)
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            scores = scale * (query @ k.mT)
            new = torch.logaddexp(log_sum, scores.logsumexp(-1, keepdim=True))
            output = output * (log_sum - new).exp() + (scores - new).exp() @ v
            log_sum = new
        ctx.save_for_backward(query, key, value, output, log_sum)
        ctx.block = block
        return output

    @staticmethod
    def backward(ctx, d_output):
        query, key, value, output, log_sum = ctx.saved_tensors
        scale, block = query.size(-1) ** -0.5, ctx.block
        inner = (output * d_output).sum(-1, keepdim=True)
        d_query, d_key, d_value = torch.zeros_like(query), [], []
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            weights = (scale * (query @ k.mT) - log_sum).exp()
            d_value.append(weights.mT @ d_output)
            d_scores = weights * (d_output @ v.mT - inner)
            d_query = d_query + scale * (d_scores @ k)
            d_key.append(scale * (d_scores.mT @ query))
        return d_query, torch.cat(d_key, -2), torch.cat(d_value, -2), None


def own_backward(query, key, value, block):
    if block < 1:
        raise ValueError("block")
    return OwnBackward.apply(query, key, value, block)


def normalised_all_along(query, key, value, block):
    """The output is an average at every moment; two averages are mixed."""
    if block <= 0:
        raise ValueError("block")

    def some(q, key, value):
        q = q / math.sqrt(q.size(-1))
        log_sum, output = None, None
        for start in range(0, key.size(-2), block):
            scores = torch.einsum("...qd,...kd->...qk", q, key[..., start : start + block, :])
            here, average = (
                scores.logsumexp(-1, keepdim=True),
                scores.softmax(-1) @ value[..., start : start + block, :],
            )
            if log_sum is None:
                log_sum, output = here, average
            else:
                share = torch.sigmoid(here - log_sum)
                output = output + share * (average - output)
                log_sum = torch.logaddexp(log_sum, here)
        return output

    groups = range(0, query.size(-2), block)
    return torch.cat(
        [checkpoint(some, query[..., n : n + block, :], key, value, use_reentrant=False) for n in groups],
        dim=-2,
    )


def two_passes(query, key, value, block):
    """First the largest score and the sum of each row, then the average."""
    if block < 1:
        raise ValueError("block")
    starts = range(0, key.shape[-2], block)

    def some(q, key, value):
        def scores(start):
            return q @ key[..., start : start + block, :].transpose(-1, -2) * q.shape[-1] ** -0.5

        with torch.no_grad():
            m = torch.stack([scores(s).max(-1, keepdim=True)[0] for s in starts]).max(0)[0]
        total = sum((scores(s) - m).exp().sum(-1, keepdim=True) for s in starts)
        return sum(((scores(s) - m).exp() / total) @ value[..., s : s + block, :] for s in starts)

    rows = [checkpoint(some, part, key, value, use_reentrant=False) for part in query.split(5, -2)]
    return torch.cat(rows, -2)


ALTERNATES = [own_backward, normalised_all_along, two_passes]
