"""Masks against tables written by hand."""

import pytest
import torch

from transformer_lessons.masks import additive, boolean, causal_mask, combine, padding_mask, segment_mask

INF = float("inf")


def table(rows: str) -> torch.Tensor:
    """ "x." is [[True, False]]: x may be attended to."""
    return torch.tensor([[cell == "x" for cell in row] for row in rows.split()])


@pytest.mark.parametrize("pad_id", [0, 9])
def test_padding_mask_looks_at_ids_not_at_places(pad_id):
    ids = torch.tensor([[3, 5, pad_id, pad_id, pad_id], [7, 2, 4, 8, 6], [pad_id, 3, pad_id, 5, 1]])
    mask = padding_mask(ids, pad_id)
    assert mask.shape == (3, 1, 1, 5)
    assert torch.equal(mask[:, 0, 0], table("xx... xxxxx .x.xx"))


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((3,), "x.. xx. xxx"), ((2, 5), "xxxx. xxxxx"), ((1, 1), "x"), ((0, 3), "")],
    ids=str,
)
def test_the_last_query_sees_the_last_key_and_each_before_it_one_key_less(sizes, rows):
    mask = causal_mask(*sizes)
    assert mask.shape == (1, 1, sizes[0], sizes[-1])
    assert mask[0, 0].tolist() == table(rows).tolist()


def test_a_segment_sees_itself():
    mask = segment_mask(torch.tensor([[0, 0, 1], [2, 1, 0]]), torch.tensor([[0, 0, 1, 1], [0, 1, 2, 2]]))
    assert mask.shape == (2, 1, 3, 4)
    assert torch.equal(mask.flatten(0, 2), table("xx.. xx.. ..xx ..xx .x.. x..."))


def test_combine_allows_what_every_mask_allows():
    padding = padding_mask(torch.tensor([[5, 5, 0], [5, 5, 5]]), 0)
    both = combine(padding, None, causal_mask(3))
    assert both.shape == (2, 1, 3, 3)
    assert torch.equal(both.flatten(0, 2), table("x.. xx. xx. x.. xx. xxx"))
    assert combine() is combine(None, None) is None


def test_an_additive_mask_as_booleans():
    mask = torch.tensor([[0.0, -INF, -1e4], [-1e9, 0.0, 0.0]])
    assert torch.equal(boolean(mask), table("x.. .xx"))
    assert boolean(mask.double()).dtype == torch.bool


@pytest.mark.parametrize("options", [(), (torch.float64,), (torch.bfloat16,)])
def test_booleans_as_an_additive_mask_and_back(options):
    mask = table("x.. .xx")
    numbers = additive(mask, *options)
    expected = torch.tensor([[0, -INF, -INF], [-INF, 0, 0]], dtype=torch.float32)
    assert torch.equal(numbers, expected.to(*options))
    assert numbers.dtype == (options[0] if options else torch.float32)
    assert torch.equal(boolean(numbers), mask)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: padding_mask(torch.zeros(2, 3), 0), r"ids: .* integers .*, got torch.float32 \[2, 3\]$"),
        (lambda: padding_mask(torch.tensor([1, 2]), 0), r"ids: .* \(batch, keys\), got torch.int64 \[2\]$"),
        (lambda: causal_mask(-1), "expected 0 ≤ queries ≤ keys: -1, -1"),
        (lambda: causal_mask(5, 3), "expected 0 ≤ queries ≤ keys: 5, 3"),
        (lambda: boolean(torch.ones(2)), r"^mask: .* floats 0 and −inf, got tensor\(\[1.\]\)$"),
        (lambda: combine(torch.zeros(2, 2, dtype=torch.int64)), "mask: expected booleans"),
        (lambda: additive(torch.ones(2)), "^mask: expected booleans, got torch.float32$"),
    ],
)
def test_ambiguous_masks_and_sizes_are_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
