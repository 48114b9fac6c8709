"""Which outputs depend on which inputs, asked in other ways."""

from contextlib import contextmanager

import torch
from torch.func import functional_call, jacrev


@contextmanager
def evaluating(model):
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)


def by_jacobian(model, x):
    with evaluating(model):
        J = torch.autograd.functional.jacobian(model, x)
    return (J != 0).any(dim=3).any(dim=1)


def by_jacrev(model, x):
    weights = {name: p.detach() for name, p in model.named_parameters()}
    with evaluating(model):
        J = jacrev(lambda x: functional_call(model, weights, (x,)))(x)
    return J.ne(0).any(dim=-1).any(dim=1)


@torch.no_grad()
def by_changing(model, x):
    """Each input moved, a few times, so that no rounding hides what is faint."""
    found = torch.zeros(len(x), len(x), dtype=torch.bool)
    with evaluating(model):
        before = model(x)
        for s in range(len(x)):
            for size in (1.0, -1e3, 1e6):
                moved = x.clone()
                moved[s] += size * torch.randn_like(x[s])
                found[:, s] |= (model(moved) != before).any(dim=-1)
    return found


def by_random_directions(model, x):
    """Of a random mixture of an output's numbers, whose gradients do not cancel by chance."""
    rows = []
    with evaluating(model):
        x = x.detach().clone().requires_grad_()
        for t in range(len(x)):
            y = model(x)[t]
            mixed = (y * torch.rand_like(y)).sum()
            try:
                (g,) = torch.autograd.grad(mixed, x)
            except RuntimeError:
                g = torch.zeros_like(x)
            rows.append(g.abs().sum(dim=-1) > 0)
    return torch.stack(rows)


def by_backward(model, x):
    was = model.training
    model.train(False)
    found = torch.zeros(len(x), len(x), dtype=torch.bool)
    for t in range(len(x)):
        for number in range(model(x)[t].numel()):
            leaf = x.clone().requires_grad_(True)
            y = model(leaf)
            if y.requires_grad:
                y[t, number].backward()
            if leaf.grad is not None:
                found[t] |= leaf.grad.abs().amax(dim=1) > 0
    model.zero_grad(set_to_none=True)
    model.train(was)
    return found


ALTERNATES = [by_jacobian, by_jacrev, by_changing, by_random_directions, by_backward]
