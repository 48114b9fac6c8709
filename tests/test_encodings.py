"""Positional encodings against the formula in plain Python; `test_properties` tests distances."""

import math

import pytest
import torch
from conftest import assert_close
from torch import nn

from transformer_lessons.encodings import LearnedEncoding, SinusoidalEncoding, shift_matrix, sinusoidal

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
MODULES = pytest.mark.parametrize("encoding", [SinusoidalEncoding, LearnedEncoding])


def formula(t: int, i: int, d_model: int) -> float:
    """Entry i of PE(t): the sine for i = 2k, the cosine for i = 2k + 1, both at 10000^(−2k / d_model)."""
    angle = t / 10000 ** (2 * (i // 2) / d_model)
    return math.cos(angle) if i % 2 else math.sin(angle)


@DTYPES
@pytest.mark.parametrize("d_model", [1, 7, 10])  # odd widths end with a sine
def test_sinusoidal_against_a_double_loop(d_model, dtype):
    expected = [[formula(t, i, d_model) for i in range(d_model)] for t in range(11)]
    assert_close(sinusoidal(11, d_model, dtype=dtype), torch.tensor(expected, dtype=dtype))


def test_another_base_by_hand():
    # d_model = 4, base 81: frequencies 1 and 81^(−2/4) = 1/9.
    row = [math.sin(3), math.cos(3), math.sin(1 / 3), math.cos(1 / 3)]
    assert_close(sinusoidal(4, 4, base=81.0, dtype=torch.float64)[3], torch.tensor(row, dtype=torch.float64))


@DTYPES
def test_far_positions_keep_their_digits(dtype):
    # float32 angles near 100,003 would be off by up to 0.004.
    expected = torch.tensor([formula(100_002, i, 6) for i in range(6)], dtype=dtype)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-7}[dtype]
    assert_close(sinusoidal(100_003, 6, dtype=dtype)[-1], expected, tolerance=tolerance)


@pytest.mark.parametrize("make", [sinusoidal, shift_matrix])
def test_tables_have_the_requested_device_and_dtype(make):
    assert make(3, 4, device="meta").device.type == "meta"
    assert make(3, 4, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert make(3, 4).dtype == torch.float32


def test_the_shift_matrix_by_hand():
    # d_model = 4, k = 3: angles 3 · 1 and 3 · 1/100; (sin, cos)(t + 3) from (sin, cos)(t).
    c, s, d, e = math.cos(3), math.sin(3), math.cos(0.03), math.sin(0.03)
    rows = [[c, s, 0, 0], [-s, c, 0, 0], [0, 0, d, e], [0, 0, -e, d]]
    assert_close(shift_matrix(3, 4, dtype=torch.float64), torch.tensor(rows, dtype=torch.float64))


@pytest.mark.parametrize("d_model", [0, 7])
def test_a_shift_needs_an_even_width(d_model):
    with pytest.raises(ValueError, match=f"^d_model: expected an even number, got {d_model}$"):
        shift_matrix(1, d_model)


# --- The modules


@MODULES
def test_up_to_max_length_and_no_further(encoding):
    module = encoding(7, 5)
    assert module(torch.zeros(1, 2, 7), offset=3).shape == (1, 2, 7)
    for length, offset in ((6, 0), (2, 4)):
        with pytest.raises(ValueError, match=r"^x: expected at most 5 positions, got 6$"):
            module(torch.zeros(1, length, 7), offset)


def test_sinusoidal_encoding_learns_nothing_and_has_all_the_digits_of_every_dtype():
    network = nn.Sequential(SinusoidalEncoding(7, 13))
    assert network.state_dict() == {}
    assert [name for name, _ in network.named_buffers()] == ["0.table"]
    assert torch.equal(network[0].table, sinusoidal(13, 7))
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        assert torch.equal(network.to(dtype)[0].table, sinusoidal(13, 7, dtype=dtype))
    assert network.to("meta")[0].table.device.type == "meta"


def test_learned_encoding_starts_small():
    assert LearnedEncoding(101, 503).table.std().item() == pytest.approx(0.02, rel=0.02)
