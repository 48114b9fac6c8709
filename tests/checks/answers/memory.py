"""Attention and other parts that are written for their memory, and steps of training."""

import math

import torch
from torch.utils.checkpoint import checkpoint


class Flash(torch.autograd.Function):
    """As FlashAttention does: log-sums are kept, and scores are computed again from them."""

    @staticmethod
    def forward(ctx, query, key, value, block):
        scale, output = query.size(-1) ** -0.5, torch.zeros(*query.shape[:-1], value.size(-1))
        log_sum = torch.full_like(query[..., :1], -torch.inf)
        for k, v in zip(key.split(block, -2), value.split(block, -2), strict=True):
            scores = scale * (query @ k.mT)
            new = torch.logaddexp(log_sum, scores.logsumexp(-1, keepdim=True))
            output = output * (log_sum - new).exp() + (scores - new).exp() @ v
            log_sum = new
        ctx.save_for_backward(query, key, value, output, log_sum)
        ctx.block = block
        return output

    @staticmethod
    def backward(ctx, back):
        query, key, value, output, log_sum = ctx.saved_tensors
        scale, inner = query.size(-1) ** -0.5, (output * back).sum(-1, keepdim=True)
        of_query, of_key, of_value = torch.zeros_like(query), [], []
        for k, v in zip(key.split(ctx.block, -2), value.split(ctx.block, -2), strict=True):
            weights = (scale * (query @ k.mT) - log_sum).exp()
            of_value.append(weights.mT @ back)
            of_scores = weights * (back @ v.mT - inner)
            of_query = of_query + scale * (of_scores @ k)
            of_key.append(scale * (of_scores.mT @ query))
        return of_query, torch.cat(of_key, -2), torch.cat(of_value, -2), None


def own_backward(query, key, value, block):
    return Flash.apply(query, key, value, block)


def always_an_average(query, key, value, block):
    """Two averages are mixed at every moment; a block of queries at a time."""

    def some(q, key, value):
        log_sum = output = None
        for start in range(0, key.size(-2), block):
            scores = (
                torch.einsum("...qd,...kd->...qk", q, key[..., start : start + block, :]) / q.size(-1) ** 0.5
            )
            here = scores.logsumexp(-1, keepdim=True)
            average = scores.softmax(-1) @ value[..., start : start + block, :]
            share = 1.0 if log_sum is None else torch.sigmoid(here - log_sum)
            output = average if log_sum is None else output + share * (average - output)
            log_sum = here if log_sum is None else torch.logaddexp(log_sum, here)
        return output

    groups = range(0, query.size(-2), block)
    done = [checkpoint(some, query[..., n : n + block, :], key, value, use_reentrant=False) for n in groups]
    return torch.cat(done, dim=-2)


def two_passes(query, key, value, block):
    """First the largest score and the sum of each row, then the average."""
    starts = range(0, key.shape[-2], block)

    def some(q, key, value):
        def scores(start):
            return q @ key[..., start : start + block, :].transpose(-1, -2) * q.shape[-1] ** -0.5

        with torch.no_grad():
            m = torch.stack([scores(s).max(-1, keepdim=True)[0] for s in starts]).max(0)[0]
        total = sum((scores(s) - m).exp().sum(-1, keepdim=True) for s in starts)
        return sum(((scores(s) - m).exp() / total) @ value[..., s : s + block, :] for s in starts)

    done = [checkpoint(some, part, key, value, use_reentrant=True) for part in query.split(5, -2)]
    return torch.cat(done, -2)


def scaled_by_the_root_of_values(query, key, value, block):
    """A slip that is on no list."""
    return own_backward(query * (query.size(-1) / value.size(-1)) ** 0.5, key, value, block)


def by_vector(weights, gradients, scale, clean, rate, max_norm, growth):
    """All gradients as one vector."""
    g = torch.cat([x.reshape(-1) for x in gradients]).to(torch.float32)
    if not math.isfinite(g.abs().sum()):
        return list(weights), 0.5 * scale, 0
    g = g / scale
    g = g * torch.clamp(max_norm / g.norm().clamp(min=1e-30), max=1.0)
    parts = g.split([w.numel() for w in weights])
    moved = [w - rate * part.view_as(w) for w, part in zip(weights, parts, strict=True)]
    clean += 1
    return (moved, 2 * scale, 0) if clean >= growth else (moved, scale, clean)


def by_optimizer(weights, gradients, scale, clean, rate, max_norm, growth):
    parameters = [torch.nn.Parameter(w.clone()) for w in weights]
    for parameter, g in zip(parameters, gradients, strict=True):
        parameter.grad = g.float().div_(scale)
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    if not norm.isfinite():
        return weights, scale / 2, 0
    torch.optim.SGD(parameters, lr=rate).step()
    clean = (clean + 1) % growth
    return [p.detach() for p in parameters], scale * (1 if clean else 2), clean


def halved_twice(weights, gradients, scale, clean, rate, max_norm, growth):
    """A slip that is on no list."""
    moved, after, clean = by_vector(weights, gradients, scale, clean, rate, max_norm, growth)
    return moved, after / 2 if after < scale else after, clean


def running_sums(hidden, weight, targets, chunk, pad_id):
    """The largest logit and the sum of exponentials so far, as in tiled attention."""

    def step(hidden, part, m, total):
        logits = hidden @ part.T
        larger = torch.maximum(m, logits.detach().amax(-1))
        return larger, total * (m - larger).exp() + (logits - larger[:, None]).exp().sum(-1)

    m, total = hidden.new_full(targets.shape, -torch.inf), hidden.new_zeros(targets.shape)
    for part in weight.split(chunk):
        m, total = checkpoint(step, hidden, part, m, total, use_reentrant=False)
    losses = m + total.log() - (hidden * weight[targets]).sum(-1)
    real = (targets != pad_id).to(hidden.dtype)
    return (losses * real).sum() / real.sum().clamp(min=1)


def only_real_tokens(hidden, weight, targets, chunk, pad_id):
    real = targets != pad_id
    hidden, targets = hidden[real], targets[real]

    def log_sum(x, part):
        return (x @ part.T).logsumexp(-1)

    pieces = [checkpoint(log_sum, hidden, w, use_reentrant=False) for w in weight.split(chunk)]
    total = torch.logsumexp(torch.stack(pieces), 0)
    return (total - torch.linalg.vecdot(hidden, weight[targets])).sum() / max(len(targets), 1)


def targets_not_shifted(hidden, weight, targets, chunk, pad_id):
    """A slip that is on no list: the target is looked up within each chunk."""
    shifted = torch.where(targets == pad_id, targets, targets % chunk)
    return only_real_tokens(hidden, weight, shifted, chunk, pad_id)


RIGHT = {
    "chunked_cross_entropy": [running_sums, only_real_tokens],
    "scaled_step": [by_vector, by_optimizer],
    "tiled_attention": [own_backward, always_an_average, two_passes],
}
WRONG = {
    "tiled_attention": [(scaled_by_the_root_of_values, {"values"}, set())],
    "scaled_step": [(halved_twice, {"overflow"}, set())],
    "chunked_cross_entropy": [(targets_not_shifted, {"values"}, set())],
}
