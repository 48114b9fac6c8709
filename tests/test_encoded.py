"""Pairs on disk: read as they were written, batched as a list of them would be, whole or not there."""

import random

import numpy as np
import pytest
import torch

from transformer_lessons.data import encoded
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.data.encoded import EncodedPairs, write_pairs
from transformer_lessons.data.packing import PackedBatches


def drawn(count: int, seed: int = 0, vocab_size: int = 997) -> list[tuple[list[int], list[int]]]:
    source = random.Random(seed)

    def sentence():
        return [source.randrange(3, vocab_size) for _ in range(source.randint(1, 29))]

    return [(sentence(), sentence()) for _ in range(count)]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Pairs as a list, and the same on disk, written in several chunks."""
    monkeypatch.setattr(encoded, "CHUNK", 101)
    pairs = drawn(503)
    write_pairs(tmp_path / "pairs", iter(pairs), 997)
    return pairs, EncodedPairs(tmp_path / "pairs")


def test_pairs_come_back_as_they_were(written):
    pairs, on_disk = written
    assert len(on_disk) == 503
    assert list(on_disk) == pairs
    assert on_disk[-1] == pairs[-1]
    assert on_disk.sizes.tolist() == [[len(source), len(target)] for source, target in pairs]
    for number in (503, -504):
        with pytest.raises(IndexError):
            on_disk[number]


def test_a_slice_is_one_of_all_that_follows(written):
    pairs, on_disk = written
    assert list(on_disk[:7]) == pairs[:7]
    assert list(on_disk[10:400:3][5:50]) == pairs[10:400:3][5:50]
    assert on_disk[10:400:3][-2] == pairs[10:400:3][-2]
    assert len(on_disk[503:]) == 0
    sizes = [[len(source), len(target)] for source, target in pairs[400:10:-7]]
    assert on_disk[400:10:-7].sizes.tolist() == sizes


def test_within_leaves_room_for_the_targets_mark(written):
    pairs, on_disk = written
    fitting = [pair for pair in pairs[:400] if len(pair[0]) <= 17 and len(pair[1]) <= 16]
    assert 0 < len(fitting) < 400
    assert list(on_disk[:400].within(17)) == fitting
    assert len(on_disk.within(30)) == 503
    with pytest.raises(ValueError, match=r"^max_length: expected an integer, 1 or more, got 0$"):
        on_disk.within(0)


@pytest.mark.parametrize(
    "batches",
    [
        lambda pairs: Batches(pairs, 13, seed=3),
        lambda pairs: TokenBatches(pairs, 401, seed=3),
        lambda pairs: PackedBatches(pairs, 401, 31, seed=3),
    ],
)
def test_batches_are_those_of_a_list(written, batches):
    pairs, on_disk = written
    one, other = batches(pairs), batches(on_disk)
    assert one.steps_per_epoch == other.steps_per_epoch
    for step in (0, 1, one.steps_per_epoch - 1, 2 * one.steps_per_epoch + 1):
        assert all(torch.equal(a, b) for a, b in zip(one[step], other[step], strict=True))


@pytest.mark.parametrize(("vocab_size", "size"), [(65_536, 2), (65_537, 4)])
def test_ids_take_as_many_bytes_as_they_need(tmp_path, vocab_size, size):
    pairs = [([vocab_size - 1, 0], [3]), ([5], [vocab_size - 1])]
    write_pairs(tmp_path / "pairs", pairs, vocab_size)
    assert list(EncodedPairs(tmp_path / "pairs")) == pairs
    assert (tmp_path / "pairs" / "source.ids").stat().st_size == 3 * size


def test_what_is_not_looked_at_is_not_read(written):
    _, on_disk = written
    assert all(isinstance(ids.base, np.memmap) for ids in on_disk[3:9].within(20)._ids)


def test_what_is_cut_off_is_not_there_and_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded, "CHUNK", 2)
    pairs = drawn(7)

    def cut_off():
        yield from pairs[:5]
        assert [path.name for path in tmp_path.iterdir()] == [".pairs.unfinished"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pairs(tmp_path / "pairs", cut_off(), 997)
    assert list(tmp_path.iterdir()) == []
    # A process that was killed could not tidy up.
    (tmp_path / ".pairs.unfinished").mkdir()
    (tmp_path / ".pairs.unfinished" / "source.ids").write_bytes(b"half")
    write_pairs(tmp_path / "pairs", pairs, 997)
    assert list(EncodedPairs(tmp_path / "pairs")) == pairs
    assert [path.name for path in tmp_path.iterdir()] == ["pairs"]


def test_files_that_contradict_one_another(written):
    _, on_disk = written
    path = on_disk.folder / "target.ids"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match=r"^folder: expected 503 pairs, got other files in .*pairs$"):
        EncodedPairs(on_disk.folder)


def test_what_is_written_is_looked_at(tmp_path, no_shape_checks):
    for pairs, complaint in [
        ([([3], [4]), ([5, 997], [3])], "^pairs: expected ids, 0 to 996, got 997$"),
        ([([3], [-1])], "^pairs: expected ids, 0 to 996, got -1$"),
        ([], "^pairs: expected tokens on either side, got none$"),
        ([([3], [])], "^pairs: expected tokens on either side, got none$"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            write_pairs(tmp_path / "pairs", pairs, 997)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "pairs").mkdir()
    with pytest.raises(ValueError, match=r"^folder: expected a new one, got .*pairs, which exists$"):
        write_pairs(tmp_path / "pairs", drawn(2), 997)
