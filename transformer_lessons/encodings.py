"""Positional encodings (§3.5): attention by itself is blind to order, so order is put into its input."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def frequencies(d_model: int, base: float = 10_000.0) -> Float[Tensor, " pairs"]:
    """``ω_k = base^(−2k / d_model)``, in radians per position, one for each pair of dimensions (§3.5).

    A pitfall: 2k already steps by two, so the exponent is not 2·(2k).
    """
    twice_k = torch.arange(0, d_model, 2, dtype=torch.float64)
    return base ** (-twice_k / d_model)


def sinusoidal(
    length: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "length d_model"]:
    """The paper's fixed encoding, a sine and a cosine for each of d_model / 2 frequencies (§3.5).

    ``PE[t, 2k] = sin(t ω_k),  PE[t, 2k+1] = cos(t ω_k)``

    Angles are computed in float64: in float32 a far position has lost the digits that tell it from its
    neighbour. A pitfall: a sine and its cosine share one frequency. An odd d_model ends with a lone sine.
    """
    t = torch.arange(length, dtype=torch.float64)
    angle = torch.outer(t, frequencies(d_model, base))  # (length, pairs)
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]  # an odd d_model has one more sine
    dtype = dtype or torch.get_default_dtype()
    return table.to(dtype=dtype, device=device)


def shift_matrix(
    k: int, d_model: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Float[Tensor, "d_model d_model"]:
    """The matrix that moves every encoding by k positions: ``PE(t + k) = M_k PE(t)``, whatever t is (§3.5).

    Each sine and cosine of one frequency turn together: M_k is block-diagonal with the rotations
    ``[[cos kω, sin kω], [−sin kω, cos kω]]``. A pitfall: M_k acts on columns; on a table, whose rows are the
    encodings, it is ``table @ M_k.T``.

    Raises:
        ValueError: for an odd `d_model`, whose last sine has no cosine to turn with.
    """
    if d_model < 2 or d_model % 2:
        raise ValueError(f"d_model: expected an even number, got {d_model}")
    turn = k * frequencies(d_model)
    rows = [turn.cos(), turn.sin(), -turn.sin(), turn.cos()]
    blocks = torch.stack(rows, dim=-1).view(-1, 2, 2)  # (pairs, 2, 2)
    dtype = dtype or torch.get_default_dtype()
    return torch.block_diag(*blocks).to(dtype=dtype, device=device)


def add_rows(
    x: Float[Tensor, "batch length d_model"], table: Float[Tensor, "max_length d_model"], offset: int
) -> Float[Tensor, "batch length d_model"]:
    """Add row offset + t of the table to the vector at position t (§3.5: "summed").

    Raises:
        ValueError: if x reaches beyond the table.
    """
    if offset + x.size(1) > len(table):
        raise ValueError(f"x: expected at most {len(table)} positions, got {offset + x.size(1)}")
    return x + table[offset : offset + x.size(1)]


class SinusoidalEncoding(nn.Module):
    """`sinusoidal` as a module, ``y_t = x_t + PE(offset + t)``: fixed, and known before training (§3.5).

    The table is a buffer, so ``.to(device)`` moves it, but not a persistent one, as nothing in it is learned.
    For another dtype it is recomputed, to full precision. A pitfall: with a cache only the newest token comes
    in; without its `offset` it would be at position 0.

    Shapes: ``(batch, length, d_model)`` in and out.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        table = sinusoidal(max_length, d_model)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Float[Tensor, "batch length d_model"], offset: int = 0):
        """Encode; `offset` is the position of the first vector."""
        return add_rows(x, self.table, offset)

    def _apply(self, fn, recurse=True):  # called by .to() and .double()
        super()._apply(fn, recurse)
        like = self.table
        self.table = sinusoidal(*like.shape, dtype=like.dtype, device=like.device)
        return self


class LearnedEncoding(nn.Module):
    """One learned vector for each position, ``y_t = x_t + P[offset + t]`` (§3.5, Table 3 row E).

    Initialised from N(0, 0.02²), small beside the unit variance of the scaled token embeddings. A pitfall:
    positions that no training sentence reached keep their random values; beyond `max_length` there are none.

    Shapes: ``(batch, length, d_model)`` in and out.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model) * 0.02)

    def forward(self, x: Float[Tensor, "batch length d_model"], offset: int = 0):
        """Encode; `offset` is the position of the first vector."""
        return add_rows(x, self.table, offset)
