"""Positional encodings against the formula in plain Python."""

import math

import pytest
import torch
from compare import DTYPES
from conftest import assert_close
from torch import nn

from transformer_lessons.encodings import LearnedEncoding, SinusoidalEncoding, sinusoidal


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


@pytest.mark.parametrize("encoding", [SinusoidalEncoding, LearnedEncoding])
@pytest.mark.parametrize("offset", [0, 3, torch.tensor(3)])
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


def test_sinusoidal_encoding_can_be_built_without_memory_first():
    with torch.device("meta"):
        module = SinusoidalEncoding(7, 13)
    assert torch.equal(module.to_empty(device="cpu").table, sinusoidal(13, 7))


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
    with pytest.raises(ValueError, match="x: expected at most max_length = 5 positions, got 6"):
        module(torch.zeros(1, 6, 7))
    with pytest.raises(ValueError, match="x: expected at most max_length = 5 positions, got 6"):
        module(torch.zeros(1, 2, 7), offset=4)
    with pytest.raises(ValueError, match=r"x: expected a last axis of d_model = 7, got \(1, 2, 1\)"):
        module(torch.zeros(1, 2, 1))


@pytest.mark.parametrize(
    ("length", "d_model", "complaint"),
    [
        (-1, 4, "length: expected an integer, 0 or more, got -1"),
        (3, 0, "d_model: expected an integer, 1 or more, got 0"),
    ],
)
def test_complaints(length, d_model, complaint):
    with pytest.raises(ValueError, match=complaint):
        sinusoidal(length, d_model)


@pytest.mark.usefixtures("no_shape_checks")
def test_no_position_before_the_first():
    with pytest.raises(ValueError, match="offset: expected 0 or more, got -1"):
        SinusoidalEncoding(3, 7)(torch.zeros(2, 5, 3), -1)
