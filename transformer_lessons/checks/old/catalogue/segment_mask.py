"""The check of `segment_mask`: attention stays within a sentence when several share a row."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.masks_mistakes import TO_TYPES
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import segment_mask

__all__ = ["TASK"]

SEGMENTS, BROADCAST, CONVENTION = "#ch04-segments", "#ch04-broadcast", "#ch04-convention"


def _sizes(seed: int) -> dict[str, int]:
    pick = random.Random(seed)
    queries, keys = pick.sample([5, 7, 11], 2)
    return {"batch": pick.choice([2, 3]), "queries": queries, "keys": keys}


def _packed(draw: Draw, batch: int, length: int) -> Tensor:
    """Segments 1, 2, … end to end, with other borders in each row."""
    return draw.integers(0, 2, batch, length).cumsum(-1) + 1


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, q, k = s["batch"], s["queries"], s["keys"]
    packed = _packed(draw, b, q)
    back = draw.integers(1, 4, b, q)
    back[:, 0] = back[:, -1]  # a segment that comes back, with another between
    back[:, 1] = back[:, 0] % 3 + 1
    others, keys = _packed(draw, b, q), _packed(draw, b, k)
    keys += 1 + others.min() - keys.min()  # whoever numbers both anew gets other pairs
    # So large that nobody counts up to them: a table of that length is refused at once, and not half filled.
    far, close = (10**13 + 37) * packed, packed + 10**15
    thirds, wide = torch.arange(16) // 3, torch.tensor([7, 7 + 2**16, 7 + 2**32])
    long = torch.cat([thirds + 10**9, thirds + 10**7, wide])[None]
    return {
        "packed": Probe([packed, packed]),
        "zero": Probe([packed - 2, packed - 2]),
        "cross": Probe([others, keys]),
        "returning": Probe([back, back]),
        "far_apart": Probe([far, far]),
        "int32": Probe([packed.int(), packed.int()]),
        "one_axis": Probe([packed[0], packed[0]], refused=f"segments of shape ({q},), without a batch axis"),
        "floats": Probe([packed.double(), packed.double()], refused="segments of floating-point numbers"),
        "float_queries": Probe([packed.float(), packed], refused="queries of type float32"),
        "float_keys": Probe([packed, packed.float()], refused="keys of type float32"),
        "other_batch": Probe(
            [_packed(draw, b + 1, q), packed[:1]], refused=f"queries of batch size {b + 1}, and keys of 1"
        ),
        "close": Probe([close, close]),
        # More than 25 positions, from where torch.cdist multiplies; numbers that float32 can tell apart, and
        # numbers that are the same in 16 or 32 bits.
        "long": Probe([long, long]),
        "other_batch_keys": Probe(
            [packed[:1], _packed(draw, b + 1, k)], refused=f"queries of batch size 1, and keys of {b + 1}"
        ),
        "three_axes": Probe([packed[None], packed[None]], refused="segments of three axes"),
        "flat_queries": Probe([packed[:, 0], packed], refused=f"queries of shape ({b},)"),
        "flat_keys": Probe([packed, packed[:, 0]], refused=f"keys of shape ({b},)"),
    }


def _accept(queries: Tensor, keys: Tensor) -> None:
    for segments in (queries, keys):
        if segments.dim() != 2:
            raise ValueError("segments: expected (batch, length)")


def _integers(queries: Tensor, keys: Tensor) -> None:
    if queries.is_floating_point() or keys.is_floating_point():
        raise ValueError("segments: expected integers")


def _one_batch(queries: Tensor, keys: Tensor) -> None:
    if queries.size(0) != keys.size(0):
        raise ValueError("key_segments: expected the batch size of query_segments")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    integers: Callable = _integers
    one_batch: Callable = _one_batch
    read: Callable = lambda queries, keys: (queries, keys)
    compare: Callable = lambda queries, keys: queries[..., :, None] == keys[..., None, :]
    limit: Callable = lambda mask, queries, keys: mask
    shape: Callable = lambda mask: mask.unsqueeze(-3)
    kind: Callable = lambda mask: mask


def assemble(steps: Steps) -> Callable:
    """A segment mask in these steps."""

    def segment_mask(query_segments, key_segments):
        steps.accept(query_segments, key_segments)
        steps.integers(query_segments, key_segments)
        steps.one_batch(query_segments, key_segments)
        queries, keys = steps.read(query_segments, key_segments)
        mask = steps.limit(steps.compare(queries, keys), queries, keys)
        return steps.kind(steps.shape(mask))

    return segment_mask


def _runs(segments: Tensor) -> Tensor:
    """Numbers of runs of equal ids."""
    start = segments[..., :1] * 0
    return torch.cat([start, segments.diff(dim=-1).ne(0).long()], -1).cumsum(-1)


def _anew(segments: Tensor) -> Tensor:
    """Numbered from 0 in the order of the numbers they had."""
    return segments.unique(return_inverse=True)[1]


def _pairwise(symbol: str) -> Callable:
    def compare(queries: Tensor, keys: Tensor) -> Tensor:
        q, k = queries[..., :, None], keys[..., None, :]
        return {"≠": q != k, "≥": q >= k, "≤": q <= k}[symbol]

    return compare


def _relatively_close(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.isclose(queries[..., :, None], keys[..., None, :])


def _no_distance(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.cdist(queries.double()[..., None], keys.double()[..., None]) == 0


def _only_float64(queries: Tensor, keys: Tensor) -> None:
    if torch.float64 in (queries.dtype, keys.dtype):
        raise ValueError("segments: expected integers")


def _crash(*_) -> None:
    raise IndexError("too many indices for tensor")


def _crash_on_one_axis(queries: Tensor, keys: Tensor) -> None:
    if min(queries.dim(), keys.dim()) < 2:
        _crash()


def _refuse_one_axis(queries: Tensor, keys: Tensor) -> None:
    if min(queries.dim(), keys.dim()) < 2:
        raise ValueError("segments")


def _refuse_queries(otherwise: Callable) -> Callable:
    """Only the axes of the queries are looked at."""

    def accept(queries: Tensor, keys: Tensor) -> None:
        if queries.dim() != 2:
            raise ValueError("query_segments")
        if keys.dim() != 2:
            otherwise()

    return accept


def _refuse_batch(wrong: Callable) -> Callable:
    def one_batch(queries: Tensor, keys: Tensor) -> None:
        if wrong(len(queries), len(keys)):
            raise ValueError("segments")

    return one_batch


MISTAKES = (
    Mistake(
        "inverted",
        "your mask is the wrong way round: True means “may attend”, so within a segment",
        "“Mask” sounds like “what is covered”.",
        "Sentences see all others and not themselves.",
        CONVENTION,
        ({"compare": _pairwise("≠")},),
    ),
    Mistake(
        "causal_too",
        "you hide later keys as well; that is the causal mask's business, which is combined with this one",
        "Packing is mostly seen in decoders.",
        "An encoder that packs its sentences goes blind to what follows.",
        SEGMENTS,
        (
            {"limit": lambda mask, queries, keys: mask.tril(mask.size(-1) - mask.size(-2))},
            {"limit": lambda mask, queries, keys: mask.tril()},
        ),
    ),
    Mistake(
        "sees_earlier_segments",
        "your queries see the segments before their own too; only the same one may be seen",
        "≥ hides the future just as well.",
        "A sentence depends on those packed before it.",
        SEGMENTS,
        ({"compare": _pairwise("≥")},),
    ),
    Mistake(
        "sees_later_segments",
        "your queries see the segments after their own too; only the same one may be seen",
        "≤ where == was meant.",
        "A sentence depends on those packed behind it.",
        SEGMENTS,
        ({"compare": _pairwise("≤")},),
    ),
    Mistake(
        "zero_is_padding",
        "you hide segments numbered 0 or less; any number is a segment",
        "Ids of tokens have their padding at 0, so ids of segments seemed to.",
        "The first of several sentences, if numbered 0, sees nothing.",
        SEGMENTS,
        (
            {"limit": lambda mask, queries, keys: mask & (keys != 0)[..., None, :]},
            {"limit": lambda mask, queries, keys: mask & (keys > 0)[..., None, :]},
        ),
    ),
    Mistake(
        "runs_for_segments",
        "you count where segments begin; only their numbers decide, also if one comes back later",
        "In a packed row, each segment is in one piece.",
        "A segment in two pieces does not see its other half.",
        SEGMENTS,
        ({"read": lambda queries, keys: (_runs(queries), _runs(keys))},),
    ),
    Mistake(
        "numbered_anew",
        "you number the segments anew, those of the queries and those of the keys apart",
        "unique gives small numbers, which make small tables.",
        "A sentence of the queries meets another one of the keys.",
        SEGMENTS,
        ({"read": lambda queries, keys: tuple(_anew(segments) for segments in (queries, keys))},),
    ),
    Mistake(
        "neighbours_only",
        "you compare the numbers for being close; different segments are different, however close",
        "A tolerance that was meant for floats.",
        "Neighbouring sentences see each other.",
        SEGMENTS,
        ({"compare": lambda queries, keys: (queries[..., :, None] - keys[..., None, :]).abs() <= 1},),
    ),
    Mistake(
        "through_floats",
        "you compare the numbers as floats, which cannot tell large ones apart",
        ".float() was added because something wanted numbers.",
        "Beyond 16,777,216 neighbouring integers become the same float32, beyond 2,048 the same float16.",
        SEGMENTS,
        ({"read": lambda queries, keys: (queries.half(), keys.half())},),
    ),
    Mistake(
        "keys_ignored",
        "you never use key_segments",
        "In self-attention both are the same.",
        "With other keys than queries, the mask does not fit.",
        SEGMENTS,
        ({"read": lambda queries, keys: (queries, queries)},),
    ),
    Mistake(
        "first_row_for_all",
        "you use the first row's segments for the whole batch",
        "With a batch of one there is no difference.",
        "All other rows are cut in the wrong places.",
        SEGMENTS,
        (
            {"limit": lambda mask, queries, keys: mask[:1].expand_as(mask)},
            {"limit": lambda mask, queries, keys: mask[:1]},
        ),
    ),
    Mistake(
        "axes_swapped",
        "your mask has its last two axes the wrong way round: queries are the rows",
        "For queries and keys of one sequence the mask is symmetric, so nobody notices.",
        "In cross-attention it does not fit the scores.",
        BROADCAST,
        ({"limit": lambda mask, queries, keys: mask.transpose(-2, -1)},),
    ),
    Mistake(
        "no_heads_axis",
        "your mask has shape (batch, queries, keys); it needs an axis for heads, (batch, 1, queries, keys)",
        "There are no heads in the input.",
        "With heads, its batch axis meets theirs.",
        BROADCAST,
        ({"shape": lambda mask: mask},),
    ),
    Mistake(
        "heads_first",
        "your mask has shape (1, batch, queries, keys): the batch comes first",
        "mask[None] adds its axis in front.",
        "Each sentence's mask meets a head.",
        BROADCAST,
        ({"shape": lambda mask: mask[None]},),
    ),
    *TO_TYPES,
    Mistake(
        "compared_as_floats",
        "you compare segments as float32, which cannot tell large numbers apart",
        ".float() was added because a function wanted floats.",
        "Neighbouring segments with large numbers see each other.",
        SEGMENTS,
        ({"read": lambda queries, keys: (queries.float(), keys.float())},),
    ),
    Mistake(
        "relative_tolerance",
        "you compare the numbers with a tolerance that grows with them; only equal ones are one segment",
        "isclose, which is made for the rounding of floats, allows a hundred-thousandth of the number.",
        "Neighbouring segments with large numbers see each other.",
        SEGMENTS,
        (
            {"compare": _relatively_close},
            {"compare": lambda queries, keys: _relatively_close(queries.double(), keys.double())},
        ),
    ),
    Mistake(
        "numbers_narrowed",
        "you compare the numbers in a narrower type, in which different ones may become the same",
        "Small types save memory, and hold the numbers of small examples.",
        "Far apart segments, of numbers 65,536 apart for example, see each other.",
        SEGMENTS,
        (
            {"read": lambda queries, keys: (queries.short(), keys.short())},
            {"read": lambda queries, keys: (queries.int(), keys.int())},
        ),
    ),
    Mistake(
        "distance_of_products",
        "you ask whether torch.cdist is 0; beyond 25 positions it is made of products, and rounded",
        "Equal is what has no distance.",
        "In long rows, neighbouring segments with large numbers see each other.",
        SEGMENTS,
        ({"compare": _no_distance},),
    ),
    Mistake(
        "segments_unchecked",
        "you do not refuse all segments of another number of axes than two",
        "The comparison works for any tensor, or fails by itself.",
        "A mistake elsewhere goes unnoticed here.",
        SEGMENTS,
        (
            {"accept": lambda queries, keys: None},
            {"accept": lambda queries, keys: _crash() if queries.dim() != 2 else None},
            {"accept": _crash_on_one_axis},
            {"accept": _refuse_one_axis},
            {"accept": _refuse_queries(lambda: None)},
            {"accept": _refuse_queries(_crash)},
            {"accept": lambda queries, keys: _accept(keys, keys)},
            {"accept": lambda queries, keys: _accept(keys, keys) or _crash_on_one_axis(queries, keys)},
        ),
    ),
    Mistake(
        "floats_unchecked",
        "you do not refuse all segments of floating-point numbers",
        "== works for floats.",
        "Numbers that were computed are hardly ever equal, and nothing is seen.",
        SEGMENTS,
        (
            {"integers": lambda queries, keys: None},
            {"integers": lambda queries, keys: _integers(queries, queries)},
            {"integers": lambda queries, keys: _integers(keys, keys)},
            {"integers": _only_float64},
        ),
    ),
    Mistake(
        "batches_unchecked",
        "you do not refuse queries and keys of different batch sizes",
        "A batch of one broadcasts against any other.",
        "Every sentence gets the segments of one.",
        SEGMENTS,
        (
            {"one_batch": lambda queries, keys: None},
            {"one_batch": _refuse_batch(lambda queries, keys: keys < queries)},
            {"one_batch": _refuse_batch(lambda queries, keys: queries < keys)},
        ),
    ),
)

TASK = Task(
    name="segment_mask",
    signature="segment_mask(query_segments, key_segments)",
    arguments=("query_segments", "key_segments"),
    returns=("mask",),
    reference=segment_mask,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, 1, queries, keys).",
            ("packed",),
            SEGMENTS,
            ("structure",),
        ),
        Requirement(
            "values", "a query sees the keys of its own segment, and no other.", ("packed",), SEGMENTS
        ),
        Requirement(
            "numbers",
            "any numbers will do: 0, negative or large, in any order.",
            ("zero", "returning", "far_apart", "close", "long"),
            SEGMENTS,
        ),
        Requirement("cross", "queries and keys may be of different sequences.", ("cross",), SEGMENTS),
        Requirement("int32", "integers of either size will do.", ("int32",), SEGMENTS, ("dtype",)),
        Requirement(
            "inputs", "the caller's segments are left unchanged.", ("packed", "cross"), SEGMENTS, ("inputs",)
        ),
        Requirement(
            "refusals",
            "what is no pair of integers (batch, length) of one batch size is refused with ValueError.",
            (
                "one_axis",
                "floats",
                "float_queries",
                "float_keys",
                "other_batch",
                "other_batch_keys",
                "three_axes",
                "flat_queries",
                "flat_keys",
            ),
            SEGMENTS,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "queries": 2, "keys": 3},
        {"batch": 2, "queries": 3, "keys": 2},
        {"batch": 2, "queries": 3, "keys": 4},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
