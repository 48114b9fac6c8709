"""The feed-forward layer and its gated variant."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Annotated(nn.Module):
    """The form of the Annotated Transformer, with a choice of activation."""

    def __init__(self, d_model, d_ff, activation="relu", dropout=0.0):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]

    def forward(self, x):
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class InSequence(nn.Module):
    """As most tutorials have it."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        bend = nn.ReLU() if activation == "relu" else nn.GELU()
        layers = nn.Linear(d_model, d_ff), bend, nn.Dropout(dropout), nn.Linear(d_ff, d_model)
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class TwoNames(nn.Module):
    """The maps as the assignment calls them, and once more in a sequence."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        bend = {"relu": nn.ReLU(), "gelu": nn.GELU()}[activation]
        self.net = nn.Sequential(self.W_1, bend, nn.Dropout(dropout), self.W_2)

    def forward(self, x):
        return self.net(x)


class NanoGPT(nn.Module):
    """Without biases, dropout by hand, GELU by its formula."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        self.c_fc = nn.Linear(d_model, d_ff, bias=False)
        self.c_proj = nn.Linear(d_ff, d_model, bias=False)
        self.kind, self.p = activation, dropout

    def forward(self, x):
        x = self.c_fc(x)
        x = x.clamp(min=0) if self.kind == "relu" else x / 2 * (1 + torch.erf(x / math.sqrt(2)))
        if self.training and self.p > 0:
            x = x * (torch.rand_like(x) >= self.p) / (1 - self.p)
        return self.c_proj(x)


class Matrices(nn.Module):
    """Parameters as in the formula, and a sum over hidden units."""

    def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
        super().__init__()
        self.W1 = nn.Parameter(torch.randn(d_model, d_ff) * 0.02)
        self.b1 = nn.Parameter(torch.zeros(d_ff))
        self.W2 = nn.Parameter(torch.randn(d_ff, d_model) * 0.02)
        self.b2 = nn.Parameter(torch.zeros(d_model))
        self.activation, self.dropout = getattr(F, activation), dropout

    def forward(self, x):
        hidden = F.dropout(self.activation(x @ self.W1 + self.b1), self.dropout, self.training)
        return sum(hidden[..., [i]] * row for i, row in enumerate(self.W2)) + self.b2


class KeptAtTheRate(Annotated):
    """Hidden units are kept with the probability to drop one, and divided by the other."""

    def forward(self, x):
        hidden, rate = self.activation(self.w_1(x)), self.dropout.p
        if self.training:
            hidden = hidden * torch.bernoulli(torch.full_like(hidden, rate)) / (1 - rate)
        return self.w_2(hidden)


class DroppedByVector(Annotated):
    """Dropout1d drops all hidden units of a vector, and refuses four axes."""

    def __init__(self, d_model, d_ff, activation="relu", dropout=0.0):
        super().__init__(d_model, d_ff, activation, dropout)
        self.dropout = nn.Dropout1d(dropout)


class LeakyRelu(Annotated):
    """A slip that is on no list."""

    def __init__(self, d_model, d_ff, activation="relu", dropout=0.0):
        super().__init__(d_model, d_ff, activation, dropout)
        if activation == "relu":
            self.activation = nn.LeakyReLU(0.1)


RIGHT = {
    "feed_forward": [Annotated, InSequence, TwoNames, NanoGPT, Matrices],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "feed_forward": [
        (LeakyRelu, {"formula"}, set()),
        (KeptAtTheRate, {"dropout"}, set()),
        (DroppedByVector, {"formula", "dropout"}, set()),
    ],
}
