"""The model as decoding sees it: asked for one next token after another, of the sentences that are not done."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

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
            as one graph. Takes half a minute each time; needs the cache, or each step were a new shape.

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
        self.caches = None
        if use_cache:
            self.caches = model.new_caches(len(self.memory), max_length)
            for layer, kept in zip(model.decoder_layers, self.caches, strict=True):
                kept.cross_attention.fill_once(partial(layer.cross_attention.keys_and_values, self.memory))
        self._stay()

    def next_logits(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows vocab"]:
        """Of the token after `tokens`, which are all so far, `bos_id` first.

        A pitfall: with a cache, each call must be one token longer than the call before.

        Raises:
            ValueError: for tokens that the model refuses.
        """
        expect.ids("rows", "length", tokens=tokens)
        last = tokens[:, -1:] if self.caches else tokens
        if not self.compiled:
            return _next_logits(self.model, last, self.memory, self.src_mask, self.caches)
        last = last.clone(memory_format=torch.contiguous_format)  # strides are part of a shape
        step = _compiled(_next_logits, self.memory.device.type)
        return step(self.model, last, self.memory, self.src_mask, self.caches)

    @torch.no_grad()
    def likeliest(
        self, tokens: Int[Tensor, "rows room"], length: int, is_done: Bool[Tensor, " rows"]
    ) -> tuple[int, Bool[Tensor, " rows"]]:
        """Write the likeliest next token of each row into `tokens`, behind the first `length`; `pad_id` if done.

        One token; or, compiled on a CPU, as many as there is room for, until half of the rows are done: calling a
        compiled step from Python takes a third of the time that one sentence's step takes.

        Returns:
            How many tokens there are now, and which rows are done: those that have said `eos_id`.

        Raises:
            ValueError: for a length that leaves no room, is_done that is not a truth value for each row, or
                tokens that the model refuses.
        """
        expect.ids("rows", "room", tokens=tokens)
        expect.sizes(length=length)
        _expect_truths(is_done)
        if length >= tokens.size(1):
            raise ValueError(f"length: expected less than the room of {tokens.size(1)} tokens, got {length}")
        if len(is_done) != len(tokens):
            raise ValueError(f"is_done: expected {len(tokens)} rows, as tokens, got {len(is_done)}")
        if self.compiled and _loops(self.memory.device.type):
            known = self.model, tokens, self.memory, self.src_mask, self.caches
            reached, is_done = _compiled(_likeliest, "cpu")(torch.tensor(length), is_done, *known)
            return int(reached), is_done
        config = self.model.config
        token = self.next_logits(tokens[:, :length]).argmax(-1).masked_fill(is_done, config.pad_id)
        tokens[:, length] = token
        return length + 1, is_done | (token == config.eos_id)

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


def _likeliest(
    length: Tensor,
    is_done: Tensor,
    model: Transformer,
    tokens: Tensor,
    memory: Tensor,
    src_mask: Tensor,
    caches: list[LayerCache],
) -> tuple[Tensor, Tensor]:
    """`Steps.likeliest` as a loop that can be compiled: nothing in it is asked for its value."""
    config = model.config

    def goes_on(length: Tensor, is_done: Tensor) -> Tensor:
        return (length < tokens.size(1)) & (2 * is_done.sum() < len(is_done))  # see `going_on`

    def say(length: Tensor, is_done: Tensor) -> tuple[Tensor, Tensor]:
        last = tokens.index_select(1, length[None] - 1)
        logits = _next_logits(model, last, memory, src_mask, caches)
        token = logits.argmax(-1).masked_fill(is_done, config.pad_id)
        tokens.index_copy_(1, length[None], token[:, None])
        return length + 1, is_done | (token == config.eos_id)

    return torch.while_loop(goes_on, say, (length, is_done))


def _loops(device: str) -> bool:
    """Whether `_likeliest` can be compiled: loops may write to tensors around them (the caches) from 2.13 on.

    On a GPU the loop would wait after each step, to learn whether there is another.
    """
    return device == "cpu" and torch.__version__ >= "2.13"


@cache
def _compiled(function: Callable, device: str) -> Callable:
    """A step of few rows is small operations (230, of three layers), which cost more to order than to do.

    On a GPU all are ordered at once, as one graph; on a CPU they are called from compiled code.
    """
    options = {"triton.cudagraphs": True} if device == "cuda" else {"cpp_wrapper": True}
    return torch.compile(function, dynamic=False, options=options)


def going_on(is_done: Bool[Tensor, " sentences"]) -> Int[Tensor, " left"] | None:
    """The numbers of the sentences that are not done, if they are half of all or fewer; else None.

    Not each time that a sentence ends: dropping rows copies what is kept, and a compiled step has to be compiled
    for each number of rows. Waiting for half of them, a batch of b has at most log₂ b + 1 different sizes, and
    computes less than twice what it must. A pitfall: the answer is about present numbers, not those at the start.

    Raises:
        ValueError: for what is no vector of truth values.
    """
    _expect_truths(is_done)
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


def _expect_truths(is_done: Tensor) -> None:
    expect.kind(Tensor, is_done=is_done)
    if is_done.dtype != torch.bool or is_done.dim() != 1:
        raise ValueError(
            f"is_done: expected truth values of one axis, got {is_done.dtype} {tuple(is_done.shape)}"
        )


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
