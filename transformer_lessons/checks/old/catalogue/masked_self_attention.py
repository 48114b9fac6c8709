"""The check of `masked_self_attention`: a batch with padding, in which no position looks ahead."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

PADDING, CAUSAL, COMBINE, EMPTY, WRONG = (
    "#ch04-padding",
    "#ch04-causal",
    "#ch04-combine",
    "#ch04-empty-rows",
    "#ch04-wrong",
)
BROADCAST, CONVENTION = "#ch04-broadcast", "#ch04-convention"


def _sizes(seed: int) -> dict[str, int]:
    pick = random.Random(seed)
    batch, heads = pick.sample([2, 3], 2)
    length, width = pick.sample([5, 7, 11], 2)
    return {"batch": batch, "heads": heads, "length": length, "width": width}


def _ids(draw: Draw, batch: int, length: int, pad_id: int) -> Tensor:
    """No padding in the first row, one place of it on the right of the second, two in the third, and so on."""
    ids = draw.integers(10, 23, batch, length)
    for row in range(batch):
        ids[row, max(1, length - row) :] = pad_id
    return ids


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, n, d = s["batch"], s["heads"], s["length"], s["width"]
    x, cube = draw.normal(b, h, n, d), draw.normal(n, n, n, d)
    real = draw.integers(10, 23, b, n)
    some = _ids(draw, b + 1, n, 0)[1:]
    left = some.flip(-1)
    inside = real.clone()
    inside[:, 1] = 0
    square = _ids(draw, n, n, 0)
    back = draw.normal(b, h, n, d)
    return {
        "single": Probe([x[:1], real[:1], 0]),
        "plain": Probe([x, real, 0]),
        "padded_single": Probe([x[:1], left[:1], 0], note="the first query sees nothing"),
        "inside": Probe([x, inside, 0], cotangents=[back]),
        "square": Probe([cube, square.flip(-1), 0]),
        "left": Probe([x, left, 0], cotangents=[back]),
        "right": Probe([x, some, 0]),
        "other_id": Probe([x, torch.where(inside == 0, 7, inside - 10), 7]),
        "large": Probe([x * 1e8, inside, 0]),
        "float32": Probe([x.float(), left, 0]),
        "other_length": Probe(
            [x, real[:, 1:], 0], refused=f"ids of length {n - 1} for vectors of length {n}"
        ),
    }


def _accept(x: Tensor, ids: Tensor) -> None:
    if ids.shape != (x.size(0), x.size(2)):
        raise ValueError("ids: expected (batch, length) of x")


def _triangle(rows: int, columns: int, diagonal: int = 0) -> Tensor:
    return torch.ones(rows, columns, dtype=torch.bool).tril(diagonal)[None, None]


def _lowest(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def _earlier(x: Tensor) -> Tensor:
    *_, length, _ = x.shape
    return _triangle(length, length)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    compare: Callable = lambda ids, pad_id: ids != pad_id
    real: Callable = lambda real: real[:, None, None, :]
    past: Callable = _earlier
    join: Callable = lambda real, past: real & past
    polarity: Callable = lambda visible: visible
    memory: Callable = lambda x, real: x  # what is looked at
    score: Callable = lambda x, memory: x @ memory.mT / math.sqrt(x.size(-1))
    fill: Callable = _lowest
    softmax: Callable = lambda scores: scores.softmax(-1)
    clear: Callable = lambda weights, visible: weights.masked_fill(~visible, 0.0)


def assemble(steps: Steps) -> Callable:
    """Attention under both masks in these steps."""

    def masked_self_attention(x, ids, pad_id):
        steps.accept(x, ids)
        is_real = steps.compare(ids, pad_id)
        visible = steps.polarity(steps.join(steps.real(is_real), steps.past(x)))
        memory = steps.memory(x, is_real)
        scores = steps.fill(steps.score(x, memory), visible)
        return steps.clear(steps.softmax(scores), visible) @ memory

    return masked_self_attention


def _filled(fill: float) -> Callable:
    return lambda scores, mask: scores.masked_fill(~mask, fill)


def _erased(fill: float) -> Callable:
    return lambda x, real: x.masked_fill(~real[:, None, :, None], fill)


def _past_alone(real: Tensor, past: Tensor) -> Tensor:
    return past


def _as_it_is(weights: Tensor, visible: Tensor) -> Tensor:
    return weights


def _on_both(real: Tensor) -> Tensor:
    return real[:, None, None, :] & real[:, None, :, None]


MISTAKES = (
    Mistake(
        "sized_by_batch",
        "you make the look-ahead mask as large as the batch; it needs one row for each position",
        "x.size(0) is the length only where there is no batch axis.",
        "For a single sentence nothing is hidden; for others, sizes do not fit, or fit by accident.",
        WRONG,
        (
            {"past": lambda x: _triangle(x.size(0), x.size(0))},
            {"past": lambda x: _triangle(x.size(0), x.size(0)), "join": lambda real, past: past & real},
        ),
    ),
    Mistake(
        "sized_by_heads",
        "you make the look-ahead mask as large as the number of heads; it needs one row for each position",
        "x.size(1) is the length as long as there are no heads.",
        "With one head nothing is hidden; with more, sizes do not fit, or fit by accident.",
        WRONG,
        (
            {"past": lambda x: _triangle(x.size(1), x.size(1))},
            {"past": lambda x: _triangle(x.size(1), x.size(1)), "join": lambda real, past: past & real},
        ),
    ),
    Mistake(
        "input_zeroed",
        "you set the input to zero where there is padding; it is the scores that must be masked",
        "“Masking out” sounds like erasing.",
        "A vector of zeros has the score 0, and e⁰ = 1: every padded place still takes its share.",
        WRONG,
        ({"memory": _erased(0.0), "join": _past_alone},),
    ),
    Mistake(
        "input_infinite",
        "you put −∞ into the input; it belongs into the scores",
        "−∞ and padding belong together, so it was put where the padding is.",
        "∞ − ∞ is NaN, and every sentence with padding is full of it.",
        WRONG,
        ({"memory": _erased(-math.inf), "join": _past_alone}, {"memory": _erased(-math.inf)}),
    ),
    Mistake(
        "unsqueezed_once",
        "your padding mask has shape (batch, 1, length), so its batch axis meets the heads",
        "One axis was added, for the queries, and none for the heads.",
        "It runs for a single sentence, and goes wrong where there are as many sentences as heads.",
        BROADCAST,
        (
            {"real": lambda real: real[:, None, :]},
            {"real": lambda real: real[:, None, :], "join": lambda real, past: past & real},
        ),
    ),
    Mistake(
        "no_axes",
        "your padding mask has shape (batch, length), so its batch axis meets the queries",
        "It is the shape of ids.",
        "It runs for a single sentence, and goes wrong where there are as many sentences as positions.",
        BROADCAST,
        (
            {"real": lambda real: real},
            {"real": lambda real: real, "join": lambda real, past: past & real},
        ),
    ),
    Mistake(
        "padding_overwritten",
        "you lose the padding mask: only the causal one is left",
        "`mask = …` where it should have been joined, or a fresh causal mask for whoever passes any.",
        "With padding on the right nobody notices, since the future is hidden anyway.",
        WRONG,
        ({"join": _past_alone},),
    ),
    Mistake(
        "causal_forgotten",
        "you lose the causal mask: only padding is hidden",
        "The masks overwrite each other, and the padding mask came last.",
        "Every position sees the future.",
        CAUSAL,
        ({"join": lambda real, past: real},),
    ),
    Mistake(
        "or_for_and",
        "you join the masks with “or”; a key may be seen only if both allow it, which is “and”",
        "“Or” is right where True means “hidden”, and the sum of two boolean masks is an “or” too.",
        "Each mask opens what the other hides.",
        COMBINE,
        ({"join": lambda real, past: real | past},),
    ),
    Mistake(
        "inverted",
        "you read the mask the wrong way round: True means “may attend”",
        "masked_fill fills where True stands, and ~ is easily forgotten.",
        "Only the future and padding are seen.",
        CONVENTION,
        ({"polarity": lambda visible: ~visible},),
    ),
    Mistake(
        "shows_next",
        "your causal mask shows one later position: a leak from the future",
        "tril(1) where tril(0) was meant.",
        "Training accuracy is nearly perfect, and generation is nonsense.",
        CAUSAL,
        ({"past": lambda x: _triangle(x.size(-2), x.size(-2), 1)},),
    ),
    Mistake(
        "hides_itself",
        "your causal mask hides the diagonal: a position may see itself",
        "“No later position” was read as “earlier positions only”.",
        "The first query sees nothing.",
        CAUSAL,
        ({"past": lambda x: _triangle(x.size(-2), x.size(-2), -1)},),
    ),
    Mistake(
        "on_queries",
        "your padding mask hides queries; padding is to be hidden among the keys",
        "unsqueeze(-1) instead of unsqueeze(-2).",
        "Real words still see padding, and padded queries see nothing.",
        PADDING,
        ({"real": lambda real: real[:, None, :, None]},),
    ),
    Mistake(
        "on_both",
        "you hide padded queries as well as keys; a padded query looks around like any other",
        "Padding should not ask either, it seems.",
        "Rows without any key appear for no gain: nobody looks at what padding computes.",
        PADDING,
        ({"real": _on_both},),
    ),
    Mistake(
        "pad_id_zero",
        "you compare with 0 instead of pad_id",
        "Padding is 0 in most vocabularies.",
        "With another pad_id, padding is seen and a real word is hidden.",
        PADDING,
        ({"compare": lambda ids, pad_id: ids != 0},),
    ),
    Mistake(
        "empty_rows_nan",
        "a query that may see nothing becomes NaN: all its scores are −∞",
        "−∞ is the right number for rows that see something.",
        "One such row, and the whole model is NaN after a step of training.",
        EMPTY,
        ({"fill": _filled(-math.inf), "clear": _as_it_is},),
    ),
    Mistake(
        "empty_rows_uniform",
        "a query that may see nothing gets an average of everything; it should get zeros",
        "A large negative number makes all hidden scores equal.",
        "What was forbidden flows in, and no error shows.",
        EMPTY,
        (
            {"clear": _as_it_is},
            *({"fill": _filled(fill), "clear": _as_it_is} for fill in (-1e9, -1e20, -1e30)),
        ),
    ),
    Mistake(
        "fill_too_small",
        "the number you put in place of hidden scores is no −∞: larger scores get past it",
        "1e-9 for −1e9, or a number that is large enough for today's scores.",
        "Hidden keys get some of the weight, or all that matters of it.",
        EMPTY,
        (
            *({"fill": _filled(fill), "clear": _as_it_is} for fill in (-1e-12, 1e-9, -1e-9)),
            *({"fill": _filled(fill)} for fill in (-1e-12, 1e-9, -1e-9)),
        ),
    ),
    Mistake(
        "masked_after_softmax",
        "you set hidden weights to zero after the softmax and leave it at that; those left must sum to one",
        "Weights of zero are what one wants to see.",
        "The more is hidden, the smaller the output.",
        "#ch04-table",
        ({"fill": lambda scores, mask: scores},),
    ),
    Mistake(
        "softmax_over_queries",
        "your softmax runs over the queries; it must run over the keys, the last axis",
        "dim=1 or dim=-2 is the last axis of something else.",
        "What a query gives to all keys together is no longer one.",
        "#ch04-table",
        ({"softmax": lambda scores: scores.softmax(-2)},),
    ),
    Mistake(
        "length_unchecked",
        "you do not refuse ids of another length than x yourself",
        "torch complains about sizes that do not fit.",
        "Its RuntimeError speaks of tensors a and b; and one id broadcasts over all positions.",
        PADDING,
        ({"accept": lambda x, ids: None},),
    ),
)

TASK = Task(
    name="masked_self_attention",
    signature="masked_self_attention(x, ids, pad_id)",
    arguments=("x", "ids", "pad_id"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the shape of x.", ("single",), CAUSAL, ("structure",)
        ),
        Requirement(
            "causal",
            "position i is an average of positions 0 to i, with weights softmax(scores), scores = xxᵀ/√width.",
            ("single", "plain"),
            CAUSAL,
        ),
        Requirement(
            "padding",
            "no position sees padding, wherever it stands and whatever its id.",
            ("inside", "right", "other_id"),
            PADDING,
        ),
        Requirement(
            "broadcasting",
            "each sentence has its own padding, whatever the numbers of sentences and heads.",
            ("inside", "square"),
            BROADCAST,
        ),
        Requirement(
            "empty_rows", "a query that may see nothing gets zeros.", ("padded_single", "left"), EMPTY
        ),
        Requirement(
            "gradients",
            "gradients reach x, and none is NaN.",
            ("inside", "left"),
            EMPTY,
            ("gradients",),
        ),
        Requirement("extremes", "scores of any size stay behind the mask.", ("large",), EMPTY),
        Requirement("dtype", "the output has the dtype of x.", ("inside", "float32"), CAUSAL, ("dtype",)),
        Requirement("inputs", "x and ids are left unchanged.", ("inside", "left"), PADDING, ("inputs",)),
        Requirement(
            "refusals",
            "ids of another length than x are refused with ValueError.",
            ("other_length",),
            PADDING,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "length": 2, "width": 1},
        {"batch": 2, "heads": 1, "length": 3, "width": 2},
        {"batch": 2, "heads": 3, "length": 5, "width": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
