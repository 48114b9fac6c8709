"""The position-wise feed-forward network (§3.3)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

ACTIVATIONS = {"relu": torch.relu, "gelu": nn.functional.gelu}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, the same at every position (§3.3, equation 2).

    ``FFN(x) = act(x W_1 + b_1) W_2 + b_2``, with act = max(0, ·) in the paper

    Positions do not meet here. Without the activation the two maps would collapse into one linear map.

    Shapes: ``(..., d_model)`` in and out, ``(..., d_ff)`` between.

    Args:
        d_model: width in and out.
        d_ff: width between, 4 · d_model in the paper.
        activation: "relu" or "gelu".
        dropout: applied to the hidden activations while training. (The paper drops only the sub-layer's
            output, which `layers` does; `nn.TransformerEncoderLayer` drops here as well.)

    Raises:
        ValueError: for an unknown activation.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        for linear in (self.W_1, self.W_2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Expand, activate, contract."""
        return self.W_2(self.dropout(self.activation(self.W_1(x))))
