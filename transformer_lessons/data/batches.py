"""Training batches from sentence pairs, with the target shifted by one position for teacher forcing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons.data.encoded import EncodedPairs, Pair
from transformer_lessons.data.vocabulary import Vocabulary, pad


class Batch(NamedTuple):
    """The ids of one training step: at each position, `tgt_out` is the token to predict after `tgt_in`'s.

    A pitfall: both are padded alike, so a loss over all positions would teach the model to predict padding.
    """

    src: Int[Tensor, "batch source"]
    tgt_in: Int[Tensor, "batch target"]
    tgt_out: Int[Tensor, "batch target"]

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        return Batch(*(ids.to(device, non_blocking=non_blocking) for ids in self))


def make_batch(pairs: Sequence[Pair]) -> Batch:
    """A padded batch for teacher forcing: ``tgt_in = [bos, y_1 … y_n]``, ``tgt_out = [y_1 … y_n, eos]``.

    Padding is on the right. A pitfall: without this shift, the decoder sees the very token that it should
    predict, and the loss falls to zero while the model learns nothing.
    """
    pad_id, bos, eos = Vocabulary.pad_id, Vocabulary.bos_id, Vocabulary.eos_id
    return Batch(
        src=pad([source for source, _ in pairs], pad_id),
        tgt_in=pad([[bos, *target] for _, target in pairs], pad_id),
        tgt_out=pad([[*target, eos] for _, target in pairs], pad_id),
    )


class Batches:
    """Endless shuffled batches of `batch_size` pairs.

    Batch number `step`, from 0 on, depends only on the seed and the step, so a run can resume anywhere and no
    position is saved. A pitfall: each epoch drops the pairs that do not fill a batch, others each time.
    """

    def __init__(self, pairs: Sequence[Pair], batch_size: int, *, seed: int):
        if not 1 <= batch_size <= len(pairs):
            raise ValueError(f"batch_size: expected 1 to {len(pairs)}, the number of pairs, got {batch_size}")
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self.steps_per_epoch = len(pairs) // batch_size
        self._epoch: tuple[int | None, Sequence] = (None, ())

    def __getitem__(self, step: int) -> Batch:
        """The batch of a training step, counted from 0."""
        epoch, place = divmod(step, self.steps_per_epoch)
        known = self._epoch  # read once: another thread may ask for another epoch's batch meanwhile
        if known[0] != epoch:
            # Consecutive seeds must not share epochs.
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
            known = self._epoch = (epoch, self._cut(generator))
        return make_batch([self.pairs[number] for number in known[1][place].tolist()])

    def _cut(self, generator: torch.Generator) -> Sequence[Tensor | np.ndarray]:
        """The batches of an epoch, as indices of pairs."""
        return torch.randperm(len(self.pairs), generator=generator).split(self.batch_size)


class TokenBatches(Batches):
    """Endless batches of sentences of similar length, with hardly any padding. No pair is left out.

    A batch has about `tokens` real tokens on both sides, end marks included: an average, at least as large as
    the longest pair, that a batch may miss by one pair. In every epoch the pairs are split at random into a
    few pools, each is sorted by length, all are cut at equal sums of tokens, and the batches are shuffled.

    A pitfall: sorted batches are not random: all short sentences come together. The loss is divided by the
    number of tokens, so batches must be of equal size in tokens, not in pairs.
    """

    pools = 4  # more pools mix the pairs better but cost more padding

    def __init__(self, pairs: Sequence[Pair], tokens: int, *, seed: int):
        super().__init__(pairs, 1, seed=seed)
        sizes = (pairs if isinstance(pairs, EncodedPairs) else EncodedPairs.of(pairs)).sizes
        self._lengths = sizes + np.array([0, 1])  # with the target's end mark
        each = self._lengths.sum(1)
        self._total = int(each.sum())
        # No batch is empty as long as each has room for the longest pair.
        self.steps_per_epoch = max(1, min(round(self._total / tokens), self._total // int(each.max())))

    def _cut(self, generator: torch.Generator) -> list[np.ndarray]:
        pools = torch.randperm(len(self.pairs), generator=generator).tensor_split(self.pools)
        # Ascending in one pool and descending in the next, so that lengths are similar where two pools meet.
        order = np.concatenate([self._sorted(pool.numpy(), n % 2 == 1) for n, pool in enumerate(pools)])
        count, tokens = self.steps_per_epoch, self._lengths.sum(1)[order]
        middles = tokens.cumsum() - tokens / 2  # a pair belongs to the batch that contains its middle
        batches = np.split(order, np.searchsorted(middles, self._total / count * np.arange(1, count)))
        return [batches[number] for number in torch.randperm(count, generator=generator).tolist()]

    def _sorted(self, pool: np.ndarray, descending: bool) -> np.ndarray:
        """A pool sorted by the longer side, which sets a batch's width, then by the sum; ties stay random."""
        lengths = self._lengths[pool]
        keys = np.stack([lengths.sum(1), lengths.max(1)])  # the last key is the primary one
        return pool[np.lexsort(-keys if descending else keys)]
