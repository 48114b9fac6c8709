"""The training loss without storing all logits: a large vocabulary's are as large as several layers."""

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons.data.batches import Batch
from transformer_lessons.fast.products import is_plain, is_slow, linear, weight_gradient
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer

Hidden, Weight = Float[Tensor, "tokens d_model"], Float[Tensor, "vocab d_model"]
Targets = Int[Tensor, " tokens"]
Loss = tuple[Float[Tensor, ""], Int[Tensor, ""]]  # the loss, summed, and the number of right tokens
# Rows of logits that `projected_loss` holds at a time. With fewer, products get small; with more, they do not
# fit a CPU's caches. A GPU's are small anyway, and each part costs it a pass over the weights' gradient.
CPU_ROWS, GPU_ROWS = 512, 4096
SYNCHRONOUS_DEVICES = ("cpu",)  # devices where the number of real tokens is known without waiting
_compiled = cache(lambda: torch.compile(hidden_loss, dynamic=True))  # only one, since it caches its graphs


def batch_loss(
    model: Transformer, batch: Batch, smoothing: float, *, compiled: bool = False
) -> tuple[Float[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """`losses.label_smoothed_loss` of a batch, the number of its real target tokens, and how many are right.

    On a CPU, only positions with a target are projected to the vocabulary. On a GPU, counting them would need
    a synchronisation. `compiled` compiles what follows the decoder.
    """
    src_mask, real = padding_mask(batch.src, model.config.pad_id), batch.tgt_out != model.config.pad_id
    hidden = model.decode(batch.tgt_in, model.encode(batch.src, src_mask), src_mask)
    if hidden.device.type in SYNCHRONOUS_DEVICES:
        hidden, targets = hidden[real], batch.tgt_out[real]
    else:
        hidden, targets = hidden.flatten(0, 1), batch.tgt_out.flatten()
    loss, right = (_compiled() if compiled else hidden_loss)(model, hidden, targets, smoothing)
    return loss, real.sum(), right


def hidden_loss(model: Transformer, hidden: Hidden, targets: Targets, smoothing: float = 0.1) -> Loss:
    """`losses.label_smoothed_loss` of the decoder's output, and how many tokens are right.

    Computed in parts where possible: not if the output layer has been modified, not while being compiled, and
    not in float16, where small gradients would become zero before they are scaled.
    """
    pad_id = model.config.pad_id
    is_product = is_plain(model.output) and model.output.bias is None
    if is_product and not torch.compiler.is_compiling() and _product_dtype(hidden) != torch.float16:
        return projected_loss(hidden, model.output.weight, targets, pad_id=pad_id, smoothing=smoothing)
    logits, real = model.output(hidden), targets != pad_id
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    right = ((logits.argmax(-1) == targets) & real).sum()
    return -(_expected_score(log_p, targets, pad_id, smoothing) * real).sum(), right


def _product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of products with x: its own or, except for float64, that of `torch.autocast`."""
    device = x.device.type
    is_cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_cast and x.dtype != torch.float64 else x.dtype


def projected_loss(
    hidden: Hidden, weight: Weight, targets: Targets, *, pad_id: int, smoothing: float = 0.1
) -> Loss:
    """`losses.label_smoothed_loss` of ``hidden @ weight.T``, some tokens at a time, and how many are right.

    ``∂L / ∂hidden = (p − q) W,  ∂L / ∂W = (p − q)ᵀ hidden``

    The incoming gradient is only a factor, so each part's share of both gradients is computed immediately and
    its logits are freed (Hsu et al. 2024, https://arxiv.org/abs/2410.10989). In a base-model step on 25,000
    tokens they would take most of the memory; a small model's step on a CPU gets faster, as a part stays in
    the cache. A pitfall: the forward pass does the work of the backward pass, except under `torch.no_grad`.
    """
    if not torch.is_grad_enabled():  # inside the Function, grad mode is always off
        hidden, weight = hidden.detach(), weight.detach()
    return _ProjectedLoss.apply(hidden, weight, targets, pad_id, smoothing, _product_dtype(hidden))


class _ProjectedLoss(torch.autograd.Function):
    """The summed loss and the number of right tokens; `backward` only scales gradients found by `forward`."""

    @staticmethod
    def forward(ctx, hidden, weight, targets, pad_id, smoothing, dtype):
        wide = torch.promote_types(dtype, torch.float32)
        loss, right = hidden.new_zeros((), dtype=wide), targets.new_zeros(())
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        is_learning = any(ctx.needs_input_grad)
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(dtype)
            rows = CPU_ROWS if hidden.device.type == "cpu" else GPU_ROWS
            for start in range(0, len(hidden), rows):
                part = slice(start, start + rows)
                x = hidden[part].to(dtype)
                added, hits, p = _loss_of(linear(x, matrix).to(wide), targets[part], pad_id, smoothing)
                loss += added
                right += hits
                if is_learning:
                    gradient = _logit_gradient(p, targets[part], pad_id, smoothing).to(dtype)
                    grad_hidden[part] = linear(gradient, matrix.T)
                    _add_product(grad_weight, gradient, x)
                    del gradient  # before the next part makes its own
                del p
        if is_learning:
            ctx.save_for_backward(grad_hidden, grad_weight)
        return loss, right

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, _):
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * gradient, grad_weight * gradient, None, None, None, None


def _loss_of(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss, how many tokens are right, and p, which overwrites the logits; padding gives zeros.

    With scores s, the logits minus the largest, ``log p = s − log Σ exp s``; and as q adds up to one,
    ``−Σ q log p = log Σ exp s − Σ q s``. So each exponential is computed once, and nothing is written twice.
    """
    largest, which = logits.max(-1, keepdim=True)
    real = targets != pad_id
    right = ((which.squeeze(-1) == targets) & real).sum()
    scores = logits.sub_(largest)
    expected = _expected_score(scores, targets, pad_id, smoothing)
    p = scores.exp_()
    total = p.sum(-1, keepdim=True)
    loss = (total.log().squeeze(-1) - expected) * real
    return loss.sum(), right, p.div_(total.masked_fill_(~real[:, None], torch.inf))


def _expected_score(scores: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Tensor:
    """``Σ_c q_t(c) s_t(c)`` for each token t."""
    # Like `gather`, whose gradient a compiler would store as a matrix of its own.
    right = (smoothing - 1) * F.nll_loss(scores, targets, reduction="none")
    if not smoothing:
        return right
    return right + smoothing / (scores.size(-1) - 1) * (scores.sum(-1) - scores[:, pad_id])


def _logit_gradient(p: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Tensor:
    """p − q, written over p; zero for padding."""
    real = (targets != pad_id)[:, None].to(p.dtype)
    share = smoothing / (p.size(-1) - 1) * real
    p.sub_(share)
    p[:, pad_id] += share[:, 0]
    return p.scatter_add_(-1, targets[:, None], (smoothing - 1) * real)


def _add_product(total: Tensor, gradient: Tensor, x: Tensor) -> None:
    """Add ``gradientᵀ x`` to `total`, where possible without storing the product."""
    if is_slow(x, total):
        total += weight_gradient(gradient, x)
    elif gradient.dtype == total.dtype:
        torch.addmm(total, gradient.T, x, out=total)
    else:
        total += gradient.T @ x
