"""The check of `MultiHeadAttention`: its requirements, and the calls that probe them."""

import random
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.multi_head_mistakes import MISTAKES
from transformer_lessons.checks.old.catalogue.multi_head_steps import Steps, assemble
from transformer_lessons.checks.old.core import Build, Draw, Probe, Requirement, Task

__all__ = ["TASK"]

LOOP, RESHAPE, CLASS, CROSS = "#ch07-loop", "#ch07-reshape", "#ch07-class", "#ch07-cross"
MASKS, WRONG = "#ch05-masks", "#ch07-wrong"


def _sizes(seed: int) -> dict[str, int]:
    """Distinct primes; two positions or two heads would be too few to tell some mistakes apart."""
    queries, keys, heads = random.Random(seed).sample([3, 5, 7], 3)
    batch, d_k = random.Random(seed + 1).sample([2, 11], 2)
    return {"batch": batch, "queries": queries, "keys": keys, "heads": heads, "d_k": d_k}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, q, k, h = s["batch"], s["queries"], s["keys"], s["heads"]
    d = h * s["d_k"]
    state = {}
    for letter in "qkvo":
        state[f"W_{letter}.weight"] = draw.normal(d, d) / 4
        state[f"W_{letter}.bias"] = draw.normal(d)
    loaded = Build([d, h], dtype="float64", state=state, training=False)
    single = Build([d, h], state={name: tensor.float() for name, tensor in state.items()}, training=False)
    x, memory, other = draw.normal(b, q, d), draw.normal(b, k, d), draw.normal(b, k, d)
    back = [draw.normal(b, q, d)]
    before = [draw.normal(b, q, d), draw.normal(b, q, d), None, draw.mask(b, 1, q, q)]
    used = replace(loaded, earlier=(("", before, {}),))
    per_head, empty = draw.mask(b, h, q, k), draw.mask(b, 1, q, k)
    empty[..., 0, :] = False
    grid = draw.mask(q, k)
    grid[-1] = grid[0].roll(1)  # not the same for all queries
    asked = {"need_weights": True}
    return {
        "self": Probe([x], build=loaded, cotangents=back),
        "names": Probe([], build=Build([d, h]), method="state", view=_shapes),
        "one_head": Probe([x[:1]], build=replace(loaded, args=[d, 1]), note="one sentence and one head"),
        "cross": Probe([x, memory], {"need_weights": False}, build=replace(loaded, training=True)),
        "three": Probe([x, memory, other], build=loaded),
        "masked": Probe([x, memory, other, per_head], build=loaded, cotangents=back),
        "padding": Probe([x, memory, None, draw.mask(b, 1, 1, k)], build=loaded),
        "causal": Probe([x], {"mask": torch.ones(1, 1, q, q, dtype=torch.bool).tril()}, build=loaded),
        "weights": Probe([x, memory, None, per_head], asked, build=loaded, view=_with_weights),
        "bare_weights": Probe(
            [x[:1, :1], memory[:1]], asked, build=loaded, view=_with_weights, note="one query, and no mask"
        ),
        "float32": Probe([x.float(), memory.float()], build=single),
        "empty": Probe([x, memory, other, empty], build=loaded, cotangents=back),
        # As many sentences as queries, or as heads: a mask that meets the wrong axis raises no error.
        "two_axes": Probe([draw.normal(q, q, d), draw.normal(q, k, d), None, grid], build=loaded),
        "three_axes": Probe(
            [draw.normal(h, q, d), draw.normal(h, k, d), None, draw.mask(h, q, k)], build=loaded
        ),
        "head_padding": Probe([x, memory, None, draw.mask(b, h, 1, k)], build=loaded),
        "again": Probe(
            [x, draw.normal(b, q, d)], build=used, note="the second call, without the first one's mask"
        ),
        "low": Probe([x, _low(draw, b, k, d), other, draw.mask(b, 1, 1, k)], build=loaded),
        **_refused(s, draw, loaded),
    }


def _low(draw: Draw, b: int, k: int, d: int) -> Tensor:
    """Keys in one direction: half of all queries find scores far below −1e4, the others far above."""
    return draw.normal(b, 1, d) * torch.linspace(2e4, 4e4, k, dtype=torch.float64)[:, None]


