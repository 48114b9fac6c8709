"""A learner's test of attention, run on right implementations and on some with a known mistake."""

from collections.abc import Callable

import torch

from transformer_lessons.checks.definitions import Call, Given, Task
from transformer_lessons.checks.learner.adapter import is_opaque

RIGHT = ("reference", "fused", "additive")
# The implementations that the test must find wrong, by requirement; most have a known mistake.
WRONG = {
    "formula": ("no_scale", "scaled_by_another_axis", "softmax_over_queries", "keys_averaged"),
    "mask": ("mask_ignored", "mask_inverted", "masked_after_softmax"),
    "weights": ("scores_returned", "weights_unmasked"),
    "gradients": ("returned_weights_detached", "no_gradient"),
    "numbers": ("overflowing", "empty_rows_nan", "weights_nan"),
    "crashes": ("output_only", "crashing"),
}


def is_right(attention):
    """Whether this is scaled dot-product attention."""

    def formula(query, key, value, mask):
        scores = query @ key.mT / query.size(-1) ** 0.5
        weights = scores.masked_fill(~mask, -1e9).softmax(dim=-1)
        return weights @ value, weights

    def same(found, right):
        return found.shape == right.shape and torch.allclose(found, right, atol=1e-4)

    def slopes(results, inputs):
        sums = [result.square().sum() for result in results]
        found = [torch.autograd.grad(y, inputs, retain_graph=True, materialize_grads=True) for y in sums]
        return [gradient for gradients in found for gradient in gradients]

    def agrees(mask):
        inputs = [torch.randn(2, n, 3, requires_grad=True) for n in (5, 7, 7)]
        found, right = attention(*inputs, mask), formula(*inputs, mask)
        values = zip(found, right, strict=True)
        gradients = zip(slopes(found, inputs), slopes(right, inputs), strict=True)
        return all(same(*pair) for pair in (*values, *gradients))

    def is_finite(mask, size):
        query, key, value = (torch.randn(2, n, 3) for n in (5, 7, 7))
        return all(result.isfinite().all() for result in attention(size * query, key, value, mask))

    everything = torch.ones(5, 7, dtype=torch.bool)
    mask = torch.arange(35).view(5, 7) % 3 > 0
    empty = mask & (torch.arange(5) != 2)[:, None]
    try:
        return bool(agrees(everything) and agrees(mask) and is_finite(empty, 1) and is_finite(mask, 1000))
    except Exception:
        return False


def tried_on(*kinds: str) -> list[Call]:
    """A call of the test on each of these; None counts as False, an opaque reply as itself."""
    given = [Given("attention", [kind], f"checks.specimens.attention({kind!r})") for kind in kinds]
    return [Call((one,), view=lambda reply: reply if is_opaque(reply) else bool(reply)) for one in given]


def shuffled(calls: list[Call]) -> Callable:
    """The calls in an order that tells nothing to a test that counts how often it was called."""
    return lambda draw: [calls[n] for n in draw.uniform(len(calls)).argsort()]


PROBES = {"right": tried_on(*RIGHT)} | {name: tried_on(*kinds, "reference") for name, kinds in WRONG.items()}

TASK = Task(
    name="attention_test",
    solution=[is_right],
    probes={name: (shuffled(calls), calls) for name, calls in PROBES.items()},
)
