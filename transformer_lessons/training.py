"""Training (§5): one step, and a loop that can be interrupted and resumed.

A run is a folder (`checkpoints` lists its files). A batch is a function of the seed and the step; weights,
optimiser and random state are in the checkpoint: a resumed run ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads.
"""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lessons import expect
from transformer_lessons.checkpoints import average_checkpoints, snapshots
from transformer_lessons.data.batches import Batch, Batches
from transformer_lessons.files import replacing
from transformer_lessons.interruption import stop_signal
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.training_config import TrainingConfig

__all__ = ["Trainer", "TrainingConfig", "average_checkpoints", "batch_loss", "snapshots", "split"]


def batch_loss(
    model: Transformer, batch: Batch, smoothing: float
) -> tuple[Float[Tensor, ""], Int[Tensor, ""], Int[Tensor, ""]]:
    """The smoothed loss of a batch, summed; the number of real target tokens; how many of them were right.

    ``Σ_t −log p(y_t | y_<t, src)``, smoothed, over the real target tokens t (§5.4). Only their positions are
    projected to the vocabulary. A pitfall: the sum over a batch grows with its tokens; divide by their number.

    Raises:
        ValueError: for ids that the model refuses, targets of another shape than the inputs, or a smoothing
            outside [0, 1).
    """
    expect.kind(Transformer, model=model)
    expect.kind(Batch, batch=batch)
    if batch.tgt_out.shape != batch.tgt_in.shape:
        raise ValueError(
            f"batch: expected tgt_out of shape {tuple(batch.tgt_in.shape)}, as tgt_in, "
            f"got {tuple(batch.tgt_out.shape)}"
        )
    real = batch.tgt_out != model.config.pad_id
    targets = batch.tgt_out[real]
    logits = model.project(model.hidden(batch.src, batch.tgt_in)[real])
    loss, count = label_smoothed_loss(logits, targets, pad_id=model.config.pad_id, smoothing=smoothing)
    return loss, count, (logits.argmax(-1) == targets).sum()


def split(batch: Batch, parts: int) -> list[Batch]:
    """A batch in `parts` of nearly equal size, or fewer if it has fewer rows; together they are the whole.

    A pitfall: equal numbers of rows are not equal numbers of tokens, so the parts' means must not be averaged.

    Raises:
        ValueError: for what is no batch, or fewer than one part.
    """
    expect.kind(Batch, batch=batch)
    expect.sizes(parts=parts)
    return [Batch(*part) for part in zip(*(ids.chunk(parts) for ids in batch), strict=True)]


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
        self, model: Transformer, batches: Batches, config: TrainingConfig, directory: Path | None = None
    ):
        expect.kind(Transformer, model=model)
        expect.kind(Batches, batches=batches)
        expect.kind(TrainingConfig, config=config)
        self.model, self.batches, self.config = model, batches, config
        self.directory = None if directory is None else expect.path(directory, "directory")
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
            ValueError: for ids outside the model's vocabularies, on whatever device it is.
        """
        started = time.perf_counter()
        self.model.train()
        device = next(self.model.parameters()).device
        rate = self.config.learning_rate(self.step + 1)
        loss, tokens, right = self._backward(self._batch().to(device))
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the loss became {loss.item()} at step {self.step + 1}: train more gently"
            )
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        return {
            "step": self.step,
            "loss": loss.item() / tokens,
            "accuracy": int(right) / tokens,
            "learning_rate": rate,
            "gradient_norm": float(norm),
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def _batch(self) -> Batch:
        """The batch of this step, its ids looked at while they are on the CPU, where that is free."""
        batch, config = self.batches[self.step], self.model.config
        expect.below(config.source_vocab_size, src=batch.src)
        expect.below(config.target_vocab_size, tgt_in=batch.tgt_in, tgt_out=batch.tgt_out)
        return batch

    def _backward(self, batch: Batch) -> tuple[Tensor, int, Tensor]:
        """Gradients of the loss per token, part by part; loss, tokens and right ones of the whole batch."""
        tokens = int((batch.tgt_out != self.model.config.pad_id).sum())
        self.optimizer.zero_grad()
        losses, rights = [], []
        for part in split(batch, self.config.accumulate):
            loss, _, right = batch_loss(self.model, part, self.config.smoothing)
            (loss / tokens).backward()
            losses.append(loss.detach())
            rights.append(right)
        return sum(losses), tokens, sum(rights)

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
        """Write the checkpoint, whole or not at all, and the weights alone if snapshots are kept."""
        if self.directory is None:
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
