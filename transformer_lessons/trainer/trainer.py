"""Training (§5): one step, and a loop that can be interrupted and resumed.

A run is a folder (`checkpoints` lists its files). A batch is a function of the seed and the step; weights,
optimiser and random state are in the checkpoint: a resumed run ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import NoneType

import torch
from tqdm import tqdm

from transformer_lessons import expect
from transformer_lessons.data.batches import Batch, Batches, TokenBatches
from transformer_lessons.data.files import replacing
from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.fast import accelerate, plain
from transformer_lessons.fast.accumulation import split
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.fast.recompute import recompute
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import average_checkpoints, save_snapshot, snapshots
from transformer_lessons.trainer.config import TrainingConfig, chosen_precision
from transformer_lessons.trainer.interruption import stop_signal
from transformer_lessons.trainer.loss import BatchLoss
from transformer_lessons.trainer.optimizer import adamw, clip_gradients
from transformer_lessons.trainer.parallel import divided, share, synchronised
from transformer_lessons.trainer.prefetching import made_ahead
from transformer_lessons.trainer.resuming import load_checkpoint, save_checkpoint
from transformer_lessons.trainer.sharding import whole_weights

__all__ = ["Trainer", "TrainingConfig", "average_checkpoints", "batch_loss", "snapshots", "split"]


class Trainer:
    """A model in training: the optimiser, the step it is at, and how to save and restore all of it.

    A pitfall: the optimiser holds on to the model's parameters, so a model must not be moved afterwards.

    Args:
        model: what to train.
        batches: the data.
        config: how to train.
        directory: where the checkpoint and ``metrics.jsonl`` go; None keeps nothing.
        device: where to train; None is where the model is. A model to be sharded had better be on the CPU: it is
            moved and divided one layer at a time, so that no card has to hold all of it.

    Raises:
        ValueError: for arguments of other types.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Batches | TokenBatches,
        config: TrainingConfig,
        directory: Path | None = None,
        *,
        device: torch.device | None = None,
    ):
        expect.kind(Transformer, model=model)
        expect.kind((Batches, TokenBatches), batches=batches)
        expect.kind(TrainingConfig, config=config)
        expect.kind((torch.device, NoneType), device=device)
        self.model, self.batches, self.config = model, batches, config
        (plain if config.plain else accelerate)(model)
        if config.recompute:
            recompute(model)
        self.directory = None if directory is None else expect.path(directory, "directory")
        device = device or next(model.parameters()).device
        self.parallel = self.loss = divided(
            BatchLoss(model, config.smoothing, plain=config.plain), device, in_shares=config.shard
        )
        self.device = next(model.parameters()).device
        self.optimizer = adamw(model, config.weight_decay)
        self.precision = chosen_precision(config.precision, self.device)
        # Small float16 gradients would become zero: the loss is scaled up, and the gradients down again.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        if config.compile:
            self.loss = torch.compile(self.loss, dynamic=True)
        self.step = 0
        self.history: list[dict[str, int | float | None]] = []
        self._made_ahead: Callable[[int], tuple] | None = None

    def train_step(self) -> dict[str, int | float | None]:
        """One optimiser step; returns what ``metrics.jsonl`` records of it.

        Raises:
            FloatingPointError: if the loss is no longer finite; the weights are then still those before.
            ValueError: for ids outside the model's vocabularies, on whatever device it is.
        """
        started = time.perf_counter()
        self.model.train()
        rate = self.config.learning_rate(self.step + 1)
        tokens, parts = (self._made_ahead or self._parts)(self.step)
        loss, right = self._backward(tokens, parts)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {self.step + 1}: train more gently")
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.model, self.config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        return {
            "step": self.step,
            "loss": loss / tokens,
            "accuracy": right / tokens,
            "learning_rate": rate,
            # A step whose float16 gradients overflowed is left out, and the next loss is scaled less.
            "gradient_norm": norm if math.isfinite(norm) else None,
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def _parts(self, step: int) -> tuple[int, list[Batch] | list[PackedBatch]]:
        """The tokens of a step's whole batch, and what this process computes of it, in parts.

        The ids are looked at while they are on the CPU, where that is free.
        """
        batch, config = self.batches[step], self.model.config
        expect.below(config.source_vocab_size, src=batch.src)
        expect.below(config.target_vocab_size, tgt_in=batch.tgt_in, tgt_out=batch.tgt_out)
        parts = split(share(batch), self.config.accumulate)
        if self.device.type == "cuda":  # which can then copy by itself, from memory that stays where it is
            with torch.cuda.device(self.device):
                parts = [type(part)(*(ids.pin_memory() for ids in part)) for part in parts]
        return int((batch.tgt_out != config.pad_id).sum()), parts

    def _backward(self, tokens: int, parts: list[Batch] | list[PackedBatch]) -> tuple[float, int]:
        """Gradients of the loss per token, part by part; loss and right tokens of the whole batch."""
        self.optimizer.zero_grad()
        sums = torch.zeros(2, dtype=torch.float64 if self.device.type != "mps" else None, device=self.device)
        for number, part in enumerate(parts, start=1):
            part = part.to(self.device, non_blocking=self.device.type == "cuda")
            with synchronised(self.parallel, number == len(parts)):
                with torch.autocast(
                    self.device.type, self.precision, enabled=self.precision != torch.float32
                ):
                    loss, _, right = self.loss(part)
                # Gradients are averaged over the processes, where a sum is wanted.
                self.scaler.scale(loss * (distributed.world_size() / tokens)).backward()
            sums += torch.stack([loss.detach(), right])
        loss, right = distributed.summed(sums).tolist()
        return loss, int(right)

    @contextmanager
    def _ahead(self):
        with made_ahead(self._parts, self.config.steps) as self._made_ahead:
            try:
                yield
            finally:
                self._made_ahead = None

    def run(self, *, progress: bool = True) -> bool:
        """Train to the last step; True if it got there, False if Ctrl-C (or SIGTERM) came first.

        Either way the checkpoint holds the last step done. A second Ctrl-C stops at once.
        """
        if distributed.rank():
            torch.manual_seed(self.config.seed + 1_000_003 * distributed.rank() + self.step)  # other dropout
        # A log file gets a line every ten seconds, a terminal a live bar.
        pause = 0.1 if sys.stderr.isatty() else 10.0
        bar = tqdm(
            total=self.config.steps,
            initial=self.step,
            unit="step",
            disable=not progress or distributed.rank() > 0,
            mininterval=pause,
        )
        with bar, stop_signal() as stop, self._ahead(), self._metrics_file() as metrics:
            while self.step < self.config.steps and not distributed.any_of(stop.is_set(), self.device):
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
        if self.directory is None or distributed.rank():
            yield None
            return
        path = self.directory / "metrics.jsonl"
        # Steps after the last checkpoint will be done, and recorded, again.
        with replacing(path) as temporary:
            temporary.write_text("".join(json.dumps(record) + "\n" for record in self.history))
        with path.open("a", buffering=1) as file:
            yield file

    def save(self) -> None:
        """Write the checkpoint, whole or not at all, and the weights alone if snapshots are kept.

        A pitfall: all processes must call it, although one of them writes most of it.
        """
        if self.directory is None:
            return
        if self.config.snapshots:
            weights = whole_weights(self.model)
            if not distributed.rank():
                save_snapshot(self.directory, self.step, weights, keep=self.config.snapshots)
        progress = {"step": self.step, "scaler": self.scaler.state_dict(), "history": self.history}
        save_checkpoint(self.directory, self.model, self.optimizer, progress, in_shares=self.config.shard)

    def restore(self) -> None:
        """Go on where the checkpoint in `directory` was written, in shares or whole.

        Raises:
            ValueError: if there is none, or it is of another model.
        """
        progress = load_checkpoint(self.directory, self.model, self.optimizer)
        self.scaler.load_state_dict(progress["scaler"])
        self.step, self.history = progress["step"], progress["history"]
