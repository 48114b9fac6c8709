"""Batches: the shift, the padding, and the order."""

import random

import numpy as np
import pytest
import torch

from transformer_lessons.data.batches import Batch, Batches, TokenBatches, make_batch, sizes_of

# Pair n is recognised by its first source token.
PAIRS = [([100 + n] * (1 + n % 3), [3 + n] * (1 + n % 5)) for n in range(21)]


def firsts(batch: Batch) -> list[int]:
    return (batch.src[:, 0] - 100).tolist()


def test_make_batch_by_hand():
    batch = make_batch([([7, 8, 9], [5]), ([6], [3, 4])])
    assert batch.src.tolist() == [[7, 8, 9], [6, 0, 0]]
    assert batch.tgt_in.tolist() == [[1, 5, 0], [1, 3, 4]]
    assert batch.tgt_out.tolist() == [[5, 2, 0], [3, 4, 2]]


def test_the_target_is_shifted_by_one():
    batch = make_batch(PAIRS)
    goes_on = batch.tgt_in[:, 1:] != 0
    assert torch.equal(batch.tgt_in[:, 1:][goes_on], batch.tgt_out[:, :-1][goes_on])
    assert (batch.tgt_in[:, 0] == 1).all()
    assert ((batch.tgt_out == 2).sum(1) == 1).all()
    assert torch.equal(batch.tgt_in != 0, batch.tgt_out != 0)


def test_to_another_device():
    assert {ids.device.type for ids in make_batch(PAIRS).to("meta")} == {"meta"}


