"""The check of `linear_attention`: its requirements, and the calls that probe them."""

import random

from transformer_lessons.checks.old.catalogue.attention import exchanged
from transformer_lessons.checks.old.catalogue.linear_mistakes import MISTAKES
from transformer_lessons.checks.old.catalogue.linear_steps import Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import linear_attention

__all__ = ["TASK"]

KERNEL, BRACKET, CAUSAL, FUNCTION = "#ch08-kernel", "#ch08-associativity", "#ch08-causal", "#ch08-function"
PADDING, COST = "#ch08-padding", "#ch08-cost"


def _sizes(seed: int) -> dict[str, int]:
    """Distinct primes; three positions at least, so that a causal mask hides something and shows something."""
    rng = random.Random(seed)
    queries, keys, d_k, d_v = rng.sample([3, 5, 7, 11], 4)
    keys, queries = sorted((queries, keys))  # more queries than keys are refused with is_causal alone
    batch, heads = rng.sample([2, 13], 2)
    return {"batch": batch, "heads": heads, "queries": queries, "keys": keys, "d_k": d_k, "d_v": d_v}


def _inputs(draw: Draw, s: dict[str, int], *lead: int, queries: int = 0, keys: int = 0) -> list:
    """Query, key and value."""
    queries, keys, d_k, d_v = queries or s["queries"], keys or s["keys"], s["d_k"], s["d_v"]
    return [draw.normal(*lead, queries, d_k), draw.normal(*lead, keys, d_k), draw.normal(*lead, keys, d_v)]


def _alike(inputs: list) -> list:
    """Features near zero, where φ is not exact, and values whose average is the same by whatever weights."""
    query, key, value = inputs
    return [query - 22, key - 22, value[..., :1, :].expand_as(value).contiguous()]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    plain, back = _inputs(draw, s, b, h), [draw.normal(b, h, q, s["d_v"])]
    square = _inputs(draw, s, b, h, keys=q)
    mask, hidden = draw.mask(b, 1, k), draw.mask(b, 1, k)
    hidden[0] = False
    positive = [plain[0].abs() * 900 + 100, plain[1].abs() * 900 + 100, plain[2]]
    low, none = ([plain[0] - x, plain[1] - x, plain[2]] for x in (10, 1000))
    long = [draw.normal(101, 5), draw.normal(103, 5), draw.normal(103, 1)]
    late = draw.mask(b, 1, q)
    late[..., 0], late[..., -1] = False, True  # the first query sees nothing
    return {
        "plain": Probe(plain),
        "single": Probe(_inputs(draw, s)),
        "alone": Probe(
            [plain[0][:1, :1, :1], plain[1][:1, :1], plain[2][:1, :1]],
            note="one sentence, one head and one query",
        ),
        "tiny": Probe(_alike(plain), note="all features are tiny, and all values the same"),
        **_causal_probes(s, draw, square, back),
        "masked": Probe(plain, {"key_mask": mask}, cotangents=back),
        "head_mask": Probe(plain, {"key_mask": draw.mask(h, k)}, note="a key_mask for each head"),
        "shared_mask": Probe(plain, {"key_mask": mask[0, 0]}),
        "float32": Probe([x.float() for x in plain], {"key_mask": mask}),
        "positive": Probe(positive, cotangents=back),
        "low": Probe(low, cotangents=back, note="all features are near zero"),
        "none": Probe(none, cotangents=back, note="all features are zero"),
        "empty": Probe(plain, {"key_mask": hidden}, cotangents=back),
        "causal_empty": Probe(square, {"is_causal": True, "key_mask": late}, cotangents=back),
        "exchanged": Probe([*map(exchanged, plain)], note="axes exchanged, as after a split into heads"),
        "number_mask": Probe(plain, {"key_mask": mask.long()}, refused="A mask of integers 0 and 1"),
        "fewer_keys": Probe(
            _inputs(draw, s, queries=max(q, k), keys=min(q, k)),
            {"is_causal": True},
            refused="is_causal with more queries than keys",
        ),
        "long": Probe(long, meter=True),
        "long_masked": Probe(long, {"key_mask": draw.mask(103)}, meter=True),
    }


