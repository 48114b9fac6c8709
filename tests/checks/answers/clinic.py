"""Instruments: what depends on what, and tests of attention."""

import torch


def by_jacobian(model, x):
    was = model.training
    jacobian = torch.autograd.functional.jacobian(model.eval(), x)
    model.train(was)
    return jacobian.abs().amax(dim=(1, 3)) > 0


@torch.no_grad()
def by_changing(model, x):
    """Each input moved, a few times, so that no rounding hides what is faint."""
    was = model.training
    model.eval()
    found, before = torch.zeros(len(x), len(x), dtype=torch.bool), model(x)
    for s in range(len(x)):
        for size in (1.0, -1e3, 1e6):
            moved = x.clone()
            moved[s] += size * torch.randn_like(x[s])
            found[:, s] |= (model(moved) != before).any(dim=-1)
    model.train(was)
    return found


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


def of_sums(model, x):
    """The shortest way, with four slips in it."""
    x, rows = x.clone().requires_grad_(), []
    y = model(x)
    for t in range(len(x)):
        x.grad = None
        y[t].sum().backward(retain_graph=True)
        rows.append(x.grad.sum(-1) != 0)
    return torch.stack(rows)


def of_the_first_two(model, x):
    """A slip that is on no list: other numbers of an input are forgotten."""
    was = model.training
    found = torch.autograd.functional.jacobian(model.eval(), x)[..., 2:].ne(0).any(-1).any(1)
    model.train(was)
    return found


def all_true(model, x):
    return torch.ones(len(x), len(x), dtype=torch.bool)


RIGHT = {"influence": [by_jacobian, by_changing, by_backward]}
WRONG = {
    "influence": [
        (of_sums, {"outputs", "inputs", "deaf", "model"}, set()),
        (of_the_first_two, {"inputs"}, set()),
        (all_true, {"values", "outputs", "inputs", "faint", "deaf", "model"}, set()),
    ],
}
