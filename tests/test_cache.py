"""The cache: whatever is kept, the result is that of one whole pass."""

import pytest
import torch
from compare import perturb
from conftest import assert_close

from transformer_lessons import expect
from transformer_lessons.attention import KeyValueCache, MultiHeadAttention
from transformer_lessons.model import Transformer, TransformerConfig

HEADS, D_K, D_V, LENGTH = 3, 5, 7, 11


@pytest.fixture
def attention():
    return perturb(MultiHeadAttention(15, HEADS, d_v=D_V)).double().requires_grad_(False)


@pytest.fixture(params=["the filled slots", "all slots"])
def slots(request, monkeypatch):
    """Both that can come back from a cache: on a CPU, and where the number of filled slots costs a wait."""
    if request.param == "all slots":
        monkeypatch.setattr(expect, "readable", lambda x: False)
    return request.param


def new_cache(batch=2, max_length=LENGTH):
    return KeyValueCache(batch, max_length, HEADS, D_K, D_V, dtype=torch.float64)


def sequence(length=LENGTH):
    return torch.randn(2, length, 15, dtype=torch.float64)


@pytest.mark.parametrize("chunks", [[1] * 11, [3, 1, 5, 2], [11]])
@pytest.mark.parametrize("room", [11, 13])
@pytest.mark.usefixtures("slots")
def test_pieces_equal_the_whole(attention, chunks, room):
    x, cache = sequence(), new_cache(max_length=room)
    pieces = [attention(piece, cache=cache) for piece in x.split(chunks, dim=1)]
    assert_close(torch.cat(pieces, dim=1), attention(x, is_causal=True))
    assert cache.position == 11


@pytest.mark.usefixtures("slots")
def test_grouped_heads_are_cached_as_they_are():
    attention = MultiHeadAttention(30, 6, num_key_value_heads=2).double().requires_grad_(False)
    x = torch.randn(2, LENGTH, 30, dtype=torch.float64)
    cache = KeyValueCache(2, LENGTH, 2, 5, dtype=torch.float64)
    pieces = [attention(token, cache=cache) for token in x.split(1, dim=1)]
    assert_close(torch.cat(pieces, dim=1), attention(x, is_causal=True))


def test_the_weights_of_a_step_are_a_row_of_the_whole(attention, slots):
    x, cache = sequence(), new_cache(max_length=13)
    _, whole = attention(x, is_causal=True, need_weights=True)
    for t, token in enumerate(x.split(1, dim=1)):
        _, weights = attention(token, cache=cache, need_weights=True)
        seen = t + 1
        assert weights.size(-1) == (13 if slots == "all slots" else seen)
        assert_close(weights[..., :seen], whole[:, :, t:seen, :seen])
        assert (weights[..., seen:] == 0).all()


@pytest.mark.usefixtures("slots")
def test_what_lies_in_unfilled_slots_does_not_matter(attention):
    x, cache = sequence(5), new_cache()
    cache.keys.fill_(1e6)
    cache.values.fill_(1e6)
    pieces = [attention(token, cache=cache) for token in x.split(1, dim=1)]
    assert_close(torch.cat(pieces, dim=1), attention(x, is_causal=True))


@pytest.mark.usefixtures("slots")
@pytest.mark.parametrize("axes", [(2, 1, 1, LENGTH), (2, 3, 1, 1), (1, LENGTH)])
def test_a_mask_over_the_slots_is_respected(attention, axes):
    x, mask = sequence(), torch.rand(axes) < 0.7
    cache = new_cache()
    pieces = [attention(token, mask=mask, cache=cache) for token in x.split(1, dim=1)]
    assert_close(torch.cat(pieces, dim=1), attention(x, mask=mask, is_causal=True))


def test_visible_by_hand(slots):
    cache = new_cache(max_length=5)
    k, v = cache.append(torch.zeros(2, HEADS, 3, D_K).double(), torch.zeros(2, HEADS, 3, D_V).double())
    room = 5 if slots == "all slots" else 3
    assert k.size(2) == v.size(2) == room
    expected = [[True, True, False, False, False][:room], [True, True, True, False, False][:room]]
    assert cache.visible(2).tolist() == [[expected]]
    if slots == "all slots":
        assert cache.visible(1).tolist() == [[expected[1:]]]
    else:
        assert cache.visible(1) is None


