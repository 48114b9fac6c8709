"""The check of `fused_attention`: attention that never builds its weights, which is counted, not timed."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_lessons.attention import fused_attention
from transformer_lessons.checks.catalogue.attention import BASE, SMALL, base_probes, inputs, sizes
from transformer_lessons.checks.catalogue.attention_steps import Steps as StepByStep
from transformer_lessons.checks.catalogue.attention_steps import attend
from transformer_lessons.checks.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

FUSED, MEMORY, LOST, MASKS = "#ch16-fused", "#ch17-measured", "#ch17-wrong", "#ch05-masks"
KEYS = 131  # of the long calls: a prime with a square that nothing else comes near
by_steps = attend(StepByStep())


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, q, k = (s[name] for name in ("batch", "heads", "queries", "keys"))
    square = inputs(draw, s, b, h, keys=q)
    first_key = draw.mask(b, 1, 1, q)
    first_key[..., 0] = True
    plain, longer = inputs(draw, s, b, h), inputs(draw, s, b, h, queries=min(q, k), keys=max(q, k))
    base = {
        name: replace(probe, cotangents=probe.cotangents[:1] if probe.cotangents else None)
        for name, probe in base_probes(s, draw).items()
    }
    return {
        **base,
        "causal": Probe(square, {"is_causal": True}),
        "causal_masked": Probe([*square, first_key], {"is_causal": True}),
        "longer": Probe(longer, {"is_causal": True}),
        "causal_alone": Probe([x[0, 0] for x in longer], {"is_causal": True}),
        **_long(draw),
        "dropout": _dropout(draw, s),
        "dropout_masked": _dropout(draw, s, is_masked=True),
        "number_mask": Probe([*plain, draw.mask(q, k).long()], refused="A mask of integers 0 and 1"),
        "float_mask": Probe([*plain, draw.normal(q, k)], refused="A mask of floating-point numbers"),
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


def _dropout(draw: Draw, s: dict[str, int], is_masked: bool = False) -> Probe:
    """With the identity twice as the values, the output is the weights after dropout, twice."""
    keys = max(s["keys"], 5)
    query, key, _ = inputs(draw, s, max(s["batch"], 3), max(s["heads"], 3), keys=keys)
    identity = torch.eye(keys, dtype=torch.float64)
    value = torch.cat([identity, identity], -1).expand(*query.shape[:2], -1, -1)
    mask = draw.mask(query.size(0), 1, 1, keys) if is_masked else None
    weights = by_steps(query, key, value, mask)[1]

    def view(output: Tensor) -> dict:
        first, second = output.split(keys, -1)
        factors = (first / weights)[weights > 0].mul(1e6).round().div(1e6).unique()
        return {
            "with dropout=0.5, the weights in the output should be either zero or doubled": factors,
            "dropout should hit the weights, before they meet the values": torch.equal(first, second),
        }

    return Probe([query, key, value, mask], {"dropout": 0.5}, view=view)


def _accept(mask: Tensor | None) -> None:
    if mask is not None and mask.dtype is not torch.bool:
        raise ValueError("mask: expected dtype torch.bool")


def _triangle(query: Tensor, key: Tensor, shift: int = 0) -> Tensor:
    queries, keys = query.size(-2), key.size(-2)
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + shift)


def _fold(mask: Tensor | None, is_causal: bool, query: Tensor, key: Tensor) -> tuple[Tensor | None, bool]:
    """The mask and the flag for the kernel."""
    if not is_causal or (mask is None and query.size(-2) == key.size(-2)):
        return mask, is_causal
    below = _triangle(query, key)
    return (below if mask is None else mask & below), False


def _call(query, key, value, mask, is_causal, dropout):
    return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def _clear(output: Tensor, mask: Tensor | None) -> Tensor:
    return output if mask is None else output.masked_fill(~mask.any(-1, keepdim=True), 0.0)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    inputs: Callable = lambda query, key, value: (query, key, value)
    read: Callable = lambda mask: mask
    fold: Callable = _fold
    drop: Callable = lambda dropout: dropout
    call: Callable = _call
    clear: Callable = _clear
    result: Callable = lambda output: output


def assemble(steps: Steps) -> Callable:
    """Fused attention in these steps."""

    def attention(query, key, value, mask=None, *, is_causal=False, dropout=0.0):
        steps.accept(mask)
        mask = steps.read(mask)
        query, key, value = steps.inputs(query, key, value)
        mask, flag = steps.fold(mask, is_causal, query, key)
        output = steps.call(query, key, value, mask, flag, steps.drop(dropout))
        return steps.result(steps.clear(output, mask))

    return attention


def _step_by_step(query, key, value, mask, is_causal, dropout):
    return by_steps(query, key, value, mask, is_causal=is_causal, dropout=dropout)[0]


def _uniform(output: Tensor, mask: Tensor | None) -> Tensor:
    return output


def _filled_call(query, key, value, mask, is_causal, dropout):
    """A large negative number in place of the boolean mask."""
    extra = None if mask is None else torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -1e9)
    return F.scaled_dot_product_attention(query, key, value, extra, dropout, is_causal)


def _masked_always(mask, is_causal, query, key):
    if not is_causal:
        return mask, False
    return (_triangle(query, key) if mask is None else mask & _triangle(query, key)), False


def _first_to_first(mask, is_causal, query, key):
    if not is_causal or mask is None:
        return mask, is_causal
    return mask & torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril(), False


def _flag_instead(mask, is_causal, query, key):
    if not is_causal:
        return mask, False
    same = query.size(-2) == key.size(-2)
    return (None, True) if same else (_triangle(query, key), False)


def _without_gradient(query, key, value):
    return query.detach(), key.detach(), value.detach()


def _no_causal_keyword(mask, is_causal, query, key):
    if is_causal:
        raise TypeError("attention() got an unexpected keyword argument 'is_causal'")
    return mask, False


def _no_dropout_keyword(dropout):
    if dropout:
        raise TypeError("attention() got an unexpected keyword argument 'dropout'")
    return dropout


MISTAKES = (
    Mistake(
        "weights_built",
        "you build all the weights, queries × keys of them, step by step; the fused kernel never does",
        "The formula is written as it stands in the paper.",
        "The numbers are right, and the memory grows with the square of the length.",
        MEMORY,
        ({"call": _step_by_step},),
    ),
    Mistake(
        "causal_mask_built",
        "you build a mask of queries × keys for what the flag of the kernel says without one",
        "A mask can say everything, so it is always built.",
        "Memory is quadratic again, and on a GPU any mask rules out the fastest kernel.",
        FUSED,
        ({"fold": _masked_always},),
    ),
    Mistake(
        "scaled_twice",
        "you divide by √d_k yourself, and the kernel does it once more",
        "The formula has a √d_k; the kernel's default is easily overlooked.",
        "All weights are too close to each other.",
        "#ch05-scale",
        ({"inputs": lambda q, k, v: (q / q.size(-1) ** 0.5, k, v)},),
    ),
    Mistake(
        "not_scaled",
        "you switched the kernel's scaling off",
        "scale=1.0 looks like a neutral choice.",
        "Scores grow with d_k, so the softmax is too peaked.",
        "#ch05-scale",
        ({"inputs": lambda q, k, v: (q * q.size(-1) ** 0.5, k, v)},),
    ),
    Mistake(
        "mask_inverted",
        "you hand the mask over inverted: here as in the kernel, True means “may attend”",
        "nn.MultiheadAttention has it the other way round.",
        "What should be hidden is all that is seen.",
        MASKS,
        ({"read": lambda mask: None if mask is None else ~mask},),
    ),
    Mistake(
        "mask_ignored",
        "you never hand the mask over",
        "Without padding in the first tests, nothing is missing.",
        "Hidden keys get weight.",
        MASKS,
        ({"read": lambda mask: None},),
    ),
    Mistake(
        "mask_first_head_only",
        "you take the mask's first entry for all of the batch",
        "mask[0] makes an error about shapes go away.",
        "Every sentence is masked as the first one is.",
        MASKS,
        ({"read": lambda mask: mask[:1] if mask is not None and mask.dim() > 2 else mask},),
    ),
    Mistake(
        "empty_rows_uniform",
        "a query that may attend to nothing gets the average of all values, where zeros are wanted",
        "A fill with −10⁹ makes all scores of such a row equal.",
        "Padding flows into the output, and gradients flow back to it.",
        MASKS,
        (
            {"call": _filled_call, "clear": _uniform},
            {"fold": lambda *a: _seeing_all(*_fold(*a)), "clear": _uniform},
        ),
    ),
    Mistake(
        "causal_first_to_first",
        "with more keys than queries you align the first query with the first key, as the kernel's flag does",
        "is_causal=True is handed on as it is.",
        "With a cache, the newest token sees the first one only.",
        LOST,
        ({"fold": _first_to_first},),
    ),
    Mistake(
        "causal_and_mask",
        "you hand both a mask and is_causal=True to the kernel, which refuses that",
        "Both arguments exist, and each works alone.",
        "It fails as soon as a decoder has padding.",
        FUSED,
        ({"fold": lambda mask, is_causal, query, key: (mask, is_causal)},),
    ),
    Mistake(
        "causal_drops_mask",
        "with is_causal=True you forget the mask that was passed",
        "The kernel refuses both at once, so one was left out.",
        "Padding is seen in the decoder.",
        MASKS,
        ({"fold": _flag_instead},),
    ),
    Mistake(
        "causal_ignored",
        "you never use is_causal",
        "The argument is there, and without it everything works.",
        "Later positions are seen, so training looks far too good.",
        MASKS,
        ({"fold": lambda mask, is_causal, query, key: (mask, False)},),
    ),
    Mistake(
        "causal_keyword_missing",
        "your function does not take is_causal",
        "The signature was shortened.",
        "Callers that pass is_causal=True get a TypeError.",
        MASKS,
        ({"fold": _no_causal_keyword},),
    ),
    Mistake(
        "dropout_ignored",
        "you never hand dropout on",
        "The argument is there, and nothing fails without it.",
        "Training is regularised less than asked for.",
        "#ch05-class",
        ({"drop": lambda dropout: 0.0},),
    ),
    Mistake(
        "dropout_keyword_missing",
        "your function does not take dropout",
        "The signature was shortened.",
        "Callers that pass dropout get a TypeError.",
        "#ch05-class",
        ({"drop": _no_dropout_keyword},),
    ),
    Mistake(
        "dropout_on_output",
        "you apply dropout to the output; it belongs to the weights, inside the kernel",
        "Sub-layers do apply dropout to their output.",
        "Features are dropped instead of keys.",
        "#ch05-class",
        ({"call": lambda q, k, v, mask, flag, p: F.dropout(_call(q, k, v, mask, flag, 0.0), p)},),
    ),
    Mistake(
        "returns_pair",
        "you return a pair; there are no weights to return, so the output alone is wanted",
        "The step-by-step function returns (output, weights).",
        "The caller takes a tuple for a tensor.",
        FUSED,
        ({"result": lambda output: (output, None)},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad or detach() was copied from code for generating.",
        "Training leaves everything before this layer as it was.",
        "#ch05-proof",
        ({"inputs": _without_gradient},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the inputs are",
        ".float() repairs an error about dtypes.",
        "float64 loses half its digits, and the result no longer fits its inputs.",
        "#ch05-vectorised",
        ({"inputs": lambda q, k, v: (q.float(), k.float(), v.float())},),
    ),
    Mistake(
        "mask_type_unchecked",
        "you do not refuse a mask that is not boolean",
        "The kernel adds numbers to the scores: for it, a mask of numbers is a bias.",
        "A mask of 0 and 1 hides nothing, without a word.",
        MASKS,
        (
            {"accept": lambda mask: None, "clear": lambda o, m: o if _numbers(m) else _clear(o, m)},
            {"accept": lambda mask: None, "clear": lambda o, m: _clear(o, m if m is None else m.bool())},
        ),
    ),
)


def _numbers(mask: Tensor | None) -> bool:
    return mask is not None and mask.dtype is not torch.bool


def _seeing_all(mask: Tensor | None, flag: bool) -> tuple[Tensor | None, bool]:
    return (None if mask is None else mask | ~mask.any(-1, keepdim=True)), flag


WORDS = {
    "returns": "it returns one tensor of shape (…, queries, d_v), and no weights.",
    "values": "output = softmax(QKᵀ/√d_k) V.",
    "gradients": "gradients reach query, key and value.",
    "dtype": "the output has the dtype of the inputs: float32 stays float32, float64 stays float64.",
    "empty_rows": "a query that may attend to nothing gets output and gradients zero.",
}

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
                probes=(*r.probes, "empty") if r.id == "inputs" else r.probes,
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
            ("longer", "causal_alone"),
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
            ("dropout", "dropout_masked"),
            "#ch05-class",
        ),
        Requirement(
            "refusals",
            "a mask that is not boolean is refused with ValueError, as 0 and 1 could mean either thing.",
            ("number_mask", "float_mask"),
            MASKS,
        ),
    ),
    sizes=sizes,
    small=SMALL,
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=10,  # those of `base_probes`
)
