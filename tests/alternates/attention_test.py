"""Tests of attention in other words."""

import math

import torch
import torch.nn.functional as F


def made(q, k, d_k, d_v, dtype=torch.float64, scale=1.0):
    query, key, value = (torch.randn(2, n, d, dtype=dtype) for n, d in ((q, d_k), (k, d_k), (k, d_v)))
    return query * scale, key, value


def by_testing(attention):
    """torch.testing, and the kernel as the oracle of outputs; weights must reproduce them."""
    mask = torch.rand(5, 7) > 0.4
    mask[0], mask[3] = True, False
    try:
        for scale, some in ((1.0, None), (1.0, mask), (1e4, None)):
            inputs = [x.requires_grad_() for x in made(5, 7, 3, 11, scale=scale)]
            copies = [x.clone() for x in inputs]
            seen = None if some is None else some.clone()
            output, weights = attention(*copies, seen)
            for copy, x in zip(copies, inputs, strict=True):
                torch.testing.assert_close(copy, x, rtol=0, atol=0)
            assert seen is None or seen.equal(some)
            safe = None if some is None else some | ~some.any(-1, keepdim=True)
            want = F.scaled_dot_product_attention(*inputs, safe)
            if some is not None:
                want = want * some.any(-1, keepdim=True)
                assert (weights[:, ~some] == 0).all()
            torch.testing.assert_close(output, want)
            torch.testing.assert_close(weights @ inputs[2], want)
            for result in (output, weights):
                got = torch.autograd.grad(result.square().sum(), inputs[:2], retain_graph=True)
                again = want if result is output else weights_of(*inputs[:2], some)
                expected = torch.autograd.grad(again.square().sum(), inputs[:2], retain_graph=True)
                for a, b in zip(got, expected, strict=True):
                    torch.testing.assert_close(a, b)
        return True
    except Exception:
        return False


def weights_of(query, key, mask):
    one_hot = torch.eye(key.size(-2), dtype=key.dtype).expand(len(key), -1, -1)
    safe = None if mask is None else mask | ~mask.any(-1, keepdim=True)
    found = F.scaled_dot_product_attention(query, key, one_hot, safe)
    return found if mask is None else found * mask.any(-1, keepdim=True)


def in_loops(query, key, value, mask):
    """One number at a time."""
    rows = []
    for b in range(len(query)):
        for i in range(query.size(1)):
            shown = [j for j in range(key.size(1)) if mask is None or mask[i, j]]
            w = query.new_zeros(key.size(1))
            if shown:
                s = torch.stack([query[b, i] @ key[b, j] for j in shown]) / math.sqrt(key.size(-1))
                w = w.index_put((torch.tensor(shown),), s.softmax(0))
            rows.append(w)
    weights = torch.stack(rows).view(len(query), query.size(1), -1)
    return torch.einsum("bqk,bkv->bqv", weights, value), weights


def by_loops(attention):
    """A definition in loops; gradients by checking with gradcheck."""
    mask = torch.ones(3, 5, dtype=torch.bool).tril(1)
    mask[1] = False
    for dtype, some, scale in (
        (torch.float64, None, 1.0),
        (torch.float64, mask, 1.0),
        (torch.float32, mask, 1.0),
        (torch.float64, None, 5e3),
    ):
        inputs = made(3, 5, 2, 7, dtype, scale)
        handed = [x.clone() for x in inputs] + [some if some is None else some.clone()]
        try:
            results = attention(*handed)
            if len(results) != 2 or not all(a.equal(b) for a, b in zip(handed, inputs, strict=False)):
                return False
            if some is not None and not handed[3].equal(some):
                return False
            for a, b in zip(results, in_loops(*inputs, some), strict=True):
                if a.dtype != b.dtype or not torch.allclose(a, b, atol=1e-5):
                    return False
            if dtype is torch.float64 and scale == 1.0 and not slopes(attention, inputs, some):
                return False
        except Exception:
            return False
    return True


def slopes(attention, inputs, mask):
    """Difference quotients in a random direction, of both results."""
    direction, step = torch.randn_like(inputs[0]), 1e-6
    leaf = inputs[0].clone().requires_grad_()
    for number in range(2):

        def f(query, number=number):
            return attention(query.clone(), inputs[1].clone(), inputs[2].clone(), mask)[number].pow(3).sum()

        (g,) = torch.autograd.grad(f(leaf), leaf)
        quotient = (f(inputs[0] + step * direction) - f(inputs[0] - step * direction)) / (2 * step)
        if not torch.isclose((g * direction).sum(), quotient, rtol=1e-4, atol=1e-7):
            return False
    return True


def in_steps(attention):
    """Several small tests, one after another."""
    return all(holds(question, attention) for question in (right_values, hidden, empty, large, other))


def holds(question, attention):
    try:
        return bool(question(attention))
    except BaseException:
        return False


def tracked(*sizes):
    return [x.requires_grad_() for x in made(*sizes)]


def right_values(attention):
    query, key, value = inputs = tracked(2, 3, 5, 5)
    weights = (query @ key.transpose(1, 2) / 5**0.5).softmax(-1)
    output, found = attention(*[x + 0 for x in inputs])
    same = torch.allclose(output, weights @ value) and torch.allclose(found, weights)
    slope, right = (torch.autograd.grad((w**2).sum(), query, retain_graph=True)[0] for w in (found, weights))
    through = torch.autograd.grad(output.sum(), query)[0]
    return same and torch.allclose(slope, right) and through.abs().max() > 0


def hidden(attention):
    query, key, value = made(4, 3, 5, 7)
    mask = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]]) > 0
    kept, before = mask.clone(), query.clone()
    output, weights = attention(query, key, value, mask)
    rows = torch.stack(
        [
            torch.zeros(2, 3, dtype=torch.float64).index_copy(
                1, seen.nonzero()[:, 0], (query[:, i : i + 1] @ key[:, seen].mT / 5**0.5).softmax(-1)[:, 0]
            )
            for i, seen in enumerate(kept)
        ],
        dim=1,
    )
    close = torch.allclose(weights, rows) and torch.allclose(output, rows @ value)
    return close and mask.equal(kept) and query.equal(before)


def empty(attention):
    output, weights = attention(*made(2, 3, 5, 7), torch.tensor([[False] * 3, [True] * 3]))
    return output[:, 0].eq(0).all() and weights[:, 0].eq(0).all() and output[:, 1].isfinite().all()


def large(attention):
    return all(x.isfinite().all() for x in attention(*made(2, 3, 5, 7, scale=1e5)))


def other(attention):
    kinds = (torch.float32, torch.float64)
    return all(attention(*made(2, 3, 5, 7, kind))[0].dtype == kind for kind in kinds)


ALTERNATES = [by_testing, by_loops, in_steps]
