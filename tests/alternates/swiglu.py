"""The gated feed-forward layer in other words."""

import torch
import torch.nn.functional as F
from torch import nn


class ByTanh(nn.Module):
    """silu by tanh, the gate first, dropout on one factor."""

    def __init__(self, d_model, d_ff, *, dropout=0.0, bias=False):
        super().__init__()
        if not (d_model > 0 and d_ff > 0):
            raise ValueError("d_model, d_ff")
        self.W_3 = nn.Linear(d_model, d_ff, bias=bias)
        self.W_1 = nn.Linear(d_model, d_ff, bias=bias)
        self.W_2 = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = dropout

    def forward(self, x):
        self.check(x)
        gate, score = self.W_3(x), self.W_1(x)
        return self.W_2(
            gate * F.dropout(score * (1 + torch.tanh(score / 2)) / 2, self.dropout, self.training)
        )

    def check(self, x):
        if x.shape[-1] != self.W_1.in_features:
            raise ValueError("x")


class OneProduct(ByTanh):
    """W_1 and W_3 concatenated to one matrix, then cut in two; torch's own gate."""

    def forward(self, x):
        self.check(x)
        both = torch.cat([self.W_1.weight, self.W_3.weight])
        bias = None if self.W_1.bias is None else torch.cat([self.W_1.bias, self.W_3.bias])
        score, gate = F.linear(x, both, bias).chunk(2, dim=-1)
        hidden = F.glu(torch.cat([score, score], dim=-1), dim=-1) * gate
        return self.W_2(nn.Dropout(self.dropout).train(self.training)(hidden))


class ByEinsum(ByTanh):
    """Sums over indices, biases where there are any."""

    def forward(self, x):
        self.check(x)
        score, gate = (
            torch.einsum("...d,hd->...h", x, W.weight) + (0 if W.bias is None else W.bias)
            for W in (self.W_1, self.W_3)
        )
        hidden = score * score.sigmoid() * gate
        if self.training:
            hidden = hidden * (torch.rand_like(hidden) >= self.dropout) / (1 - self.dropout)
        output = torch.einsum("...h,dh->...d", hidden, self.W_2.weight)
        return output if self.W_2.bias is None else output + self.W_2.bias


ALTERNATES = [ByTanh, OneProduct, ByEinsum]
