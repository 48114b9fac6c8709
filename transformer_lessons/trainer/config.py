"""Training settings, in one frozen record."""

import math
from dataclasses import dataclass, fields
from typing import get_args

import torch

from transformer_lessons.config import expect
from transformer_lessons.schedule import warmup_inverse_sqrt

PRECISIONS = ("auto", "float32", "bfloat16", "float16")
CHOICES = {"schedule": ("cosine", "inverse_sqrt"), "precision": PRECISIONS}
MAY_BE_ZERO = ("snapshots", "warmup_steps", "seed")


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a training run; the defaults are those for number words.

    `recompute` changes no result; `accumulate`, `shard` and `plain` none but by rounding and, with dropout,
    by what is dropped. A value of a wrong type or out of range, or two in conflict, raise a ValueError.
    """

    steps: int = 340  #: optimiser steps in all; the schedule ends there
    batch_size: int = 24  #: sentence pairs per step
    training_pairs: int = 20_000  #: size of the training set
    peak_learning_rate: float = 1.5e-3  #: after the warm-up; the paper's is (d_model · warmup_steps)^(−1/2)
    warmup_steps: int = 60  #: steps until then; before a cosine, at most a third of `steps`
    weight_decay: float = 0.01  #: AdamW's
    smoothing: float = 0.1  #: ε of label smoothing
    clip_norm: float | None = 1.0  #: largest norm of all gradients together; None: no limit, as in the paper
    checkpoint_every: int = 50  #: steps between checkpoints
    seed: int = 0  #: of initialisation, data and dropout
    tokens: int | None = None  #: instead of `batch_size`, real tokens per step, both sides (`TokenBatches`)
    #: dtype of matrix products: "float32", "bfloat16" (GPUs from compute capability 8.0 on), "float16" with a
    #: scaled loss (older ones, such as a T4), or "auto", what is fast on the device; weights stay float32
    precision: str = "float32"
    compile: bool = False  #: let `torch.compile` fuse each kind of layer; costs half a minute at the start
    accumulate: int = 1  #: parts into which a batch is split, computed one after another to save memory
    snapshots: int = 0  #: how many of the latest checkpoints' weights to keep, for `average_checkpoints`
    recompute: bool = False  #: save memory for a third more work: keep only layers' inputs (`fast.recompute`)
    shard: bool = False  #: let each of several processes hold a part of the model (`distributed.parallelise`)
    schedule: str = "cosine"  #: how the rate falls: to 0 at the end, or "inverse_sqrt", the paper's (§5.3)
    plain: bool = False  #: compute as the chapters do, without `fast.accelerate`

    def __post_init__(self):
        for field in fields(self):
            name, value, types = field.name, getattr(self, field.name), get_args(field.type) or (field.type,)
            least = 0 if float in types or name in MAY_BE_ZERO else 1
            fits = type(value) in types or (float in types and type(value) is int)
            expect(fits, name, types[0].__name__, value)
            if type(value) in (int, float):
                expect(least <= value < math.inf, name, f"{least} or more", value)
        for name, choices in CHOICES.items():
            expect(getattr(self, name) in choices, name, f"one of {', '.join(choices)}", getattr(self, name))
        expect(self.smoothing < 1, "smoothing", "below 1", self.smoothing)
        expect(self.seed < 2**32, "seed", f"below {2**32:,}", self.seed)
        fits = self.schedule == "cosine" or self.warmup_steps > 0
        expect(fits, "warmup_steps", "1 or more with inverse_sqrt", self.warmup_steps)

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 1: linear warm-up, then the paper's decay or half a cosine to 0.

        A pitfall: the cosine (Loshchilov and Hutter 2017) must know the end; "inverse_sqrt" can be prolonged.
        """
        if self.schedule == "inverse_sqrt":
            # The factor is 1 at the end of the warm-up.
            factor = warmup_inverse_sqrt(step, 1, self.warmup_steps) * self.warmup_steps**0.5
            return self.peak_learning_rate * factor
        warmup = min(self.warmup_steps, self.steps // 3)
        if step < warmup:
            return self.peak_learning_rate * step / warmup
        # Zero is reached one step after the last; otherwise the last would change nothing.
        progress = min((step - warmup) / (self.steps + 1 - warmup), 1.0)
        return self.peak_learning_rate * (1 + math.cos(math.pi * progress)) / 2


def resolve_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype of matrix products: by name, or with "auto" the one that is fast on the device.

    On CUDA, bfloat16 from compute capability 8.0 on and float16 below (a T4); elsewhere float32. A pitfall:
    `torch.cuda.is_bf16_supported` is also true for a T4, which emulates it, slowly.
    """
    if name == "auto" and device.type == "cuda":
        name = "bfloat16" if torch.cuda.get_device_capability(device) >= (8, 0) else "float16"
    return torch.float32 if name == "auto" else getattr(torch, name)
