"""Norms: over the features of each vector, and over the batch."""

import torch
import torch.nn.functional as F
from torch import nn


class LayerNorm(nn.Module):
    """As in every tutorial."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, unbiased=False, keepdim=True)
        return self.gamma * (x - mean) / torch.sqrt(var + self.eps) + self.beta


class LayerNormOfTorch(nn.LayerNorm):
    """nn.LayerNorm under another name."""


class LayerNormByFunction(LayerNorm):
    """nanoGPT's, which has weight and bias of its own and calls torch."""

    def forward(self, x):
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class LayerNormOfTwoNames(nn.LayerNorm):
    """Each parameter as the assignment calls it, and as the formula does."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.gamma, self.beta = self.weight, self.bias

    def forward(self, x):
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class LayerNormOfGammaAndBias(nn.LayerNorm):
    """One name as in the formula, one as in torch."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        self.weight, self.gamma = None, self.weight

    def forward(self, x):
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.bias, self.eps)


class LayerNormByMoments(nn.Module):
    """The mean of the squares less the square of the mean, in numbers that allow it."""

    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        wide = x.double()
        mean = wide.sum(-1, keepdim=True) / x.shape[-1]
        variance = (wide**2).sum(-1, keepdim=True) / x.shape[-1] - mean**2
        return ((wide - mean) * (variance + self.eps) ** -0.5).to(x.dtype) * self.a_2 + self.b_2


class UnbiasedAndDetached(LayerNorm):
    def forward(self, x):
        std = (x.var(-1, keepdim=True) + self.eps).sqrt().detach()
        return self.gamma * (x - x.mean(-1, keepdim=True)) / std + self.beta


class Frozen(LayerNorm):
    """γ is no parameter, so it never learns."""

    def __init__(self, d_model, eps=1e-5):
        super().__init__(d_model, eps)
        del self.gamma
        self.bias = self.beta
        self.register_buffer("weight", torch.ones(d_model))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class MeanDeviation(LayerNorm):
    """A slip that is on no list."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return (
            self.gamma * centred / (centred.abs().mean(-1, keepdim=True) ** 2 + self.eps).sqrt() + self.beta
        )


class LlamaRMSNorm(nn.Module):
    """As in Llama's code."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class RMSNormOfTorch(nn.RMSNorm):
    def __init__(self, d_model, eps=1e-6):
        super().__init__(d_model, eps)


class RMSNormByLength(nn.Module):
    """By the length of the vector, which is √d times as long."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        square = torch.einsum("...d,...d->...", x, x).unsqueeze(-1)
        return x / torch.sqrt(square / x.size(-1) + self.eps) * self.scale


class RMSNormByFunction(LlamaRMSNorm):
    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)


class MeanOfSizes(RMSNormByLength):
    """A slip that is on no list."""

    def forward(self, x):
        return x / torch.sqrt(x.abs().mean(-1, keepdim=True) ** 2 + self.eps) * self.scale


class TwiceTheSize(RMSNormByLength):
    def forward(self, x):
        return 2 * super().forward(x)


class BatchNormOfTorch(nn.BatchNorm1d):
    """nn.BatchNorm1d on rows."""

    def forward(self, x):
        return super().forward(x.reshape(-1, x.size(-1))).view_as(x)


class BatchNorm(nn.Module):
    """The form of Dive into Deep Learning, its moving averages being buffers and the variance unbiased."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(num_features))
        self.beta = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("moving_mean", torch.zeros(num_features))
        self.register_buffer("moving_var", torch.ones(num_features))
        self.eps, self.momentum = eps, momentum

    def move(self, mean, variance):
        self.moving_mean = (1.0 - self.momentum) * self.moving_mean + self.momentum * mean.detach()
        self.moving_var = (1.0 - self.momentum) * self.moving_var + self.momentum * variance.detach()

    def forward(self, X):
        if not self.training:
            X_hat = (X - self.moving_mean) / torch.sqrt(self.moving_var + self.eps)
        else:
            axes = tuple(range(X.dim() - 1))
            mean = X.mean(dim=axes, keepdim=True)
            var = ((X - mean) ** 2).mean(dim=axes, keepdim=True)
            X_hat = (X - mean) / torch.sqrt(var + self.eps)
            self.move(X.mean(dim=axes), X.var(dim=axes))
        return self.gamma * X_hat + self.beta


