"""Positional encodings against the formula in plain Python."""

import math

import pytest
import torch
from compare import DTYPES
from conftest import assert_close
from torch import nn

from transformer_lessons.encodings import (
    LearnedEncoding,
    SinusoidalEncoding,
    shift_matrix,
    sinusoidal,
)


def formula(t: int, i: int, d_model: int) -> float:
    """Entry i of PE(t): the sine for i = 2k, the cosine for i = 2k + 1, both at 10000^(−2k / d_model)."""
    angle = t / 10000 ** (2 * (i // 2) / d_model)
    return math.cos(angle) if i % 2 else math.sin(angle)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d_model", [1, 2, 7, 10])  # odd widths end with a sine
def test_sinusoidal_against_a_double_loop(d_model, dtype):
    expected = torch.tensor(
        [[formula(t, i, d_model) for i in range(d_model)] for t in range(11)], dtype=dtype
    )
    assert_close(sinusoidal(11, d_model, dtype=dtype), expected)


def test_sinusoidal_by_hand():
    # d_model = 4: frequencies 10000^0 = 1 and 10000^(−2/4) = 1/100.
    row = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    assert_close(sinusoidal(4, 4, dtype=torch.float64)[3], torch.tensor(row, dtype=torch.float64))
    assert sinusoidal(1, 4).tolist() == [[0, 1, 0, 1]]
    assert sinusoidal(0, 4).shape == (0, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_far_positions_keep_their_digits(dtype):
    # float32 angles near 100,003 would be off by up to 0.004.
    expected = torch.tensor([formula(100_002, i, 6) for i in range(6)], dtype=dtype)
    assert_close(
        sinusoidal(100_003, 6, dtype=dtype)[-1], expected, tolerance=1e-10 if dtype.itemsize == 8 else 1e-7
    )


def test_a_shift_is_a_rotation():
    # (sin, cos)(ω(t + k)) is (sin, cos)(ωt) turned by ωk, whatever t is.
    length, d_model, k = 29, 10, 5
    table = sinusoidal(length, d_model, dtype=torch.float64)
    for pair in range(d_model // 2):
        turn = k / 10000 ** (2 * pair / d_model)
        rotation = torch.tensor(
            [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64
        )
        columns = slice(2 * pair, 2 * pair + 2)
        assert_close(table[k:, columns], table[:-k, columns] @ rotation.T)


def test_another_base():
    # d_model = 4, base 81: frequencies 1 and 81^(−2/4) = 1/9.
    row = [math.sin(3), math.cos(3), math.sin(1 / 3), math.cos(1 / 3)]
    assert_close(sinusoidal(4, 4, base=81.0, dtype=torch.float64)[3], torch.tensor(row, dtype=torch.float64))
    assert torch.equal(sinusoidal(5, 6, base=10_000.0), sinusoidal(5, 6))


def test_tables_go_where_they_are_wanted():
    for make in (lambda **to: sinusoidal(3, 4, **to), lambda **to: shift_matrix(3, 4, **to)):
        assert make(device="meta").device.type == "meta"
        assert make(dtype=torch.bfloat16).dtype == torch.bfloat16
        assert make().dtype == torch.float32


# --- shift_matrix


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [-7, -1, 0, 1, 13, 1000])
def test_the_shift_matrix_moves_every_position(k, dtype):
    table = sinusoidal(1100, 10, dtype=dtype)
    before, after = (table[: 1100 - k], table[k:]) if k >= 0 else (table[-k:], table[:k])
    assert_close(before @ shift_matrix(k, 10, dtype=dtype).T, after)


def test_the_shift_matrix_by_hand():
    # d_model = 4, k = 3: angles 3 · 1 and 3 · 1/100; (sin, cos)(t + 3) from (sin, cos)(t).
    c, s, d, e = math.cos(3), math.sin(3), math.cos(0.03), math.sin(0.03)
    rows = [[c, s, 0, 0], [-s, c, 0, 0], [0, 0, d, e], [0, 0, -e, d]]
    assert_close(shift_matrix(3, 4, dtype=torch.float64), torch.tensor(rows, dtype=torch.float64))


def test_shifts_add_up_and_turn_back():
    first, second = (shift_matrix(k, 14, dtype=torch.float64) for k in (5, -12))
    assert_close(first @ second, shift_matrix(-7, 14, dtype=torch.float64))
    assert_close(first.T, shift_matrix(-5, 14, dtype=torch.float64))
    assert_close(first @ first.T, torch.eye(14, dtype=torch.float64))


# --- The modules


@pytest.mark.parametrize("encoding", [SinusoidalEncoding, LearnedEncoding])
@pytest.mark.parametrize("offset", [0, 3])
def test_row_t_is_added_at_position_t(encoding, offset):
    module, x = encoding(7, 13), torch.randn(2, 5, 7)
    expected = torch.stack([x[:, t] + module.table[int(offset) + t] for t in range(5)], dim=1)
    assert torch.equal(module(x, offset), expected)


def test_sinusoidal_encoding_holds_the_table():
    assert torch.equal(SinusoidalEncoding(7, 13).table, sinusoidal(13, 7))


def test_sinusoidal_encoding_is_a_buffer_outside_the_state_dict():
    module = SinusoidalEncoding(7, 13)
    assert module.state_dict() == {}
    assert list(module.parameters()) == []
    assert module.to("meta").table.device.type == "meta"
    assert "table" in dict(module.named_buffers())


def test_sinusoidal_encoding_has_all_the_digits_of_every_dtype():
    network = nn.Sequential(SinusoidalEncoding(7, 13))
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        assert network.to(dtype)[0].table.dtype == dtype
        assert torch.equal(network[0].table, sinusoidal(13, 7, dtype=dtype))


def test_learned_encoding_learns_the_rows_it_used_and_no_other():
    module = LearnedEncoding(7, 13).double()
    cotangent = torch.randn(2, 5, 7, dtype=torch.float64)
    module(torch.randn(2, 5, 7, dtype=torch.float64), offset=3).backward(cotangent)
    expected = torch.zeros(13, 7, dtype=torch.float64)
    expected[3:8] = cotangent.sum(0)
    assert_close(module.table.grad, expected)


def test_learned_encoding_starts_small():
    assert LearnedEncoding(101, 503).table.std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("encoding", [SinusoidalEncoding, LearnedEncoding])
def test_up_to_max_length_and_no_further(encoding):
    module = encoding(7, 5)
    assert module(torch.zeros(1, 5, 7)).shape == (1, 5, 7)
    assert module(torch.zeros(1, 2, 7), offset=3).shape == (1, 2, 7)
    with pytest.raises(ValueError, match="x: expected at most 5 positions"):
        module(torch.zeros(1, 6, 7))
    with pytest.raises(ValueError, match="x: expected at most 5 positions"):
        module(torch.zeros(1, 2, 7), offset=4)


@pytest.mark.parametrize("d_model", [0, 7])
def test_a_lone_sine_cannot_be_shifted(d_model):
    with pytest.raises(ValueError, match=f"d_model: expected an even number, got {d_model}"):
        shift_matrix(1, d_model)
