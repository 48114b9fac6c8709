"""Packed rows: nothing is lost or mixed, and every pair is computed as in a row of its own."""

from dataclasses import replace

import pytest
import torch
from conftest import assert_close
from test_batches import LONG
from test_model import config, new_model
from test_training import SMALL, assert_goes_on, small_model

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batch, TokenBatches, make_batch
from transformer_lessons.data.packing import (
    PackedBatch,
    PackedBatches,
    Places,
    fill_rows,
    make_packed_batch,
)
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, TrainingConfig, batch_loss, distributed, split
from transformer_lessons.trainer.parallel import share
from transformer_lessons.trainer.runs import settings_of
from transformer_lessons.trainer.tasks import batches

# Lengths of the two sides, the target's with its mark. In rows of 19 they need three, which are longer than the
# 13 positions that the model has.
SIZES = [(7, 5), (3, 11), (5, 2), (13, 3), (2, 13), (11, 7), (1, 1), (4, 9)]
LENGTH = 19
CHOICES = [
    {"norm_first": norm_first, **position}
    for norm_first in (False, True)
    for position in (
        {},
        {"position": "learned"},
        {"position": "rotary", "d_model": 24, "num_heads": 6, "num_key_value_heads": 2},
    )
]
CHANGES = pytest.mark.parametrize("changes", CHOICES, ids=lambda c: "-".join(map(str, c.values())))


def some_pairs(sizes=SIZES) -> list[tuple[list[int], list[int]]]:
    return [(torch.randint(3, 17, (s,)).tolist(), torch.randint(3, 19, (t - 1,)).tolist()) for s, t in sizes]


def each_pair(
    batch: Batch | PackedBatch, tgt: torch.Tensor, rows: list[list[int]]
) -> dict[int, torch.Tensor]:
    """What `tgt`, one of the target side, holds of each pair."""
    if isinstance(batch, Batch):
        return {n: tgt[n][batch.tgt_out[n] != 0] for n in range(len(tgt))}
    places = [(r, place, n) for r, row in enumerate(rows) for place, n in enumerate(row, start=1)]
    return {n: tgt[r][batch.tgt_segments[r] == place] for r, place, n in places}


# --- Rows


def test_rows_by_hand():
    """Longest first, each into the first row with room on both sides."""
    sizes = [(2, 3), (7, 1), (1, 6), (3, 3), (2, 2)]
    # 7|1, then 1|6 beside it; 3|3 does not fit and opens the second row; 2|3 goes there, and so does 2|2.
    assert fill_rows(sizes, 8) == [[1, 2], [3, 0, 4]]
    # One more on either side than 7|1, 1|6 and 2|3 need.
    assert fill_rows(sizes, 10) == [[1, 2, 0], [3, 4]]
    assert fill_rows(sizes, 99) == [[1, 2, 3, 0, 4]]
    assert fill_rows([], 5) == []


def test_a_row_is_full_when_one_side_is():
    assert fill_rows([(5, 1), (5, 1), (1, 3)], 9) == [[0, 2], [1]]
    assert fill_rows([(1, 5), (1, 5), (3, 1)], 9) == [[0, 2], [1]]
    assert fill_rows([(1, 5), (1, 5), (3, 1)], 10) == [[0, 1], [2]]


@pytest.mark.parametrize("length", [13, 17, 101])
def test_no_row_is_too_long_and_no_pair_lost(length):
    sizes = [(1 + 7 * n % 13, 1 + 5 * n % 11) for n in range(97)]
    rows = fill_rows(sizes, length)
    assert sorted(n for row in rows for n in row) == list(range(97))
    for side in (0, 1):
        assert all(sum(sizes[n][side] for n in row) <= length for row in rows)
    # First fit: nothing fits into an earlier row any more.
    for number, row in enumerate(rows):
        for earlier in rows[:number]:
            assert all(
                any(sum(sizes[n][side] for n in (*earlier, other)) > length for side in (0, 1))
                for other in row
            )


def test_a_packed_batch_by_hand():
    batch = make_packed_batch([([7, 8, 9], [5]), ([6], [3, 4]), ([4, 5], [])], 5)
    assert batch.src.tolist() == [[7, 8, 9, 6], [4, 5, 0, 0]]
    assert batch.tgt_in.tolist() == [[1, 5, 1, 3, 4], [1, 0, 0, 0, 0]]
    assert batch.tgt_out.tolist() == [[5, 2, 3, 4, 2], [2, 0, 0, 0, 0]]
    assert batch.src_segments.tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
    assert batch.src_positions.tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]
    assert batch.tgt_segments.tolist() == [[1, 1, 2, 2, 2], [1, 0, 0, 0, 0]]
    assert batch.tgt_positions.tolist() == [[0, 1, 0, 1, 2], [0, 0, 0, 0, 0]]
    assert batch.density == (4 + 2 + 5 + 1) / (2 * 4 + 2 * 5)
    assert batch.places[0] == Places(batch.src_segments, batch.src_positions)


