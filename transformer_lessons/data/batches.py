"""Sentence pairs to training batches, with the target shifted by one position for teacher forcing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons.data.encoded import EncodedPairs, Pair
from transformer_lessons.data.vocabulary import Vocabulary, pad


class Batch(NamedTuple):
    """What one training step needs: at each position, `tgt_out` is the token that should follow `tgt_in`'s.

    A pitfall: both are padded alike, so a loss over all positions would teach the model to say padding.
    """

    src: Int[Tensor, "batch source"]
    tgt_in: Int[Tensor, "batch target"]
    tgt_out: Int[Tensor, "batch target"]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        return Batch(*(ids.to(device, non_blocking=non_blocking) for ids in self))


def make_batch(pairs: Sequence[Pair]) -> Batch:
    """Pad on the right; ``tgt_in = [bos, y_1 … y_n]`` and ``tgt_out = [y_1 … y_n, eos]`` (teacher forcing).

    A pitfall: without the shift the decoder is shown the very token it should predict, and the loss falls to
    nothing while the model learns nothing.
    """
    pad_id, bos, eos = Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id
    return Batch(
        src=pad([source for source, _ in pairs], pad_id),
        tgt_in=pad([[bos, *target] for _, target in pairs], pad_id),
        tgt_out=pad([[*target, eos] for _, target in pairs], pad_id),
    )


class Batches:
    """Endless shuffled batches of `batch_size` pairs.

    Number `step`, from 0 on, is a function of the seed and the step alone, so a run resumes anywhere, and no
    position is kept. A pitfall: each epoch leaves out the pairs that fill no whole batch, others each time.
    """

    def __init__(self, pairs: Sequence[Pair], batch_size: int, *, seed: int):
        if not 1 <= batch_size <= len(pairs):
            raise ValueError(f"batch_size: expected 1 to {len(pairs)}, the number of pairs, got {batch_size}")
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self.steps_per_epoch = len(pairs) // batch_size
        self._epoch: tuple[int | None, Sequence] = (None, ())

    def __getitem__(self, step: int) -> Batch:
        """The batch of a training step, counted from 0."""
        return make_batch(self._chosen(step))

    def _chosen(self, step: int) -> list[Pair]:
        epoch, place = divmod(step, self.steps_per_epoch)
        known = self._epoch  # read once: another thread may ask for another epoch's batch meanwhile
        if known[0] != epoch:
            # Seeds that follow one another must not share their epochs.
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
            known = self._epoch = (epoch, self._cut(generator))
        return [self.pairs[number] for number in known[1][place].tolist()]

    def _cut(self, generator: torch.Generator) -> Sequence[Tensor | np.ndarray]:
        """An epoch's batches, as numbers of pairs."""
        return torch.randperm(len(self.pairs), generator=generator).split(self.batch_size)


class TokenBatches(Batches):
    """Endless batches of like lengths: hardly any padding is computed. No pair is left out.

    Each has about `tokens` real tokens of both sides together, with the target's end mark: an average, which
    a batch may miss by one pair, and at least the longest pair's. In every epoch the pairs fall at random into a
    few pools, each is sorted by length, and all are cut at equal sums of tokens; then batches are shuffled.

    A pitfall: sorted batches are not random ones: all short sentences come together. It is the number of tokens
    that the loss is divided by, so batches must be alike in tokens, not in pairs.
    """

    pools = 4  # more of them mix the pairs better, and cost more padding

    def __init__(self, pairs: Sequence[Pair], tokens: int, *, seed: int):
        super().__init__(pairs, 1, seed=seed)
        sizes = (pairs if isinstance(pairs, EncodedPairs) else EncodedPairs.of(pairs)).sizes
        self._lengths = sizes + np.array([0, 1])  # with the target's mark
        each = self._lengths.sum(1)
        self._total = int(each.sum())
        # No batch is empty as long as a batch has room for the longest pair.
        self.steps_per_epoch = max(1, min(round(self._total / tokens), self._total // int(each.max())))

    def _cut(self, generator: torch.Generator) -> list[np.ndarray]:
        pools = torch.randperm(len(self.pairs), generator=generator).tensor_split(self.pools)
        # Up in one pool and down in the next, so that neighbours are of like lengths where two pools meet.
        order = np.concatenate([self._sorted(pool.numpy(), n % 2 == 1) for n, pool in enumerate(pools)])
        count, tokens = self.steps_per_epoch, self._lengths.sum(1)[order]
        middles = tokens.cumsum() - tokens / 2  # a pair belongs to the batch in which its middle lies
        batches = np.split(order, np.searchsorted(middles, self._total / count * np.arange(1, count)))
        return [batches[number] for number in torch.randperm(count, generator=generator).tolist()]

    def _sorted(self, pool: np.ndarray, descending: bool) -> np.ndarray:
        """By the longer side first, as a batch is as wide as its longest sentence; equals in random order."""
        lengths = self._lengths[pool]
        keys = np.stack([lengths.sum(1), lengths.max(1)])  # the last one counts first
        return pool[np.lexsort(-keys if descending else keys)]
