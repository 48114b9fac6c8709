"""One step with scaled gradients, in other words."""

import math

import torch


def by_vector(weights, gradients, scale, clean, rate, max_norm, growth):
    """All gradients as one vector."""
    g = torch.cat([x.reshape(-1) for x in gradients]).to(torch.float32)
    if not math.isfinite(g.abs().sum()):
        return list(weights), 0.5 * scale, 0
    g = g / scale
    g = g * torch.clamp(max_norm / g.norm().clamp(min=1e-30), max=1.0)
    moved, start = [], 0
    for w in weights:
        moved.append(w - rate * g[start : start + w.numel()].view_as(w))
        start += w.numel()
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


def in_double(weights, gradients, scale, clean, rate, max_norm, growth):
    found = [g.double() / scale for g in gradients]
    if any(not torch.isfinite(g).all().item() for g in found):
        return tuple(w.clone() for w in weights), scale / 2, 0
    length = sum((g**2).sum() for g in found).sqrt().item()
    share = max_norm / length if length > max_norm else 1
    moved = tuple((w - rate * share * g).float() for w, g in zip(weights, found, strict=True))
    return (moved, scale * 2.0, 0) if clean + 1 == growth else (moved, scale, clean + 1)


ALTERNATES = [by_vector, by_optimizer, in_double]
