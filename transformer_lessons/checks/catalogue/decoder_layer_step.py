"""One step of a decoder layer: new tokens, with cached keys and values. The first step hides the cache."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.checks.catalogue.layer import VALUES, draw_weights, shapes, simple
from transformer_lessons.checks.definitions import Call, Draw, Given, Task
from transformer_lessons.masks import causal_mask


def decoder_layer_step(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
    """The layer's output for new tokens, and all keys and values so far."""

    def linear(name, y):
        return F.linear(y, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def add_norm(name, y, given):
        name = f"add_norm_{name}.norm"
        return F.layer_norm(y + given, y.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    def split(y):
        return y.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    def attend(name, y, k, v, mask):
        heads, _ = scaled_dot_product_attention(split(linear(f"{name}.W_q", y)), k, v, mask)
        return linear(f"{name}.W_o", heads.transpose(1, 2).flatten(2))

    keys = torch.cat([keys, split(linear("self_attention.W_k", x))], dim=2)
    values = torch.cat([values, split(linear("self_attention.W_v", x))], dim=2)
    seen = causal_mask(x.size(1), keys.size(2))
    y = add_norm("self", x, attend("self_attention", x, keys, values, seen))
    z = add_norm("cross", y, attend("cross_attention", y, memory_keys, memory_values, src_mask))
    hidden = linear("feed_forward.W_1", z).relu()
    return add_norm("feed_forward", z, linear("feed_forward.W_2", hidden)), keys, values


BOTH = ("self_attention", "cross_attention")
FIRST = torch.tensor([[[[True, False]]]])
SIZES = shapes(6, 5, *BOTH)
BIASED = VALUES.partition("torch.arange")[0] + "torch.arange(1, len(p) + 1.).sin()"
STATE = "package.DecoderLayer(TransformerConfig(7, 7, d_model=3, num_heads=1, d_ff=3)).state_dict()"


def call(draw: Draw, *mask: Tensor, new: int = 1, earlier: int = 3) -> Call:
    """A call with two sentences, two heads of width 3 and four source positions."""
    past, memory = ([draw.normal(2, 2, n, 3) for _ in range(2)] for n in (earlier, 4))
    return Call((draw_weights(draw, SIZES), 2, draw.normal(2, new, 6), *past, *memory, *mask))


def later(draw: Draw) -> list[Call]:
    """One new token after three or five others."""
    return [call(draw), call(draw, earlier=5)]


def several(draw: Draw) -> list[Call]:
    """Several new tokens at once: a prompt, then two or three after others."""
    return [call(draw, new=3, earlier=0), call(draw, new=2), call(draw, new=3, earlier=3)]


def masked(draw: Draw) -> list[Call]:
    """A sentence's output, first and later, when a source position changes that is hidden from it or not."""
    padding, found = torch.tensor([[True, True, False, False], [True, True, True, False]]), []
    for earlier, (sentence, place) in itertools.product((0, 3), ((0, 2), (1, 2), (1, 3))):
        one = call(draw, padding[:, None, None], earlier=earlier)
        memory = (arg + (torch.arange(4) == place)[:, None] for arg in one.args[5:7])
        twin = (*one.args[:5], *memory, one.args[7])
        found.append(replace(one, same_as=twin, view=lambda value, n=sentence: value[0][n]))
    return found


def small(*mask: Tensor, new: int = 1, earlier: int = 1) -> Iterator[Call]:
    """Small calls with `layer.simple` weights: multiples of shifted identities; then with all biases."""
    inputs = [[0, 1, 2], [1, 0, 0]], [[2, 0, 1], [0, 0, 1]]
    for values, rows, heads in itertools.product((VALUES, BIASED), inputs, (1, 3)):
        shown = f"{{n: {values} for n, p in {STATE}.items()}}"
        weights = Given("plain", [simple(*BOTH, values=values)], shown)
        x = torch.tensor([rows[:new]]).float()
        old = [[3.0, 0, 0]] * earlier, [[0.0, 5, 0]] * earlier
        past = [torch.tensor(rows).reshape(1, heads, earlier, 3 // heads) for rows in old]
        other = [[0.0, 3, 0], [0, 0, 1]], [[0.0, 2, 0], [0, 0, 4]]
        memory = [torch.tensor(two).reshape(1, heads, 2, 3 // heads) for two in other]
        past = past if earlier else past[:1] * 2  # reused, to keep messages to six lines
        memory = memory[:1] * 2 if earlier or mask else memory
        yield Call((weights, heads, x, *past, *memory, *mask))


TASK = Task(
    name="decoder_layer_step",
    solution=[decoder_layer_step],
    results=("output", "keys", "values"),
    probes={
        "first": (lambda draw: [call(draw, earlier=0) for _ in range(5)], small(earlier=0)),
        "later": (later, small()),
        "several": (several, small(new=2)),
        "mask": (masked, [case for n in (0, 1) for case in small(FIRST, earlier=n)]),
        "gradients": (later, small()),
    },
)
