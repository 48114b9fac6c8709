"""The check of `scaled_dot_product_attention`: its requirements, and the calls that probe them."""

import random

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention_option_mistakes import MISTAKES
from transformer_lessons.checks.old.catalogue.attention_steps import Steps, attend
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import scaled_dot_product_attention

__all__ = ["BASE", "SEEDLESS", "SMALL", "TASK", "base_probes", "exchanged", "inputs", "low_scores", "sizes"]

# What holds for any attention that returns its weights, from basic to subtle.
BASE = (
    Requirement(
        "returns",
        "it returns a tuple (output, weights) of shapes (…, queries, d_v) and (…, queries, keys).",
        ("plain", "alone"),
        "#ch05-vectorised",
        ("structure",),
    ),
    Requirement("values", "weights = softmax(QKᵀ/√d_k), output = weights V.", ("plain",), "#ch05-scale"),
    Requirement(
        "mask",
        "keys where the mask is False get weight zero, before normalising.",
        ("masked",),
        "#ch05-masks",
    ),
    Requirement(
        "broadcasting",
        "a mask may be smaller than the scores, and inputs may come without heads or batch, or with their axes "
        "exchanged.",
        ("padding", "grid", "batch_only", "single", "exchanged", "per_head", "keys_alone"),
        "#ch05-masks",
    ),
    Requirement(
        "gradients",
        "gradients reach query, key and value, through output and weights.",
        ("masked", "plain"),
        "#ch05-proof",
        ("gradients",),
    ),
    Requirement(
        "dtype",
        "results have the dtype of the inputs: float32 stays float32, float64 stays float64.",
        ("float32", "plain"),
        "#ch05-vectorised",
        ("dtype",),
    ),
    Requirement(
        "inputs",
        "the caller's tensors are left unchanged.",
        ("masked", "padding"),
        "#ch05-vectorised",
        ("inputs",),
    ),
    Requirement(
        "extremes",
        "scores of any size work: no overflow, no NaN, and nothing hidden leaks.",
        ("large", "low"),
        "#ch05-saturation",
    ),
    Requirement(
        "empty_rows",
        "a query that may attend to nothing gets weights, output and gradients zero, not NaN.",
        ("empty",),
        "#ch05-masks",
        ("gradients",),
    ),
)
SEEDLESS = Requirement(
    "random", "the global random generator is not seeded.", ("plain", "dropout"), "#ch05-class", ("random",)
)
FURTHER = (
    Requirement(
        "causal",
        "with is_causal=True, query i sees keys 0 … i; together with a mask, both must allow it.",
        ("causal", "causal_masked", "causal_low"),
        "#ch05-masks",
        ("inputs",),
    ),
    Requirement(
        "causal_rows",
        "a query to which a mask and is_causal together leave no key gets zeros, too.",
        ("causal_left_padded",),
        "#ch05-masks",
    ),
    Requirement(
        "more_keys",
        "with is_causal=True and more keys than queries, the last query sees the last key.",
        ("longer", "causal_alone", "longer_masked"),
        "#ch05-masks",
    ),
    Requirement(
        "dropout",
        "dropout zeroes weights at random and scales up the rest; the weights returned are those before it.",
        ("dropout", "dropout_quarter"),
        "#ch05-class",
        ("gradients",),
    ),
    Requirement(
        "refusals",
        "a mask that is not boolean is refused with ValueError, as 0 and 1 could mean either thing.",
        ("number_mask", "float_mask", "uint8_mask", "causal_number_mask"),
        "#ch05-masks",
    ),
    SEEDLESS,
)


def sizes(seed: int) -> dict[str, int]:
    """Distinct primes, in another order for each seed; two positions would be too few to mask any."""
    order = random.Random(seed)
    d_k = order.choice([5, 7, 11])  # whose root is no whole number, and does not round to one
    widths, lengths = [n for n in (2, 3, 5, 7, 11, 13) if n != d_k], []
    for _ in range(2):
        lengths.append(widths.pop(order.randrange(1, len(widths))))
    order.shuffle(widths)
    return dict(
        zip(("d_k", "queries", "keys", "batch", "heads", "d_v"), [d_k, *lengths, *widths], strict=True)
    )