def test_reorder_continues_other_rows(attention):
    x, cache = sequence(), new_cache()
    attention(x[:, :5], cache=cache)
    cache.reorder(torch.tensor([1, 1]))
    actual = attention(x[:, 5:], cache=cache)
    histories = torch.cat([x[[1, 1], :5], x[:, 5:]], dim=1)
    assert_close(actual, attention(histories, is_causal=True)[:, 5:])


def test_reordered_rows_do_not_share_memory(attention):
    x, cache = sequence(), new_cache()
    attention(x[:, :5], cache=cache)
    cache.reorder(torch.tensor([1, 1]))
    attention(x[:, 5:6], cache=cache)
    assert not torch.equal(cache.keys[0, :, 5], cache.keys[1, :, 5])


def test_cross_attention_fills_it_once(attention):
    memory, cache, calls = sequence(7), new_cache(max_length=0), []
    attention.W_k.register_forward_hook(lambda *_: calls.append("k"))
    attention.W_v.register_forward_hook(lambda *_: calls.append("v"))
    mask = torch.tensor([True] * 5 + [False] * 2)
    x = sequence()
    pieces = [attention(token, memory, mask=mask, cache=cache) for token in x.split(1, dim=1)]
    assert calls == ["k", "v"]
    assert_close(torch.cat(pieces, dim=1), attention(x, memory, mask=mask))


def test_a_cross_cache_filled_before_the_first_query():
    attention = (
        perturb(MultiHeadAttention(30, 6, num_key_value_heads=2, d_v=7)).double().requires_grad_(False)
    )
    x, memory = (torch.randn(2, length, 30, dtype=torch.float64) for length in (5, 3))
    cache = KeyValueCache(2, 0, 2, 5, 7, dtype=torch.float64)
    k, v = cache.fill_once(lambda: attention.keys_and_values(memory))
    assert (k.shape, v.shape) == ((2, 2, 3, 5), (2, 2, 3, 7))
    assert_close(attention(x, torch.full_like(memory, torch.nan), cache=cache), attention(x, memory))


def test_reorder_of_a_filled_cross_cache(attention):
    memory, cache = sequence(7), new_cache(max_length=0)
    cache.reorder(torch.tensor([1, 0]))  # before it is filled there is nothing to reorder
    x = sequence(2)
    attention(x, memory, cache=cache)
    cache.reorder(torch.tensor([1, 0]))
    assert_close(attention(x, memory, cache=cache), attention(x, memory.flip(0)))


def test_overflow(attention):
    cache = new_cache(max_length=5)
    attention(sequence(4), cache=cache)
    with pytest.raises(ValueError, match="cache: expected at most max_length = 5 positions, got 6"):
        attention(sequence(2), cache=cache)
    assert cache.position == 4


def test_memory_is_allocated_once_and_where_it_is_asked_for():
    cache = new_cache()
    address = cache.keys.data_ptr(), cache.values.data_ptr()
    for _ in range(3):
        cache.append(torch.ones(2, HEADS, 1, D_K).double(), torch.ones(2, HEADS, 1, D_V).double())
    assert (cache.keys.data_ptr(), cache.values.data_ptr()) == address
    assert KeyValueCache(2, 5, 3, 7).values.shape == (2, 3, 5, 7)
    assert KeyValueCache(2, 5, 3, 7, device="meta").position.device.type == "meta"


def test_it_starts_empty():
    cache = new_cache()
    assert not cache.keys.any()
    assert not cache.values.any()
    assert (cache.position, cache.is_filled) == (0, False)


def test_nothing_is_made_elsewhere():
    cache = KeyValueCache(2, 5, 3, 7, device="meta")
    k = torch.zeros(2, 3, 2, 7, device="meta")
    made = [cache.keys, cache.values, *cache.append(k, k), cache.position, cache.visible(2)]
    assert {tensor.device.type for tensor in made} == {"meta"}


def test_room_is_made_for_what_is_appended_only():
    """The encoder's keys and values are taken over as they are; how many there are, nobody knows before."""
    model = Transformer(TransformerConfig(11, 13, d_model=14, num_heads=7, d_ff=17))
    for cache in model.new_caches(3, 5):
        assert cache.self_attention.keys.shape == (3, 7, 5, 2)
        assert cache.cross_attention.keys.shape == (3, 7, 0, 2)