def test_every_pair_once_in_an_epoch():
    batches = Batches(PAIRS, 7, seed=0)
    assert batches.steps_per_epoch == 3
    epochs = [[n for step in range(3) for n in firsts(batches[3 * epoch + step])] for epoch in range(5)]
    assert all(sorted(epoch) == list(range(21)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5  # shuffled anew


def test_what_does_not_fill_a_batch_waits_for_another_epoch():
    batches = Batches(PAIRS, 4, seed=0)
    assert batches.steps_per_epoch == 5
    epochs = [[n for step in range(5) for n in firsts(batches[5 * epoch + step])] for epoch in range(20)]
    assert all(len(set(epoch)) == 20 for epoch in epochs)
    assert {n for epoch in epochs for n in epoch} == set(range(21))


def test_source_and_target_stay_together():
    for step in range(6):
        batch = Batches(PAIRS, 7, seed=0)[step]
        assert (batch.tgt_out[:, 0] - 3).tolist() == firsts(batch)


def test_a_batch_is_a_function_of_seed_and_step():
    steps = [17, 0, 4, 17]
    batches, others = Batches(PAIRS, 7, seed=3), Batches(PAIRS, 7, seed=4)
    orders = [firsts(batches[step]) for step in steps]
    torch.manual_seed(99)
    assert [firsts(Batches(PAIRS, 7, seed=3)[step]) for step in steps] == orders
    assert orders[0] == orders[3]
    assert [firsts(others[step]) for step in steps] != orders


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    Batches(PAIRS, 7, seed=3)[5]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("batch_size", [0, -1, 22])
def test_batch_size_out_of_range(batch_size):
    with pytest.raises(ValueError, match=f"batch_size: expected 1 to 21, .* got {batch_size}"):
        Batches(PAIRS, batch_size, seed=0)


def test_half_a_pair_is_none(no_shape_checks):
    with pytest.raises(ValueError, match=r"pairs\[1\]: expected two lists of ids, got \(\[3\], 4\)"):
        make_batch([([3], [4]), ([3], 4)])


def test_one_negative_id_among_many():
    with pytest.raises(ValueError, match="pairs: expected ids, 0 or more, got -5"):
        make_batch([([3, 9, -5], [4])])


def test_an_epoch_is_shuffled_once(monkeypatch):
    drawn, shuffle = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda n, **options: drawn.append(n) or shuffle(n, **options))
    batches = Batches(PAIRS, 7, seed=3)
    wanted = [firsts(batches[step]) for step in range(6)]
    assert drawn == [21, 21]
    assert [firsts(Batches(PAIRS, 7, seed=3)[step]) for step in range(6)] == wanted


def test_sizes():
    assert sizes_of([([7, 8, 9], [5]), ([6], [3, 4])]).tolist() == [[3, 1], [1, 2]]
    assert sizes_of([]).shape == (0, 2)
    with pytest.raises(ValueError, match=r"^pairs\[1\]: expected tokens in its source, got none$"):
        sizes_of([([7], []), ([], [5])])


# ---- Batches of like lengths

# As in translation, long sources have long targets.
LONG = [([100 + n] * (2 + n % 29), [3 + n] * (1 + n % 29 + n % 5)) for n in range(997)]


def real(batch: Batch) -> int:
    return int((batch.src != 0).sum() + (batch.tgt_out != 0).sum())


def test_token_batches_hold_every_pair_once_in_an_epoch():
    batches = TokenBatches(LONG, 503, seed=0)
    epochs = [
        [
            n
            for step in range(batches.steps_per_epoch)
            for n in firsts(batches[epoch * batches.steps_per_epoch + step])
        ]
        for epoch in range(3)
    ]
    assert all(sorted(epoch) == list(range(997)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_token_batches_are_alike_in_tokens_and_nearly_free_of_padding():
    total = sum(len(source) + len(target) + 1 for source, target in LONG)
    batches = TokenBatches(LONG, 503, seed=0)
    assert batches.steps_per_epoch == round(total / 503)
    epoch = [batches[step] for step in range(batches.steps_per_epoch)]
    # An average that a batch may miss by its last pair, of at most 30 + 33 + 1 tokens, at either end.
    assert all(abs(real(batch) - 503) <= 64 for batch in epoch)
    shuffled = Batches(LONG, 16, seed=0)

    def share(some) -> float:
        return sum(map(real, some)) / sum(batch.src.numel() + batch.tgt_out.numel() for batch in some)

    assert share(epoch) > 0.9 > 0.65 > share([shuffled[step] for step in range(shuffled.steps_per_epoch)])
    lengths = [batch.src.size(1) for batch in epoch]
    assert lengths not in (sorted(lengths), sorted(lengths, reverse=True))


def test_a_token_batch_is_a_function_of_seed_and_step():
    one, other = TokenBatches(LONG, 503, seed=7), TokenBatches(LONG, 503, seed=7)
    steps = one.steps_per_epoch
    wanted = {step: firsts(one[step]) for step in range(2 * steps)}
    for step in (steps, 3, 2 * steps - 1, 0):  # in any order, as after a restart
        assert firsts(other[step]) == wanted[step]
    assert firsts(TokenBatches(LONG, 503, seed=8)[0]) != wanted[0]
    assert {n for step in range(steps) for n in wanted[step]} == {
        n for step in range(steps) for n in wanted[steps + step]
    }


def test_token_batches_are_never_empty():
    """A pair longer than the budget would leave its neighbours' batches without any."""
    pairs = [([5] * 97, [6] * 89), ([7], [8]), ([9], [10]), ([11], [12])]
    for tokens in (2, 5, 50, 196):
        batches = TokenBatches(pairs, tokens, seed=0)
        epoch = [firsts(batches[step]) for step in range(batches.steps_per_epoch)]
        assert sorted(n for batch in epoch for n in batch) == sorted([5 - 100, 7 - 100, 9 - 100, 11 - 100])
        assert all(epoch)
    assert TokenBatches(pairs, 2, seed=0).steps_per_epoch == 4
    assert TokenBatches(pairs[:1], 3, seed=0).steps_per_epoch == 1


def test_token_batches_mix_pairs():
    """In two epochs, a pair meets others: of its batch-mates in one, most are elsewhere in the other."""
    batches = TokenBatches(LONG, 1009, seed=0)
    steps = batches.steps_per_epoch
    mates = [{}, {}]
    for epoch in range(2):
        for step in range(steps):
            members = set(firsts(batches[epoch * steps + step]))
            mates[epoch].update(dict.fromkeys(members, members))
    kept = [len(mates[0][n] & mates[1][n]) / len(mates[0][n]) for n in range(997)]
    assert sum(kept) / len(kept) < 0.5


def in_order(monkeypatch, lengths: list[tuple[int, int]], tokens: int) -> list[list[tuple[int, int]]]:
    """The batches of one pool, sorted as they were cut: (source, target) lengths of each pair."""
    monkeypatch.setattr(TokenBatches, "pools", 1)
    batches = TokenBatches([([5] * source, [6] * target) for source, target in lengths], tokens, seed=3)
    epoch = [batches[step] for step in range(batches.steps_per_epoch)]
    sizes = [
        list(zip((b.src != 0).sum(1).tolist(), (b.tgt_out != 0).sum(1).tolist(), strict=True)) for b in epoch
    ]
    return sorted([[(s, t - 1) for s, t in batch] for batch in sizes], key=lambda batch: max(batch[0]))


def test_token_batches_by_hand(monkeypatch):
    """Pairs of 4, 6, …, 26 tokens, 180 in all, in four batches of 45. After sorting, the middles lie at
    2, 7, 14, 23, 34 | 47, 62, 79 | 98, 119 | 142, 167.
    """
    lengths = [(n, n - 1) for n in (7, 13, 2, 11, 5, 3, 12, 4, 9, 6, 10, 8)]
    batches = in_order(monkeypatch, lengths, 45)
    assert [[source for source, _ in batch] for batch in batches] == [
        [2, 3, 4, 5, 6],
        [7, 8, 9],
        [10, 11],
        [12, 13],
    ]


@pytest.mark.parametrize(
    ("sizes", "tokens", "expected"),
    [
        # Middles at 3, 13, 29 | 49 of 60: the third would be at 30, were it one token further.
        ((3, 7, 9, 11), 30, [[3, 7, 9], [11]]),
        # Middles at 2, 12, 33 of 46, in three batches of 15⅓: the second pair begins the second batch, although
        # its middle lies in the first, as each batch gets one.
        ((2, 8, 13), 15, [[2], [8], [13]]),
    ],
)
def test_where_token_batches_meet(monkeypatch, sizes, tokens, expected):
    batches = in_order(monkeypatch, [(n, n - 1) for n in sizes], tokens)
    assert [[source for source, _ in batch] for batch in batches] == expected


def test_token_batches_sort_by_the_longer_side_and_then_by_both():
    """With the end mark 8 and 9, 9 and 2, 7 and 8, 3 and 9 tokens."""
    lengths = [(8, 8), (9, 1), (7, 7), (3, 8)]
    batches = TokenBatches([([5] * source, [6] * target) for source, target in lengths], 1, seed=0)
    pool = np.arange(4)
    assert batches._sorted(pool, False).tolist() == [2, 1, 3, 0]
    assert batches._sorted(pool, True).tolist() == [0, 3, 1, 2]


def test_token_batches_are_cut_once_an_epoch(monkeypatch):
    cut, epochs = TokenBatches._cut, []
    monkeypatch.setattr(TokenBatches, "_cut", lambda self, epoch: epochs.append(epoch) or cut(self, epoch))
    batches = TokenBatches(LONG, 503, seed=0)
    for step in range(2 * batches.steps_per_epoch):
        batches[step]
    assert epochs == [0, 1]


def cut_one_by_one(batches: TokenBatches, epoch: int) -> list[list[int]]:
    """What `TokenBatches` promises, pair by pair: sort a pool, begin the next batch where a middle says so."""
    sizes = [(len(source), len(target) + 1) for source, target in batches.pairs]
    total, count = sum(map(sum, sizes)), batches.steps_per_epoch
    generator = torch.Generator().manual_seed(1_000_003 * batches.seed + epoch)
    order = []
    for number, pool in enumerate(torch.randperm(len(sizes), generator=generator).tensor_split(4)):
        order += sorted(pool.tolist(), key=lambda n: (max(sizes[n]), sum(sizes[n])), reverse=number % 2 == 1)
    found, before, last = [[] for _ in range(count)], 0, -1
    for place, number in enumerate(order):
        middle = int((before + sum(sizes[number]) / 2) * count / total)
        last = min(max(middle, count - len(order) + place), last + 1)
        found[last].append(number)
        before += sum(sizes[number])
    return [found[number] for number in torch.randperm(count, generator=generator).tolist()]


@pytest.mark.parametrize("longest", [2, 7, 61])
@pytest.mark.parametrize("tokens", [3, 11, 97, 419])
def test_token_batches_are_those_of_a_loop_over_all_pairs(longest, tokens):
    source = random.Random(tokens)
    pairs = [([5] * source.randint(1, longest), [6] * source.randint(1, longest)) for _ in range(211)]
    batches = TokenBatches(pairs, tokens, seed=2)
    for epoch in (0, 5):
        assert [batch.tolist() for batch in batches._cut(epoch)] == cut_one_by_one(batches, epoch)


def test_sorted_pairs_come_in_batches_of_random_order(monkeypatch):
    monkeypatch.setattr(TokenBatches, "pools", 1)
    batches = TokenBatches(LONG, 503, seed=0)
    widths = [batches[step].src.size(1) for step in range(2 * batches.steps_per_epoch)]
    one, other = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    assert sorted(one) == sorted(other)
    assert one not in (sorted(one), other)


def test_token_batches_of_more_than_half_of_all():
    """The number of batches is rounded: 8 tokens in batches of 6 are one batch, in batches of 5 two."""
    pairs = [([5], [6, 7]), ([5], [6, 7])]
    assert [TokenBatches(pairs, tokens, seed=0).steps_per_epoch for tokens in (8, 6, 5, 4)] == [1, 1, 2, 2]


def test_a_pair_belongs_to_the_batch_in_which_its_middle_lies(monkeypatch):
    """24 tokens in two batches: middles at 1.5, 5.5, 11.5 and 19.5, the third of them just before the cut."""
    monkeypatch.setattr(TokenBatches, "pools", 1)
    batches = TokenBatches([([7] * n, [5] * n) for n in range(1, 5)], 12, seed=0)
    assert sorted(batches[step].src.size(0) for step in range(batches.steps_per_epoch)) == [1, 3]


def test_every_batch_gets_a_pair_however_uneven_they_are():
    batches = TokenBatches([([7] * n, [5] * n) for n in (1, 1, 1, 1, 41)], 1, seed=0)
    assert [batches[step].src.size(0) for step in range(batches.steps_per_epoch)] == [1] * 5
