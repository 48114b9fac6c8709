"""Gradient accumulation in other words."""

import torch
import torch.nn.functional as F


def refuse(parts):
    if parts <= 0:
        raise ValueError("parts")


def with_an_optimizer(model, x, targets, parts, rate):
    refuse(parts)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    total = targets.ne(0).sum()
    reported = 0.0
    for piece, wanted in zip(x.tensor_split(parts), targets.tensor_split(parts), strict=True):
        log_p = model(piece).log_softmax(-1)
        picked = log_p.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        loss = -(picked * (wanted != 0)).sum() / total
        loss.backward()
        reported += loss.detach()
    optimizer.step()
    return reported


def sums_first(model, x, targets, parts, rate):
    """Gradients of sums; divided once, at the end."""
    refuse(parts)
    parameters = list(model.parameters())
    sums, loss, tokens = [torch.zeros_like(p) for p in parameters], 0.0, 0
    rows = -(-len(x) // parts)
    for start in range(0, len(x), rows):
        wanted = targets[start : start + rows]
        logits = model(x[start : start + rows])
        part = F.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=0, reduction="sum")
        for total, g in zip(sums, torch.autograd.grad(part, parameters), strict=True):
            total += g
        loss, tokens = loss + part.item(), tokens + int((wanted != 0).sum())
    with torch.no_grad():
        for p, total in zip(parameters, sums, strict=True):
            p.sub_(rate * total / tokens)
    return torch.tensor(loss / tokens)


def weighted_means(model, x, targets, parts, rate):
    """Means of the parts, weighted by tokens; parts without any are left out."""
    refuse(parts)
    model.zero_grad(set_to_none=True)
    tokens, losses = (targets > 0).sum(), []
    for piece, wanted in zip(x.chunk(parts), targets.chunk(parts), strict=True):
        real = wanted > 0
        if not real.any():
            continue
        mean = F.cross_entropy(model(piece[real]), wanted[real])
        share = mean * (real.sum() / tokens)
        share.backward()
        losses.append(share.item())
    for p in model.parameters():
        p.data = p.data - rate * p.grad
    return torch.tensor([sum(losses)], dtype=x.dtype).squeeze()


ALTERNATES = [with_an_optimizer, sums_first, weighted_means]
