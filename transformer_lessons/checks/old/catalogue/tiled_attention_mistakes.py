"""Known wrong ways to write `tiled_attention`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_lessons.checks.old.catalogue.attention_shape_mistakes import CONTIGUOUS_ONLY
from transformer_lessons.checks.old.core import Mistake

__all__ = ["MEASURED", "MISTAKES", "ONLINE", "Steps", "assemble"]

ONLINE, MEASURED, WRONG = "#ch17-online", "#ch17-measured", "#ch17-wrong"


def _accept(block: int) -> None:
    if block < 1:
        raise ValueError("block: expected 1 or more")


def _by_rows(attend: Callable, query: Tensor, key: Tensor, value: Tensor, block: int) -> Tensor:
    """A few queries at a time, each group computed again on the way back."""
    groups = query.split(3 * block, -2)
    return torch.cat([checkpoint(attend, q, key, value, block, use_reentrant=False) for q in groups], -2)


def _tiles(keys: int, block: int) -> list[slice]:
    return [slice(start, start + block) for start in range(0, keys, block)]


def _larger(m: Tensor, scores: Tensor) -> Tensor:
    return torch.maximum(m, scores.detach().amax(-1, keepdim=True))


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    inputs: Callable = lambda query, key, value: (query, key, value)
    scale: Callable = lambda query: query / math.sqrt(query.size(-1))
    outer: Callable = _by_rows
    tiles: Callable = _tiles
    larger: Callable = _larger
    correction: Callable = lambda m, larger: (m - larger).exp()
    total: Callable = lambda total, correction: total * correction
    summed: Callable = lambda output, correction: output * correction
    keep: Callable = lambda m, larger: larger
    finish: Callable = lambda output, total: output / total


def assemble(steps: Steps) -> Callable:
    """Tiled attention in these steps."""

    def one_tile(q, key, value, m, total, output):
        scores = q @ key.transpose(-2, -1)
        larger = steps.larger(m, scores)
        raised, correction = (scores - larger).exp(), steps.correction(m, larger)
        total = steps.total(total, correction) + raised.sum(-1, keepdim=True)
        return steps.keep(m, larger), total, steps.summed(output, correction) + raised @ value

    def attend(q, key, value, block, step=one_tile):
        q = steps.scale(q)
        m = torch.full_like(q[..., :1], -torch.inf).detach()
        total, output = m.new_zeros(m.shape), q.new_zeros(*q.shape[:-1], value.size(-1))
        for columns in steps.tiles(key.size(-2), block):
            m, total, output = step(q, key[..., columns, :], value[..., columns, :], m, total, output)
        return steps.finish(output, total)

    attend.one_tile = one_tile

    def attention(query, key, value, block):
        steps.accept(block)
        query, key, value = steps.inputs(query, key, value)
        return steps.outer(attend, query, key, value, block)

    return attention


def _softmax(scores: Tensor, value: Tensor) -> Tensor:
    return scores.softmax(-1) @ value


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


def _all_at_once(attend, query, key, value, block):
    return _softmax(_scores(query, key), value)


def _rows_whole(attend, query, key, value, block):
    def rows(q, key, value):
        return _softmax(_scores(q, key), value)

    parts = [checkpoint(rows, q, key, value, use_reentrant=False) for q in query.split(block, -2)]
    return torch.cat(parts, -2)


def _tiles_checkpointed(attend, query, key, value, block):
    def step(*args):
        return checkpoint(attend.one_tile, *args, use_reentrant=False)

    return attend(query, key, value, block, step)


def _tile_softmax(combine: Callable) -> Callable:
    def outer(attend, query, key, value, block):
        tiles = [slice(start, start + block) for start in range(0, key.size(-2), block)]

        def rows(q, key, value):
            return combine([_softmax(_scores(q, key[..., t, :]), value[..., t, :]) for t in tiles])

        parts = [checkpoint(rows, q, key, value, use_reentrant=False) for q in query.split(block, -2)]
        return torch.cat(parts, -2)

    return outer


class _ByHand(torch.autograd.Function):
    """A backward pass of one's own, tile by tile, from the log-sums, with exponentials as they are."""

    @staticmethod
    def forward(ctx, attend, query, key, value, block):
        output = attend(query, key, value, block)
        pieces = [_scores(query, k).logsumexp(-1, keepdim=True) for k in key.split(block, -2)]
        log_sums = torch.cat(pieces, -1).logsumexp(-1, keepdim=True)
        ctx.save_for_backward(query, key, value, output, log_sums)
        ctx.block = block
        return output

    @staticmethod
    def backward(ctx, back):
        query, key, value, output, log_sums = ctx.saved_tensors
        scale, inner = 1 / math.sqrt(query.size(-1)), (back * output).sum(-1, keepdim=True)
        of_query, of_key, of_value = torch.zeros_like(query), [], []
        for k, v in zip(key.split(ctx.block, -2), value.split(ctx.block, -2), strict=True):
            weights = _scores(query, k).exp() / log_sums.exp()
            of_scores = scale * weights * (back @ v.mT - inner)
            of_query += of_scores @ k
            of_key.append(of_scores.mT @ query)
            of_value.append(weights.mT @ back)
        return None, of_query, torch.cat(of_key, -2), torch.cat(of_value, -2), None


