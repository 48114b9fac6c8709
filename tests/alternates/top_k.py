"""Top-k filtering in other words."""

import torch


def refuse(k):
    if k < 1:
        raise ValueError("k")


def scattered(logits, k):
    """The softmax of the k largest logits, put where they belong."""
    refuse(k)
    values, index = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return torch.zeros_like(logits).scatter(-1, index, values.softmax(-1))


def divided(logits, k):
    """Probabilities, zeros, and a division."""
    refuse(k)
    probabilities = torch.softmax(logits, -1)
    order = probabilities.argsort(dim=-1, descending=True)
    lost = order[..., k:]
    kept = probabilities.scatter(-1, lost, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def row_by_row(logits, k):
    refuse(k)
    rows = []
    for row in logits.reshape(-1, logits.size(-1)):
        chosen = sorted(range(len(row)), key=lambda token, row=row: -row[token].item())[:k]
        filtered = torch.full_like(row, -torch.inf)
        filtered[chosen] = row[chosen]
        rows.append(filtered.softmax(0))
    return torch.stack(rows).view_as(logits)


ALTERNATES = [scattered, divided, row_by_row]
