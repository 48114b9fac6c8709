"""One layer for all models, and what the decoder layer's check shares with it.

Sub-layers whose weights are zero return their biases: this shows the stream alone, and what is dropped.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.checks.catalogue.residual import SEED, added, config, describe_holes, is_uneven
from transformer_lessons.checks.definitions import Call, Draw, Given, Task
from transformer_lessons.feed_forward import FeedForward
from transformer_lessons.layers import AddAndNorm


class Layer(nn.Module):
    """Of an encoder; causal, of a language model; causal and with cross-attention, of a decoder."""

    def __init__(self, config, causal=False, cross=False):
        super().__init__()
        self.causal = causal
        self.self_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.add_norm_self = AddAndNorm(config)
        if cross:
            self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
            self.add_norm_cross = AddAndNorm(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(self, x, memory=None, memory_mask=None, mask=None):
        """The new stream."""
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask, is_causal=self.causal))
        if memory is not None:
            x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=memory_mask))
        return self.add_norm_feed_forward(x, self.feed_forward)


ONES = ("W_o.bias", "W_1.bias")  # with ones here, zero matrices and W_2 the identity, sub-layers return ones
VALUES = (  # the value of the parameter p with the name n
    "torch.eye(*p.shape).roll(1, 0) * (1 + n.count('cross') + n.count('W_v')) if p.dim() > 1"
    " else torch.arange(1, len(p) + 1.) ** (n.count('e') - 1) * ('norm.w' in n or 'o.b' in n)"
)
LOAD = "layer.load_state_dict({{n: {} for n, p in layer.state_dict().items()}})"
ZERO_SUBLAYERS = "torch.ones_like(p) * ('norm.w' in n)"
GIVES_ONES = f"torch.eye(3) if 'W_2.w' in n else torch.ones_like(p) * n.endswith({('norm.weight', *ONES)})"


def shapes(d_model: int, d_ff: int, *attentions: str) -> dict[str, tuple[int, ...]]:
    """The shapes of a layer's parameters, by name."""
    maps = {f"{a}.W_{letter}": (d_model, d_model) for a in attentions for letter in "qkvo"}
    maps |= {"feed_forward.W_1": (d_ff, d_model), "feed_forward.W_2": (d_model, d_ff)}
    norms = [f"add_norm_{name}.norm" for name in (*(a.split("_")[0] for a in attentions), "feed_forward")]
    found = {f"{name}.weight": size for name, size in maps.items()}
    found |= {f"{name}.bias": size[:1] for name, size in maps.items()}
    return found | {f"{name}.{part}": (d_model,) for name in norms for part in ("weight", "bias")}


