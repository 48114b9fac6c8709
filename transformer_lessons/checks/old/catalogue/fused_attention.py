"""The check of `fused_attention`: attention that never builds its weights, which is counted, not timed."""

from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.attention import (
    BASE,
    SEEDLESS,
    SMALL,
    base_probes,
    inputs,
    sizes,
)
from transformer_lessons.checks.old.catalogue.fused_attention_mistakes import (
    FUSED,
    LOST,
    MASKS,
    MEMORY,
    MISTAKES,
    Steps,
    assemble,
    by_steps,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import fused_attention

__all__ = ["TASK"]

KEYS = 131  # of the long calls: a prime with a square that nothing else comes near


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    square = inputs(draw, s, b, h, keys=q)
    first_key = draw.mask(b, 1, 1, q)
    first_key[..., 0] = True
    left_padded = draw.mask(b, 1, 1, q)
    left_padded[..., 0] = False
    both_ends = draw.mask(b, 1, 1, max(q, k))
    both_ends[..., 0] = both_ends[..., -1] = True  # which of them a query sees tells how it is aligned
    plain, longer = inputs(draw, s, b, h), inputs(draw, s, b, h, queries=min(q, k), keys=max(q, k))
    base = {
        name: replace(probe, cotangents=probe.cotangents[:1] if probe.cotangents else None)
        for name, probe in base_probes(s, draw).items()
        if name != "keys_alone"  # which the text does not promise
    }
    return {
        **base,
        "causal": Probe(square, {"is_causal": True}),
        "causal_masked": Probe([*square, first_key], {"is_causal": True}),
        "causal_left_padded": Probe(
            [*square, left_padded], {"is_causal": True}, cotangents=[draw.normal(b, h, q, s["d_v"])]
        ),
        "longer": Probe(longer, {"is_causal": True}),
        "longer_masked": Probe([*longer, both_ends], {"is_causal": True}),
        "causal_alone": Probe([x[0, 0] for x in longer], {"is_causal": True}),
        **_long(draw),
        "dropout": _dropout(draw, s),
        "dropout_masked": _dropout(draw, s, 0.25, is_masked=True),
        "dropout_causal": _dropout(draw, s, is_causal=True),
        "dropout_both": _dropout(draw, s, is_masked=True, is_causal=True),
        "number_mask": Probe([*plain, draw.mask(q, k).long()], refused="A mask of integers 0 and 1"),
        "float_mask": Probe([*plain, draw.normal(q, k)], refused="A mask of floating-point numbers"),
        "uint8_mask": Probe([*plain, draw.mask(q, k).byte()], refused="A mask of dtype torch.uint8"),
        "causal_number_mask": Probe(
            [*square, first_key.long()],
            {"is_causal": True},
            refused="A mask of integers 0 and 1, with is_causal=True",
        ),
    }


def _long(draw: Draw) -> dict[str, Probe]:
    """Calls in which a matrix of queries × keys is by far the largest thing there could be."""
    shape = {"d_k": 3, "d_v": 3, "queries": KEYS, "keys": KEYS}  # the CPU’s kernel wants one width
    q, k, v = inputs(draw, shape, 1, 2)
    counted = {"cotangents": [draw.normal(1, 2, KEYS, 3)], "meter": True}
    enough = {"enough": {"largest": 2 * v.nbytes, "saved": 4 * v.nbytes}}
    return {
        "long": Probe([q, k, v], **counted, **enough),
        "long_causal": Probe([q, k, v], {"is_causal": True}, **counted, **enough),
        "long_padding": Probe([q, k, v, draw.mask(1, 1, 1, KEYS)], **counted, **enough),
    }


def _dropout(
    draw: Draw, s: dict[str, int], rate: float = 0.5, *, is_masked: bool = False, is_causal: bool = False
) -> Probe:
    """With the identity twice as the values, the output is the weights after dropout, twice."""
    keys = max(s["keys"], 5)
    queries = keys if is_causal else s["queries"]  # as many of both, where the kernel's flag will do
    query, key, _ = inputs(draw, s, max(s["batch"], 3), max(s["heads"], 3), queries=queries, keys=keys)
    identity = torch.eye(keys, dtype=torch.float64)
    value = torch.cat([identity, identity], -1).expand(*query.shape[:2], -1, -1)
    mask = draw.mask(query.size(0), 1, 1, keys) if is_masked else None
    options = {"is_causal": True} if is_causal else {}
    weights = by_steps(query, key, value, mask, **options)[1]
    grown = "doubled" if rate == 0.5 else f"divided by {1 - rate}"
    most = f"with dropout={rate}, most weights should stay"

    def view(output: Tensor) -> dict:
        first, second = output.split(keys, -1)
        factors = (first / weights)[weights > 0].mul(1e6).round().div(1e6).unique()
        return {
            f"with dropout={rate}, the weights in the output should be either zero or {grown}": factors,
            **({} if rate == 0.5 else {most: (first[weights > 0] == 0).double().mean().item() < 0.5}),
            "dropout should hit the weights, before they meet the values": torch.equal(first, second),
        }

    return Probe([query, key, value, mask], {**options, "dropout": rate}, view=view)


WORDS = {
    "returns": "it returns one tensor of shape (…, queries, d_v), and no weights.",
    "values": "output = softmax(QKᵀ/√d_k) V.",
    "gradients": "gradients reach query, key and value.",
    "dtype": "the output has the dtype of the inputs: float32 stays float32, float64 stays float64.",
    "empty_rows": "a query that may attend to nothing gets output and gradients zero.",
}

MORE = {"inputs": ("empty",), "empty_rows": ("causal_left_padded",)}

TASK = Task(
    name="fused_attention",
    signature="fused_attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0)",
    arguments=("query", "key", "value", "mask"),
    returns=("output",),
    reference=fused_attention,
    requirements=(
        *(
            replace(
                r,
                sentence=WORDS.get(r.id, r.sentence),
                anchor=FUSED if r.id == "returns" else r.anchor,
                probes=(*(name for name in r.probes if name != "keys_alone"), *MORE.get(r.id, ())),
            )
            for r in BASE
        ),
        Requirement(
            "causal",
            "with is_causal=True, query i sees keys 0 … i; together with a mask, both must allow it.",
            ("causal", "causal_masked"),
            FUSED,
        ),
        Requirement(
            "more_keys",
            "with is_causal=True and more keys than queries, the last query sees the last key.",
            ("longer", "longer_masked", "causal_alone"),
            LOST,
        ),
        Requirement(
            "memory",
            "no tensor of queries × keys is made; with a mask of shape (batch, 1, 1, keys) neither.",
            ("long", "long_padding"),
            MEMORY,
            ("gradients", "largest", "saved"),
        ),
        Requirement(
            "causal_memory",
            "nor is one made for is_causal=True, with as many keys as queries and no mask.",
            ("long_causal",),
            FUSED,
            ("gradients", "largest", "saved"),
        ),
        Requirement(
            "dropout",
            "dropout zeroes weights at random and scales up the rest.",
            ("dropout", "dropout_masked", "dropout_causal", "dropout_both"),
            "#ch05-class",
        ),
        Requirement(
            "refusals",
            "a mask that is not boolean is refused with ValueError, as 0 and 1 could mean either thing.",
            ("number_mask", "float_mask", "uint8_mask", "causal_number_mask"),
            MASKS,
        ),
        SEEDLESS,
    ),
    sizes=sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=13,  # those of `base_probes`
)