def test_on_another_device_it_is_the_same():
    batch = make_packed_batch(some_pairs(), LENGTH)
    other = batch.to("meta")
    assert isinstance(other, PackedBatch)
    assert [x.shape for x in other] == [x.shape for x in batch]
    assert {x.device.type for x in other} == {"meta"}


def test_padding_is_refused_as_a_pair():
    with pytest.raises(ValueError, match=r"^pairs: expected ids, 0 or more, got -3$"):
        make_packed_batch([([3], [-3])], 5)
    with pytest.raises(ValueError, match=r"^pairs\[1\]: expected at most 5 tokens a side, got 6$"):
        make_packed_batch([([3], [4]), ([3], [4] * 5)], 5)


# --- The model


def logits_and_gradients(model, batch, rows):
    model.zero_grad()
    loss, count, right = batch_loss(model, batch, 0.1)
    loss.backward()
    with torch.no_grad():
        logits = model(batch.src, batch.tgt_in, *batch.places)
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return each_pair(batch, logits, rows), gradients, (loss.detach(), count, right)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@CHANGES
def test_packed_is_padded(changes, dtype, tolerance):
    pairs, model = some_pairs(), new_model(dtype, **changes)
    rows = fill_rows(SIZES, LENGTH)
    packed = make_packed_batch(pairs, LENGTH)
    assert len(rows) == 3
    assert packed.src.size(1) > model.config.max_length
    one, other = (logits_and_gradients(model, batch, rows) for batch in (packed, make_batch(pairs)))
    for n in range(len(pairs)):
        assert_close(one[0][n], other[0][n], tolerance=tolerance)
    assert one[1].keys() == other[1].keys()
    for name in one[1]:
        assert_close(one[1][name], other[1][name], tolerance=tolerance)
    assert_close(one[2][0], other[2][0], tolerance=tolerance)
    assert one[2][1:] == other[2][1:]


@CHANGES
@pytest.mark.parametrize("side", [0, 1])
def test_a_sentence_changes_nothing_in_the_others(changes, side):
    pairs, model, rows = some_pairs(), new_model(**changes), fill_rows(SIZES, LENGTH)
    changed = [(list(source), list(target)) for source, target in pairs]
    odd = rows[0][1]  # between two others
    assert len(rows[0]) == 3
    changed[odd][side][:] = [20 - token for token in changed[odd][side]] if side else changed[odd][side][::-1]
    assert changed[odd] != pairs[odd]
    before, after = (
        each_pair(batch, model(batch.src, batch.tgt_in, *batch.places), rows)
        for batch in (make_packed_batch(each, LENGTH) for each in (pairs, changed))
    )
    assert {n for n in before if not torch.equal(before[n], after[n])} == {odd}


@CHANGES
def test_nobody_sees_what_fills_a_row_up(changes):
    model, batch = new_model(**changes), make_packed_batch(some_pairs(), LENGTH)
    assert (batch.src_segments == 0).any()
    assert (batch.tgt_segments == 0).any()
    noise = batch._replace(
        src=torch.where(batch.src_segments == 0, 5, batch.src),
        tgt_in=torch.where(batch.tgt_segments == 0, 7, batch.tgt_in),
    )
    real = batch.tgt_segments != 0
    one, other = (model(b.src, b.tgt_in, *b.places)[real] for b in (batch, noise))
    assert torch.equal(one, other)
    assert torch.equal(batch_loss(model, batch, 0.1)[0], batch_loss(model, noise, 0.1)[0])
    assert torch.equal(batch.tgt_out != 0, real)


def test_attention_stays_within_a_pair():
    model, batch = new_model(), make_packed_batch(some_pairs(), LENGTH)
    maps = attention_maps(model, batch.src, batch.tgt_in, *batch.places)
    for name, weights in maps.items():
        queries = batch.src_segments if "encoder" in name else batch.tgt_segments
        keys = batch.src_segments if "encoder" in name or "cross" in name else batch.tgt_segments
        is_own = queries[:, None, :, None] == keys[:, None, None, :]
        assert not weights.masked_fill(is_own, 0).any(), name
        assert (weights.sum(-1) - is_own.any(-1).double()).abs().max() < 1e-12, name
    assert len(maps) == 2 + 2 * 3


