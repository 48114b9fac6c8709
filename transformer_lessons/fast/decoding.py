"""Faster `decoding.greedy` and `decoding.beam`: all sentences at once, without those that are done."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons.decoding import evaluating, lp
from transformer_lessons.fast import is_known
from transformer_lessons.fast.compiled import CompiledSteps
from transformer_lessons.fast.cpu_steps import CPUSteps
from transformer_lessons.fast.decoding_steps import ReplayedSteps, Steps, sentences_to_keep
from transformer_lessons.model import Transformer


@torch.no_grad()
def greedy(
    model: Transformer, src: Int[Tensor, "batch source"], *, max_length: int
) -> Int[Tensor, "batch length"]:
    """Same tokens as `decoding.greedy`."""
    config = model.config
    with evaluating(model):
        steps = fastest_steps(model, src)
        tokens = src.new_full((len(src), 1 + max_length), config.pad_id, dtype=torch.long)
        tokens[:, 0], length, output = config.bos_id, 1, tokens.clone()
        rows = torch.arange(len(src), device=src.device)  # the sentences not done yet, and some that are
        is_done = torch.zeros_like(rows, dtype=torch.bool)
        while length <= max_length and len(rows):
            token = steps.next_logits(tokens[:, length - 1 : length]).max(-1).indices  # faster than `argmax`
            tokens[:, length] = token = token.masked_fill(is_done, config.pad_id)
            length, is_done = length + 1, is_done | (token == config.eos_id)
            if (left := sentences_to_keep(is_done)) is not None:
                output[rows] = tokens
                steps.keep_sentences(left)
                rows, tokens, is_done = rows[left], tokens[left], is_done[left]
        output[rows] = tokens
    return output[:, 1:length]


@torch.no_grad()
def beam(
    model: Transformer,
    src: Int[Tensor, "batch source"],
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_length: int,
) -> Int[Tensor, "batch length"]:
    """Same tokens as `decoding.beam`, except for ties."""
    with evaluating(model):
        steps = fastest_steps(model, src, beam_size)
        search = BeamSearch(model, src, beam_size, length_penalty, max_length)
        while search.length < max_length and len(search.rows):
            logits = steps.next_logits(search.tokens[..., -1].view(-1, 1))
            steps.keep(search.advance(logits.unflatten(0, (-1, beam_size))))
            if (left := sentences_to_keep(search.is_done)) is not None:
                steps.keep_sentences(left)
                search.keep(left)
    return search.best_tokens[:, : search.longest]


def fastest_steps(model: Transformer, src: Int[Tensor, "batch source"], copies: int = 1) -> Steps:
    """The fastest steps for this model; for `CPUSteps`, every source sentence must have a real token."""
    kind, decoder = Steps, (model.target_embedding, model.decoder_layers, model.decoder_norm, model.output)
    if is_known(*(part for one in decoder for part in one.modules())):
        weight, has_words = model.target_embedding.token.weight, (src != model.config.pad_id).any(1).all()
        is_float32 = weight.is_cpu and weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if src.device.type == "cuda":
            kind = ReplayedSteps
        elif is_float32 and has_words and torch.backends.mkldnn.is_available():
            kind = CompiledSteps if hasattr(model, "compiled_steps") else CPUSteps
    return kind(model, src, copies)


class BeamSearch:
    """The live hypotheses of all sentences, and the best finished ones; `advance` takes one step."""

    def __init__(self, model: Transformer, src: Tensor, beam_size: int, alpha: float, max_length: int):
        self.config, self.alpha, self.max_length = model.config, alpha, max_length
        self.length = self.longest = 0  # of the live hypotheses, and of the longest sentence in `best_tokens`
        self.rows = torch.arange(len(src), device=src.device)  # indices of the sentences still searched for
        self.best_tokens = src.new_full((len(src), max_length), self.config.pad_id, dtype=torch.long)
        self.tokens = src.new_full((len(src), beam_size, 1), self.config.bos_id)
        # log p of each hypothesis. At first all are the same, so only one of them may be continued.
        wide = torch.promote_types(model.output.weight.dtype, torch.float32)
        self.scores = src.new_full((len(src), beam_size), -torch.inf, dtype=wide)
        self.scores[:, 0] = 0.0
        self.best_scores = src.new_full((len(src),), -torch.inf, dtype=wide)  # scores of `best_tokens`
        self.is_done = torch.zeros_like(self.rows, dtype=torch.bool)

    def advance(self, logits: Float[Tensor, "batch beams vocab"]) -> Int[Tensor, " rows"]:
        """Extend every hypothesis by every token; return the rows that the new live hypotheses extend."""
        batch, beams, vocab = logits.shape
        log_p = self.scores[..., None] + logits.to(self.scores.dtype).log_softmax(-1)
        # At most `beams` of these end, one per hypothesis, so enough are left to continue.
        top, index = log_p.flatten(1).topk(2 * beams)  # (batch, 2 beams)
        parent, token = index // vocab, index % vocab
        number = torch.arange(batch, device=index.device)[:, None]
        longer = torch.cat([self.tokens[number, parent], token[..., None]], dim=-1)
        self.length += 1
        is_end = token == self.config.eos_id
        self._finish(longer[:, :beams], top[:, :beams].masked_fill(~is_end[:, :beams], -torch.inf))
        alive = is_end.to(torch.uint8).argsort(stable=True)[:, :beams]
        self.scores, self.tokens = top.gather(1, alive), longer[number, alive]
        attainable = self.scores[:, 0] / lp(self.max_length, self.alpha)  # if further tokens cost nothing
        self.is_done = self.is_done | (attainable <= self.best_scores)
        if self.length == self.max_length:
            self._finish(self.tokens, self.scores)
        return (beams * number + parent.gather(1, alive)).flatten()

    def _finish(self, sentences: Tensor, log_p: Tensor) -> None:
        """Record finished sentences that beat the best so far; they are the longest yet."""
        score, which = (log_p / lp(self.length, self.alpha)).max(1)
        better = ((score > self.best_scores) & ~self.is_done).nonzero().squeeze(1)
        if len(better):
            self.longest, self.best_scores[better] = self.length, score[better]
            self.best_tokens[self.rows[better], : self.length] = sentences[better, which[better], 1:]

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keep only these sentences; what was found for the others stays in `best_tokens`."""
        for name in ("rows", "tokens", "scores", "best_scores", "is_done"):
            setattr(self, name, getattr(self, name)[sentences])
