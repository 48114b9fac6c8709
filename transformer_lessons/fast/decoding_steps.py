"""Decoding steps for several hypotheses per sentence; finished sentences are dropped, a GPU replays steps."""

import weakref
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from transformer_lessons import decoding
from transformer_lessons.decoding import KeyValueCache, Newest
from transformer_lessons.fast.graphs import GraphedFunction
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.model import Transformer

INITIAL_CAPACITY = 64  # positions that a cache on a GPU has room for at first


class Steps(decoding.Steps):
    """`decoding.Steps` with `copies` hypotheses per sentence, in consecutive rows; sentences can be dropped.

    In cross-attention, a sentence's hypotheses are queries of one row: its keys are stored and read once.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src)
        self.copies = copies

    def run_layer(self, x: Newest, layer: DecoderLayer, past: KeyValueCache, source: KeyValueCache) -> Newest:
        """Same as `decoding.Steps.run_layer`."""
        own, cross = layer.self_attention, layer.cross_attention

        def attend_to_source(y: Newest) -> Newest:
            queries = y.view(-1, self.copies, y.size(2))
            return cross.look(queries, source.k, source.v, self.src_mask).view_as(y)

        x = layer.add_norm_self(x, lambda y: own.look(y, *past.append(*own.keys_and_values(y, y))))
        x = layer.add_norm_cross(x, attend_to_source)
        return layer.add_norm_feed_forward(x, layer.feed_forward)

    def keep_sentences(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keep only these sentences, by their current indices, each with all of its copies."""
        copies = torch.arange(self.copies, device=sentences.device)
        self.keep((self.copies * sentences[:, None] + copies).flatten())
        self.src_mask = self.src_mask[sentences]
        for source in self.source:
            source.keep(sentences)


def sentences_to_keep(is_done: Bool[Tensor, " sentences"]) -> Int[Tensor, " left"] | None:
    """The indices of the sentences that are not done, if they are at most half of all; otherwise None.

    Dropping rows copies the caches, and a GPU captures a step for each number of rows. By waiting until half
    are done, a batch of b has at most log₂ b + 1 sizes, and less than twice the necessary work is done.
    """
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


class PreallocatedCache(KeyValueCache):
    """A cache with room for later positions, written in place: few steps change a shape or move the cache."""

    def __init__(self, position: Int[Tensor, "1"]):
        super().__init__()
        self.position = position

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write the keys and values at `position`; return all slots, and a mask that hides the empty ones."""
        if self.k is None:
            self.k, self.v = (x.new_zeros(*x.shape[:2], INITIAL_CAPACITY, x.size(3)) for x in (k, v))
        self.k.index_copy_(2, self.position, k)
        self.v.index_copy_(2, self.position, v)
        return self.k, self.v, torch.arange(self.k.size(2), device=k.device) <= self.position

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Same as `KeyValueCache.keep`, in place if the number of rows stays the same."""
        if len(rows) != len(self.k):
            return super().keep(rows)
        self.k.copy_(self.k[rows])
        self.v.copy_(self.v[rows])


class ReplayedSteps(Steps):
    """`Steps` for a GPU, which captures a step's operations once and replays them (`graphs`).

    A step with few rows consists of small operations, about forty per layer, which take longer to launch than
    to run. A pitfall: after the newest key come empty slots, hidden by a mask, so attention must not count
    positions from the last key.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src, copies)
        self.position = torch.zeros(1, dtype=torch.long, device=src.device)
        self.past = [PreallocatedCache(self.position) for _ in model.decoder_layers]
        self._reset_graphs()

    def next_logits(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """Same as `decoding.Steps.next_logits`; the next call overwrites the result."""
        if self.length and self.length == self.past[0].k.size(2):
            for past in self.past:
                past.k, past.v = (F.pad(x, (0, 0, 0, self.length)) for x in (past.k, past.v))  # doubled
            self._reset_graphs()
        self.length += 1
        return self.step(token)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Same as `Steps.keep_sentences`."""
        super().keep_sentences(sentences)
        self._reset_graphs()

    def _reset_graphs(self) -> None:
        """Discard the captured graphs, which read and write tensors that have since been replaced."""
        # By a weak proxy: in a reference cycle, the memory would wait for the garbage collector.
        self.step = GraphedFunction(partial(type(self)._step, weakref.proxy(self)), self.position.device)

    def _step(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """`decoding.Steps.next_logits` with the position in a tensor: a number would be captured as it is."""
        model, embedding = self.model, self.model.target_embedding
        x = embedding.token(token)
        if embedding.position is not None:
            x = x + embedding.position.table[self.position]
        for kept in zip(model.decoder_layers, self.past, self.source, strict=True):
            x = self.run_layer(x, *kept)
        self.position.add_(1)
        return model.output(model.decoder_norm(x))[:, -1]
