"""A batch in parts, computed one after another where the whole does not fit in memory."""

from transformer_lessons.data.batches import Batch
from transformer_lessons.data.packing import PackedBatch


def split(batch: Batch | PackedBatch, parts: int) -> list[Batch] | list[PackedBatch]:
    """A batch in `parts` of nearly equal size, or fewer if it has fewer rows; together they are the whole.

    A packed row stays whole. A pitfall: equal numbers of rows are not equal numbers of tokens, so the means of
    parts must not be averaged.
    """
    return [type(batch)(*part) for part in zip(*(ids.chunk(parts) for ids in batch), strict=True)]
