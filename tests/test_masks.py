"""Masks against tables written by hand and against plain loops."""

import pytest
import torch

from transformer_lessons.masks import additive, boolean, causal_mask, combine, padding_mask, segment_mask


def table(rows: str) -> torch.Tensor:
    """ "x." is [[True, False]]: x may be attended to."""
    return torch.tensor([[cell == "x" for cell in row] for row in rows.split()])


@pytest.mark.parametrize("pad_id", [0, 9])
def test_padding_mask(pad_id):
    ids = torch.tensor([[3, 5, pad_id, pad_id, pad_id], [7, 2, 4, 8, 6], [pad_id] * 5])
    mask = padding_mask(ids, pad_id)
    assert mask.shape == (3, 1, 1, 5)
    assert torch.equal(mask[:, 0, 0], table("xx... xxxxx ....."))


def test_padding_mask_looks_at_ids_not_at_places():
    assert torch.equal(padding_mask(torch.tensor([[0, 3, 0, 5]]), 0)[0, 0], table(".x.x"))


def test_causal_mask():
    assert causal_mask(3).shape == (1, 1, 3, 3)
    assert torch.equal(causal_mask(3)[0, 0], table("x.. xx. xxx"))


def test_causal_mask_aligns_the_last_query_with_the_last_key():
    assert torch.equal(causal_mask(2, 5)[0, 0], table("xxxx. xxxxx"))


@pytest.mark.parametrize("queries", [0, 1, 3, 7])
def test_more_keys_than_queries_are_the_last_rows_of_the_square(queries):
    assert torch.equal(causal_mask(queries, 7), causal_mask(7)[:, :, 7 - queries :])


def test_segment_mask_against_a_loop():
    query_segments, key_segments = torch.randint(3, (2, 5)), torch.randint(3, (2, 7))
    mask = segment_mask(query_segments, key_segments)
    assert mask.shape == (2, 1, 5, 7)
    for b in range(2):
        for i in range(5):
            for j in range(7):
                assert mask[b, 0, i, j] == (query_segments[b, i] == key_segments[b, j])


def test_combine_allows_what_every_mask_allows():
    padding = padding_mask(torch.tensor([[5, 5, 0], [5, 5, 5]]), 0)
    both = combine(padding, None, causal_mask(3))
    assert both.shape == (2, 1, 3, 3)
    assert torch.equal(both[0, 0], table("x.. xx. xx."))
    assert torch.equal(both[1, 0], table("x.. xx. xxx"))


def test_combine_of_nothing():
    assert combine() is None
    assert combine(None, None) is None
    mask = causal_mask(3)
    assert torch.equal(combine(None, mask), mask)


INF = float("inf")


def test_an_additive_mask_as_booleans():
    mask = torch.tensor([[0.0, -INF, -1e4], [-1e9, 0.0, 0.0]])
    assert torch.equal(boolean(mask), table("x.. .xx"))
    assert boolean(mask.double()).dtype == torch.bool


def test_a_boolean_mask_stays_what_it_is():
    mask = causal_mask(3)
    assert boolean(mask) is mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_booleans_as_an_additive_mask_and_back(dtype):
    mask = table("x.. .xx")
    numbers = additive(mask, dtype)
    assert torch.equal(numbers, torch.tensor([[0, -INF, -INF], [-INF, 0, 0]], dtype=dtype))
    assert torch.equal(boolean(numbers), mask)


def test_an_additive_mask_is_float32_unless_told():
    assert additive(table("x.")).dtype == torch.float32


def test_masks_are_made_where_they_are_needed():
    ids = torch.zeros(2, 3, dtype=torch.long, device="meta")
    assert padding_mask(ids, 0).device.type == "meta"
    assert segment_mask(ids, ids).device.type == "meta"
    assert causal_mask(3, 5, device="meta").device.type == "meta"


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: padding_mask(torch.zeros(2, 3), 0), r"ids: expected \(batch, keys\), got"),
        (lambda: padding_mask(torch.tensor([1, 2]), 0), r"ids: expected \(batch, keys\), got"),
        (lambda: causal_mask(-1), "expected 0 ≤ queries ≤ keys: -1, -1"),
        (lambda: causal_mask(5, 3), "expected 0 ≤ queries ≤ keys: 5, 3"),
        (lambda: boolean(torch.tensor([0.0, -1e4, 0.5])), "mask: expected booleans, or floats 0 and −inf"),
        (lambda: boolean(torch.tensor([-9999.0])), "mask: expected booleans"),
        (lambda: boolean(torch.tensor([0.0, 1e4]), "src_mask"), "^src_mask: expected booleans"),
        (lambda: combine(torch.ones(2, 2, dtype=torch.int64)), "mask: expected booleans"),
        (lambda: additive(torch.ones(2)), "^mask: expected booleans, got torch.float32"),
    ],
)
def test_what_could_mean_either_thing_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
