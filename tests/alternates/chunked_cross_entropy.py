"""The loss over a large vocabulary in other words."""

import torch
from torch.utils.checkpoint import checkpoint


def refuse(chunk):
    if chunk < 1:
        raise ValueError("chunk")


def running_sums(hidden, weight, targets, chunk, pad_id):
    """The largest logit and the sum of exponentials so far, as in tiled attention."""
    refuse(chunk)

    def step(hidden, part, m, total):
        logits = hidden @ part.T
        larger = torch.maximum(m, logits.detach().amax(-1))
        return larger, total * (m - larger).exp() + (logits - larger[:, None]).exp().sum(-1)

    m = hidden.new_full(targets.shape, -torch.inf)
    total = torch.zeros_like(m)
    for part in weight.split(chunk):
        m, total = checkpoint(step, hidden, part, m, total, use_reentrant=False)
    losses = m + total.log() - (hidden * weight[targets]).sum(-1)
    real = (targets != pad_id).to(hidden.dtype)
    return (losses * real).sum() / real.sum().clamp(min=1)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, chunk):
        total = torch.stack([(hidden @ w.T).logsumexp(-1) for w in weight.split(chunk)]).logsumexp(0)
        ctx.save_for_backward(hidden, weight, targets, total)
        ctx.chunk = chunk
        return total - (hidden * weight.index_select(0, targets)).sum(-1)

    @staticmethod
    def backward(ctx, d_losses):
        hidden, weight, targets, total = ctx.saved_tensors
        d_hidden, d_weight = torch.zeros_like(hidden), []
        for start in range(0, len(weight), ctx.chunk):
            part = weight[start : start + ctx.chunk]
            p = (hidden @ part.T - total[:, None]).exp()
            classes = torch.arange(start, start + len(part))
            d_logits = (p - (targets[:, None] == classes).to(p.dtype)) * d_losses[:, None]
            d_hidden += d_logits @ part
            d_weight.append(d_logits.T @ hidden)
        return d_hidden, torch.cat(d_weight), None, None


def own_backward(hidden, weight, targets, chunk, pad_id):
    refuse(chunk)
    losses = Own.apply(hidden, weight, targets, chunk)
    real = targets != pad_id
    return losses[real].mean() if real.any() else (losses * 0.0).sum()


def fewer_rows_and_log_sums(hidden, weight, targets, chunk, pad_id):
    """Only real tokens; the log-sums of all chunks, put together at the end."""
    refuse(chunk)
    real = targets != pad_id
    hidden, targets = hidden[real], targets[real]

    def log_sum(x, part):
        return (x @ part.T).logsumexp(-1)

    pieces = [checkpoint(log_sum, hidden, w, use_reentrant=False) for w in weight.split(chunk)]
    total = torch.logsumexp(torch.stack(pieces), 0)
    return (total - torch.linalg.vecdot(hidden, weight[targets])).sum() / max(len(targets), 1)


ALTERNATES = [running_sums, own_backward, fewer_rows_and_log_sums]
