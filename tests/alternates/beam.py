"""Beam search in other words."""

import functools
import heapq
import math

import torch

from transformer_lessons.checks import guarded


def check(beam_size, length_penalty, max_length):
    if min(beam_size, max_length) < 1 or length_penalty < 0:
        raise ValueError("beam")


def in_evaluation(search):
    """In evaluation mode, and back."""

    @functools.wraps(search)
    def decoded(model, src, **options):
        was_training = model.training
        try:
            return search(model.eval(), src, **options)
        finally:
            model.train(was_training)

    return decoded


def padded(model, sentences):
    longest = max(map(len, sentences))
    return torch.tensor([s + [model.config.pad_id] * (longest - len(s)) for s in sentences])


def real(model, row):
    return row[row != model.config.pad_id][None]


def without_cache(model, src, *, beam_size, length_penalty, max_length):
    return guarded.beam(
        model,
        src,
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_length=max_length,
        use_cache=False,
    )


@in_evaluation
@torch.no_grad()
def one_after_the_other(model, src, *, beam_size, length_penalty, max_length):
    """Lists of beginnings, as many as there are; it never stops before max_length."""
    check(beam_size, length_penalty, max_length)
    eos, answers = model.config.eos_id, []
    for row in src:
        alive, finished = [(0.0, [model.config.bos_id])], []
        for n in range(1, max_length + 1):
            memory = real(model, row).expand(len(alive), -1)
            log_p = torch.log_softmax(model(memory, torch.tensor([y for _, y in alive]))[:, -1], -1)
            longer = [
                (before + step, [*y, token])
                for (before, y), steps in zip(alive, log_p.tolist(), strict=True)
                for token, step in enumerate(steps)
            ]
            longer.sort(key=lambda found: found[0], reverse=True)
            ended = [found for found in longer[:beam_size] if found[1][-1] == eos]
            alive = [found for found in longer if found[1][-1] != eos][:beam_size]
            cut_off = alive if n == max_length else []
            finished += [(p / ((n + 5) / 6) ** length_penalty, y) for p, y in ended + cut_off]
        answers.append(max(finished)[1][1:])
    return padded(model, answers)


@in_evaluation
@torch.no_grad()
def with_a_heap(model, src, *, beam_size, length_penalty, max_length):
    """Tokens in tuples, the largest by a heap, and an end as soon as nothing can win any more."""
    check(beam_size, length_penalty, max_length)
    config, answers = model.config, []
    for row in src:
        beams, best = {(config.bos_id,): 0.0}, (-math.inf, ())
        for n in range(1, max_length + 1):
            logits = model(real(model, row).repeat(len(beams), 1), torch.tensor(list(beams)))[:, -1]
            table = (logits - logits.logsumexp(-1, keepdim=True)).tolist()
            every = {
                (*y, c): p + q
                for (y, p), line in zip(beams.items(), table, strict=True)
                for c, q in enumerate(line)
            }
            good = heapq.nlargest(2 * beam_size, every, key=every.get)
            power = ((5 + n) / 6) ** length_penalty
            for y in good[:beam_size]:
                if y[-1] == config.eos_id:
                    best = max(best, (every[y] / power, y))
            beams = {y: every[y] for y in [y for y in good if y[-1] != config.eos_id][:beam_size]}
            if n == max_length:
                best = max([best, *((p / power, y) for y, p in beams.items())])
            elif max(beams.values()) / ((5 + max_length) / 6) ** length_penalty < best[0]:
                break
        answers.append(list(best[1][1:]))
    return padded(model, answers)


ALTERNATES = [without_cache, one_after_the_other, with_a_heap]
