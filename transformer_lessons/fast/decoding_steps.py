"""The model as decoding sees it: asked for one next token after another, of the sentences that are not done."""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer_lessons import decoding
from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.decoding import KeyValueCache, Newest
from transformer_lessons.fast.kernels import fused_attention
from transformer_lessons.layers import DecoderLayer
from transformer_lessons.model import Transformer


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

    Dropping rows copies what is kept, and a step is compiled for each number of rows. Waiting for half of them, a
    batch of b has at most log₂ b + 1 sizes, and less than twice the work is done that must be.
    """
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


class Slots(KeyValueCache):
    """Room for all positions from the start, written in place: no step changes a shape or moves what is kept."""

    def __init__(self, like: tuple[Tensor, Tensor], room: int, position: Int[Tensor, "1"]):
        super().__init__(*(x.new_zeros(*x.shape[:2], room, x.size(3)) for x in like))
        self.position = position

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keep those of the position; all slots come back, and the mask that hides what is not filled yet."""
        self.k.index_copy_(2, self.position, k)
        self.v.index_copy_(2, self.position, v)
        return self.k, self.v, torch.arange(self.k.size(2), device=k.device) <= self.position


class CompiledSteps(Steps):
    """`Steps`, compiled for each number of rows and length of the sources: half a minute each, then replayed.

    A step of few rows is small operations (230, of three layers), which a GPU is told of more slowly than it does
    them; here it is told once, as one graph. On a CPU `CPUSteps` needs no compiling. A pitfall: behind the newest
    key attention finds empty slots, hidden by a mask, so it must not count positions from the last key.

    Raises:
        ValueError: for attention that has been replaced, as by one with rotary positions.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"], max_length: int):
        super().__init__(model, src)
        self.position = torch.zeros(1, dtype=torch.long, device=src.device)
        start = model.target_embedding.token.weight.new_zeros(len(self.src_mask), 1, model.config.d_model)
        own = [layer.self_attention for layer in model.decoder_layers]
        for attend in (attention.attention for attention in own):
            if attend not in (scaled_dot_product_attention, fused_attention):
                raise ValueError(f"compiled: expected the attention of the course, got {attend}")
        self.past = [Slots(a.keys_and_values(start, start), max_length, self.position) for a in own]
        self._stay()

    def next_logits(self, token: Int[Tensor, "rows 1"]) -> Tensor:
        """As `decoding.Steps.next_logits`."""
        last = token.clone(memory_format=torch.contiguous_format)  # strides are part of a shape
        return _compiled()(self, last)

    def keep_sentences(self, sentences: Tensor) -> None:
        """As `Steps.keep_sentences`."""
        super().keep_sentences(sentences)
        self._stay()

    def _stay(self) -> None:
        """Say that these are written in place: a graph may then be replayed on them without copies."""
        for tensor in (self.position, *(x for one in self.past + self.source for x in (one.k, one.v))):
            torch._dynamo.mark_static_address(tensor, guard=False)


def _next_logits(steps: CompiledSteps, token: Tensor) -> Tensor:
    """`decoding.Steps.next_logits`, whose length is a number: a compiler would compile a step for each."""
    model, embedding = steps.model, steps.model.target_embedding
    x = embedding.token(token)
    if embedding.position is not None:
        x = x + embedding.position.table[steps.position]
    for kept in zip(model.decoder_layers, steps.past, steps.source, strict=True):
        x = steps.through(x, *kept)
    steps.position.add_(1)
    return model.output(model.decoder_norm(x))[:, -1]


@cache
def _compiled() -> Callable:
    return torch.compile(_next_logits, dynamic=False, options={"triton.cudagraphs": True})
