"""Batches: the shift, the padding, and the order."""

import pytest
import torch

from transformer_lessons.data.batches import Batch, Batches, make_batch

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
