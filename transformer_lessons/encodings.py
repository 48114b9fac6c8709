"""Positional encodings (§3.5): attention by itself is blind to order, so order is put into its input."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lessons import expect


def sinusoidal(
    length: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "length d_model"]:
    """The paper's fixed encoding, a sine and a cosine for each of d_model / 2 frequencies (§3.5).

    ``PE[t, 2k] = sin(t ω_k),  PE[t, 2k+1] = cos(t ω_k),  ω_k = 10000^(−2k / d_model)``

    The early dimensions turn fast, the late ones slowly. An odd d_model ends with a sine that has no cosine.
    Angles are computed in float64, since in float32 a far position has lost the digits that tell it from its
    neighbour. A pitfall: 2k already steps by two, so the exponent is not 2·(2k), and a sine and its cosine
    share one frequency.

    Args:
        length: number of positions, starting at position 0.
        d_model: width.
        base: 10,000 in the paper; the slowest wave takes about 2π · base positions.
        dtype, device: as for `torch.zeros`.

    Raises:
        ValueError: if `length` is negative, `d_model` not a size, or `base` not above 1.
    """
    expect.lengths(length=length)
    # On the CPU, wherever it goes: not every device has float64.
    angle = torch.outer(torch.arange(length, dtype=torch.float64, device="cpu"), _frequencies(d_model, base))
    table = torch.empty(length, d_model, dtype=torch.float64, device="cpu")
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.to(dtype or torch.get_default_dtype()).to(device or torch.get_default_device())


def _frequencies(d_model: int, base: float) -> Float[Tensor, " waves"]:
    """``ω_k = base^(−2k / d_model)``, in radians a position, the fastest first."""
    expect.sizes(d_model=d_model)
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not 1 < base < float("inf"):
        raise ValueError(f"base: expected a number above 1, got {base!r}")
    return float(base) ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu") / d_model)


def shift_matrix(
    k: int, d_model: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Float[Tensor, "d_model d_model"]:
    """The matrix that moves every encoding by k positions: ``PE(t + k) = M_k PE(t)``, whatever t is (§3.5).

    Each sine and cosine of one frequency turn together, so M_k is block-diagonal with the rotations
    ``[[cos kω, sin kω], [−sin kω, cos kω]]``. This is what lets a linear map attend "k positions back".

    A pitfall: M_k acts on columns; on a table, whose rows are the encodings, it is ``table @ M_k.T``.

    Args:
        k: the shift; negative moves back, and ``M_−k = M_kᵀ``.
        d_model: width, even: the last sine of an odd width has no cosine to turn with.
        dtype, device: as for `torch.zeros`.

    Raises:
        ValueError: for an odd `d_model`, one below 2, or a `k` that is no integer.
    """
    expect.integers(k=k)
    if type(d_model) is not int or d_model < 2 or d_model % 2:
        raise ValueError(f"d_model: expected an even number, 2 or more, got {d_model!r}")
    angle = k * _frequencies(d_model, 10_000.0)
    rotations = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], dim=-1).view(-1, 2, 2)
    matrix = torch.block_diag(*rotations)
    return matrix.to(dtype or torch.get_default_dtype()).to(device or torch.get_default_device())


class PositionTable(nn.Module):
    """Adds row t of a table to the vector at position t; what the two absolute encodings share.

    ``y_t = x_t + table[offset + t]`` (§3.5: "summed"), or ``x_t + table[offset + positions_t]`` where rows are
    packed and positions start anew with every sentence. A pitfall: with a cache only the new tokens come in, and
    without `offset` each of them would be at position 0.

    Shapes: ``(batch, length, d_model)`` in and out.

    Raises:
        ValueError: for what is no float of three axes, another width or device, an input longer than the table,
            an offset that is no integer, is negative, or leads beyond the table, or positions of another shape or
            beyond it (a tensor's values are looked at where it costs no synchronisation: not on a GPU, not in a
            compiled graph).
    """

    table: Float[Tensor, "max_length d_model"]

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        offset: int | Int[Tensor, ""] = 0,
        *,
        positions: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Encode; `offset` is the position of the first vector (decoding with a cache starts late).

        `positions` counts from there, 0, 1, 2, … unless given.
        """
        max_length = len(self.table)
        expect.width(x, self.table, "batch", "length", "d_model")
        first = expect.offset(offset)
        if positions is not None:
            _check_positions(positions, x.shape[:2], max_length - first, self.table, "x")
        elif first + x.size(1) > max_length:
            raise ValueError(
                f"x: expected at most max_length = {max_length} positions, got {first + x.size(1)}"
            )
        else:
            positions = torch.arange(x.size(1), device=x.device)
        return x + self.table[positions + offset]


