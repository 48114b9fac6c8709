"""The position-wise feed-forward network (§3.3)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, the same at every position (§3.3, equation 2).

    ``FFN(x) = act(x W_1 + b_1) W_2 + b_2``, with act = max(0, ·) in the paper

    Positions do not interact. A pitfall: without the activation the two maps collapse into one linear map.

    Args:
        d_model, d_ff: width of the input and output, and in between (4 · d_model in the paper).
        activation: "relu" or "gelu".
        dropout: on the hidden activations while training; the paper has it only on the output, see `layers`.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        self.W_1 = linear(d_model, d_ff)
        self.W_2 = linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Expand to d_ff, activate, contract."""
        return self.W_2(self.dropout(self.activation(self.W_1(x))))


def linear(width_in: int, width_out: int, bias: bool = True) -> nn.Linear:
    """A linear map initialised like those of the layers: Xavier-uniform weights, biases of 0."""
    layer = nn.Linear(width_in, width_out, bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