class NotCentred(BatchNorm):
    """A slip that is on no list."""

    def forward(self, X):
        return super().forward(X) + (X.mean() if self.training else 0)


class OnRows(nn.BatchNorm1d):
    """torch's own layer on the real vectors alone, put back where they were."""

    def forward(self, x, mask):
        output = torch.zeros_like(x)
        output[mask] = super().forward(x[mask])
        return output


class BySums(nn.Module):
    """Sums divided by the number of real positions; names as in Dive into Deep Learning."""

    def __init__(self, d_model, eps=1e-5, momentum=0.1):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.register_buffer("moving_mean", torch.zeros(d_model))
        self.register_buffer("moving_var", torch.ones(d_model))
        self.eps, self.momentum = eps, momentum

    def of_batch(self, x, m):
        n = m.sum()
        mean = (x * m).sum((0, 1)) / n
        var = (((x - mean) * m) ** 2).sum((0, 1)) / n
        m = self.momentum
        self.moving_mean = (1 - m) * self.moving_mean + m * mean.detach()
        self.moving_var = (1 - m) * self.moving_var + m * var.detach() * n / (n - 1)
        return mean, var

    def forward(self, x, mask):
        x = x.masked_fill(~mask[:, :, None], 0)
        m = mask[:, :, None].float()
        mean, var = self.of_batch(x, m) if self.training else (self.moving_mean, self.moving_var)
        return ((x - mean) / (var + self.eps).sqrt() * self.gamma + self.beta) * m


class Picked(BySums):
    """Real vectors by index; statistics by torch's functions, biased and unbiased."""

    def forward(self, x, mask):
        rows, y = x[mask], torch.zeros_like(x)
        mean, var = self.moving_mean, self.moving_var
        if self.training:
            mean, var = rows.mean(0), rows.var(0, unbiased=False)
            with torch.no_grad():
                self.moving_mean += self.momentum * (mean - self.moving_mean)
                self.moving_var += self.momentum * (rows.var(0) - self.moving_var)
        y[mask] = (rows - mean) / torch.sqrt(var + self.eps) * self.gamma + self.beta
        return y


class OneMore(BySums):
    """A slip that is on no list: it divides by one real position more."""

    def of_batch(self, x, m):
        mean, var = super().of_batch(x, m)
        return mean * m.sum() / (m.sum() + 1), var


RIGHT = {
    "layer_norm": [
        LayerNorm,
        LayerNormOfTorch,
        LayerNormByFunction,
        LayerNormOfTwoNames,
        LayerNormOfGammaAndBias,
        LayerNormByMoments,
    ],
    "rms_norm": [LlamaRMSNorm, RMSNormOfTorch, RMSNormByLength, RMSNormByFunction],
    "batch_norm": [BatchNormOfTorch, BatchNorm],
    "masked_batch_norm": [OnRows, BySums, Picked],
}
# Of each: the requirements that it loses, and the names that it gets.
WRONG = {
    "layer_norm": [
        (UnbiasedAndDetached, {"variance", "gradients"}, {"unbiased", "detached"}),
        (Frozen, {"gradients"}, {"affine_cut_off"}),
        (MeanDeviation, {"variance"}, set()),
    ],
    "rms_norm": [(MeanOfSizes, {"size"}, set()), (TwiceTheSize, {"size", "eps"}, set())],
    "batch_norm": [(NotCentred, {"statistics"}, set())],
    "masked_batch_norm": [(OneMore, {"statistics", "plain"}, set())],
}
