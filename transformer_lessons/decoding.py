"""From a trained model to text: choosing the next token, again and again (§3.1, §6.1)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lessons.layers import DecoderLayer
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer

Source, Written = Int[Tensor, "batch source"], Int[Tensor, "batch length"]
Logits, Newest = Float[Tensor, "*batch vocab"], Float[Tensor, "batch 1 d_model"]
Kept, New = Float[Tensor, "batch heads keys d_k"], Float[Tensor, "batch heads new d_k"]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, without dropout; afterwards all of it is in its previous mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class KeyValueCache:
    """The keys and values that one attention module has computed for all positions so far.

    Without a cache, step t computes the keys and values of all t positions; with it, of one position only.
    """

    def __init__(self, k: Kept | None = None, v: Kept | None = None):
        self.k, self.v = k, v

    def append(self, k: New, v: New) -> tuple[Kept, Kept]:
        """Append the keys and values of new positions; return those of all positions."""
        if self.k is not None:
            k = torch.cat([self.k, k], dim=2)
            v = torch.cat([self.v, v], dim=2)
        self.k, self.v = k, v
        return k, v

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep these rows, in this order: in beam search, those of the hypotheses that are continued."""
        self.k, self.v = self.k[rows], self.v[rows]


class Steps:
    """Decoding with a cache: the source is encoded once, then each step gives the logits of one next token.

    A step computes the newest token only. A pitfall: the cache holds the tokens it was given, so after `keep`
    the next tokens must belong to the rows that were kept.
    """

    def __init__(self, model: Transformer, src: Int[Tensor, "batch source"]):
        self.model, self.length = model, 0
        self.src_mask = padding_mask(src, model.config.pad_id)
        memory = model.encode(src, self.src_mask)
        cross = [layer.cross_attention for layer in model.decoder_layers]
        self.past = [KeyValueCache() for _ in cross]
        self.source = [KeyValueCache(*attention.keys_and_values(memory, memory)) for attention in cross]

    def next_logits(self, token: Int[Tensor, "batch 1"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the token that follows this one, which itself follows all tokens given before."""
        model = self.model
        x = model.target_embedding(token, self.length)
        self.length += 1
        for kept in zip(model.decoder_layers, self.past, self.source, strict=True):
            x = self.run_layer(x, *kept)
        return model.output(model.decoder_norm(x))[:, -1]

    def run_layer(self, x: Newest, layer: DecoderLayer, past: KeyValueCache, source: KeyValueCache) -> Newest:
        """The output of one layer, at the newest position only."""
        own, cross = layer.self_attention, layer.cross_attention
        x = layer.add_norm_self(x, lambda y: own.look(y, *past.append(*own.keys_and_values(y, y))))
        x = layer.add_norm_cross(x, lambda y: cross.look(y, source.k, source.v, self.src_mask))
        return layer.add_norm_feed_forward(x, layer.feed_forward)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep these rows of the tokens' caches, in this order; those of the source stay as they are."""
        for past in self.past:
            past.keep(rows)


@torch.no_grad()
def generate(model: Transformer, src: Source, choose: Callable[[Tensor], Tensor], max_length: int) -> Written:
    """Choose token after token from the logits, ``(batch, vocab)``, until every sentence has its `eos_id`.

    Returns ids without `bos_id`, with `eos_id`, then `pad_id`; at most `max_length` per sentence.
    """
    config = model.config
    with evaluating(model):
        steps = Steps(model, src)
        tokens = src.new_full((len(src), 1), config.bos_id)
        is_done = src.new_zeros(len(src), dtype=torch.bool)
        while tokens.size(1) <= max_length and not is_done.all():
            token = choose(steps.next_logits(tokens[:, -1:]))
            token = token.masked_fill(is_done, config.pad_id)
            tokens = torch.cat([tokens, token[:, None]], dim=1)
            is_done = is_done | (token == config.eos_id)
    return tokens[:, 1:]


def greedy(model: Transformer, src: Source, *, max_length: int) -> Written:
    """Always choose the likeliest next token: ``y_t = argmax_c p(c | y_1 … y_{t−1}, src)``, until `eos_id`.

    Returns ids like `generate`. A pitfall: what is likeliest step by step need not be the likeliest sentence
    (`beam` looks further).
    """
    return generate(model, src, lambda logits: logits.argmax(dim=-1), max_length)


def likeliest(logits: Logits, top_k: int | None = None, top_p: float = 1.0) -> Logits:
    """The logits, −∞ for all but the likeliest tokens: at most `top_k`, and the fewest that reach `top_p`.

    Cutting by probability is nucleus sampling (Holtzman et al. 2020). A pitfall: the token that crosses `top_p`
    stays; otherwise one very likely token would leave no token at all.
    """
    falling, places = logits.sort(dim=-1, descending=True)
    p = falling.softmax(dim=-1)
    before = p.cumsum(dim=-1) - p  # the sum over all likelier tokens
    is_out = before >= top_p
    if top_k is not None:
        is_out[..., top_k:] = True
    falling = falling.masked_fill(is_out, -math.inf)
    return torch.empty_like(logits).scatter(-1, places, falling)


def sample(model: Transformer, src: Source, *, max_length: int, temperature: float = 1.0, **cut) -> Written:
    """Draw each next token: ``p(c) ∝ exp(logit_c / temperature)``, among the `likeliest` tokens only.

    cut: `top_k` and `top_p`, passed on to `likeliest`

    Returns ids like `generate`; `torch.manual_seed` makes them repeatable. A pitfall: with temperature 1 and
    nothing cut off, the many unlikely tokens together have a good deal of probability.
    """

    def draw(logits):
        chances = likeliest(logits / temperature, **cut).softmax(dim=-1)
        return chances.multinomial(1).squeeze(1)

    return generate(model, src, draw, max_length)


def lp(n: int, alpha: float) -> float:
    """The length penalty ``((5 + n) / 6)^α`` (Wu et al. 2016, equation 14)."""
    return ((5 + n) / 6) ** alpha


@torch.no_grad()
def beam(
    model: Transformer, src: Source, *, beam_size: int = 4, length_penalty: float = 0.6, max_length: int
) -> Written:
    """Keep the `beam_size` likeliest hypotheses (partial sentences), not just one (§6.1; Wu et al. 2016).

    ``score(y) = log p(y | src) / lp(|y|)`` with α = `length_penalty`

    Returns ids like `greedy`; sentences are searched one by one. A pitfall: log p falls with every token, so
    without a penalty (α = 0) short sentences win, the more so the wider the beam.
    """
    with evaluating(model):
        found = [search(model, row[None], beam_size, length_penalty, max_length) for row in src]
    found = [torch.tensor(y, device=src.device) for y in found]
    return pad_sequence(found, batch_first=True, padding_value=model.config.pad_id)


def is_decided(finished: list, alive: list, alpha: float, max_length: int) -> bool:
    """Whether no live hypothesis can beat the best finished one, even if its further tokens cost nothing."""
    attainable = alive[0][0] / lp(max_length, alpha)
    return bool(finished) and attainable <= max(finished)[0]


def search(
    model: Transformer, src: Source, k: int, alpha: float, max_length: int, is_over=is_decided
) -> list[int]:
    """Beam search for one sentence; a hypothesis cut off at `max_length` competes like a finished one."""
    config, steps = model.config, Steps(model, src.expand(k, -1))
    # At first all hypotheses are the same, so only one of them may be continued.
    alive = [(0.0, [config.bos_id])] + [(-math.inf, [config.bos_id])] * (k - 1)
    finished = []
    for n in range(1, max_length + 1):
        last = torch.tensor([y[-1:] for _, y in alive], device=src.device)
        log_p = steps.next_logits(last).log_softmax(dim=-1).tolist()
        longer = [
            (before + step, [*y, token], row)
            for row, (before, y) in enumerate(alive)
            for token, step in enumerate(log_p[row])
        ]
        longer.sort(key=lambda one: -one[0])
        for total, y, _ in longer[:k]:
            if y[-1] == config.eos_id or n == max_length:
                finished.append((total / lp(n, alpha), y))
        going_on = [one for one in longer if one[1][-1] != config.eos_id][:k]
        alive = [(total, y) for total, y, _ in going_on]
        if is_over(finished, alive, alpha, max_length):
            break
        rows = [row for _, _, row in going_on]
        steps.keep(torch.tensor(rows, device=src.device))
    return max(finished)[1][1:]
