"""The feed-forward layer in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class Named(nn.Module):
    """nn.Sequential, with the names of the formula beside it."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        bends = {"relu": nn.ReLU, "gelu": nn.GELU}
        if activation not in bends or min(d_model, d_ff) < 1:
            raise ValueError("activation, d_model, d_ff")
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        self.d_model, self.middle = d_model, nn.Sequential(bends[activation](), nn.Dropout(dropout))

    def forward(self, x):
        if x.shape[-1] != self.d_model:
            raise ValueError("x")
        return self.W_2(self.middle(self.W_1(x)))


class ByMemory(Named):
    """The sum over hidden units of section 9.8, each a key with a value."""

    def forward(self, x):
        if x.shape[-1] != self.d_model:
            raise ValueError("x")
        scores = torch.einsum("...d,hd->...h", x, self.W_1.weight) + self.W_1.bias
        weights = self.middle(scores)
        parts = [weights[..., i, None] * value for i, value in enumerate(self.W_2.weight.T)]
        return sum(parts) + self.W_2.bias


class OwnDropout(Named):
    """Dropout by hand, activations by formula, and an activation in place where nobody else looks."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__(d_model, d_ff, activation=activation)
        self.activation, self.p = activation, dropout

    def forward(self, x):
        if x.shape[-1] != self.d_model:
            raise ValueError("x")
        hidden = self.W_1(x)
        if self.activation == "relu":
            hidden = F.relu(hidden, inplace=True)
        else:
            hidden = hidden / 2 * (1 + torch.erf(hidden / 2**0.5))
        if self.training and self.p > 0:
            kept = torch.rand_like(hidden) >= self.p
            hidden = hidden * kept / (1 - self.p)
        return self.W_2(hidden)


class Convolutions(Named):
    """Two convolutions with kernel size 1."""

    def forward(self, x):
        if x.shape[-1] != self.d_model:
            raise ValueError("x")
        columns = x.reshape(1, -1, self.d_model).mT
        hidden = F.conv1d(columns, self.W_1.weight[..., None], self.W_1.bias)
        output = F.conv1d(self.middle(hidden), self.W_2.weight[..., None], self.W_2.bias)
        return output.mT.reshape(x.shape)


ALTERNATES = [Named, ByMemory, OwnDropout, Convolutions]
