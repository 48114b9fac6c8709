"""The training loss (§5.4)."""

from jaxtyping import Float, Int
from torch import Tensor


def label_smoothed_loss(
    logits: Float[Tensor, "*batch vocab"],
    targets: Int[Tensor, "*batch"],
    *,
    pad_id: int,
    smoothing: float = 0.1,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Cross-entropy against a softened target, in nats, summed over the real tokens, and their number (§5.4).

    ``L = Σ_t −Σ_c q_t(c) log p_t(c)``, with p = softmax(logits) and
    ``q_t(c) = (1 − ε) [c = y_t] + ε / (V − 1) [c ≠ pad]``

    Padding can never be a right answer, so it gets none of the ε. A pitfall: the sum and the count are returned,
    not their ratio: the mean over unequal batches is not the mean of their means.

    Args:
        logits: scores of the V tokens.
        targets: ids to predict; positions holding `pad_id` are not counted.
        smoothing: ε, 0.1 in the paper.
    """
    log_p = logits.log_softmax(dim=-1)
    right = log_p.gather(-1, targets[..., None]).squeeze(-1)
    others = log_p.sum(dim=-1) - log_p[..., pad_id]
    share = smoothing / (logits.size(-1) - 1)  # for each token except padding
    loss = -(1 - smoothing) * right - share * others
    real = targets != pad_id
    return loss.masked_fill(~real, 0.0).sum(), real.sum()
