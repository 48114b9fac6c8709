"""Sentences that are too long: how many, which, how long; and what a cut leaves."""

import pytest
import torch

from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.batches import make_batch
from transformer_lessons.data.lengths import limit_lengths, limit_pairs
from transformer_lessons.model import Transformer

LONG = [7, 8, 9, 10, 11]


def test_what_fits_is_kept():
    sentences = [[], [7], LONG]
    assert limit_lengths(sentences, 5) == (sentences, [])
    assert limit_lengths(sentences, 5, too_long="truncate") == (sentences, [])
    assert limit_lengths([], 1) == ([], [])


def test_truncate_keeps_the_beginning_and_says_which():
    sentences = [LONG, [7, 8, 9], LONG[:4], [7]]
    before = [list(sentence) for sentence in sentences]
    assert limit_lengths(sentences, 3, too_long="truncate") == ([[7, 8, 9]] * 3 + [[7]], [0, 2])
    assert sentences == before
    assert limit_lengths([tuple(LONG)], 1, too_long="truncate") == ([[7]], [0])


def test_an_end_mark_survives_the_cut():
    kept, cut = limit_lengths([[*LONG, 2], [7, 8, 2], [2, *LONG]], 3, too_long="truncate")
    assert kept == [[7, 8, 2], [7, 8, 2], [2, 7, 8]]
    assert cut == [0, 2]
    assert limit_lengths([[7, 2]], 1, too_long="truncate") == ([[2]], [0])


@pytest.mark.parametrize(
    ("lengths", "complaint"),
    [
        ([4, 3, 0], "1 longer: number 0 with 4"),
        ([3, 9, 3, 4], "2 longer: number 1 with 9, number 3 with 4"),
        ([5, 3, 6, 7], "3 longer: number 0 with 5, number 2 with 6, number 3 with 7"),
        ([5, 6, 7, 8, 9], "5 longer: number 0 with 5, number 1 with 6, number 2 with 7, …"),
    ],
)
def test_refuse_says_how_many_which_and_how_long(lengths, complaint):
    sentences = [[7] * length for length in lengths]
    with pytest.raises(ValueError, match=f"^sentences: expected at most 3 tokens each, got {complaint}$"):
        limit_lengths(sentences, 3)
    with pytest.raises(ValueError, match=f"^sources: expected at most 3 tokens each, got {complaint}$"):
        limit_pairs([(sentence, []) for sentence in sentences], 3, too_long="refuse")
    with pytest.raises(ValueError, match=f"^targets: expected at most 3 tokens each, got {complaint}$"):
        limit_pairs([([7], sentence) for sentence in sentences], 4)


def test_sources_are_refused_first():
    with pytest.raises(ValueError, match=r"^sources: "):
        limit_pairs([([7], LONG), (LONG, [7])], 4)


def test_pairs_leave_room_for_the_mark():
    pairs = [(LONG, LONG[:4]), ([7], LONG), ([*LONG, 12], [7]), ([7], [])]
    assert limit_pairs(pairs[:1], 5) == (pairs[:1], [])
    kept, cut = limit_pairs(pairs, 5, too_long="truncate")
    assert kept == [(LONG, LONG[:4]), ([7], LONG[:4]), (LONG, [7]), ([7], [])]
    assert cut == [1, 2]
    batch = make_batch(kept)
    assert batch.src.size(1) == batch.tgt_in.size(1) == batch.tgt_out.size(1) == 5


def test_a_pair_cut_on_both_sides_is_named_once():
    assert limit_pairs([(LONG, LONG)], 2, too_long="truncate") == ([([7, 8], [7])], [0])


def test_a_model_takes_what_is_left_and_no_more():
    model = Transformer(TransformerConfig(13, 13, d_model=6, num_heads=3, d_ff=7, max_length=3))
    kept, _ = limit_pairs([(LONG, LONG)], 3, too_long="truncate")
    batch = make_batch(kept)
    assert torch.isfinite(model(batch.src, batch.tgt_in)).all()
    for source, target in ([*kept[0][0], 7], kept[0][1]), (kept[0][0], [*kept[0][1], 7]):
        batch = make_batch([(source, target)])
        with pytest.raises(ValueError, match="expected at most max_length = 3"):
            model(batch.src, batch.tgt_in)


@pytest.mark.parametrize("too_long", ["cut", "", None, True])
def test_an_unknown_switch(no_shape_checks, too_long):
    message = f"^too_long: expected 'refuse' or 'truncate', got {too_long!r}$"
    with pytest.raises(ValueError, match=message):
        limit_lengths([[7]], 3, too_long=too_long)  # also where nothing is too long
    with pytest.raises(ValueError, match=message):
        limit_pairs([], 3, too_long=too_long)


@pytest.mark.parametrize("max_length", [0, -1, 2.0, True, None])
@pytest.mark.parametrize("limit", [limit_lengths, limit_pairs])
def test_max_length_out_of_range(no_shape_checks, limit, max_length):
    with pytest.raises(ValueError, match=f"^max_length: expected an integer, 1 or more, got {max_length}$"):
        limit([], max_length)


def test_a_pair_needs_two_places():
    with pytest.raises(ValueError, match=r"^max_length: expected 2 or more, for a target and a mark, got 1$"):
        limit_pairs([], 1)
