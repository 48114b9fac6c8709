"""Beam search in steps, and the known wrong ways to write it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.decoding_mistakes import MODES, SOURCE_PADDING_SEEN, ids_assumed
from transformer_lessons.checks.old.core import Mistake
from transformer_lessons.checks.old.guarded import evaluating, padding_mask

__all__ = ["MISTAKES", "Steps", "assemble"]

BEAM, STOPPING, PENALTY = "#ch15-beam", "#ch15-stopping", "#ch15-length-penalty"
EARLY, BATCH, WRONG, CACHE = "#ch15-early-stop", "#ch15-batch", "#ch15-wrong", "#ch15-cache"


def _accept(beam_size: int, alpha: float, max_length: int) -> None:
    if beam_size < 1 or alpha < 0 or max_length < 1:
        raise ValueError("expected a beam_size and a max_length of 1 or more, a length_penalty of 0 or more")


def _first_alone(scores: Tensor) -> Tensor:
    scores[:, 1:] = -math.inf
    return scores


def _of_parents(tokens: Tensor, parent: Tensor) -> Tensor:
    return tokens.gather(1, parent[..., None].expand(-1, -1, tokens.size(-1)))


def _first_that_go_on(search, top: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    chosen = ends.to(torch.uint8).argsort(stable=True)[:, : search.k]
    return chosen, top.gather(1, chosen)


def _rows(parent: Tensor) -> Tensor:
    batch, k = parent.shape
    return (parent + k * torch.arange(batch)[:, None]).flatten()


def _penalty(n: int, alpha: float) -> float:
    return ((5 + n) / 6) ** alpha


def _decided(search, attainable: Tensor) -> Tensor:
    return attainable <= search.best


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    mode: Callable = evaluating
    ids: Callable = lambda config: (config.pad_id, config.bos_id, config.eos_id)
    source_mask: Callable = padding_mask
    width: Callable = lambda k, vocab: k
    start: Callable = _first_alone
    log_p: Callable = lambda logits: logits.log_softmax(-1)
    add: Callable = lambda scores, log_p, penalty: scores + log_p
    length: Callable = lambda n, longest: n  # of what has ended, n tokens
    penalty: Callable = _penalty
    score: Callable = lambda log_p, penalty: log_p / penalty
    counts: Callable = lambda ends, k: ends & (torch.arange(ends.size(1)) < k)
    go_on: Callable = _first_that_go_on
    of: Callable = _of_parents
    rows: Callable = _rows
    ended: Callable = lambda search, counting, top: None
    over: Callable = _decided
    cut_off: Callable = lambda scores, best: scores
    better: Callable = torch.gt  # a sentence that ends than the best so far
    fill: Callable = lambda pad, eos: pad
    result: Callable = lambda found, bos: found


def assemble(steps: Steps) -> Callable:
    """Beam search in these steps: a batch at once, with caches."""

    def beam(model, src, *, beam_size, length_penalty, max_length):
        steps.accept(beam_size, length_penalty, max_length)
        with torch.no_grad(), steps.mode(model):
            width = steps.width(beam_size, model.config.target_vocab_size)
            return _Search(steps, model, src, width, length_penalty).run(max_length)

    return beam


class _Search:
    """What goes on, and the best that is finished."""

    def __init__(self, steps: Steps, model, src: Tensor, k: int, alpha: float):
        self.steps, self.model, self.k, self.alpha = steps, model, k, alpha
        self.pad, self.bos, self.eos = steps.ids(model.config)
        self.memory = model.encode(src).repeat_interleave(k, 0)
        self.src_mask = steps.source_mask(src, model.config.pad_id).repeat_interleave(k, 0)
        batch = len(src)
        self.tokens = src.new_full((batch, k, 1), self.bos)
        self.scores = steps.start(self.memory.new_zeros(batch, k))
        self.best = self.memory.new_full((batch,), -math.inf)
        self.found: list[list[int]] = [[] for _ in range(batch)]
        self.done = torch.zeros(batch, dtype=torch.bool)

    def run(self, max_length: int) -> Tensor:
        caches = self.model.new_caches(len(self.memory), max_length)
        for n in range(1, max_length + 1):
            last = self.tokens.flatten(0, 1)[:, -1:]
            hidden = self.model.decode(last, self.memory, self.src_mask, caches)
            logits = self.model.project(hidden[:, -1]).unflatten(0, (-1, self.k))
            rows = self.advance(logits, n, max_length)
            if self.done.all():
                break
            for cache in caches:
                cache.self_attention.reorder(rows)
        longest = max(map(len, self.found))
        fill = self.steps.fill(self.pad, self.eos)
        padded = [found + [fill] * (longest - len(found)) for found in self.found]
        return self.steps.result(torch.tensor(padded).view(len(padded), longest), self.bos)

    def advance(self, logits: Tensor, n: int, max_length: int) -> Tensor:
        steps, k, vocab = self.steps, self.k, logits.size(-1)
        penalty = steps.penalty(steps.length(n, max_length), self.alpha)
        total = steps.add(self.scores[..., None], steps.log_p(logits), penalty)
        top, index = total.flatten(1).topk(2 * k)
        parent, token = index // vocab, index % vocab
        longer = torch.cat([steps.of(self.tokens, parent), token[..., None]], -1)
        ends = token == self.eos
        counting = steps.counts(ends, k)
        self.finish(longer, top.masked_fill(~counting, -math.inf), penalty, steps.better)
        steps.ended(self, counting, top)
        chosen, self.scores = steps.go_on(self, top, ends)
        self.tokens = _of_parents(longer, chosen)
        attainable = steps.score(self.scores.max(1).values, steps.penalty(max_length, self.alpha))
        if n == max_length:
            self.finish(self.tokens, steps.cut_off(self.scores, self.best), penalty, torch.gt)
        self.done = self.done | steps.over(self, attainable)
        return steps.rows(parent.gather(1, chosen))

    def finish(self, sentences: Tensor, log_p: Tensor, penalty: float, better: Callable) -> None:
        """Keep the best of what is finished, in each row."""
        score, which = self.steps.score(log_p, penalty).max(1)
        replaces = score.isfinite() & better(score, self.best) & ~self.done
        for row in replaces.nonzero().flatten().tolist():
            self.best[row] = score[row]
            self.found[row] = sentences[row, which[row], 1:].tolist()


def _counted(search, counting: Tensor, top: Tensor) -> None:
    search.count_before = getattr(search, "count", torch.zeros(len(top)))
    search.count = search.count_before + (counting & top.isfinite()).sum(1)


def _latest_only(scores: Tensor, log_p: Tensor, penalty: float) -> Tensor:
    return torch.where(scores.isinf(), scores, log_p)


def _not_refilled(search, top: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    chosen = torch.arange(search.k).expand(len(top), search.k)
    return chosen, top[:, : search.k].masked_fill(ends[:, : search.k], -math.inf)


def _fewer(count: Callable) -> Callable:
    """As many places less as sentences have ended; one is left at least."""

    def go_on(search, top: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        chosen, scores = _first_that_go_on(search, top, ends)
        left = (search.k - count(search)).clamp(min=1)
        return chosen, scores.masked_fill(torch.arange(search.k) >= left[:, None], -math.inf)

    return go_on


def _own_rows(parent: Tensor) -> Tensor:
    return torch.arange(parent.numel())


def _not_of_parents(tokens: Tensor, parent: Tensor) -> Tensor:
    return tokens[:, torch.arange(parent.size(1)) % tokens.size(1)]


def _all_end(search, counting: Tensor, top: Tensor) -> None:
    search.all_end = counting[:, : search.k].all(1)


def _next_step_at_best(search, attainable: Tensor) -> Tensor:
    """As if sentences could grow by one token only."""
    return search.scores.max(1).values / _penalty(search.tokens.size(-1), search.alpha) <= search.best


def _while_beaten(search, attainable: Tensor) -> Tensor:
    return search.best.isfinite() & (attainable >= search.best)


def _if_nothing_else(scores: Tensor, best: Tensor) -> Tensor:
    return scores.masked_fill(best.isfinite()[:, None], -math.inf)


MISTAKES = (
    Mistake(
        "probabilities_added",
        "you add up probabilities; it is their logarithms that add up",
        "softmax is what one calls to get probabilities.",
        "Every further token raises the score: the search prefers long sentences.",
        WRONG,
        ({"log_p": lambda logits: logits.softmax(-1)},),
    ),
    Mistake(
        "logits_added",
        "you add up logits; log p takes a log_softmax first",
        "Within one step the order is the same.",
        "Beginnings with large logits push out likelier ones.",
        BEAM,
        ({"log_p": lambda logits: logits},),
    ),
    Mistake(
        "softmax_twice",
        "you take the log_softmax of probabilities; it has the softmax in it already",
        "“The log of the softmax” became two calls.",
        "All tokens look nearly equally likely, and the search wanders.",
        WRONG,
        ({"log_p": lambda logits: logits.softmax(-1).log_softmax(-1)},),
    ),
    Mistake(
        "only_the_last_step",
        "you rank beginnings by the last token's log p; a beginning's log p is the sum over all its tokens",
        "The sum was forgotten, or overwritten.",
        "One likely token makes good for any number of unlikely ones.",
        BEAM,
        ({"add": _latest_only},),
    ),
    Mistake(
        "one_beginning",
        "all your beams hold one and the same sentence: at first only one of the equal beginnings may go on",
        "The start was copied beam_size times with log p = 0 each.",
        "Any number of beams gives the answer of one.",
        BEAM,
        ({"start": lambda scores: scores}, {"width": lambda k, vocab: 1}),
    ),
    Mistake(
        "tokens_not_of_parents",
        "new tokens are appended to the beginning in their place, not to the one that they continue",
        "The index of the beginning is computed and not used.",
        "Sentences are stitched together from several beams.",
        BEAM,
        ({"of": _not_of_parents, "rows": _own_rows},),
    ),
    Mistake(
        "cache_not_reordered",
        "the cache's rows do not follow the beginnings, or follow those of another sentence",
        "Tokens were reordered, and the cache lies elsewhere.",
        "A beginning remembers the words of another one.",
        CACHE,
        ({"rows": _own_rows}, {"rows": lambda parent: parent.flatten()}),
    ),
    Mistake(
        "ends_leave_holes",
        "a sentence that ends takes a place in the beam: beam_size beginnings that do not end go on",
        "topk(beam_size) looks like all that is needed.",
        "The beam gets narrower with every sentence that ends.",
        BEAM,
        (
            {"go_on": _not_refilled},
            {"ended": _counted, "go_on": _fewer(lambda search: search.count)},
            {"ended": _counted, "go_on": _fewer(lambda search: search.count_before)},
        ),
    ),
    Mistake(
        "any_end_counts",
        "you take sentences for candidates that are not among the beam_size best continuations",
        "Twice as many are looked at, in order to have enough that go on.",
        "Sentences are found that this beam is too narrow for.",
        BEAM,
        ({"counts": lambda ends, k: ends},),
    ),
    Mistake(
        "first_end_wins",
        "you stop, once a sentence has ended, while a better one may still be on its way",
        "Greedy decoding stops at the first end; or the comparison was turned round.",
        "Short sentences win.",
        STOPPING,
        (
            {"ended": _counted, "over": lambda search, attainable: search.count > 0},
            {"over": _while_beaten},
            {"over": _next_step_at_best},
        ),
    ),
    Mistake(
        "as_many_as_beams",
        "you stop when as many sentences have ended as there are beams; a better one may still be on its way",
        "Libraries call it early stopping.",
        "Bad sentences that end soon fill the quota.",
        EARLY,
        (
            {"ended": _counted, "over": lambda search, attainable: search.count >= search.k},
            {"ended": _all_end, "over": lambda search, attainable: search.all_end},
        ),
    ),
    Mistake(
        "best_not_kept",
        "of the sentences that end you keep the first, or the last; the one with the largest score is wanted",
        "A beam is sorted, so the first that ends looks like the best.",
        "What ends later, or ended earlier, is lost, however likely it is.",
        STOPPING,
        (
            {"better": lambda score, best: best.isinf()},
            {"better": lambda score, best: score.isfinite()},
        ),
    ),
    Mistake(
        "beam_capped",
        "you make the beam narrower than asked for: any beam_size is possible, with sums of several tokens",
        "topk fails where there are fewer tokens than places, at the first step.",
        "From the second step on there would have been enough beginnings for all places.",
        BEAM,
        (
            {"width": min},
            {"width": lambda k, vocab: min(k, vocab - 1)},
            {"width": lambda k, vocab: min(k, 4)},
        ),
    ),
    Mistake(
        "cut_off_lost",
        "what max_length cuts off does not compete with finished sentences in your search; it should",
        "Only what ends was collected.",
        "Long sentences disappear, though they are the likelier ones.",
        BEAM,
        (
            {"cut_off": lambda scores, best: torch.full_like(scores, -math.inf)},
            {"cut_off": _if_nothing_else},
        ),
    ),
    Mistake(
        "penalty_ignored",
        "finished sentences are ranked by log p alone: your lp(n) is missing, or the same for all of them",
        "With a length_penalty of 0 that is right, and max_length is at hand where n is not.",
        "Short sentences win: log p alone decides.",
        PENALTY,
        ({"penalty": lambda n, alpha: 1.0}, {"length": lambda n, longest: longest}),
    ),
    Mistake(
        "bos_counted",
        "you count bos_id as a token of the sentence: n is the number of those that were generated",
        "len(y) of a list that begins with bos_id is one too many.",
        "Sentences of nearly the same score change places.",
        PENALTY,
        ({"length": lambda n, longest: n + 1}, {"penalty": lambda n, alpha: _penalty(n + 1, alpha)}),
    ),
    Mistake(
        "penalty_multiplied",
        "you multiply by lp(n); log p is divided by it",
        "A penalty sounds like a factor.",
        "Long sentences lose twice.",
        PENALTY,
        ({"score": lambda log_p, penalty: log_p * penalty},),
    ),
    Mistake(
        "penalty_inside",
        "you divide by lp(n) within the search, step after step; only finished sentences are divided, once",
        "Scores are normalised where they arise.",
        "What was divided is divided again: early tokens hardly count.",
        PENALTY,
        (
            {
                "add": lambda scores, log_p, penalty: (scores + log_p) / penalty,
                "score": lambda log_p, penalty: log_p,
            },
            {"add": lambda scores, log_p, penalty: (scores + log_p) / penalty},
        ),
    ),
    Mistake(
        "other_penalty",
        "your length penalty is another one: lp(n) = ((5 + n)/6)^α",
        "n, or n^α, is what other programs divide by.",
        "For short sentences the difference is large.",
        PENALTY,
        (
            {"penalty": lambda n, alpha: n**alpha},
            {"penalty": lambda n, alpha: n if alpha else 1.0},
            {"penalty": lambda n, alpha: ((5 + n) // 6) ** alpha},
        ),
    ),
    SOURCE_PADDING_SEEN,
    Mistake(
        "bos_kept",
        "you return the first token, bos_id, too; only what was generated is wanted",
        "It is the first of each beginning's tokens.",
        "Everything is one place too far right.",
        BEAM,
        ({"result": lambda found, bos: torch.cat([torch.full((len(found), 1), bos), found], 1)},),
    ),
    Mistake(
        "end_repeated",
        "you fill up with eos_id; after the first end mark there is padding",
        "Some libraries have no padding and do so.",
        "Every further end mark counts as a token.",
        BATCH,
        ({"fill": lambda pad, eos: eos},),
    ),
    ids_assumed(BEAM),
    *MODES,
    Mistake(
        "arguments_unchecked",
        "you do not check beam_size, length_penalty and max_length",
        "Some of it fails by itself, somewhere else.",
        "A negative penalty, for one, goes unnoticed.",
        BEAM,
        tuple(
            {"accept": check}
            for check in (
                lambda k, alpha, longest: _accept(k, 0.0, longest),
                lambda k, alpha, longest: None,
            )
        ),
    ),
)