def _tiles_of_two(keys: int, block: int) -> list[slice]:
    return _tiles(keys, 2 * block)


def _number_of_tiles(keys: int, block: int) -> list[slice]:
    return _tiles(keys, -(-keys // block))


def _plain_if_short(most: Callable) -> Callable:
    """Where the keys fit into one tile, nothing is computed again."""

    def outer(attend, query, key, value, block):
        if key.size(-2) <= most(block):
            return _all_at_once(attend, query, key, value, block)
        return _by_rows(attend, query, key, value, block)

    return outer


def _starting_at(number: float) -> dict:
    return {"larger": lambda m, scores: _larger(m, scores).clamp(min=number)}


def _edited(query, key, value):
    return query.div_(math.sqrt(query.size(-1))), key, value


MISTAKES = (
    Mistake(
        "all_scores",
        "you compute all scores before the softmax; they are what tiles are there to avoid",
        "A softmax seems to need all scores of a row.",
        "The numbers are right, and the memory grows with the square of the length.",
        ONLINE,
        ({"outer": _all_at_once},),
    ),
    Mistake(
        "rows_whole",
        "you divide the queries only, and take all keys of a group at once; block limits the keys too",
        "Rows are independent, so dividing them needs no new softmax.",
        "With few queries and very many keys, as in decoding, nothing is saved.",
        ONLINE,
        ({"outer": _rows_whole},),
    ),
    Mistake(
        "tiles_too_large",
        "your tiles hold more keys than block says",
        "block is taken for half of a tile, or rounded up to a number that a GPU likes.",
        "What was just small enough no longer fits.",
        ONLINE,
        ({"tiles": _tiles_of_two},),
    ),
    Mistake(
        "block_as_number",
        "you make block tiles; block is how many keys one of them holds",
        "chunk(n) makes n pieces, split(n) pieces of size n.",
        "The more keys there are, the larger the tiles: for a long text, nothing is saved.",
        ONLINE,
        ({"tiles": _number_of_tiles},),
    ),
    Mistake(
        "one_tile_kept",
        "where one tile holds all keys you compute attention as usual, which keeps all weights for the way back",
        "A shortcut for short texts looks harmless, as there is nothing to put together.",
        "With a large block, memory in training is quadratic again.",
        MEASURED,
        ({"outer": _plain_if_short(lambda block: block)},),
    ),
    Mistake(
        "kept_for_backward",
        "your tiles are small, but of each something as large as its scores is kept for the way back: scores, "
        "or, with a checkpoint around each tile, the running output",
        "A loop looks as if each tile were gone when the next one comes; without gradients, that is so.",
        "In training, memory is quadratic again.",
        MEASURED,
        ({"outer": lambda attend, *args: attend(*args)}, {"outer": _tiles_checkpointed}),
    ),
    Mistake(
        "checkpointed_whole",
        "you checkpoint the whole attention at once: on the way back, all tiles are there at the same time",
        "One call around everything makes the number of bytes kept small.",
        "The peak is only moved from the forward pass to the backward pass.",
        MEASURED,
        ({"outer": lambda attend, q, k, v, block: checkpoint(attend, q, k, v, block, use_reentrant=False)},),
    ),
    Mistake(
        "no_scaling",
        "you left out the division by √d_k",
        "All attention is on the running sums.",
        "Scores grow with d_k, so the softmax is too peaked.",
        "#ch05-scale",
        ({"scale": lambda query: query},),
    ),
    Mistake(
        "scaled_by_d_k",
        "you divided by d_k, not √d_k",
        "The square root is easily lost.",
        "All weights are too close to each other.",
        "#ch05-scale",
        ({"scale": lambda query: query / query.size(-1)},),
    ),
    Mistake(
        "last_keys_dropped",
        "you drop the last keys where block does not divide their number",
        "keys // block tiles are all full ones.",
        "The end of every text is not seen.",
        ONLINE,
        (
            {
                "tiles": lambda keys, block: [
                    slice(n * block, (n + 1) * block) for n in range(max(keys // block, 1))
                ]
            },
        ),
    ),
    Mistake(
        "output_not_corrected",
        "you move the sum l to the new maximum, but not the output o",
        "l and o are updated in two lines, and only one of them got its factor.",
        "Values from before a larger score weigh too much; with a single tile, all is right.",
        WRONG,
        ({"summed": lambda output, correction: output},),
    ),
    Mistake(
        "total_not_corrected",
        "you move the output o to the new maximum, but not the sum l",
        "l and o are updated in two lines, and only one of them got its factor.",
        "Outputs are too small wherever the maximum rose.",
        WRONG,
        ({"total": lambda total, correction: total},),
    ),
    Mistake(
        "nothing_corrected",
        "you never move the old sums to the new maximum: both l and o need the factor exp(m − m′)",
        "Each tile is right relative to its own maximum.",
        "The output is an average, with weights that favour tiles from before the maximum was met.",
        WRONG,
        ({"total": lambda total, correction: total, "summed": lambda output, correction: output},),
    ),
    Mistake(
        "correction_inverted",
        "your factor is exp(m′ − m); old sums shrink by exp(m − m′) when the maximum rises",
        "Old minus new and new minus old look alike.",
        "At the first tile, m is −∞ and the factor infinite.",
        ONLINE,
        ({"correction": lambda m, larger: (larger - m).exp()},),
    ),
    Mistake(
        "maximum_not_kept",
        "you never keep the new maximum for the next tile",
        "m is computed under another name and thrown away.",
        "Old sums are multiplied by exp(−∞) = 0: only the last tile counts.",
        ONLINE,
        ({"keep": lambda m, larger: m},),
    ),
    Mistake(
        "no_maximum",
        "you raise e to the scores themselves, without a maximum to refer to",
        "The maximum cancels, so it seems superfluous.",
        "exp overflows for scores above 709, and underflows for all far below zero.",
        ONLINE,
        (
            {
                "larger": lambda m, scores: torch.zeros_like(m),
                "correction": lambda m, larger: torch.ones_like(m),
            },
        ),
    ),
    Mistake(
        "no_maximum_on_the_way_back",
        "in your backward pass you divide exponentials by each other; exp(s − log-sum) is the same and never "
        "overflows",
        "The forward pass was made safe, and its sum is at hand.",
        "The output is right, and one large score makes the gradients NaN.",
        ONLINE,
        ({"outer": _ByHand.apply},),
    ),
    Mistake(
        "maximum_starts_too_high",
        "your running maximum starts at a number that all scores of a row can lie below; it starts at −∞",
        "Zeros are at hand, and −1e4 looks like nothing that a score could be.",
        "Where all scores are lower still, every exponential is zero, and the output 0/0.",
        ONLINE,
        tuple(_starting_at(x) for x in (0.0, -1e2, -1e3, -1e4, -65504.0, -1e5)),
    ),
    Mistake(
        "maximum_of_the_tile",
        "you refer to the maximum of the tile alone; the largest score so far is what the sums refer to",
        "The tile's maximum is at hand, and with the correction the formula still holds.",
        "Where scores fall, the correction exp(m − m′) overflows.",
        ONLINE,
        ({"larger": lambda m, scores: scores.detach().amax(-1, keepdim=True)},),
    ),
    Mistake(
        "maximum_over_everything",
        "you take one maximum for all rows; each query needs its own",
        "max() without a dimension.",
        "A row whose scores all lie far below another row's gets 0/0.",
        ONLINE,
        ({"larger": lambda m, scores: torch.maximum(m, scores.detach().max())},),
    ),
    Mistake(
        "softmax_in_each_tile",
        "you take a softmax within each tile; the tiles share one",
        "Attention was called for every tile.",
        "Each tile gets the same say, however low its scores are.",
        ONLINE,
        ({"outer": _tile_softmax(lambda parts: sum(parts) / len(parts))}, {"outer": _tile_softmax(sum)}),
    ),
    Mistake(
        "not_divided",
        "you never divide by the sum l at the end",
        "o is what was summed all along.",
        "Outputs are larger than any value.",
        ONLINE,
        ({"finish": lambda output, total: output},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad or detach() makes the bytes go away, and the training with them.",
        "Everything before this layer stays as it was.",
        MEASURED,
        ({"inputs": lambda *args: tuple(x.detach() for x in args)},),
    ),
    CONTIGUOUS_ONLY,
    Mistake(
        "query_edited",
        "you scale the caller's query in place",
        "In-place operations save a tensor.",
        "The second call on the same tensors gives another result.",
        ONLINE,
        ({"inputs": _edited, "scale": lambda query: query},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the inputs are",
        "Sums are to be kept in float32, at least.",
        "float64 loses half its digits.",
        "#ch16-precision",
        ({"inputs": lambda *args: tuple(x.float() for x in args)},),
    ),
    Mistake(
        "block_unchecked",
        "you do not refuse a block below 1",
        "range() complains about 0 only.",
        "With a negative block there are no tiles, and what comes out is no attention.",
        ONLINE,
        (
            {"accept": lambda block: None, "outer": lambda a, q, k, v, b: _by_rows(a, q, k, v, max(b, 1))},
            {"accept": lambda block: _raise() if block < 1 else None},
        ),
    ),
)


def _raise() -> None:
    raise RuntimeError("split expects split_size be non-negative")
