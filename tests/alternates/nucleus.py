"""Nucleus filtering in other words."""

import torch


def refuse(p):
    if p <= 0 or p > 1:
        raise ValueError("p")


def shifted(logits, p):
    """What comes after the token that reaches p is removed: the mask, moved by one."""
    refuse(p)
    ordered, index = torch.sort(logits, dim=-1, descending=True)
    removed = ordered.softmax(-1).cumsum(-1) >= p
    removed = torch.cat([torch.zeros_like(removed[..., :1]), removed[..., :-1]], -1)
    return logits.masked_fill(removed.gather(-1, index.argsort(-1)), -torch.inf).softmax(-1)


def from_below(logits, p):
    """The least likely tokens are removed as long as they have no more than 1 − p together."""
    refuse(p)
    probabilities = logits.softmax(-1)
    ordered, index = probabilities.sort(dim=-1)
    removed = ordered.cumsum(-1) <= 1 - p
    kept = torch.where(torch.zeros_like(removed).scatter(-1, index, removed), 0.0, probabilities)
    return kept / kept.sum(-1, keepdim=True)


def token_by_token(logits, p):
    refuse(p)
    flat = logits.softmax(-1).reshape(-1, logits.size(-1))
    result = torch.zeros_like(flat)
    for row, probabilities in enumerate(flat.tolist()):
        kept, total = {}, 0.0
        for token in sorted(range(len(probabilities)), key=lambda t: -probabilities[t]):
            if total >= p:
                break
            kept[token] = probabilities[token]
            total += probabilities[token]
        for token, probability in kept.items():
            result[row, token] = probability / total
    return result.view_as(logits)


ALTERNATES = [shifted, from_below, token_by_token]
