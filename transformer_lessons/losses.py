"""The training loss (§5.4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons import expect


def label_smoothed_loss(
    logits: Float[Tensor, "*batch vocab"],
    targets: Int[Tensor, "*batch"],
    *,
    pad_id: int | None,
    smoothing: float = 0.1,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Cross-entropy against a softened target, summed over the real tokens (§5.4, label smoothing).

    ``L = Σ_t −Σ_c q_t(c) log p_t(c)``, with p = softmax(logits) and
    ``q_t(c) = (1 − ε) [c = y_t] + ε / (V − 1) [c ≠ pad]``

    The padding id can never be a right answer, so it gets none of the ε; with ``pad_id=None`` all V classes
    share it, which is `torch.nn.functional.cross_entropy`. A pitfall: the sum and the count are returned,
    not their ratio, because the mean of the means of unequal batches is not the mean (gradient accumulation,
    several GPUs).

    Args:
        logits: scores; computed with in float32 at least.
        targets: ids to predict; positions holding `pad_id` count for nothing.
        pad_id: the id of padding, or None if there is none.
        smoothing: ε, 0.1 in the paper.

    Returns:
        The sum over the real tokens, in nats, and their number.

    Raises:
        ValueError: for shapes, dtypes or devices that do not fit, a pad_id that is no class, a smoothing outside
            [0, 1), or (where it costs no synchronisation: not on a GPU, not in a compiled graph) targets that are
            no class.
    """
    _check(logits, targets, pad_id)
    expect.probability(smoothing=smoothing)
    real = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    return _SmoothedCrossEntropy.apply(logits, targets.long(), real, pad_id, smoothing), real.sum()


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The sum, and ``∂L / ∂logits = p − q`` for its gradient.

    Autograd would add that up from three tensors as large as the logits. One saves a tenth of a small model's
    step, and with a large vocabulary it is most of the memory of a step.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, real: Tensor, pad_id: int | None, smoothing: float):
        log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        ctx.save_for_backward(log_p, targets, real)
        ctx.dtype, ctx.pad_id, ctx.smoothing = logits.dtype, pad_id, smoothing
        loss = -(1 - smoothing) * log_p.gather(-1, targets[..., None]).squeeze(-1)
        if smoothing:
            # Slices instead of a difference: a padding logit of −inf stays out altogether.
            slices = [log_p] if pad_id is None else [log_p[..., :pad_id], log_p[..., pad_id + 1 :]]
            loss -= _share(log_p, pad_id, smoothing) * sum(part.sum(-1) for part in slices)
        return loss.masked_fill(~real, 0.0).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        log_p, targets, real = ctx.saved_tensors
        share = _share(log_p, ctx.pad_id, ctx.smoothing)
        difference = log_p.exp().sub_(share)
        if ctx.pad_id is not None:
            difference[..., ctx.pad_id] += share
        right = torch.full_like(targets[..., None], ctx.smoothing - 1, dtype=log_p.dtype)
        difference.scatter_add_(-1, targets[..., None], right)
        difference.mul_(gradient * real[..., None])
        return difference.to(ctx.dtype), None, None, None, None


def _share(log_p: Tensor, pad_id: int | None, smoothing: float) -> float:
    """What q gives to each class but the padding."""
    classes = log_p.size(-1) if pad_id is None else log_p.size(-1) - 1
    return smoothing / max(classes, 1)


def _check(logits: Tensor, targets: Tensor, pad_id: int | None) -> None:
    expect.floats(logits=logits)
    expect.kind(Tensor, targets=targets)
    if not logits.dim() or not logits.size(-1):
        raise ValueError(f"logits: expected a last axis of one class or more, got {tuple(logits.shape)}")
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"targets: expected shape {tuple(logits.shape[:-1])}, got {tuple(targets.shape)}")
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"targets: expected int64 or int32, got {targets.dtype}")
    expect.same_device(logits, "logits", targets=targets)
    vocab_size = logits.size(-1)
    if pad_id is not None and (type(pad_id) is not int or not 0 <= pad_id < vocab_size):
        raise ValueError(f"pad_id: expected an integer, 0 to {vocab_size - 1}, or None, got {pad_id!r}")
    expect.below(vocab_size, targets=targets)
