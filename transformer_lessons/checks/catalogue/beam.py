"""Beam search, with a model that one can read. α = 0 hides the length penalty, one beam hides the search."""

from itertools import pairwise
from random import Random

import torch

from transformer_lessons.checks.catalogue.greedy import BOTH, ENDLESS, LONG, SHORT, TINY, model, source
from transformer_lessons.checks.definitions import Call, Task
from transformer_lessons.decoding import evaluating

# Greedy decoding begins with 3, the likeliest sentence with 4.
TRAP = {1: {3: 0.55, 4: 0.45}, 3: {5: 0.4, 2: 0.3, 4: 0.3}, 4: {2: 0.9, 5: 0.1}, 5: {2: 0.6, 3: 0.4}}
# The longest sentence wins, which can be foreseen only from the length penalty at max_length.
FAR = {1: {2: 0.55, 3: 0.45}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {6: 1.0}, 6: {2: 1.0}}
# A short sentence is the likeliest, but a longer one has a higher log p per token.
LENGTHS = {1: {2: 0.4, 3: 0.6}, 3: {4: 0.9, 2: 0.1}, 4: {5: 0.9, 2: 0.1}, 5: {2: 0.7, 6: 0.3}, 6: {2: 1.0}}


def draw_table(seed: int) -> dict:
    """A random table: two or three tokens may follow each token, often including the end mark."""
    random, rows = Random(seed), {}
    for before in (1, 3, 4, 5, 6):
        after = random.sample((2, 3, 4, 5, 6), random.choice((2, 3)))
        after[0] = 2 if 2 not in after and random.random() < 0.6 else after[0]
        parts = []
        while len({*parts}) < len(after):  # equally likely tokens have no right order
            cuts = sorted(random.sample(range(3, 98), len(after) - 1))
            parts = [b - a for a, b in pairwise((0, *cuts, 100))]
        rows[before] = {token: part / 100 for token, part in zip(after, parts, strict=True)}
    return rows


def beam(model, src, *, beam_size, length_penalty, max_length):
    """The sentences that score highest, each found by itself."""

    def lp(n):
        return ((5 + n) / 6) ** length_penalty

    eos, answers = model.config.eos_id, []
    with evaluating(model), torch.no_grad():
        for row in src:
            real = row[row != model.config.pad_id]
            alive, done = [(0.0, [model.config.bos_id])], []
            for n in range(1, max_length + 1):
                tokens = torch.tensor([y for _, y in alive])
                log_p = model(real.expand(len(alive), -1), tokens)[:, -1].log_softmax(-1)
                longer = []
                for (before, y), steps in zip(alive, log_p.tolist(), strict=True):
                    longer += [(before + step, [*y, token]) for token, step in enumerate(steps)]
                longer.sort(key=lambda pair: pair[0], reverse=True)
                ended = [pair for pair in longer[:beam_size] if pair[1][-1] == eos]
                alive = [pair for pair in longer if pair[1][-1] != eos][:beam_size]
                if n == max_length:
                    ended = ended + alive
                done += [(total / lp(n), y) for total, y in ended]
                attainable = alive[0][0] / lp(max_length)
                if done and attainable <= max(done)[0]:
                    break
            answers.append(max(done)[1][1:])
    longest = max(len(y) for y in answers)
    return torch.tensor([y + [model.config.pad_id] * (longest - len(y)) for y in answers])


def call(*tables: dict, size: int, alpha: float = 0.0, rows: tuple = (0,), max_length: int = 5) -> Call:
    """A call in which sentence n of the batch selects the table `rows[n]`."""
    src = source(tables, rows)
    return Call((model(*tables), src), {"beam_size": size, "length_penalty": alpha, "max_length": max_length})


# Random tables chosen so that known mistakes show: seed, beam_size, α, max_length. With α = 3, a softmax of a
# softmax does not hide other mistakes.
TELLING = (0, 3, 2, 5), (11, 2, 1, 5), (11, 3, 1, 5), (15, 2, 1, 3), (12, 2, 2, 3), (231, 2, 2, 5)
ALPHAS = *TELLING, (243, 2, 2, 3), (4, 2, 3, 5), (106, 3, 3, 4), (37, 2, 0.6, 5)
ALPHAS += tuple((n, 2 + n % 2, 0.5 + n % 3, 4 + n % 2) for n in range(12))
ALPHA_0 = ((0, 2, 0, 5), (36, 2, 0, 5), (0, 3, 0, 3), *((n, 2 + n % 2, 0, 4 + n % 2) for n in range(12)))

GREEDY = [call(SHORT, size=1), call(TRAP, size=1), call(*TINY, size=1, rows=(0, 1)), call(LONG, size=1)]
SEVERAL = [call(TRAP, size=2), call(LENGTHS, size=2), call(BOTH, size=2), call(ENDLESS, size=2, max_length=4)]
SEVERAL += [call(draw_table(n), size=size, alpha=alpha, max_length=most) for n, size, alpha, most in ALPHA_0]
SEVERAL += [call(TRAP, LONG, size=2, rows=(1, 0))]
PENALTY = [*(call(LENGTHS, size=2, alpha=n) for n in (1, 2, 0.6)), call(FAR, size=2, alpha=1, max_length=6)]
PENALTY += [call(draw_table(n), size=size, alpha=alpha, max_length=most) for n, size, alpha, most in ALPHAS]
WIDE = [call(TRAP, size=9, max_length=3), call(LENGTHS, size=20)]

TASK = Task(
    name="beam",
    solution=[beam],
    planted=("not_log_p", "ends_leave_holes", "penalty_multiplied", "first_end_wins"),
    probes={
        "one": (GREEDY, GREEDY),
        "values": (SEVERAL, SEVERAL),
        "penalty": (PENALTY, PENALTY),
        "wide": (WIDE, WIDE),
    },
)