def _causal_probes(s: dict[str, int], draw: Draw, square: list, back: list) -> dict[str, Probe]:
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    causal, longer = {"is_causal": True}, _inputs(draw, s, b, h, queries=min(q, k), keys=max(q, k))
    both_ends = draw.mask(b, 1, max(q, k))
    both_ends[..., 0] = both_ends[..., -1] = True  # which of them a query sees tells how it is aligned
    mask = draw.mask(b, h, q)
    mask[..., 0] = True  # the first query sees itself alone
    return {
        "causal": Probe(square, causal, cotangents=back),
        "longer": Probe(longer, causal),
        "longer_masked": Probe(longer, {**causal, "key_mask": both_ends}),
        "causal_long": Probe(_inputs(draw, s, h, queries=131, keys=131), causal),
        "causal_masked": Probe(square, {**causal, "key_mask": mask}),
        "causal_tiny": Probe(_alike(square), causal, note="all features are tiny, and all values the same"),
        "causal_float32": Probe([x.float() for x in square], causal),
    }


TASK = Task(
    name="linear_attention",
    signature="linear_attention(query, key, value, *, is_causal=False, key_mask=None)",
    arguments=("query", "key", "value"),
    returns=("output",),
    reference=linear_attention,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (…, queries, d_v), also for inputs whose axes have been exchanged.",
            ("plain", "single", "alone", "exchanged"),
            KERNEL,
            ("structure",),
        ),
        Requirement(
            "values",
            "output_i = Σ_j (φ(q_i)·φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j), with φ(x) = elu(x) + 1.",
            ("plain", "single", "tiny"),
            KERNEL,
        ),
        Requirement(
            "causal",
            "with is_causal=True, query i sees keys 0 … i, in the numerator and in the divisor.",
            ("causal", "causal_long", "causal_tiny"),
            CAUSAL,
        ),
        Requirement(
            "more_keys",
            "with is_causal=True and more keys than queries, the last query sees the last key.",
            ("longer",),
            FUNCTION,
        ),
        Requirement(
            "key_mask",
            "keys where key_mask is False count neither in the numerator nor in the divisor; it broadcasts to "
            "(…, keys).",
            ("masked", "shared_mask", "head_mask", "causal_masked", "longer_masked"),
            PADDING,
        ),
        Requirement(
            "gradients",
            "gradients reach query, key and value.",
            ("masked", "causal"),
            BRACKET,
            ("gradients",),
        ),
        Requirement(
            "dtype",
            "the output has the dtype of the inputs.",
            ("float32", "causal_float32", "plain"),
            FUNCTION,
            ("dtype",),
        ),
        Requirement("inputs", "the caller's tensors are left unchanged.", ("masked",), FUNCTION, ("inputs",)),
        Requirement(
            "extremes",
            "large inputs give finite outputs and gradients.",
            ("positive", "low", "none"),
            KERNEL,
            ("gradients",),
        ),
        Requirement(
            "empty_rows",
            "a query that sees no key gets output and gradients zero, not NaN.",
            ("empty", "causal_empty"),
            FUNCTION,
            ("gradients",),
        ),
        Requirement(
            "cost",
            "without is_causal, no tensor is made that has queries × keys numbers.",
            ("long", "long_masked"),
            COST,
            ("largest",),
        ),
        Requirement(
            "refusals",
            "a key_mask that is not boolean and, with is_causal=True, more queries than keys are refused with "
            "ValueError.",
            ("number_mask", "fewer_keys"),
            FUNCTION,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "queries": 2, "keys": 2, "d_k": 1, "d_v": 1},
        {"batch": 1, "heads": 1, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
        {"batch": 2, "heads": 1, "queries": 2, "keys": 3, "d_k": 2, "d_v": 1},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=21,  # all but the refusals and the bytes
)
