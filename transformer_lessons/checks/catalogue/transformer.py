"""The whole model. Sources without padding hide the masks; one layer each is enough."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch

from transformer_lessons.checks.definitions import Call, Draw, Given, Task
from transformer_lessons.config import TransformerConfig
from transformer_lessons.model import Transformer

SET = "for p in layer.parameters(): p.data = "
SET += "torch.arange(1. * p.numel()).cos().view_as(p) if p.dim() > 1 else 0 * p + 1"
OWN = "layer.load_state_dict({n: (torch.arange(1. * p.numel()) + sum(map(ord, n))).cos().view_as(p)"
OWN += " for n, p in layer.state_dict().items()})"
MOST = {"num_encoder_layers": 2, "num_decoder_layers": 2}  # so that answers with too many layers get weights
PRE = {**MOST, "norm_first": True}
UNEQUAL = {"num_encoder_layers": 2}, {"num_decoder_layers": 2, "source_vocab_size": 9}
PADDED_ANYWHERE = (
    "        x = self.source_embedding(src)\n",
    """        e, is_real = self.source_embedding, src != self.config.pad_id
        place = (is_real.cumsum(dim=-1) - 1).clamp(min=0)
        x = e.dropout(e.token(src) + e.position.table[place])
""",
)
TIED = "output.weight is target_embedding.token.weight"


def settings(**changes) -> dict:
    """The sizes of a small model with one layer on each side, and these changes."""
    sizes = {"d_model": 6, "num_heads": 2, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return {**sizes, **changes}


@cache
def shapes(**changes) -> dict[str, torch.Size]:
    """The shapes of a model's parameters, by name."""
    words = {"source_vocab_size": 7, "target_vocab_size": 7}
    model = Transformer(TransformerConfig(**words | settings(**changes)))
    return {name: p.shape for name, p in model.named_parameters()}


def config(source_vocab_size: int = 7, **changes) -> Given:
    """A configuration, and how the message writes it."""
    text = ", ".join(f"{name}={value}" for name, value in settings(**changes).items())
    given = {**settings(**changes), "source_vocab_size": source_vocab_size}
    return Given("config", [given], f"TransformerConfig({source_vocab_size}, 7, {text})")


def call(draw: Draw, **changes) -> Call:
    """A call of a model with random, tied weights. No token is padding, whether its id is 0 or 6."""
    sizes = shapes(**changes | MOST)
    state = {name: draw.normal(*size) / size[-1] ** 0.5 for name, size in sizes.items()}
    state["output.weight"] = state["target_embedding.token.weight"]
    state["output.bias"] = torch.ones(7)  # which the model should not have
    args = draw.integers(1, 6, 2, 4), draw.integers(1, 6, 2, 3)
    return Call(args, init=(config(**changes),), state=state)


def norms(draw: Draw) -> list[Call]:
    """The last position with norm_first, where no layer but the decoder's last adds anything."""
    one = call(draw, **PRE)
    idle = [n for n in one.state if re.match(r"(encoder_layers|decoder_layers\.0).*W_[o2]", n)]
    return [replace(one, state=one.state | {n: 0 * one.state[n] for n in idle}, view=lambda y: y[:, -1])]


def padded(draw: Draw) -> list[Call]:
    """Padding after the second sentence, whatever its id and the first one, changes nothing; words do."""
    found = []
    for pad in (0, 6):
        one = call(draw, pad_id=pad)
        src, tgt = one.args
        twins = (torch.cat([src, torch.tensor([[5, 5], [more, more]])], dim=1) for more in (pad, 5))
        found += [replace(one, same_as=(twin, tgt), view=lambda y: y[1:]) for twin in twins]
    return found


