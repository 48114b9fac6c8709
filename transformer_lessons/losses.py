"""The training loss (§5.4)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons import expect

# Rows of logits that `projected_loss` has at one time: with fewer, products get small; with more, caches do.
PART = 512


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
    expect.floats(logits=logits)
    if not logits.dim() or not logits.size(-1):
        raise ValueError(f"logits: expected a last axis of one class or more, got {tuple(logits.shape)}")
    _check(targets, pad_id, logits.size(-1), logits=logits)
    expect.probability(smoothing=smoothing)
    real = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    return _SmoothedCrossEntropy.apply(logits, targets.long(), real, pad_id, smoothing), real.sum()


def projected_loss(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, " tokens"],
    *,
    pad_id: int | None,
    smoothing: float = 0.1,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """`label_smoothed_loss` of ``hidden @ weight.T``, of which only a part is ever there.

    ``∂L / ∂hidden = (p − q) W,  ∂L / ∂W = (p − q)ᵀ hidden``

    The logits of a large vocabulary are as large as several layers, and are needed for two sums only. So they are
    computed for some rows at a time. As nothing but a factor will come from above, these rows' part of both
    gradients is computed at once, and their logits are forgotten (as by Hsu et al. 2024,
    https://arxiv.org/abs/2410.10989). In a step of the base model on 25,000 tokens they would take most of the
    memory; and a small model's step on a CPU, in whose cache a part stays, gets shorter.

    A pitfall: the work of the backward pass is done in the forward pass, for nothing if none follows. Under
    `torch.no_grad` it is left out.

    Args:
        hidden: the vectors to project; not in float16 (nor under its autocast), in which small gradients would be
            zero before a factor could save them.
        weight: of the projection. The parts of its gradient are summed in float32 at least.
        targets, pad_id, smoothing: as for `label_smoothed_loss`.

    Returns:
        The sum over the real tokens, in nats; their number; and for how many of them the largest logit is right.

    Raises:
        ValueError: as `label_smoothed_loss`, or for vectors and weights that do not fit each other.
    """
    expect.floats("tokens", "d_model", hidden=hidden)
    expect.floats("vocab", "d_model", weight=weight)
    expect.width(hidden, weight, name="hidden", same_dtype=True)
    dtype = expect.computed_in(hidden)
    if dtype == torch.float16:
        raise ValueError(f"hidden: expected products in float32, float64 or bfloat16, got {dtype}")
    if not len(weight):
        raise ValueError(f"weight: expected a first axis of one class or more, got {tuple(weight.shape)}")
    _check(targets, pad_id, len(weight), hidden=hidden)
    expect.probability(smoothing=smoothing)
    real = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    if not torch.is_grad_enabled():  # which the function itself could not ask
        hidden, weight = hidden.detach(), weight.detach()
    loss, right = _ProjectedLoss.apply(hidden, weight, targets.long(), real, pad_id, smoothing, dtype)
    return loss, real.sum(), right


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The sum, and ``∂L / ∂logits = p − q`` for its gradient.

    Autograd would add that up from three tensors as large as the logits. One saves a tenth of a small model's
    step, and with a large vocabulary it is most of the memory of a step.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, real: Tensor, pad_id: int | None, smoothing: float):
        log_p = logits.to(_at_least_float32(logits.dtype)).log_softmax(-1)
        ctx.save_for_backward(log_p, targets, real)
        ctx.dtype, ctx.pad_id, ctx.smoothing = logits.dtype, pad_id, smoothing
        return -_expected(log_p, targets, pad_id, smoothing).masked_fill(~real, 0.0).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        log_p, targets, real = ctx.saved_tensors
        difference = _difference(log_p.exp(), targets, ctx.pad_id, ctx.smoothing)
        difference.mul_(gradient * real[..., None])
        return difference.to(ctx.dtype), None, None, None, None


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _expected(scores: Tensor, targets: Tensor, pad_id: int | None, smoothing: float) -> Tensor:
    """``Σ_c q_t(c) s_t(c)`` of each token t."""
    of_right = (1 - smoothing) * scores.gather(-1, targets[..., None]).squeeze(-1)
    if not smoothing:
        return of_right
    # Slices instead of a difference: a padding score of −inf stays out altogether.
    slices = [scores] if pad_id is None else [scores[..., :pad_id], scores[..., pad_id + 1 :]]
    return of_right + _share(scores, pad_id, smoothing) * sum(part.sum(-1) for part in slices)


def _difference(p: Tensor, targets: Tensor, pad_id: int | None, smoothing: float) -> Tensor:
    """p − q, in the place of p."""
    share = _share(p, pad_id, smoothing)
    p.sub_(share)
    if pad_id is not None:
        p[..., pad_id] += share
    right = torch.full_like(targets[..., None], smoothing - 1, dtype=p.dtype)
    return p.scatter_add_(-1, targets[..., None], right)


def _share(p: Tensor, pad_id: int | None, smoothing: float) -> float:
    """What q gives to each class but the padding."""
    classes = p.size(-1) if pad_id is None else p.size(-1) - 1
    return smoothing / max(classes, 1)


class _ProjectedLoss(torch.autograd.Function):
    """The sum and the right ones; the gradients, for a loss whose own gradient is one, wait for their factor."""

    @staticmethod
    def forward(
        ctx,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        real: Tensor,
        pad_id: int | None,
        smoothing: float,
        dtype: torch.dtype,
    ):
        wide = _at_least_float32(dtype)
        loss, right = hidden.new_zeros((), dtype=wide), targets.new_zeros(())
        needs_hidden, needs_weight, *_ = ctx.needs_input_grad
        of_hidden = torch.empty_like(hidden) if needs_hidden else None
        of_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.to(dtype)
            for start in range(0, len(hidden), PART):
                part = slice(start, start + PART)
                is_padding = ~real[part, None]
                # Zeros for padding: then its logits are harmless, and add nothing to the matrix's gradient.
                x = hidden[part].to(dtype).masked_fill(is_padding, 0.0)
                added, hits, p = _of_part(x @ matrix.T, targets[part], real[part], pad_id, smoothing)
                loss += added
                right += hits
                if not (needs_hidden or needs_weight):
                    continue
                difference = _difference(p, targets[part], pad_id, smoothing).to(dtype)
                if needs_hidden:
                    of_hidden[part] = (difference @ matrix).masked_fill_(is_padding, 0.0)
                if needs_weight:
                    _add_product(of_weight, difference.T, x)
                del p, difference  # before there are those of the next part
        ctx.save_for_backward(of_hidden, of_weight)
        return loss, right

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor, _):
        scaled = [None if saved is None else saved * gradient for saved in ctx.saved_tensors]
        return *scaled, None, None, None, None, None


def _of_part(
    logits: Tensor, targets: Tensor, real: Tensor, pad_id: int | None, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum, the right ones, and p, which in float32 takes the place of the logits.

    With scores s, which are the logits less the largest, ``log p = s − log Σ exp s``; and as q adds up to one,
    ``−Σ q log p = log Σ exp s − Σ q s``. So each exponential is taken once, and nothing is written twice.
    """
    largest, which = logits.max(-1, keepdim=True)
    right = ((which.squeeze(-1) == targets) & real).sum()
    scores = logits.to(_at_least_float32(logits.dtype)).sub_(largest)
    expected = _expected(scores, targets, pad_id, smoothing)
    p = scores.exp_()
    total = p.sum(-1, keepdim=True)
    loss = total.log().squeeze(-1) - expected
    return loss.masked_fill(~real, 0.0).sum(), right, p.div_(total)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """``total += a @ b``, if the types allow it without a matrix for the product."""
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, out=total)
    else:
        total += a @ b


def _check(targets: Tensor, pad_id: int | None, vocab_size: int, **predicted: Tensor) -> None:
    """Refuse targets or a padding that do not fit the (one, named) tensor that has a row for each of them."""
    ((name, rows),) = predicted.items()
    expect.kind(Tensor, targets=targets)
    if rows.shape[:-1] != targets.shape:
        raise ValueError(f"targets: expected shape {tuple(rows.shape[:-1])}, got {tuple(targets.shape)}")
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"targets: expected int64 or int32, got {targets.dtype}")
    expect.same_device(rows, name, targets=targets)
    if pad_id is not None and (type(pad_id) is not int or not 0 <= pad_id < vocab_size):
        raise ValueError(f"pad_id: expected an integer, 0 to {vocab_size - 1}, or None, got {pad_id!r}")
    expect.below(vocab_size, targets=targets)