def test_parts_of_a_packed_batch_are_the_whole():
    model, batch = new_model(), make_packed_batch(some_pairs(), LENGTH)
    parts = split(batch, 2)
    assert [type(part) for part in parts] == [PackedBatch] * 2
    assert [len(part.src) for part in parts] == [2, 1]
    for name in batch._fields:
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(batch, name))
    losses = [batch_loss(model, part, 0.1)[0] for part in parts]
    assert_close(sum(losses), batch_loss(model, batch, 0.1)[0], tolerance=1e-12)


def test_positions_of_a_sentence_are_limited_not_those_of_a_row():
    model = new_model(max_length=12)
    batch = make_packed_batch(some_pairs(), LENGTH)
    with pytest.raises(ValueError, match=r"^positions: expected 0 to 11, below max_length, got 12$"):
        batch_loss(model, batch, 0.1)


def test_places_of_one_side_only():
    model, batch = new_model(), make_packed_batch(some_pairs(), LENGTH)
    for places, missing in (((batch.places[0], None), "tgt"), ((None, batch.places[1]), "src")):
        short = [ids[:, :13] if one is None else ids for ids, one in zip(batch[:2], places, strict=True)]
        with pytest.raises(ValueError, match=f"^{missing}_places: expected Places, as .*_places, got None$"):
            model(*short, *places)


def test_a_cache_does_not_take_packed_rows():
    model, batch = new_model(), make_packed_batch(some_pairs(), LENGTH)
    memory = model.encode(batch.src, batch.places[0])
    mask = torch.ones(3, 1, 1, memory.size(1), dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^caches: expected none for packed rows, got 3$"):
        model.decode(batch.tgt_in, memory, mask, model.new_caches(3, 13), batch.places[1])


# --- Batches


def firsts(batch: PackedBatch) -> list[int]:
    """The pairs of a batch, recognised by the first token of their source."""
    return (batch.src[(batch.src_segments != 0) & (batch.src_positions == 0)] - 100).tolist()


def test_an_epoch_has_every_pair_once_and_whole():
    batches = PackedBatches(LONG, 503, 67, seed=0)
    epoch = [batches[step] for step in range(batches.steps_per_epoch)]
    assert sorted(n for batch in epoch for n in firsts(batch)) == list(range(len(LONG)))
    assert all(ids.size(1) <= 67 for batch in epoch for ids in batch)
    for batch in epoch:
        for n in firsts(batch):
            row, start = (batch.src == 100 + n).nonzero()[0].tolist()
            segment = batch.src_segments[row, start]
            of_source, of_target = batch.src_segments[row] == segment, batch.tgt_segments[row] == segment
            assert batch.src[row][of_source].tolist() == list(LONG[n][0])
            assert batch.tgt_in[row][of_target].tolist() == [1, *LONG[n][1]]
            assert batch.tgt_out[row][of_target].tolist() == [*LONG[n][1], 2]
            assert batch.tgt_positions[row][of_target].tolist() == list(range(len(LONG[n][1]) + 1))


def test_a_packed_batch_is_a_function_of_seed_and_step():
    one, other = (PackedBatches(LONG, 503, 67, seed=7) for _ in range(2))
    steps = one.steps_per_epoch
    wanted = {step: one[step] for step in range(2 * steps)}
    for step in (steps, 3, 2 * steps - 1, 0):  # in any order, as after a restart
        assert all(torch.equal(a, b) for a, b in zip(other[step], wanted[step], strict=True))
    assert firsts(PackedBatches(LONG, 503, 67, seed=8)[0]) != firsts(wanted[0])
    assert firsts(wanted[0]) != firsts(wanted[steps])


def test_packed_batches_mix_pairs():
    """The mates of a pair are a random sample: in the next epoch, with 17 batches, one of 17 is there again."""
    packed, mates = PackedBatches(LONG, 2003, 67, seed=0), ({}, {})
    for epoch in (0, 1):
        for step in range(packed.steps_per_epoch):
            members = set(firsts(packed[epoch * packed.steps_per_epoch + step]))
            mates[epoch].update(dict.fromkeys(members, members))
    kept = [len(mates[0][n] & mates[1][n]) / len(mates[0][n]) for n in range(len(LONG))]
    assert sum(kept) / len(kept) < 0.1


def test_packed_batches_are_alike_in_tokens_and_hardly_padded():
    packed, sorted_by_length = PackedBatches(LONG, 2003, 67, seed=0), TokenBatches(LONG, 2003, seed=0)
    epoch = [packed[step] for step in range(packed.steps_per_epoch)]
    real = [int((batch.src != 0).sum() + (batch.tgt_out != 0).sum()) for batch in epoch]
    # The longest pair has 64 tokens; a batch may miss the average by half of one at either end.
    assert all(abs(tokens - 2003) <= 64 for tokens in real)
    assert sum(batch.density for batch in epoch) / len(epoch) > 0.9
    # Those by length are of like lengths, these are a random sample.
    longest = [int(batch.tgt_positions.max()) for batch in epoch]
    assert min(longest) > 20
    assert min(batch.tgt_in.size(1) for batch in (sorted_by_length[s] for s in range(len(epoch)))) < 20


def test_a_pair_longer_than_a_row_is_refused_before_the_first_step():
    with pytest.raises(ValueError, match=r"^pairs\[1\]: expected at most 7 tokens a side, got 8$"):
        PackedBatches([([3], [4]), ([3], [5] * 7)], 5, 7, seed=0)
    assert PackedBatches([([3], [4]), ([3], [5] * 6)], 5, 7, seed=0)[0].tgt_in.size(1) <= 7


# --- Training


class Padded(PackedBatches):
    """The same pairs in the same steps, each in a row of its own."""

    def __getitem__(self, step):
        return make_batch(self._chosen(step))


def numbers(kind=PackedBatches, tokens: int = 211) -> PackedBatches:
    return kind(number_words.pairs(number_words.training_numbers(307, 0)), tokens, 31, seed=0)


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"recompute": True}])
def test_a_packed_run_is_the_padded_one(changes):
    settings = replace(SMALL, tokens=211, **changes)
    runs = [Trainer(small_model().double(), numbers(kind), settings) for kind in (PackedBatches, Padded)]
    one, other = ([trainer.train_step() for _ in range(5)] for trainer in runs)
    for a, b in zip(one, other, strict=True):
        assert (a["accuracy"], a["learning_rate"]) == (b["accuracy"], b["learning_rate"])
        assert abs(a["loss"] - b["loss"]) <= 1e-10
        assert abs(a["gradient_norm"] - b["gradient_norm"]) <= 1e-10
    for a, b in zip(*(trainer.model.parameters() for trainer in runs), strict=True):
        assert_close(a, b, tolerance=1e-8)