def _check_positions(positions: Tensor, shape: torch.Size, count: int, table: Tensor, of: str) -> None:
    """Refuse what are not positions of a table, one for each vector of `of`."""
    expect.ids(*("batch", "length")[-len(shape) :], positions=positions)
    expect.same_device(table, positions=positions)
    if positions.shape != shape:
        raise ValueError(f"positions: expected shape {tuple(shape)}, as {of}, got {tuple(positions.shape)}")
    expect.below(count, ", below max_length", positions=positions)


class SinusoidalEncoding(PositionTable):
    """`sinusoidal` as a module, ``y_t = x_t + PE(t)``: fixed, and known for any length before training (§3.5).

    The table is a buffer, so ``.to(device)`` takes it along, and not persistent: it holds nothing learned,
    so it stays out of the ``state_dict``. In another dtype it is computed anew, to all the digits there are.
    A pitfall: as a plain attribute it would stay behind on the CPU.

    Raises:
        ValueError: for sizes below 1; when called, as `PositionTable`.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        expect.sizes(d_model=d_model, max_length=max_length)
        self.register_buffer("table", sinusoidal(max_length, d_model), persistent=False)

    def _apply(self, fn, recurse=True):
        # What `.to()` & co. end in. Cast to float64, the table would keep the digits of float32.
        super()._apply(fn, recurse)
        self.table = sinusoidal(*self.table.shape, dtype=self.table.dtype, device=self.table.device)
        return self


class LearnedEncoding(PositionTable):
    """One learned vector for each position, ``y_t = x_t + P[t]`` (§3.5, Table 3 row E).

    Starts from N(0, 0.02²), small beside the unit variance of the scaled token embeddings. A pitfall: positions
    that no training sentence reached keep their random start, and beyond `max_length` there are none.

    Raises:
        ValueError: for sizes below 1; when called, as `PositionTable`.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        expect.sizes(d_model=d_model, max_length=max_length)
        self.table = nn.Parameter(torch.randn(max_length, d_model) * 0.02)


class RotaryEncoding(nn.Module):
    """Queries and keys are turned by their position, so that scores see only distances (Su et al. 2024).

    ``q_t ↦ R_t q_t,  k_s ↦ R_s k_s``, so that ``(R_t q)ᵀ (R_s k) = qᵀ R_{s−t} k``, where R_t turns entries 2i
    and 2i + 1 by the angle t ω_i, with the frequencies of §3.5

    The sines and cosines are those of `sinusoidal`; here they multiply instead of being added, and values keep
    out of it. Pass it to `attention.MultiHeadAttention` as `rotate`. A pitfall: Llama's weights pair entry i
    with i + d_k / 2 instead; they fit after reordering the rows of W_q and W_k.

    Shapes: ``(batch, heads, length, d_k)`` in and out; positions ``(length)``, or ``(batch, length)`` if each row
    has its own, as packed rows do.

    Args:
        d_k: width of a head, even.
        max_length: number of positions.
        base: of the frequencies, 10,000 unless given.

    Raises:
        ValueError: for an odd d_k or sizes below 1; when called, for what is no float of four axes, another width
            or device, not one position for each vector, or (where it costs no synchronisation: not on a GPU, not
            in a compiled graph) positions beyond max_length.
    """

    table: Float[Tensor, "max_length d_k"]

    def __init__(self, d_k: int, max_length: int, *, base: float = 10_000.0):
        super().__init__()
        expect.sizes(d_k=d_k, max_length=max_length)
        if d_k % 2:
            raise ValueError(f"d_k: expected an even number, got {d_k}")
        self.base = base
        table = sinusoidal(max_length, d_k, base=base)
        self.register_buffer("table", table, persistent=False)

    def forward(
        self,
        heads: Float[Tensor, "batch heads length d_k"],
        positions: Int[Tensor, " length"] | Int[Tensor, "batch length"],
    ) -> Float[Tensor, "batch heads length d_k"]:
        """Turn the vector at ``positions[t]`` by its angles, in float32 at least."""
        expect.width(heads, self.table, "batch", "heads", "length", "d_k", name="heads", width_name="d_k")
        has_rows = isinstance(positions, Tensor) and positions.dim() == 2
        shape = heads.shape[0:3:2] if has_rows else heads.shape[2:3]
        _check_positions(positions, shape, len(self.table), self.table, "heads")
        # The same for all heads: their axis is the third from the end.
        sine, cosine = self.table[positions].unsqueeze(-3).unflatten(-1, (-1, 2)).unbind(-1)
        even, odd = heads.to(self.table.dtype).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        return turned.flatten(-2).to(heads.dtype)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        wide = torch.promote_types(self.table.dtype, torch.float32)
        table = sinusoidal(*self.table.shape, base=self.base, dtype=wide, device=self.table.device)
        self.table = table
        return self
