"""The position-wise feed-forward network (§3.3)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons import expect
from transformer_lessons.fast.dropout import Dropout

ACTIVATIONS = {"relu": torch.relu, "gelu": nn.functional.gelu}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, the same at every position (§3.3, equation 2).

    ``FFN(x) = act(x W_1 + b_1) W_2 + b_2``, with act = max(0, ·) in the paper

    Positions do not meet here. A pitfall: without the activation the two maps collapse into one linear map.

    Shapes: ``(..., d_model)`` in and out, ``(..., d_ff)`` between.

    Args:
        d_model: width in and out.
        d_ff: width between, 4 · d_model in the paper.
        activation: "relu" or "gelu".
        dropout: applied to the hidden activations while training. (The paper drops only the sub-layer's
            output, which `layers` does; `nn.TransformerEncoderLayer` drops here as well.)

    Raises:
        ValueError: for an unknown activation, sizes below 1 or a dropout outside [0, 1); when called, for
            another width, dtype or device than the weights'.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        if activation not in tuple(ACTIVATIONS):
            raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        expect.sizes(d_model=d_model, d_ff=d_ff)
        expect.probability(dropout=dropout)
        self.W_1 = _linear(d_model, d_ff)
        self.W_2 = _linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Expand, activate, contract."""
        expect.width(x, self.W_1.weight, same_dtype=True)
        return self.W_2(self.dropout(self.activation(self.W_1(x))))


class SwiGLU(nn.Module):
    """A feed-forward network whose hidden activations are gated by a second map (Shazeer 2020).

    ``SwiGLU(x) = (silu(x W_1) ∘ x W_3) W_2``, with silu(z) = z / (1 + e^(−z)), in the place of §3.3's FFN

    A pitfall: it has three matrices, so for as many parameters as `FeedForward` d_ff must be 2/3 of its d_ff.

    Shapes: ``(..., d_model)`` in and out, ``(..., d_ff)`` between.

    Args:
        d_model: width in and out.
        d_ff: width between.
        dropout: applied to the hidden activations while training.
        bias: whether the maps have biases; usually not.

    Raises:
        ValueError: for sizes below 1 or a dropout outside [0, 1); when called, for another width, dtype or
            device than the weights'.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0, bias: bool = False):
        super().__init__()
        expect.sizes(d_model=d_model, d_ff=d_ff)
        expect.probability(dropout=dropout)
        self.W_1 = _linear(d_model, d_ff, bias)
        self.W_2 = _linear(d_ff, d_model, bias)
        self.W_3 = _linear(d_model, d_ff, bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Expand twice, gate, contract."""
        expect.width(x, self.W_1.weight, same_dtype=True)
        return self.W_2(self.dropout(nn.functional.silu(self.W_1(x)) * self.W_3(x)))


def _linear(width_in: int, width_out: int, bias: bool = True) -> nn.Linear:
    linear = nn.Linear(width_in, width_out, bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
