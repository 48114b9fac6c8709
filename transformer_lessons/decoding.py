"""From a trained model to text: choosing the next token, again and again."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.decoding_steps import Steps, going_on
from transformer_lessons.model import Transformer


@torch.no_grad()
def greedy(
    model: Transformer,
    src: Int[Tensor, "batch source"],
    *,
    max_length: int,
    use_cache: bool = True,
    compiled: bool = False,
) -> Int[Tensor, "batch length"]:
    """Always take the likeliest next token; a sentence ends at `eos_id`.

    ``y_t = argmax_c p(c | y_1 … y_{t−1}, src)``, the model's distribution of §3.4

    The model is put into evaluation mode and back. A pitfall: what is likeliest step by step need not be the
    likeliest sentence (`beam` looks further).

    Args:
        model: a trained model.
        src: source ids, padded on the right.
        max_length: most tokens to generate for a sentence, `eos_id` included.
        use_cache: keep the keys and values of earlier steps; the same tokens, much less work.
        compiled: compile a step, or on a CPU the whole loop (`decoding_steps.Steps`): for many batches of few
            shapes.

    Returns:
        Generated ids without `bos_id`, with `eos_id`, then `pad_id`; as long as the longest sentence.

    Raises:
        ValueError: for what is no `model.Transformer`, a max_length below 1 or beyond the model's, `compiled`
            without a cache, or a src that the model refuses.
    """
    expect.kind(Transformer, model=model)
    config = model.config
    _check_max_length(max_length, config.max_length)
    with evaluating(model):
        steps = Steps(model, src, max_length, use_cache=use_cache, compiled=compiled)
        tokens = src.new_full((len(src), 1 + max_length), config.pad_id, dtype=torch.long)
        tokens[:, 0], length, said = config.bos_id, 1, tokens.clone()
        rows = torch.arange(len(src), device=src.device)  # those not done yet, and some that are
        is_done = torch.zeros_like(rows, dtype=torch.bool)
        while length <= max_length and len(rows):
            length, is_done = steps.likeliest(tokens, length, is_done)
            if (left := going_on(is_done)) is not None:
                said[rows] = tokens
                steps.keep(left)
                rows, tokens, is_done = rows[left], tokens[left], is_done[left]
        said[rows] = tokens
    return said[:, 1:length]


@torch.no_grad()
def beam(
    model: Transformer,
    src: Int[Tensor, "batch source"],
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_length: int,
    use_cache: bool = True,
    compiled: bool = False,
) -> Int[Tensor, "batch length"]:
    """Keep the `beam_size` likeliest beginnings of a sentence, not just one (§6.1; Wu et al. 2016, equation 14).

    ``score(y) = log p(y | src) / lp(|y|),  lp(n) = ((5 + n) / 6)^α`` with α = `length_penalty`

    At every step each beginning is continued by every token. Of these, the `beam_size` likeliest that do not
    end go on; those that end are candidates for the answer, if they are among the `beam_size` likeliest at all.
    A sentence is done when no beginning can beat its best candidate any more, even if the tokens up to
    `max_length` cost nothing; what `max_length` cuts off competes like a finished sentence. One beam is `greedy`.

    Two pitfalls: log p falls with every token, so without a penalty (α = 0) short sentences win, the more so
    the wider the beam. And to stop as soon as `beam_size` sentences have ended, as some do, can leave nothing but
    bad ones: a confident model has little else to put into its other beams.

    Args:
        model: a trained model.
        src: source ids, padded on the right.
        beam_size: number of beginnings kept; 4 in the paper.
        length_penalty: α; 0.6 in the paper.
        max_length: most tokens to generate for a sentence, `eos_id` included; the tighter, the sooner it is done.
        use_cache: keep the keys and values of earlier steps; the same tokens, much less work.
        compiled: compile a step (`decoding_steps.Steps`): for many batches of few shapes, above all on a GPU.

    Returns:
        The best sentence's ids without `bos_id`, with `eos_id`, then `pad_id`; as long as the longest.

    Raises:
        ValueError: for what is no `model.Transformer`, a beam_size below 1, a negative length_penalty, a
            max_length below 1 or beyond the model's, `compiled` without a cache, or a src that the model refuses.
    """
    expect.kind(Transformer, model=model)
    _check_max_length(max_length, model.config.max_length)
    expect.sizes(beam_size=beam_size)
    expect.number(length_penalty=length_penalty)
    with evaluating(model):
        options = {"use_cache": use_cache, "compiled": compiled}
        steps = Steps(model, src, max_length, copies=beam_size, **options)
        search = _BeamSearch(src, beam_size, length_penalty, max_length, model)
        while search.length < max_length and len(search.rows):
            logits = steps.next_logits(search.tokens.flatten(0, 1))
            steps.reorder(search.advance(logits.unflatten(0, (-1, beam_size))))
            if (left := going_on(search.is_done)) is not None:
                steps.keep(left)
                search.keep(left)
    return search.answer()


class _BeamSearch:
    """The beginnings that are alive, and the best finished sentence so far; `advance` takes one step."""

    def __init__(self, src: Tensor, beam_size: int, alpha: float, max_length: int, model: Transformer):
        self.config, self.alpha, self.max_length, self.length = model.config, alpha, max_length, 0
        batch, wide = src.size(0), torch.promote_types(model.output.weight.dtype, torch.float32)
        self.rows: Int[Tensor, " batch"] = torch.arange(
            batch, device=src.device
        )  # of those still searched for
        self.said = src.new_full((batch, max_length), self.config.pad_id, dtype=torch.long)
        self.longest = 0
        self.tokens: Int[Tensor, "batch beams length"] = src.new_full(
            (batch, beam_size, 1), self.config.bos_id
        )
        # log p of each beginning. At first all are the same: but for one, they must not go on.
        self.scores: Float[Tensor, "batch beams"] = src.new_full((batch, beam_size), -torch.inf, dtype=wide)
        self.scores[:, 0] = 0.0
        self.best: Int[Tensor, "batch max_length"] = self.said.clone()
        self.best_score = src.new_full((batch,), -torch.inf, dtype=wide)
        self.best_length = src.new_zeros(batch)
        self.is_done = src.new_zeros(batch, dtype=torch.bool)

    def advance(self, logits: Float[Tensor, "batch beams vocab"]) -> Int[Tensor, " rows"]:
        """Continue every beginning by every token; returns the rows that the new beginnings continue."""
        batch, beams, vocab = logits.shape
        log_p = self.scores[..., None] + logits.to(self.scores.dtype).log_softmax(-1)
        # At most `beams` of these end, one of each beginning: enough are left to go on.
        top, index = log_p.flatten(1).topk(2 * beams)
        parent, token = index // vocab, index % vocab
        sentences = torch.cat([self._of(parent), token[..., None]], dim=-1)
        self.length += 1
        is_end = token == self.config.eos_id
        self._finish(sentences[:, :beams], top[:, :beams].masked_fill(~is_end[:, :beams], -torch.inf))
        alive = is_end.to(torch.uint8).argsort(stable=True)[:, :beams]
        self.scores = top.gather(1, alive)
        self.tokens = sentences.gather(1, alive[..., None].expand(-1, -1, sentences.size(-1)))
        self._stop()
        first_rows = beams * torch.arange(batch, device=index.device)[:, None]
        return (first_rows + parent.gather(1, alive)).flatten()

    def _of(self, parent: Int[Tensor, "batch chosen"]) -> Int[Tensor, "batch chosen length"]:
        return self.tokens.gather(1, parent[..., None].expand(-1, -1, self.tokens.size(-1)))

    def _finish(self, sentences: Tensor, log_p: Tensor) -> None:
        """Keep the best of all sentences that have ended."""
        score, which = self._penalised(log_p, self.length).max(1)
        better = (score > self.best_score) & ~self.is_done
        chosen = sentences[torch.arange(len(which)), which, 1:]
        self.best[:, : self.length] = torch.where(better[:, None], chosen, self.best[:, : self.length])
        self.best_score = torch.where(better, score, self.best_score)
        self.best_length = self.best_length.masked_fill(better, self.length)

    def _stop(self) -> None:
        """Done: the likeliest beginning is lost, even if the rest of it cost nothing."""
        attainable = self._penalised(self.scores[:, 0], self.max_length)
        self.is_done = self.is_done | (attainable <= self.best_score)
        if self.length == self.max_length:
            self._finish(self.tokens, self.scores)

    def _penalised(self, log_p: Tensor, length: int) -> Tensor:
        return log_p / ((5 + length) / 6) ** self.alpha

    def keep(self, sentences: Int[Tensor, " sentences"]) -> None:
        """Go on with these; what was found for the others stays as it is."""
        self._store()
        for name in ("rows", "tokens", "scores", "best", "best_score", "best_length", "is_done"):
            setattr(self, name, getattr(self, name)[sentences])

    def answer(self) -> Int[Tensor, "batch length"]:
        """The best sentences, without the columns that are padding in all of them."""
        self._store()
        return self.said[:, : self.longest]

    def _store(self) -> None:
        self.said[self.rows] = self.best
        self.longest = max([self.longest, *self.best_length.tolist()])


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """The model in evaluation mode, without dropout, and back in its own mode afterwards.

    A pitfall: a model left in training mode draws other sentences each time, none of them its best.

    Raises:
        ValueError: for what is no module.
    """
    expect.kind(nn.Module, model=model)
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _check_max_length(max_length: int, longest: int) -> None:
    if type(max_length) is not int or not 1 <= max_length <= longest:
        raise ValueError(f"max_length: expected 1 to {longest}, the model's, got {max_length!r}")
