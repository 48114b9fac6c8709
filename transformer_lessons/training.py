"""Training (§5): one step, and a loop that can be interrupted and resumed.

A run is a folder (`checkpoints` lists its files). A batch is a function of the seed and the step; weights,
optimiser and random state are in the checkpoint: a resumed run ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads.
"""

import json
import math
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lessons.checkpoints import replacing
from transformer_lessons.data.batches import Batch, Batches
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.schedule import warmup_cosine


@dataclass(frozen=True)
class TrainingConfig:
    """How to train; the defaults are those of the number-words model.

    Attributes:
        steps: optimiser steps in all; the schedule ends there.
        batch_size: sentence pairs in a step.
        training_pairs: size of the training set.
        peak_learning_rate: the learning rate after the warm-up.
        warmup_steps: steps until then, at most a third of `steps`.
        weight_decay: AdamW's.
        smoothing: ε of label smoothing.
        clip_norm: largest norm of the gradient of all parameters together.
        checkpoint_every: steps between checkpoints.
        seed: of initialisation, data and dropout.

    Raises:
        ValueError: for counts below 1 and rates that are negative (smoothing: or not below 1).
    """

    steps: int = 250
    batch_size: int = 64
    training_pairs: int = 20_000
    peak_learning_rate: float = 1.5e-3
    warmup_steps: int = 80
    weight_decay: float = 0.01
    smoothing: float = 0.1
    clip_norm: float = 1.0
    checkpoint_every: int = 50
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch_size", "training_pairs", "checkpoint_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}: expected an integer, 1 or more, got {value!r}")
        for name in ("peak_learning_rate", "clip_norm", "weight_decay", "smoothing", "warmup_steps", "seed"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a number, 0 or more, got {value!r}")
        if self.smoothing >= 1:
            raise ValueError(f"smoothing: expected below 1, got {self.smoothing!r}")

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 1."""
        warmup = min(self.warmup_steps, self.steps // 3)
        # Zero comes one step after the last, or the last would change nothing.
        return warmup_cosine(step, self.peak_learning_rate, warmup, self.steps + 1)


def batch_loss(
    model: Transformer, batch: Batch, smoothing: float
) -> tuple[Float[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """The smoothed loss of a batch, summed; the number of real target tokens; how many of them were right.

    Only real target positions are projected to the vocabulary: padding has nothing to predict.
    """
    real = batch.tgt_out != model.config.pad_id
    targets = batch.tgt_out[real]
    logits = model.project(model.hidden(batch.src, batch.tgt_in)[real])
    loss, count = label_smoothed_loss(logits, targets, pad_id=model.config.pad_id, smoothing=smoothing)
    return loss, count, (logits.argmax(-1) == targets).sum()


class Trainer:
    """A model in training: the optimiser, the step it is at, and how to save and restore all of it.

    Args:
        model: what to train, on the device to train on.
        batches: the data.
        config: how to train.
        directory: where the checkpoint and ``metrics.jsonl`` go; None keeps nothing.
    """

    def __init__(
        self, model: Transformer, batches: Batches, config: TrainingConfig, directory: Path | None = None
    ):
        self.model, self.batches, self.config, self.directory = model, batches, config, directory
        # β₂ and ε are the paper's (§5.3); decoupled weight decay came later (Loshchilov and Hutter 2019).
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=config.weight_decay
        )
        self.step = 0
        self.history: list[dict[str, int | float]] = []

    def train_step(self) -> dict[str, int | float]:
        """One optimiser step; returns what ``metrics.jsonl`` records of it.

        Raises:
            FloatingPointError: if the loss is no longer finite; the weights are then still those before.
        """
        started = time.perf_counter()
        self.model.train()
        device = next(self.model.parameters()).device
        rate = self.config.learning_rate(self.step + 1)
        loss, count, right = batch_loss(self.model, self.batches[self.step].to(device), self.config.smoothing)
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss became {loss.item()} at step {self.step + 1}: train more gently"
            )
        self.optimizer.zero_grad()
        (loss / count).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        tokens = int(count)
        return {
            "step": self.step,
            "loss": loss.item() / tokens,
            "accuracy": int(right) / tokens,
            "learning_rate": rate,
            "gradient_norm": float(norm),
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def run(self, *, progress: bool = True) -> bool:
        """Train to the last step; True if it got there, False if Ctrl-C (or SIGTERM) came first.

        Either way the checkpoint holds the last step done. A second Ctrl-C stops at once.
        """
        # A log file gets a line every ten seconds, a terminal a live bar.
        pause = 0.1 if sys.stderr.isatty() else 10.0
        bar = tqdm(
            total=self.config.steps, initial=self.step, unit="step", disable=not progress, mininterval=pause
        )
        with bar, stop_signal() as stop, self._metrics_file() as metrics:
            while self.step < self.config.steps and not stop.is_set():
                record = self.train_step()
                self.history.append(record)
                if metrics:
                    metrics.write(json.dumps(record) + "\n")
                if self.step % self.config.checkpoint_every == 0:
                    self.save()
                bar.set_postfix_str(
                    f"loss {record['loss']:.3f}, accuracy {record['accuracy']:.1%}, "
                    f"{record['tokens_per_second']:,.0f} tokens/s",
                    refresh=False,
                )
                bar.update()
        self.save()
        return self.step == self.config.steps

    @contextmanager
    def _metrics_file(self):
        if self.directory is None:
            yield None
            return
        path = self.directory / "metrics.jsonl"
        # Steps after the last checkpoint will be done, and recorded, again.
        with replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in self.history))
        with path.open("a", buffering=1) as file:
            yield file

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        if self.directory is None:
            return
        content = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "cpu_random_state": torch.get_rng_state(),
            "cuda_random_states": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        with replacing(self.directory / "checkpoint.pt") as temporary:
            torch.save(content, temporary)

    def restore(self) -> None:
        """Go on where the checkpoint in `directory` was written.

        Raises:
            ValueError: if there is none, or it is of another model.
        """
        path = self.directory / "checkpoint.pt"
        if not path.is_file():
            raise ValueError(f"resume: expected a checkpoint, found no {path}")
        content = torch.load(path, map_location="cpu", weights_only=True)
        try:
            self.model.load_state_dict(content["model"])
        except RuntimeError:
            raise ValueError(f"resume: expected a checkpoint of this model, {path} is of another") from None
        self.optimizer.load_state_dict(content["optimizer"])
        self.step, self.history = content["step"], content["history"]
        torch.set_rng_state(content["cpu_random_state"])
        if torch.cuda.is_available() and content["cuda_random_states"]:
            torch.cuda.set_rng_state_all(content["cuda_random_states"])


@contextmanager
def stop_signal():
    """Yields an event that the first Ctrl-C or SIGTERM sets, so that a step is never torn; the second raises."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event  # only the main thread may handle signals
        return

    def on_signal(number, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
