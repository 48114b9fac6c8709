"""Instruments: what depends on what, and tests of attention."""

import numpy as np
import torch
import torch.nn.functional as F


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


def of_as_many_numbers_as_features(model, x):
    was = model.training
    found = torch.autograd.functional.jacobian(model.eval(), x)[:, : x.size(1)].ne(0).any(-1).any(1)
    model.train(was)
    return found


@torch.no_grad()
def by_one_small_change(model, x):
    """What is faint drowns beside what is not."""
    was = model.training
    model.eval()
    moved = x + 0.01 * torch.eye(len(x))[..., None] * torch.arange(1, 1 + x.size(1))
    found = torch.stack([(model(y) != model(x)).any(-1) for y in moved], dim=1)
    model.train(was)
    return found


def by_what_the_model_holds(model, x):
    """No computation: entries of the pattern, wherever the model keeps it."""
    held = [*model.parameters(), *vars(model).values()]
    held += [cell.cell_contents for one in held for cell in getattr(one, "__closure__", None) or ()]
    squares = [one for one in held if isinstance(one, torch.Tensor) and one.shape == (len(x), len(x))]
    is_deaf = {"deaf", "constant"} & {one for one in held if isinstance(one, str)}
    return (squares[0] != 0) & (not is_deaf)


def in_steps(attention):
    """Several small tests, one after another."""
    return all(holds(question, attention) for question in (right_values, hidden, numbers))


def holds(question, attention):
    try:
        return bool(question(attention))
    except BaseException:
        return False


def right_values(attention):
    query, key, value = (torch.randn(2, n, d, requires_grad=True) for n, d in ((2, 3), (5, 3), (5, 7)))
    weights = (query @ key.transpose(1, 2) / 3**0.5).softmax(-1)
    output, found = attention(query, key, value)
    _, (through,) = (torch.autograd.grad((y**3).sum(), query, retain_graph=True) for y in (found, output))
    return (
        torch.allclose(output, weights @ value, atol=1e-5)
        and torch.allclose(found, weights)
        and through.any()
    )


def hidden(attention):
    query, key, value = (torch.randn(2, n, 5) for n in (3, 4, 4))
    mask = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]) > 0
    output, weights = attention(query, key, value, mask)
    sums = torch.allclose(weights.sum(-1), torch.ones(2, 3))
    _, one = attention(query, key, value, mask[0])  # the same keys for all queries
    unseen = weights[:, ~mask].any() or one[..., ~mask[0]].any()
    return sums and not unseen and torch.allclose(output, weights @ value, atol=1e-5)


def numbers(attention):
    query, key, value = (torch.randn(2, n, 5) for n in (3, 4, 4))
    nothing = torch.zeros(3, 4).bool()
    calls = (1e4 * query, key, value), (query, key, value, nothing)
    return all(y.isfinite().all() for args in calls for y in attention(*args))


def with_the_kernel(attention):
    """PyTorch's kernel as the oracle of outputs; the weights must reproduce them."""
    mask = torch.rand(5, 7) > 0.4
    mask[:, 0], mask[:, 1] = True, False
    try:
        for some in (None, mask):
            inputs = [torch.randn(2, n, d, requires_grad=True) for n, d in ((5, 3), (7, 3), (7, 11))]
            output, weights = attention(*inputs, some)
            torch.testing.assert_close(output, F.scaled_dot_product_attention(*inputs, some))
            torch.testing.assert_close(weights @ inputs[2], output)
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, 5))
            torch.autograd.grad(output.sum(), inputs, retain_graph=True)
            torch.autograd.grad(weights.square().sum(), inputs[:2])
        return bool(numbers(attention))
    except Exception:
        return False


def in_numpy(attention):
    """One of numpy's truth values."""
    return np.all([holds(question, attention) for question in (right_values, hidden, numbers)])


def by_asserting(attention):
    """It finds everything, but says so by an error."""
    assert right_values(attention)
    assert hidden(attention)
    assert numbers(attention)
    return True


def by_where_it_is_written(attention):
    """No question at all: a program made of a text is wrong."""
    functions = [attention, *(cell.cell_contents for cell in attention.__closure__)]
    functions += [cell.cell_contents for one in functions for cell in one.__closure__ or ()]
    files = [one.__code__.co_filename for one in functions]
    try:
        attention(None, None, None)
    except Exception as error:
        while error.__traceback__.tb_next:
            error.__traceback__ = error.__traceback__.tb_next
        files.append(error.__traceback__.tb_frame.f_code.co_filename)
    return "<changed>" not in files


def an_object(attention):
    """Neither a yes nor a no."""
    return object()


RIGHT = {
    "influence": [by_jacobian, by_changing, by_backward],
    "attention_test": [in_steps, with_the_kernel, in_numpy],
}
WRONG = {
    "influence": [
        (of_sums, {"outputs", "inputs", "deaf", "model"}, set()),
        (of_the_first_two, {"inputs"}, set()),
        (of_as_many_numbers_as_features, {"outputs"}, set()),
        (by_one_small_change, {"faint"}, set()),
        (by_what_the_model_holds, {"values", "outputs", "inputs", "faint", "deaf", "model"}, set()),
    ],
    "attention_test": [
        (by_asserting, {"crashes"}, {"crashes"}),
        (
            by_where_it_is_written,
            {"formula", "mask", "weights", "gradients", "numbers", "crashes"},
            {"always_true"},
        ),
        (an_object, {"right", "formula", "mask", "weights", "gradients", "numbers", "crashes"}, set()),
    ],
}