def _refused(s: dict[str, int], draw: Draw, loaded: Build) -> dict[str, Probe]:
    b, q, k, d = s["batch"], s["queries"], s["keys"], s["heads"] * s["d_k"]
    x, memory, wide = draw.normal(b, q, d), draw.normal(b, k, d), draw.normal(b, q, d + 1)
    return {
        "remainder": Probe([x], build=Build([d, d - 1]), refused=f"num_heads={d - 1} for d_model={d}"),
        "no_head": Probe([x], build=Build([d, 0]), refused="num_heads=0"),
        "negative": Probe([x], build=Build([d, -1]), refused="num_heads=-1"),
        "lonely_value": Probe([x, None, draw.normal(b, q, d)], build=loaded, refused="a value without a key"),
        "wide": Probe([wide], build=loaded, refused=f"a query of width {d + 1}, not {d}"),
        "wide_query": Probe(
            [wide, memory, memory],
            build=loaded,
            refused=f"a query of width {d + 1}, not {d}, with other keys",
        ),
        "wide_key": Probe(
            [x, draw.normal(b, k, d + 1), memory], build=loaded, refused=f"a key of width {d + 1}, not {d}"
        ),
        "wide_value": Probe(
            [x, memory, draw.normal(b, k, d + 1)], build=loaded, refused=f"a value of width {d + 1}, not {d}"
        ),
    }


def _shapes(state: dict) -> dict:
    names = (
        "its parameters should be those of four nn.Linear, W_q, W_k, W_v and W_o, from d_model to d_model "
        "features and with biases"
    )
    return {names: {name: list(state[name].shape) for name in sorted(state)}}


def _with_weights(result: object) -> dict:
    is_pair = isinstance(result, list) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)
    output, weights = result if is_pair else (None, None)
    return {
        "with need_weights=True it should return a tuple (output, weights)": is_pair,
        "with need_weights=True the output should be what it is without": output,
        "the weights should be those of every head, (batch, heads, queries, keys)": weights,
    }


def _small(queries: int, keys: int, d_k: int) -> dict[str, int]:
    return {"batch": 1, "queries": queries, "keys": keys, "heads": 2, "d_k": d_k}


TASK = Task(
    name="multi_head",
    signature="MultiHeadAttention(d_model, num_heads)(query, key=None, value=None, mask=None, *, "
    "need_weights=False)",
    arguments=("query", "key", "value", "mask"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "parameters",
            "its parameters are those of four nn.Linear: W_q, W_k, W_v and W_o, d_model to d_model.",
            ("names",),
            CLASS,
        ),
        Requirement(
            "returns",
            "it returns one tensor of the query's shape.",
            ("self", "cross", "one_head"),
            CLASS,
            ("structure",),
        ),
        Requirement(
            "values",
            "each head attends with its own d_k features of the three projections; what the heads find stands "
            "side by side and goes through W_o.",
            ("self", "one_head", "again"),
            LOOP,
        ),
        Requirement(
            "cross",
            "keys and values may come from elsewhere and in another number; the value is the key unless given.",
            ("cross", "three"),
            CROSS,
        ),
        Requirement(
            "mask",
            "a mask hides keys where it is False, whatever the scores are, and broadcasts to (batch, heads, "
            "queries, keys).",
            ("padding", "causal", "masked", "two_axes", "three_axes", "head_padding", "low"),
            CROSS,
        ),
        Requirement(
            "gradients",
            "gradients reach the three inputs and all parameters.",
            ("masked", "self"),
            "#ch07-proof",
            ("gradients", "parameters"),
        ),
        Requirement(
            "weights",
            "with need_weights=True it returns (output, weights), the weights of each head.",
            ("weights", "bare_weights"),
            CLASS,
        ),
        Requirement(
            "dtype", "the output has the dtype of the inputs.", ("float32", "self"), CLASS, ("dtype",)
        ),
        Requirement(
            "inputs",
            "the caller's tensors are left unchanged.",
            ("masked", "padding"),
            CLASS,
            ("inputs",),
        ),
        Requirement(
            "empty_rows",
            "where a query may attend to nothing the heads find zeros: the output is W_o's bias, not NaN.",
            ("empty",),
            MASKS,
            ("gradients", "parameters"),
        ),
        Requirement(
            "refusals",
            "a num_heads below 1 or that does not divide d_model, a value without a key, and inputs of another "
            "width than d_model are refused with ValueError.",
            (
                "remainder",
                "no_head",
                "negative",
                "lonely_value",
                "wide",
                "wide_query",
                "wide_key",
                "wide_value",
            ),
            CLASS,
        ),
    ),
    sizes=_sizes,
    small=(_small(1, 2, 1), _small(2, 3, 1), _small(2, 3, 2), {**_small(3, 5, 2), "batch": 2}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=17,  # all but the refusals
)
