"""The optimiser (§5.3), and gradients that don't get longer than they may."""

import torch
from torch import nn

from transformer_lessons import expect
from transformer_lessons.trainer.sharding import whole


def adamw(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """Adam with the paper's β₁ = 0.9, β₂ = 0.98 and ε = 1e-9 (§5.3), and decoupled weight decay.

    ``θ ← θ − lr · (m̂ / (√v̂ + ε) + weight_decay · θ)`` (Loshchilov and Hutter 2019), with a rate of 0 until a
    schedule sets it. Where torch can, one pass over weights and moments does what the formula written out does in
    a dozen. On two CPU cores (d_model 256, 3 + 3 layers, 8,000 words) an update takes a third to a fifth of the
    time, a whole step of 1,024 target tokens 5% less, one of 128 a fifth less.

    A pitfall: it holds on to the model's parameters, so a model must not be moved afterwards.

    Raises:
        ValueError: for what is no module or has no parameters, or a weight_decay that is no number of at least 0.
    """
    expect.kind(nn.Module, model=model)
    expect.number(weight_decay=weight_decay)
    parameters = list(model.parameters())
    if not parameters:
        raise ValueError(f"model: expected one with parameters, got {type(model).__name__} without")
    fused = parameters[0].device.type in ("cpu", "cuda", "mps")
    return torch.optim.AdamW(
        parameters, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay, fused=fused
    )


def clip_gradients(model: nn.Module, largest_norm: float | None) -> float:
    """Make the gradients, if they are longer together, as long as they may be; returns how long they were.

    ``g · min(1, largest_norm / (‖g‖ + 1e-6))``; None is no limit. `torch.nn.utils.clip_grad_norm_` does the same
    to a whole model; of shares, torch 2.9 adds the 1e-6 to the norm of each.

    A pitfall: scaled gradients, as float16 needs them, must be unscaled first.

    Raises:
        ValueError: for what is no module, or a largest_norm that is no number of at least 0.
    """
    expect.kind(nn.Module, model=model)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = whole(nn.utils.get_total_norm(gradients))
    if largest_norm is not None:
        expect.number(largest_norm=largest_norm)
        nn.utils.clip_grads_with_norm_(model.parameters(), largest_norm, norm)
    return float(norm)
