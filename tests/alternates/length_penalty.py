"""The penalised score in other words."""

import torch


def refuse(alpha):
    if alpha < 0:
        raise ValueError("alpha")


def by_logarithms(log_p, length, alpha):
    refuse(alpha)
    n = torch.as_tensor(length, dtype=log_p.dtype)
    return log_p * torch.exp(-alpha * torch.log((n + 5) / 6))


def as_in_the_paper(log_p, length, alpha):
    """(5 + |Y|)^α / (5 + 1)^α"""
    refuse(alpha)
    length = length.type_as(log_p) if isinstance(length, torch.Tensor) else float(length)
    return log_p / ((5 + length) ** alpha / 6**alpha)


def number_by_number(log_p, length, alpha):
    refuse(alpha)
    lengths = torch.as_tensor(length).expand_as(log_p).flatten().tolist()
    scores = [p / ((5 + n) / 6) ** alpha for p, n in zip(log_p.flatten().tolist(), lengths, strict=True)]
    return torch.tensor(scores, dtype=log_p.dtype).view_as(log_p)


ALTERNATES = [by_logarithms, as_in_the_paper, number_by_number]