def draw_weights(draw: Draw, sizes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Random weights of these shapes."""
    return {name: draw.normal(*size) / size[-1] ** 0.5 for name, size in sizes.items()}


def constant_sublayers(sizes: dict[str, tuple[int, ...]], number: float) -> dict[str, Tensor]:
    """Zero matrices but for W_2, an identity; biases with which sub-layers return this number; new norms."""
    values = {name: number if name.endswith(ONES) else float("norm.weight" in name) for name in sizes}
    state = {name: torch.full(size, values[name]) for name, size in sizes.items()}
    return state | {"feed_forward.W_2.weight": torch.eye(*sizes["feed_forward.W_2.weight"])}


def call(draw: Draw, *args: Tensor | None, attentions: tuple[str, ...], **options) -> Call:
    """A call of a layer with d_model 6, two heads, d_ff 5 and random weights."""
    return Call(args, init=(config(6, 2, 5, **options),), state=draw_weights(draw, shapes(6, 5, *attentions)))


def training(*args: Any, number: float, attentions: tuple, norm_first: bool, rate=0.5, mode=True) -> Call:
    """A call with sub-layers that all return one number, which is dropped at this rate in training."""
    given = config(3, 1, 3, dropout=rate, norm_first=norm_first)
    state, view = constant_sublayers(shapes(3, 3, *attentions), number), added(args[0]) if number else None
    setting = f"{SEED}\n{LOAD.format(GIVES_ONES if number else ZERO_SUBLAYERS)}"
    return Call(args, init=(given,), state=state, training=mode, view=view, setting=setting)


def dropout(*sizes: tuple[int, ...], attentions: tuple[str, ...]) -> Callable[[Draw], list[Call]]:
    """The stream stays whole; what is added is dropped or doubled in training, and kept in evaluation."""

    def calls(draw: Draw) -> list[Call]:
        x, *others = (draw.normal(*size, 3) for size in sizes)
        whole = partial(training, x, *others, attentions=attentions)
        found = [whole(number=0.0, norm_first=first) for first in (False, True)]
        found += [whole(number=1.0, norm_first=True, mode=mode) for mode in (True, False)]
        zeros, post = torch.zeros_like(x), {"number": 1.0, "norm_first": False, "attentions": attentions}
        even = replace(training(zeros, *others, **post), view=is_uneven)
        return [*found, even, replace(even, training=False)]

    return calls


def simple(*attentions: str, d_ff: int = 3, values: str = VALUES) -> dict[str, Tensor]:
    """Multiples of shifted identities; of the vectors, by default only norm weights and W_o biases."""
    sizes = {name: torch.empty(size) for name, size in shapes(3, d_ff, *attentions).items()}
    return {n: eval(values, {"torch": torch, "n": n, "p": p}) for n, p in sizes.items()}


def small(*others: Tensor | None, masks: tuple = (None,), attentions: tuple, **options) -> Iterator[Call]:
    """Calls with `simple` weights and as many sentences as the mask; in the last, d_ff is not d_model."""
    inputs = [[0, 3, 6]], [[0, 1, 2], [1, 0, 0]], [[2, 0, 1], [0, 0, 1]], [[0, 3, 6]]
    for rows, heads, d_ff in zip(inputs, (1, 1, 3, 1), (3, 3, 3, 2), strict=True):
        for mask in masks:
            args = torch.tensor([rows]).float(), *others
            if mask is not None:
                args = (*(x if x is None else x.expand(len(mask), -1, -1) for x in args), torch.tensor(mask))
            state, given = simple(*attentions, d_ff=d_ff), config(3, heads, d_ff, **options)
            yield Call(args, init=(given,), state=state, setting=LOAD.format(VALUES))


def small_training(*others: Tensor, attentions: tuple[str, ...]) -> Iterator[Call]:
    """Sub-layers of zeros; then ones, with some or nearly all of them dropped, or in evaluation none."""
    whole = partial(training, torch.tensor([[[0.0, 3.0, 6.0]]]), *others, attentions=attentions)
    found = [whole(number=0.0, norm_first=first) for first in (False, True)]
    found += [whole(number=1.0, norm_first=True, rate=0.999)]
    found += [whole(number=1.0, norm_first=True, mode=False)]
    yield from (replace(one, view=None) for one in found)
    shown = Given("plain", [torch.zeros(1, 16, 3)], "torch.zeros(1, 16, 3)")
    many = Call((shown, *others), init=found[-1].init, state=found[-1].state, setting=found[-1].setting)
    post = replace(many, init=found[0].init, view=describe_holes)
    numbers = lambda y: {"different numbers of the output": added(torch.zeros(()))(y)}  # noqa: E731
    yield from (replace(many, training=True, view=numbers), replace(post, training=True), post)


ONE = {"attentions": ("self_attention",)}
BOTH = {"attentions": ("self_attention", "cross_attention")}
MEMORY = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
FIRST = [[[[True, False]]]]
ALL = [[[[True, True]]]]
SECOND = [*ALL, *FIRST]
OWN = [[[[True, True], [True, True]]], [[[True, True], [False, True]]]]


def zeroed(plain: Call, *sublayers: str) -> Call:
    """The same call with these sub-layers returning zeros."""
    return replace(plain, state={n: x * (not n.startswith(sublayers)) for n, x in plain.state.items()})


def masked(draw: Draw) -> list[Call]:
    """One query of either sentence, when a key changes that is hidden from it or visible."""
    return hidden_from(call(draw, draw.normal(2, 3, 6), None, None, hides(1, 2, 0), **ONE), 1, 2, 0)


def hides(query: int, key: int, others: int) -> Tensor:
    """A mask that hides `key` from one query of the second sentence, and `others` from all other queries."""
    mask = torch.arange(3).expand(2, 1, 3, 3) != others
    mask[1, 0, query] = torch.arange(3) != key
    return mask


def hidden_from(masked: Call, query: int, key: int, others: int) -> list[Call]:
    """The query's output when its hidden key changes, and a visible one; then in the first sentence."""
    places = (1, key), (1, others), (0, others)
    twins = [(sentence, changed_at(masked, 0, place)) for sentence, place in places]
    return [replace(masked, same_as=twin, view=lambda y, n=n: y[n, query]) for n, twin in twins]


def changed_at(call: Call, argument: int, place: int) -> tuple:
    """The call's arguments, with one of them changed at one position."""
    args = list(call.args)
    args[argument] = args[argument].clone()
    args[argument][:, place] = args[argument][:, place].flip(-1) + 1
    return tuple(args)


def plain(*, norm_first: bool = False) -> Callable[[Draw], list[Call]]:
    """Calls without a mask on two sentences of three positions."""
    return lambda draw: [call(draw, draw.normal(2, 3, 6), norm_first=norm_first, **ONE) for _ in range(2)]


def decoder(draw: Draw, targets: int, *masks: Tensor | None, sources: int = 4, **options) -> Call:
    """A call with a target and a source of two sentences each."""
    args = draw.normal(2, targets, 6), draw.normal(2, sources, 6), *masks
    return call(draw, *args, **BOTH, **options)


def language_model(draw: Draw) -> list[Call]:
    """The first positions when the last one changes: no memory, first without a mask, then with one."""
    mask = torch.ones(2, 1, 1, 3, dtype=torch.bool)
    plain = [call(draw, draw.normal(2, 3, 6), None, None, m, **ONE) for m in (None, mask)]
    return [replace(one, same_as=changed_at(one, 0, 2), view=lambda y: y[:, :2]) for one in plain]


def causal(draw: Draw) -> list[Call]:
    """The first positions when a later one changes; the last when an earlier one does, hidden or visible.

    Cross-attention returns zeros in all of them. In the last, a position gets the mean of what it sees.
    """
    plain = zeroed(decoder(draw, 3, sources=3), "cross_attention.W_o")
    masked = zeroed(decoder(draw, 3, None, hides(2, 0, 1), sources=3), "cross_attention.W_o")
    mean = decoder(draw, 3, sources=3, norm_first=True)
    mean = zeroed(mean, "self_attention.W_q", "cross_attention.W_o", "feed_forward.W_2")
    (x, _), twin = mean.args, changed_at(mean, 0, 2)
    return [
        replace(plain, same_as=changed_at(plain, 0, 2), view=lambda y: y[:, :2]),
        *hidden_from(masked, 2, 0, 1),
        replace(masked, same_as=changed_at(masked, 0, 2), view=lambda y: y[:, 1]),
        replace(mean, same_as=twin, view=lambda y: (y - x)[:, 2], view_as=lambda y: (y - twin[0])[:, 2]),
    ]


def small_causal(memory: Tensor | None, **given) -> list[Call]:
    """Calls without a mask, and with masks that hide something or, first, nothing."""
    masked = (case for masks in ((OWN, FIRST), (ALL,)) for case in small(memory, None, masks=masks, **given))
    return [case for case in [*small(memory, **given), *masked] if case.args[0].size(1) > 1][::-1]


def sees_all(draw: Draw) -> Call:
    """The first of several target positions when the last source position changes, which it must see."""
    first = zeroed(decoder(draw, 3), "self_attention.W_o")
    return replace(first, same_as=changed_at(first, 1, 3), view=lambda y: y[:, :1])


def cross(draw: Draw) -> list[Call]:
    """One target position, with the feed-forward network silenced and with it whole; then `sees_all`."""
    return [zeroed(decoder(draw, 1, norm_first=True), "feed_forward.W_2"), decoder(draw, 1), sees_all(draw)]


def source(draw: Draw) -> list[Call]:
    """The output of a sentence when a source position changes that is hidden from it or from the other."""
    mask = torch.tensor([[True, False, True, True], [True, True, True, False]])[:, None, None]
    masked = zeroed(decoder(draw, 1, mask), "self_attention.W_o")
    calls = [(masked, 1, 3), (masked, 1, 1), (masks_both(masked), 0, 1)]
    return [replace(one, same_as=changed_at(one, 1, at), view=lambda y, n=n: y[n]) for one, n, at in calls]


def masks_both(case: Call) -> Call:
    """The same call with a target mask as well, which hides nothing."""
    return replace(case, args=(*case.args, torch.tensor(ALL)[..., : case.args[0].size(1)]))


def one_target(*masks: list, **options) -> list[Call]:
    """Small calls with one target position, then with two."""
    cases = small(MEMORY, masks=masks or (None,), **BOTH, **options)
    return sorted(cases, key=lambda case: case.args[0].size(1))


def of_kind(calls: Iterable[Call], *switches: bool) -> list[Call]:
    """The same calls of layers with these values of `causal` and `cross`."""
    return [replace(call, init=(*call.init, *switches)) for call in calls]


def parts() -> list[Call]:
    """Whether the layer of an encoder, of a language model and of a decoder has a cross-attention."""
    kinds = (False, False), (True, False), (True, True)
    view = lambda state: {"cross-attention in the layer": any("cross" in n for n in state)}  # noqa: E731
    return [Call((), init=(config(3, 1, 3), *kind), method="state", view=view) for kind in kinds]


CROSS = True, True  # causal and with cross-attention, as in a decoder
SMALL_SOURCE = [*one_target(FIRST, SECOND), *map(masks_both, one_target(FIRST))]
TASK = Task(
    name="layer",
    solution=[Layer],
    probes={
        "wiring": (plain(), small(**ONE)),
        "pre_norm": (plain(norm_first=True), small(norm_first=True, **ONE)),
        "mask": (masked, small(None, None, masks=(FIRST, OWN), **ONE)),
        "dropout": (dropout((16, 1), **ONE), small_training(**ONE)),
        "causal": (
            lambda draw: of_kind(language_model(draw), True) + of_kind(causal(draw), *CROSS),
            of_kind(small_causal(None, **ONE), True),
        ),
        "cross": (lambda draw: of_kind(cross(draw), *CROSS), of_kind(one_target(norm_first=True), *CROSS)),
        "memory_mask": (lambda draw: of_kind(source(draw), *CROSS), of_kind(SMALL_SOURCE, *CROSS)),
        "parts": (parts(), parts()),
    },
)
