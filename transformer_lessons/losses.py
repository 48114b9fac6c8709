"""The training loss (§5.4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
        ValueError: for shapes that do not fit, or a smoothing outside [0, 1).
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"targets: expected shape {tuple(logits.shape[:-1])}, got {tuple(targets.shape)}")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing: expected 0 or more and below 1, got {smoothing}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p = wide.log_softmax(-1)
    right = log_p.gather(-1, targets[..., None]).squeeze(-1)
    if pad_id is None:
        others = log_p.mean(-1)
        real = torch.ones_like(targets, dtype=torch.bool)
    else:
        # Two slices instead of a difference: a padding logit of −inf stays out altogether.
        others = (log_p[..., :pad_id].sum(-1) + log_p[..., pad_id + 1 :].sum(-1)) / (log_p.size(-1) - 1)
        real = targets != pad_id
    loss = -(1 - smoothing) * right - smoothing * others if smoothing else -right
    return loss.masked_fill(~real, 0.0).sum(), real.sum()