SMALL = (
    {"batch": 1, "heads": 1, "queries": 1, "keys": 2, "d_k": 2, "d_v": 1},
    {"batch": 1, "heads": 1, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
    {"batch": 1, "heads": 2, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
    {"batch": 2, "heads": 2, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
)


def inputs(
    draw: Draw,
    s: dict[str, int],
    *lead: int,
    queries: int = 0,
    keys: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Query, key and value."""
    queries, keys = queries or s["queries"], keys or s["keys"]
    shapes = ((queries, s["d_k"]), (keys, s["d_k"]), (keys, s["d_v"]))
    return [draw.normal(*lead, *shape, dtype=dtype) for shape in shapes]


def low_scores(query: Tensor, key: Tensor, value: Tensor, times: float = 5e5) -> list[Tensor]:
    """The same with scores that are all far below zero: unless told otherwise, below −1e5.

    Those of one key are far from those of another. Of two that were equal, as two decimals sometimes make them,
    rounding would decide about the weights.
    """
    rank = key.abs().sum(-1, keepdim=True).argsort(dim=-2, stable=True).argsort(dim=-2)
    return [query.abs() + 0.5, -times * (key.abs().clamp(max=0.9) + 0.5 + rank), value]


def exchanged(x: Tensor) -> Tensor:
    """The same numbers, in memory as after a split into heads: view cannot join the axes in front."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def base_probes(s: dict[str, int], draw: Draw, extra: tuple = ()) -> dict[str, Probe]:
    """The probes of `BASE`; `extra` are arguments between value and mask."""
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    plain = inputs(draw, s, b, h)
    gradient = [draw.normal(b, h, q, s["d_v"]), draw.normal(b, h, q, k)]
    empty = draw.mask(b, h, q, k)
    empty[..., 0, :] = False
    batch_only, single = inputs(draw, s, b), inputs(draw, s)
    large = [plain[0] * 300, plain[1] * 10, plain[2]]
    low = low_scores(*plain)
    alone = [plain[0][:1, :1, :1], plain[1][:1, :1], plain[2][:1, :1]]
    return {
        "plain": Probe([*plain, *extra], cotangents=gradient),
        "masked": Probe([*plain, *extra, draw.mask(b, h, q, k)], cotangents=gradient),
        "padding": Probe([*plain, *extra, draw.mask(b, 1, 1, k)]),
        "grid": Probe([*plain, *extra, draw.mask(q, k)]),
        "batch_only": Probe([*batch_only, *extra, draw.mask(b, q, k)]),
        "single": Probe([*single, *extra, draw.mask(q, k)]),
        "float32": Probe([*inputs(draw, s, b, h, dtype=torch.float32), *extra, draw.mask(b, 1, q, k)]),
        "large": Probe([*large, *extra]),
        "low": Probe([*low, *extra, draw.mask(b, h, q, k)]),
        "empty": Probe([*plain, *extra, empty], cotangents=gradient),
        "alone": Probe([*alone, *extra], note="one sentence, one head and one query"),
        "exchanged": Probe(
            [*map(exchanged, plain), *extra], note="axes exchanged, as after a split into heads"
        ),
        "per_head": Probe([*plain, *extra, draw.mask(h, q, k)], note="the mask has heads, and no batch"),
        "keys_alone": Probe([*single, *extra, draw.mask(k)], note="the mask has one axis, the keys"),
    }


def probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    """All probes."""
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    square = inputs(draw, s, b, h, keys=q)
    longer = inputs(draw, s, b, h, queries=min(q, k), keys=max(q, k))
    first_key = draw.mask(b, 1, 1, q)
    first_key[..., 0] = True
    full = draw.mask(b, 1, q, q)  # as large as the causal one, which may not be written into it
    full[..., 0] = True
    both_ends = draw.mask(b, 1, 1, max(q, k))
    both_ends[..., 0] = both_ends[..., -1] = True  # which of them a query sees tells how it is aligned
    plain = inputs(draw, s, b, h)
    left_padded = draw.mask(b, 1, 1, q)
    left_padded[..., 0] = False
    back = [draw.normal(b, h, q, s["d_v"]), draw.normal(b, h, q, q)]
    return {
        **base_probes(s, draw),
        "causal": Probe(square, {"is_causal": True}),
        "causal_masked": Probe([*square, full], {"is_causal": True}),
        "causal_low": Probe([*(x[0, 0] for x in low_scores(*square)), first_key[0, 0]], {"is_causal": True}),
        "causal_left_padded": Probe([*square, left_padded], {"is_causal": True}, cotangents=back),
        "longer": Probe(longer, {"is_causal": True}),
        "causal_alone": Probe([x[0, 0] for x in longer], {"is_causal": True}),
        "longer_masked": Probe([*longer, both_ends], {"is_causal": True}),
        "dropout": _dropout(draw, s),
        "dropout_quarter": _dropout(draw, s, 0.25, is_masked=True),
        "number_mask": Probe([*plain, draw.mask(q, k).long()], refused="A mask of integers 0 and 1"),
        "float_mask": Probe([*plain, draw.normal(q, k)], refused="A mask of floating-point numbers"),
        "uint8_mask": Probe([*plain, draw.mask(q, k).byte()], refused="A mask of dtype torch.uint8"),
        "causal_number_mask": Probe(
            [*square, first_key.long()],
            {"is_causal": True},
            refused="A mask of integers 0 and 1, with is_causal=True",
        ),
    }


def _mixed(gone: Tensor, weights: Tensor) -> bool:
    """Whether there is a row that has lost some of its weights, and not all."""
    shown = weights != 0
    return bool(((gone & shown).any(-1) & (~gone & shown).any(-1)).any())


def _dropout(draw: Draw, s: dict[str, int], rate: float = 0.5, *, is_masked: bool = False) -> Probe:
    """Chance decides which weights are dropped, so some things are read off that it does not touch.

    With the identity twice as the values, the output is the weights after dropout, twice. Gradients of zero do
    not depend on chance either, and still show whether query and key are reached.
    """
    keys = max(s["keys"], 5)
    queries = min(s["queries"], keys)  # of a causal mask, as many as keys at most
    query, key, _ = inputs(draw, s, max(s["batch"], 3), max(s["heads"], 3), queries=queries, keys=keys)
    masks, options = [], {"dropout": rate}
    if is_masked:
        masks, options = [draw.mask(query.size(0), 1, 1, keys)], {"is_causal": True, **options}
        masks[0][..., 0] = True
    identity = torch.eye(keys, dtype=torch.float64)
    value = torch.cat([identity, identity], -1).expand(*query.shape[:2], -1, -1)
    most = f"with dropout={rate}, most weights should stay"
    own = "with dropout, each head of each sentence should lose weights of its own"
    grown = "doubled" if rate == 0.5 else f"divided by {1 - rate}"

    def view(result: list) -> dict:
        output, weights = result
        first, second = output.split(keys, -1)
        gone = first == 0
        factors = (first / weights)[weights != 0].mul(1e6).round().div(1e6).unique()
        return {
            f"with dropout={rate}, the weights in the output should be either zero or {grown}": factors,
            **({} if rate == 0.5 else {most: gone[weights != 0].double().mean().item() < 0.5}),
            "dropout should hit the weights, before they meet the values": torch.equal(first, second),
            "each query should lose weights of its own": bool((gone != gone[..., :1, :]).any()),
            "a query should lose some of its weights and keep others": _mixed(gone, weights),
            **({} if is_masked else {own: bool((gone != gone[:, :1]).any() and (gone != gone[:1]).any())}),
            "with dropout, the weights returned should be those before dropout": weights,
        }

    back = [torch.zeros(*query.shape[:-1], 2 * keys, dtype=torch.float64)]
    return Probe([query, key, value, *masks], options, cotangents=back, view=view)


TASK = Task(
    name="scaled_dot_product_attention",
    signature="scaled_dot_product_attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0)",
    arguments=("query", "key", "value", "mask"),
    returns=("output", "weights"),
    reference=scaled_dot_product_attention,
    requirements=(*BASE, *FURTHER),
    sizes=sizes,
    small=SMALL,
    probes=probes,
    steps=Steps(),
    assemble=attend,
    mistakes=MISTAKES,
    essential=14,  # those of `base_probes`
)
