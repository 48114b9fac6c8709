"""Positional encodings (§3.5): attention by itself is blind to order, so order is put into its input."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def sinusoidal(
    length: int, d_model: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
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

    Raises:
        ValueError: if `length` is negative or `d_model` is not positive.
    """
    if length < 0:
        raise ValueError(f"length: expected 0 or more, got {length}")
    if d_model < 1:
        raise ValueError(f"d_model: expected 1 or more, got {d_model}")
    position = torch.arange(length, dtype=torch.float64, device=device)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device=device) / d_model)
    angle = torch.outer(position, frequency)
    table = torch.empty(length, d_model, dtype=torch.float64, device=device)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.to(dtype or torch.get_default_dtype())


class PositionTable(nn.Module):
    """Adds row t of a table to the vector at position t; what the two absolute encodings share.

    Shapes: ``(batch, length, d_model)`` in and out.

    Raises:
        ValueError: if the input is longer than the table or of another width, or starts before position 0.
    """

    table: Float[Tensor, "max_length d_model"]

    def forward(
        self, x: Float[Tensor, "batch length d_model"], offset: int | Int[Tensor, ""] = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Encode; `offset` is the position of the first vector (decoding with a cache starts late)."""
        max_length, d_model = self.table.shape
        if x.size(-1) != d_model:
            raise ValueError(f"x: expected width d_model = {d_model}, got {x.size(-1)}")
        first = offset if isinstance(offset, int) else 0  # asking a tensor could make the CPU wait for a GPU
        if first < 0:
            raise ValueError(f"offset: expected 0 or more, got {first}")
        if first + x.size(1) > max_length:
            raise ValueError(
                f"x: expected at most max_length = {max_length} positions, got {first + x.size(1)}"
            )
        positions = torch.arange(x.size(1), device=x.device) + offset
        return x + self.table[positions]


class SinusoidalEncoding(PositionTable):
    """`sinusoidal` as a module: fixed, and known for any length before training (§3.5).

    The table is a buffer, so ``.to(device)`` takes it along, and not persistent: it holds nothing learned,
    so it stays out of the ``state_dict``. In another dtype it is computed anew, to all the digits there are.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        self.register_buffer("table", sinusoidal(max_length, d_model), persistent=False)

    def _apply(self, fn, recurse=True):
        # What `.to()` & co. end in. Cast to float64, the table would keep the digits of float32.
        super()._apply(fn, recurse)
        self.table = sinusoidal(*self.table.shape, dtype=self.table.dtype, device=self.table.device)
        return self


class LearnedEncoding(PositionTable):
    """One learned vector for each position; nothing is known beyond `max_length` (§3.5, Table 3 row E).

    Starts from N(0, 0.02²), small beside the unit variance of the scaled token embeddings.
    """

    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_length, d_model) * 0.02)
