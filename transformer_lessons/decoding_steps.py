"""The model as decoding sees it: asked for one next token after another, of the sentences that are not done."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.layers import LayerCache
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer


class Steps:
    """The sources, read once; then, step by step, the logits of each sentence's next token.

    With a cache (the default) a step computes the newest token only, and what it costs grows with the length by
    what attention to one position more costs. A pitfall: the cache knows what it was given, so after rows have
    been exchanged or dropped, the tokens of the next call must be those of the rows that are left.

    Args:
        model: in evaluation mode.
        src: source ids, padded on the right.
        max_length: most steps.
        use_cache: keep the keys and values of earlier steps.
        copies: rows for each sentence, one below the other, as for the beams of a beam search.
        compiled: compile a step, once for each number of rows and length of the sources, and on a GPU replay it
            as one graph. Takes some ten seconds each time; needs the cache, or each step were a new shape.

    Raises:
        ValueError: for what is no `model.Transformer`, for sizes that are no integers, or a src that the model
            refuses.
    """

    def __init__(
        self,
        model: Transformer,
        src: Int[Tensor, "batch source"],
        max_length: int,
        *,
        use_cache: bool = True,
        copies: int = 1,
        compiled: bool = False,
    ):
        expect.kind(Transformer, model=model)
        expect.sizes(max_length=max_length, copies=copies)
        if compiled and not use_cache:
            raise ValueError("compiled: expected False without a cache, got True")
        self.model, self.copies, self.compiled = model, copies, compiled
        self.memory = model.encode(src).repeat_interleave(copies, dim=0)
        self.src_mask = padding_mask(src, model.config.pad_id).repeat_interleave(copies, dim=0)
        self.caches = model.new_caches(len(self.memory), max_length) if use_cache else None

    def next_logits(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows vocab"]:
        """Of the token after `tokens`, which are all so far, `bos_id` first.

        A pitfall: with a cache, each call must be one token longer than the call before.

        Raises:
            ValueError: for tokens that the model refuses.
        """
        expect.ids("rows", "length", tokens=tokens)
        last = tokens[:, -1:] if self.caches else tokens
        step = _next_logits
        # The first step is another one: it computes the keys and values of the source.
        if self.compiled and tokens.size(1) > 1:
            step = _compiled(self.memory.device.type)
            if tokens.size(1) == 2:
                self._stay()
            last = last.clone(memory_format=torch.contiguous_format)  # strides are part of a shape
        return step(self.model, last, self.memory, self.src_mask, self.caches)

    def reorder(self, rows: Int[Tensor, " rows"]) -> None:
        """Row r goes on from what ``rows[r]`` was: copies of one sentence may change places.

        A pitfall: only its own copies. Cross-attention, which sees the source alone, stays as it is.

        Raises:
            ValueError: as `cache.KeyValueCache.reorder`.
        """
        for layer in self.caches or ():
            layer.self_attention.reorder(rows)

    def keep(self, sentences: Int[Tensor, " sentences"]) -> None:
        """Only these sentences, by their present numbers, go on, each with all of its copies.

        A pitfall: whoever is left out cannot come back.

        Raises:
            ValueError: for what is no int64 or int32 of one axis, or is on another device, or (where it costs no
                synchronisation) no sentence.
        """
        expect.ids("sentences", sentences=sentences)
        expect.same_device(self.memory, "the memory", sentences=sentences)
        expect.below(len(self.memory) // self.copies, sentences=sentences)
        copies = torch.arange(self.copies, device=sentences.device)
        rows = (self.copies * sentences[:, None] + copies).flatten()
        for kept in (kept for layer in self.caches or () for kept in layer):
            kept.reorder(rows)
        self.memory, self.src_mask = self.memory[rows], self.src_mask[rows]
        self._stay()

    def _stay(self) -> None:
        """Say that caches are written in place: a graph may then be replayed on them without copies."""
        if self.compiled:
            for kept in (kept for layer in self.caches for kept in layer):
                for tensor in (kept.keys, kept.values, kept.position):
                    torch._dynamo.mark_static_address(tensor, guard=False)


def _next_logits(
    model: Transformer, last: Tensor, memory: Tensor, src_mask: Tensor, caches: list[LayerCache] | None
) -> Tensor:
    return model.project(model.decode(last, memory, src_mask, caches)[:, -1])


@cache
def _compiled(device: str) -> Callable[..., Tensor]:
    """A step of few rows is small operations (230, of three layers), which cost more to order than to do.

    On a GPU all are ordered at once, as one graph; on a CPU they are called from compiled code.
    """
    options = {"triton.cudagraphs": True} if device == "cuda" else {"cpp_wrapper": True}
    return torch.compile(_next_logits, dynamic=False, options=options)


def going_on(is_done: Bool[Tensor, " sentences"]) -> Int[Tensor, " left"] | None:
    """The numbers of the sentences that are not done, if they are half of all or fewer; else None.

    Not each time that a sentence ends: dropping rows copies what is kept, and a compiled step has to be compiled
    for each number of rows. Waiting for half of them, a batch of b has at most log₂ b + 1 different sizes, and
    computes less than twice what it must. A pitfall: the answer is about present numbers, not those at the start.

    Raises:
        ValueError: for what is no vector of truth values.
    """
    expect.kind(Tensor, is_done=is_done)
    if is_done.dtype != torch.bool or is_done.dim() != 1:
        raise ValueError(
            f"is_done: expected truth values of one axis, got {is_done.dtype} {tuple(is_done.shape)}"
        )
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


def column_major(model: Transformer) -> Transformer:
    """A copy of the model that decodes a single sentence sooner on some CPUs: the same weights in another order.

    ``y_i = Σ_j W_ij x_j`` for one x reads W once and does little else, and the order it is read in decides.
    `nn.Linear` stores W row by row, and each y_i is the sum of a row; stored column by column, each x_j adds its
    multiple of a column to all of y. Of the two machines in chapter 16, one does that in two thirds of the time,
    and one no sooner. From a few rows on there is no difference. Shapes and names stay, and tied matrices stay
    tied.

    A pitfall: the copy is for decoding only, and none of its parameters asks for a gradient. An optimiser that
    met a weight in one order updates it wrongly in another, without a word.

    Raises:
        ValueError: for what is no `model.Transformer`.
    """
    expect.kind(Transformer, model=model)
    copied = deepcopy(model).requires_grad_(False)
    for module in copied.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.T.contiguous().T
    return copied
