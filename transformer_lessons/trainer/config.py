"""How to train, in one frozen record."""

import math
from dataclasses import dataclass

import torch

from transformer_lessons import expect
from transformer_lessons.schedule import warmup_inverse_sqrt

SCHEDULES = ("cosine", "inverse_sqrt")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of the number-words model.

    Attributes:
        steps: optimiser steps in all; the schedule ends there.
        batch_size: sentence pairs in a step.
        training_pairs: size of the training set.
        peak_learning_rate: the learning rate after the warm-up.
        warmup_steps: steps until then; before a cosine, at most a third of `steps`.
        weight_decay: AdamW's.
        smoothing: ε of label smoothing.
        clip_norm: largest norm of the gradient of all parameters together; None for any, as in the paper, which
            does not clip.
        checkpoint_every: steps between checkpoints.
        seed: of initialisation, data and dropout.
        tokens: real tokens of a step, source and target, in batches of like lengths (`TokenBatches`); None makes
            batches of `batch_size` pairs.
        precision: "float32", or what matrix products are computed in while weights stay float32: "bfloat16"
            (GPUs of compute capability 8.0 on), or "float16" with scaled losses (older ones, such as a T4);
            "auto" takes what the device is fast at.
        compile: let `torch.compile` fuse the step; costs a minute at the start.
        accumulate: parts that a batch is computed in, one after another, when the whole does not fit in memory.
        recompute: keep only the input of each encoder and decoder layer, and compute the layer again on the way
            back (activation checkpointing, Chen et al. 2016). Buys memory: one vector a token and layer, not
            a dozen. Costs one more forward pass of the layers, about a third more work. Changes no result.
        packed_length: put several of these `tokens`' sentences into a row, of this many tokens a side
            (`PackedBatches`), so that hardly any padding is computed; None gives each a row of its own. No
            sentence may be longer.
        shard: where several processes train, let each hold only its share of weights, gradients and moments, for
            models beyond one card (`sharding`). Costs an exchange of all weights twice, and of all gradients, for
            each of the parts. Changes no result. The checkpoint is then a folder.
        snapshots: how many checkpoints' weights to keep, the latest, for `training.average_checkpoints`.
        schedule: how the rate falls after the warm-up: "cosine", to nothing at the last step, or
            "inverse_sqrt", the paper's (§5.3, equation 3), which knows no last step. The paper's own peak
            is ``(d_model · warmup_steps)^(−1/2)``.
        plain: compute as the chapters do, without `fast.accelerate` and its kernels.

    A pitfall: `accumulate` must not change what is learned, only how much memory it takes; so the parts' losses
    are summed and divided by the tokens of the whole batch, not averaged part by part.

    Raises:
        ValueError: for counts that are no integers or too small, and rates that are negative (smoothing: or not
            below 1), an unknown precision or schedule, "inverse_sqrt" without a warm-up, or a packed_length
            without tokens.
    """

    steps: int = 250
    batch_size: int = 64
    training_pairs: int = 20_000
    peak_learning_rate: float = 1.5e-3
    warmup_steps: int = 80
    weight_decay: float = 0.01
    smoothing: float = 0.1
    clip_norm: float | None = 1.0
    checkpoint_every: int = 50
    seed: int = 0
    tokens: int | None = None
    precision: str = "float32"
    compile: bool = False
    accumulate: int = 1
    snapshots: int = 0
    recompute: bool = False
    packed_length: int | None = None
    shard: bool = False
    schedule: str = "cosine"
    plain: bool = False

    def __post_init__(self):
        counts = ("steps", "batch_size", "training_pairs", "checkpoint_every", "accumulate")
        expect.sizes(**{name: getattr(self, name) for name in counts})
        expect.lengths(snapshots=self.snapshots, warmup_steps=self.warmup_steps, seed=self.seed)
        if self.tokens is not None:
            expect.sizes(tokens=self.tokens)
        if self.packed_length is not None:
            expect.sizes(packed_length=self.packed_length)
            if self.tokens is None:
                raise ValueError(f"packed_length: expected None without tokens, got {self.packed_length}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: expected one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if self.schedule == "inverse_sqrt":
            expect.sizes(warmup_steps=self.warmup_steps)
        for name in ("compile", "recompute", "shard", "plain"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        if self.tokens is None and self.accumulate > self.batch_size:
            raise ValueError(
                f"accumulate: expected at most batch_size = {self.batch_size}, got {self.accumulate}"
            )
        expect.number(peak_learning_rate=self.peak_learning_rate, weight_decay=self.weight_decay)
        if self.clip_norm is not None:
            expect.number(clip_norm=self.clip_norm)
        expect.probability(smoothing=self.smoothing)

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 1.

        Raises:
            ValueError: for a step below 0.
        """
        if self.schedule == "inverse_sqrt":
            # At the end of the warm-up, the factor is 1, whatever the width.
            factor = warmup_inverse_sqrt(step, 1, self.warmup_steps) * self.warmup_steps**0.5
            return self.peak_learning_rate * factor
        warmup = min(self.warmup_steps, self.steps // 3)
        # Zero comes one step after the last, or the last would change nothing.
        return warmup_cosine(step, self.peak_learning_rate, warmup, self.steps + 1)


def chosen_precision(name: str, device: torch.device) -> torch.dtype:
    """What matrix products are computed in: by name, or with "auto" what the device is fast at.

    bfloat16 from compute capability 8.0 on, float16 below (a T4), float32 where there is no such GPU. A pitfall:
    `torch.cuda.is_bf16_supported` also says yes to a T4, which emulates it, slowly.

    Raises:
        ValueError: for another name, or what is no device.
    """
    expect.kind(torch.device, device=device)
    if name not in PRECISIONS:
        raise ValueError(f"name: expected one of {', '.join(PRECISIONS)}, got {name!r}")
    if name == "auto" and device.type == "cuda":
        name = "bfloat16" if torch.cuda.get_device_capability(device) >= (8, 0) else "float16"
    return torch.float32 if name == "auto" else getattr(torch, name)


def warmup_cosine(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Linear warm-up to `peak`, then half a cosine down to zero at `total_steps` (Loshchilov and Hutter 2017).

    ``lr = peak · step / warmup_steps`` up to there, then
    ``peak · (1 + cos(π · (step − warmup_steps) / (total_steps − warmup_steps))) / 2``

    A pitfall: it must know the end; a run that is to be prolonged later wants `warmup_inverse_sqrt`.
    """
    if step < warmup_steps:
        return peak * max(step, 1) / warmup_steps
    progress = min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)
    return peak * (1 + math.cos(math.pi * progress)) / 2
