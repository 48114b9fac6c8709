"""The training loop (§5)."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer


def train(
    model: Transformer,
    batches: Sequence[tuple[Tensor, Tensor, Tensor]],
    learning_rate: Callable[[int], float],
    steps: int,
    *,
    smoothing: float = 0.1,
    weight_decay: float = 0.01,
    clip_norm: float = 1.0,
    precision: torch.dtype = torch.float32,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> list[float]:
    """Train for `steps` steps, a batch each, on the model's device; return their losses per token, in nats.

    Adam with the paper's β₁, β₂ and ε (§5.3); decoupled weight decay and clipped gradients are additions.

    A pitfall: the model predicts ``tgt_out``, which is ``tgt_in`` one token later; if they were equal, it would
    learn to copy.

    Args:
        batches: ``batches[i]`` is ``(src, tgt_in, tgt_out)``.
        learning_rate: the rate of a step, counted from 1.
        precision: dtype of matrix products; torch.bfloat16 on recent GPUs.
        progress: a wrapper around the steps, such as tqdm.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay)
    model.train()
    losses = []
    for step in progress(range(1, steps + 1)):
        src, tgt_in, tgt_out = (ids.to(device) for ids in batches[step - 1])
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            logits = model(src, tgt_in)
            loss, tokens = label_smoothed_loss(
                logits, tgt_out, pad_id=model.config.pad_id, smoothing=smoothing
            )
        optimizer.zero_grad()
        (loss / tokens).backward()
        clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        optimizer.step()
        losses.append((loss / tokens).item())
    return losses
