"""The model as decoding sees it: asked for one next token after another, of the sentences that are not done."""

import weakref
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from transformer_lessons import decoding
from transformer_lessons.decoding import KeyValueCache, Newest
from transformer_lessons.fast.graphs import Replayed
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.model import Transformer

ROOM = 64  # positions that a cache on a GPU begins with


class Steps(decoding.Steps):
    """`decoding.Steps` of `copies` beginnings of each sentence, one below the other; sentences may leave.

    A sentence's beginnings look at its source as queries of one sentence: its keys are there, and read, once.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src)
        self.copies = copies

    def through(self, x: Newest, layer: DecoderLayer, past: KeyValueCache, source: KeyValueCache) -> Newest:
        """As `decoding.Steps.through`."""
        own, cross = layer.self_attention, layer.cross_attention

        def look_at_source(y: Newest) -> Newest:
            queries = y.view(-1, self.copies, y.size(2))
            return cross.look(queries, source.k, source.v, self.src_mask).view_as(y)

        x = layer.add_norm_self(x, lambda y: own.look(y, *past.append(*own.keys_and_values(y, y))))
        x = layer.add_norm_cross(x, look_at_source)
        return layer.add_norm_feed_forward(x, layer.feed_forward)

    def keep_sentences(self, sentences: Int[Tensor, " kept"]) -> None:
        """Go on with these, by their present numbers, each with all of its copies."""
        copies = torch.arange(self.copies, device=sentences.device)
        self.keep((self.copies * sentences[:, None] + copies).flatten())
        self.src_mask = self.src_mask[sentences]
        for source in self.source:
            source.keep(sentences)


def going_on(is_done: Bool[Tensor, " sentences"]) -> Int[Tensor, " left"] | None:
    """The numbers of the sentences that are not done, if they are half of all or fewer; else None.

    Dropping rows copies what is kept, and a GPU records a step for each number of rows. Waiting for half of them,
    a batch of b has at most log₂ b + 1 sizes, and less than twice the work is done that must be.
    """
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


class Slots(KeyValueCache):
    """Room for more positions than there are, written in place: few steps change a shape or move what is kept."""

    def __init__(self, position: Int[Tensor, "1"]):
        super().__init__()
        self.position = position

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep those of the position; all slots come back, and the mask that hides what is not filled yet."""
        if self.k is None:
            self.k, self.v = (x.new_zeros(*x.shape[:2], ROOM, x.size(3)) for x in (k, v))
        self.k.index_copy_(2, self.position, k)
        self.v.index_copy_(2, self.position, v)
        return self.k, self.v, torch.arange(self.k.size(2), device=k.device) <= self.position

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """As `KeyValueCache.keep`, in place."""
        if len(rows) != len(self.k):
            return super().keep(rows)
        self.k.copy_(self.k[rows])
        self.v.copy_(self.v[rows])

    def double(self) -> None:
        """Twice the room."""
        self.k, self.v = (F.pad(x, (0, 0, 0, x.size(2))) for x in (self.k, self.v))


class ReplayedSteps(Steps):
    """`Steps` for a GPU, which is told of a step's operations once and replays them (`graphs`).

    A step of few rows is small operations, some forty a layer, which a GPU is told of more slowly than it does
    them. A pitfall: behind the newest key attention finds empty slots, hidden by a mask, so it must not count
    positions from the last key.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1):
        super().__init__(model, src, copies)
        self.position = torch.zeros(1, dtype=torch.long, device=src.device)
        self.past = [Slots(self.position) for _ in model.decoder_layers]
        self._record_anew()

    def next_logits(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """As `decoding.Steps.next_logits`; the next call overwrites it."""
        if self.length and self.length == self.past[0].k.size(2):
            for past in self.past:
                past.double()
            self._record_anew()
        self.length += 1
        return self.step(token)

    def keep_sentences(self, sentences: Tensor) -> None:
        """As `Steps.keep_sentences`."""
        super().keep_sentences(sentences)
        self._record_anew()

    def _record_anew(self) -> None:
        """What was recorded reads and writes tensors that are others now."""
        # That knows these steps by a proxy: in a ring of references, their memory would wait for the collector.
        self.step = Replayed(partial(type(self)._step, weakref.proxy(self)), self.position.device)

    def _step(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """`decoding.Steps.next_logits`, whose length is a number, and would be recorded as such."""
        model, embedding = self.model, self.model.target_embedding
        x = embedding.token(token)
        if embedding.position is not None:
            x = x + embedding.position.table[self.position]
        for kept in zip(model.decoder_layers, self.past, self.source, strict=True):
            x = self.through(x, *kept)
        self.position.add_(1)
        return model.output(model.decoder_norm(x))[:, -1]
