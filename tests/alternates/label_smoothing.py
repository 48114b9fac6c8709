"""The smoothed loss in other words."""

import torch
import torch.nn.functional as F


def refuse(logits, pad_id, smoothing):
    if not 0 <= smoothing < 1 or (pad_id is not None and not 0 <= pad_id < logits.size(-1)):
        raise ValueError("pad_id, smoothing")


def wide(logits):
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def by_divergence(logits, targets, *, pad_id, smoothing=0.1):
    """The target in full, scattered, and its cross-entropy from kl_div and its own entropy."""
    refuse(logits, pad_id, smoothing)
    classes = logits.size(-1)
    logits, targets = wide(logits).reshape(-1, classes), targets.reshape(-1)
    q = torch.full_like(logits, smoothing / (classes - (pad_id is not None)))
    if pad_id is not None:
        q[:, pad_id] = 0.0
    q.scatter_add_(1, targets[:, None], torch.full_like(logits[:, :1], 1 - smoothing))
    keep = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    q = q[keep].detach()
    divergence = F.kl_div(logits[keep].log_softmax(-1), q, reduction="sum")
    return divergence - torch.special.xlogy(q, q).sum(), keep.sum()


def with_cross_entropy(logits, targets, *, pad_id, smoothing=0.1):
    """torch's own, put right: its share for padding taken back, and the rest spread again."""
    refuse(logits, pad_id, smoothing)
    classes, logits = logits.size(-1), wide(logits)
    if pad_id is not None:
        real = targets != pad_id
        logits, targets = logits[real], targets[real]
    logits, targets = logits.reshape(-1, classes), targets.reshape(-1)
    sharp = F.cross_entropy(logits, targets, reduction="sum")
    everywhere = classes * F.cross_entropy(logits, targets, label_smoothing=1.0, reduction="sum")
    if pad_id is None:
        return (1 - smoothing) * sharp + smoothing * everywhere / classes, len(targets)
    at_padding = F.cross_entropy(logits, torch.full_like(targets, pad_id), reduction="sum")
    return (1 - smoothing) * sharp + smoothing * (everywhere - at_padding) / (classes - 1), len(targets)


def with_logsumexp(logits, targets, *, pad_id, smoothing=0.1):
    refuse(logits, pad_id, smoothing)
    logits = wide(logits)
    shares = torch.ones(logits.size(-1), dtype=logits.dtype)
    real = torch.ones(targets.shape, dtype=logits.dtype)
    if pad_id is not None:
        shares = shares - F.one_hot(torch.tensor(pad_id), logits.size(-1))
        real = real * targets.ne(pad_id)
    shares = smoothing * shares / shares.sum()
    expected = (1 - smoothing) * logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) + logits @ shares
    return torch.sum(real * (logits.logsumexp(-1) - expected)), real.sum()


def in_loops(logits, targets, *, pad_id, smoothing=0.1):
    refuse(logits, pad_id, smoothing)
    classes = logits.size(-1)
    log_p = F.log_softmax(wide(logits), dim=-1).reshape(-1, classes)
    answers = [c for c in range(classes) if c != pad_id]
    total, tokens = 0.0 * log_p.sum(), 0
    for row, right in zip(log_p, targets.reshape(-1).tolist(), strict=True):
        if right != pad_id:
            total = total - (1 - smoothing) * row[right] - smoothing / len(answers) * row[answers].sum()
            tokens += 1
    return total, tokens


ALTERNATES = [by_divergence, with_cross_entropy, with_logsumexp, in_loops]
