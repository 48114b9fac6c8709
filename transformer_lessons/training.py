"""Training (§5): one step, and a loop that can be interrupted and resumed.

A run is a folder (`checkpoints` lists its files). A batch is a function of the seed and the step; weights,
optimiser and random state are in the checkpoint: a resumed run ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads.
"""

import json
import math
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from transformer_lessons import distributed, expect
from transformer_lessons.checkpoints import average_checkpoints, snapshots
from transformer_lessons.data.batches import Batch, Batches, TokenBatches
from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.files import replacing
from transformer_lessons.interruption import stop_signal
from transformer_lessons.model import Transformer
from transformer_lessons.training_config import TrainingConfig, chosen_precision
from transformer_lessons.training_loss import BatchLoss, batch_loss, split

__all__ = ["Trainer", "TrainingConfig", "average_checkpoints", "batch_loss", "snapshots", "split"]


class Trainer:
    """A model in training: the optimiser, the step it is at, and how to save and restore all of it.

    A pitfall: the optimiser holds on to the model's parameters, so move the model to its device first.

    Args:
        model: what to train, on the device to train on.
        batches: the data.
        config: how to train.
        directory: where the checkpoint and ``metrics.jsonl`` go; None keeps nothing.

    Raises:
        ValueError: for arguments of other types.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Batches | TokenBatches,
        config: TrainingConfig,
        directory: Path | None = None,
    ):
        expect.kind(Transformer, model=model)
        expect.kind(Batches | TokenBatches, batches=batches)
        expect.kind(TrainingConfig, config=config)
        self.model, self.batches, self.config = model, batches, config
        model.recompute = config.recompute
        self.directory = None if directory is None else expect.path(directory, "directory")
        # β₂ and ε are the paper's (§5.3); decoupled weight decay came later (Loshchilov and Hutter 2019).
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=config.weight_decay
        )
        self.device = next(model.parameters()).device
        self.precision = chosen_precision(config.precision, self.device)
        # Small float16 gradients would become zero: the loss is scaled up, and the gradients down again.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.parallel = None
        self.loss = BatchLoss(model, config.smoothing)
        if distributed.world_size() > 1:
            self.loss = self.parallel = DistributedDataParallel(self.loss)
        if config.compile:
            self.loss = torch.compile(self.loss, dynamic=True)
        self.step = 0
        self.history: list[dict[str, int | float | None]] = []

    def train_step(self) -> dict[str, int | float | None]:
        """One optimiser step; returns what ``metrics.jsonl`` records of it.

        Raises:
            FloatingPointError: if the loss is no longer finite; the weights are then still those before.
            ValueError: for ids outside the model's vocabularies, on whatever device it is.
        """
        started = time.perf_counter()
        self.model.train()
        rate = self.config.learning_rate(self.step + 1)
        loss, tokens, right = self._backward(self._batch())
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss became {loss} at step {self.step + 1}: train more gently")
        self.scaler.unscale_(self.optimizer)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.largest_norm))
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

    def _batch(self) -> Batch | PackedBatch:
        """The batch of this step, its ids looked at while they are on the CPU, where that is free."""
        batch, config = self.batches[self.step], self.model.config
        expect.below(config.source_vocab_size, src=batch.src)
        expect.below(config.target_vocab_size, tgt_in=batch.tgt_in, tgt_out=batch.tgt_out)
        for places in batch.places:
            expect.below(config.max_length, ", below the model's max_length", positions=places.positions)
        return batch

    def _backward(self, batch: Batch | PackedBatch) -> tuple[float, int, int]:
        """Gradients of the loss per token, part by part; loss, tokens and right ones of the whole batch."""
        tokens = int((batch.tgt_out != self.model.config.pad_id).sum())
        self.optimizer.zero_grad()
        parts = split(self._share(batch), self.config.accumulate)
        sums = torch.zeros(2, dtype=torch.float64 if self.device.type != "mps" else None, device=self.device)
        for number, part in enumerate(parts, start=1):
            with self._synchronised(number == len(parts)):
                with torch.autocast(
                    self.device.type, self.precision, enabled=self.precision != torch.float32
                ):
                    loss, _, right = self.loss(part.to(self.device))
                # Gradients are averaged over the processes, where a sum is wanted.
                self.scaler.scale(loss * (distributed.world_size() / tokens)).backward()
            sums += torch.stack([loss.detach(), right])
        loss, right = distributed.summed(sums).tolist()
        return loss, tokens, int(right)

    def _share(self, batch: Batch | PackedBatch) -> Batch | PackedBatch:
        """What this process computes of a batch. All of them know all of it, and so how many tokens it has."""
        processes = distributed.world_size()
        shares = split(batch, processes)
        if len(shares) < processes:
            raise ValueError(f"batch: expected {processes} rows or more, one a process, got {len(batch.src)}")
        return shares[distributed.rank()]

    def _synchronised(self, is_last: bool):
        """Gradients cross between processes once a step, with those of the last part."""
        return nullcontext() if is_last or self.parallel is None else self.parallel.no_sync()

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
        with bar, stop_signal() as stop, self._metrics_file() as metrics:
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
        """Write the checkpoint, whole or not at all, and the weights alone if snapshots are kept."""
        if self.directory is None or distributed.rank():
            return
        if self.config.snapshots:
            with replacing(self.directory / f"weights-{self.step:06}.pt") as temporary:
                torch.save(self.model.state_dict(), temporary)
            for old in snapshots(self.directory)[: -self.config.snapshots]:
                old.unlink()
        content = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
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
        self.scaler.load_state_dict(content["scaler"])
        self.step, self.history = content["step"], content["history"]
        torch.set_rng_state(content["cpu_random_state"])
        if torch.cuda.is_available() and content["cuda_random_states"]:
            torch.cuda.set_rng_state_all(content["cuda_random_states"])