def test_number_words_are_learned_packed_as_well():
    settings = replace(SMALL, tokens=211, peak_learning_rate=1e-2)
    curves = []
    for kind in (PackedBatches, Padded):
        trainer = Trainer(small_model(), numbers(kind), settings)
        assert trainer.run(progress=False)
        curves.append(torch.tensor([record["loss"] for record in trainer.history]))
    assert all(curve.isfinite().all() for curve in curves)
    packed, padded = (curve[-5:].mean() for curve in curves)
    assert packed < 0.6 * curves[0][0]
    assert packed < 1.02 * padded


def test_a_packed_run_goes_on_with_the_same_bits(tmp_path):
    trainer, resumed = (
        Trainer(small_model(dropout=0.3), numbers(), replace(SMALL, tokens=211), tmp_path) for _ in range(2)
    )
    assert_goes_on(resumed, trainer)


def test_sentences_that_the_model_has_no_positions_for_are_found_on_any_device():
    trainer = Trainer(small_model(max_length=4), numbers(), SMALL)
    with pytest.raises(
        ValueError, match=r"^positions: expected 0 to 3, below the model's max_length, got \d+$"
    ):
        trainer.train_step()


def test_processes_share_rows(monkeypatch):
    whole = numbers()[0]
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    shares = []
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares.append(share(whole))
    assert sorted(firsts(shares[0]) + firsts(shares[1])) == sorted(firsts(whole))
    with pytest.raises(ValueError, match=r"^batch: expected 2 rows or more, one a process, got 1$"):
        share(make_packed_batch([([3], [4]), ([5], [6])], 9))


def test_the_settings_of_a_run_choose_the_batches(tmp_path):
    pairs = number_words.pairs(number_words.training_numbers(307, 0))
    chosen = batches(pairs, 64, TrainingConfig(tokens=211, packed_length=31, seed=3))
    assert isinstance(chosen, PackedBatches)
    assert (chosen.tokens, chosen.length, chosen.seed) == (211, 31, 3)
    assert type(batches(pairs, 64, TrainingConfig(tokens=211))) is TokenBatches
    (tmp_path / "config.json").write_text('{"training": {"tokens": 500, "packed_length": 64}}')
    given = cli.make_parser().parse_args(["train", "--config", str(tmp_path / "config.json")])
    assert settings_of(given)[3].packed_length == 64


def test_packing_needs_a_number_of_tokens():
    with pytest.raises(ValueError, match=r"^packed_length: expected None without tokens, got 64$"):
        TrainingConfig(packed_length=64)
    assert config().max_length < LENGTH