def padding_elsewhere(draw: Draw) -> list[Call]:
    """Padding on the left, whatever its id, or between words changes nothing; another word order does.

    So does a word in place of padding, also where the other sentence has padding.
    """
    found = []
    for pad in (0, 6):
        one = call(draw, pad_id=pad)
        src, tgt = one.args
        src[0], src[1] = torch.tensor([1, 2, 3, 4]), torch.tensor([2, 2, 5, 1])
        pads = torch.full((2, 2), pad)
        found.append(replace(one, same_as=(torch.cat([pads, src], dim=1), tgt)))
        left, between = ((src[:, :n], pads[:, :1], src[:, n:]) for n in (0, 1))
        found.append(replace(one, args=(torch.cat(left, 1), tgt), same_as=(torch.cat(between, 1), tgt)))
    within = torch.cat([src[:, :1], pads, src[:, 1:], pads[:, :1]], dim=1)
    sides = torch.stack([torch.cat([pads[0], src[0]]), torch.cat([src[1], pads[1]])])
    short = replace(one, args=(torch.tensor([[pad, 1, 2], [pad, 3, 4]]), tgt), view=lambda y: y[1:])
    longer = replace(short, same_as=(torch.tensor([[pad, 1, 2], [5, 3, 4]]), tgt))
    return [*found, *(replace(one, same_as=(other, tgt)) for other in (within, sides, src.flip(1))), longer]


def of_state(value: list) -> dict[str, bool]:
    """Whether the output projection is the target's embedding, a single weight, after another was loaded."""
    state, names = value
    tied = torch.equal(state["output.weight"], state["target_embedding.token.weight"])
    return {TIED: tied and len({"output.weight", "target_embedding.token.weight"} & names.keys()) == 1}


def tied() -> Call:
    """A new embedding, which reaches the output projection only if the two are one."""
    state = {"target_embedding.token.weight": torch.ones(7, 6)}
    return Call((), init=(config(),), state=state, method="state", view=of_state, weights_after=(0,))


def small(src: list[list], **changes) -> Iterator[Call]:
    """Weights that anybody can reproduce; two calls for each source of one sentence or several."""
    sizes = shapes(**changes | PRE)  # so that what an answer has too much of gets weights
    state = {n: torch.arange(1.0 * size.numel()).cos().view(size) for n, size in sizes.items()}
    state = {n: p if p.dim() > 1 else torch.ones_like(p) for n, p in state.items()}
    state |= {"output.weight": state["target_embedding.token.weight"], "output.bias": torch.ones(7)}
    for rows in map(torch.atleast_2d, map(torch.tensor, src)):
        for tgt in ([1], [1, 2]):
            args, given = (rows, torch.tensor([tgt] * len(rows))), (config(**changes),)
            yield Call(args, init=given, state=state, setting=SET)


def small_logits() -> Iterator[Call]:
    """Encoders of one and of two layers; last, a batch in which no two weights are alike."""
    yield from (case for n in (1, 2) for case in small([[3, 4]], num_encoder_layers=n))
    sizes = shapes(**PRE) | {"output.weight": torch.Size([7, 6]), "output.bias": torch.Size([7])}
    state = {n: (torch.arange(1.0 * s.numel()) + sum(map(ord, n))).cos().view(s) for n, s in sizes.items()}
    args = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1], [2]])
    yield Call(args, init=(config(**MOST),), state=state, setting=OWN)


TASK = Task(
    name="transformer",
    solution=[Transformer],
    extension=PADDED_ANYWHERE,
    probes={
        "logits": (lambda draw: [call(draw, **changes) for changes in UNEQUAL], small_logits()),
        "pre_norm": (norms, small([[3, 4], [5, 2]], **PRE)),
        "padding": (
            padded,
            (c for p in (0, 6) for c in small([[3, p], [1, 2, p], [[3, 4], [3, p]]], pad_id=p)),
        ),
        "positions": (
            padding_elsewhere,
            (c for p in (0, 6) for c in small([[p, 3], [p, 1, 2], [3, p, 1], [[1, 2], [p, 3]]], pad_id=p)),
        ),
        "tied": ([tied()], [tied()]),
    },
)
