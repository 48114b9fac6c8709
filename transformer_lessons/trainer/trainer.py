"""Training (§5): one step, and a loop that can be interrupted and resumed.

A run is a folder (`checkpoints` lists its files). A batch is a function of the seed and the step; weights,
optimiser and random state are in the checkpoint: a resumed run ends with the same bits as one that was never
interrupted, on the same machine with the same number of threads. With dropout that does not hold on an Apple
GPU, whose random state is not saved, nor with several processes, of which all but the first are reseeded.
"""

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from transformer_lessons.data.batches import Batch, Batches
from transformer_lessons.data.files import brief, replacing, write_text
from transformer_lessons.fast import accelerate, is_known, plain
from transformer_lessons.fast.graphs import GraphedFunction, pad_rows
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.fast.recompute import recompute
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import distributed
from transformer_lessons.trainer.checkpoints import CHECKPOINT, save_snapshot
from transformer_lessons.trainer.config import TrainingConfig, resolve_precision

# A step's number of target tokens in the whole batch, and the parts of it that this process computes.
Prepared = tuple[int, list[Batch]]


class BatchLoss(nn.Module):
    """A batch's loss and its numbers of target and right tokens, as a module that can be parallelised."""

    def __init__(self, model: Transformer, config: TrainingConfig):
        super().__init__()
        self.model, self.config = model, config

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return them by `fast.losses` or, if `plain`, as in the chapter on training."""
        if not self.config.plain:
            return batch_loss(self.model, batch, self.config.smoothing, compiled=self.config.compile)
        logits, pad_id = self.model(batch.src, batch.tgt_in), self.model.config.pad_id
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # in float16 the sum overflows
        smoothing = self.config.smoothing
        loss, tokens = label_smoothed_loss(logits, batch.tgt_out, pad_id=pad_id, smoothing=smoothing)
        is_right = (logits.argmax(-1) == batch.tgt_out) & (batch.tgt_out != pad_id)
        return loss, tokens, is_right.sum()


class Trainer:
    """A model in training: the optimiser, the step it is at, and how to save and restore all of it.

    A pitfall: the optimiser keeps references to the model's parameters, so do not move the model afterwards.

    Args:
        model, batches, config: what to train, on what, and how.
        directory: where the checkpoint and ``metrics.jsonl`` are written; None writes nothing.
        device: where to train, by default the model's device. A model to be sharded should be on the CPU: it
            is moved and sharded one layer at a time, so that no GPU has to hold all of it.
    """

    def __init__(
        self,
        model: Transformer,
        batches: Batches,
        config: TrainingConfig,
        directory: Path | None = None,
        *,
        device: torch.device | None = None,
    ):
        self.model, self.batches, self.config = model, batches, config
        self.directory = None if directory is None else Path(directory)
        self.device = device or next(model.parameters()).device
        (plain if config.plain else accelerate)(model)
        layers = [*model.encoder_layers, *model.decoder_layers]
        for layer in layers if config.compile else ():
            # Layers of one kind share a graph. Compiling the whole model takes minutes, and is no faster.
            layer.compile(dynamic=True)
        if config.recompute:
            recompute(model)
        loss = BatchLoss(model, config)
        self.loss = distributed.parallelise(loss, layers, self.device, shard=config.shard)
        self.add_gradients = self._add_gradients
        is_single_gpu = self.device.type == "cuda" and distributed.world_size() == 1
        if is_single_gpu and is_known(*model.modules()) and not (config.plain or config.recompute):
            self.add_gradients = GraphedFunction(self._add_gradients, self.device)
        # Adam with the paper's β₁, β₂ and ε (§5.3), with decoupled weight decay (Loshchilov and Hutter 2019):
        # θ ← θ − lr · (m̂ / (√v̂ + ε) + weight_decay · θ), in one pass.
        options = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": config.weight_decay, "fused": True}
        self.parameters = list(model.parameters())  # finding them takes as long as clipping them
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.0, **options)  # each step sets the rate
        self.precision = resolve_precision(config.precision, self.device)
        # Small float16 gradients would become zero: the loss is scaled up, and the gradients down again.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == torch.float16)
        self.step = 0
        self.history: list[dict[str, int | float | None]] = []

    def train_step(self, prepared: Prepared | None = None) -> dict[str, int | float | None]:
        """Take one optimiser step on what `prepare` returned for it; return its record for ``metrics.jsonl``.

        FloatingPointError, weights unchanged, if the loss or (except in float16) its gradient is not finite.
        """
        started = time.perf_counter()
        if not self.model.training:
            self.model.train()
        tokens, parts = self.prepare(self.step) if prepared is None else prepared
        sums = self._backward(tokens, parts)
        self.scaler.unscale_(self.optimizer)
        max_norm = math.inf if self.config.clip_norm is None else self.config.clip_norm
        norm = distributed.full_tensor(nn.utils.clip_grad_norm_(self.parameters, max_norm))
        loss, right, norm = torch.cat([sums, norm[None]]).tolist()  # together: each call waits for the GPU
        for what, x in (("loss", loss), ("gradient", 0.0 if self.scaler.is_enabled() else norm)):
            if not math.isfinite(x):
                raise FloatingPointError(f"step {self.step + 1}: the {what} was {x}; lower the learning rate")
        rate = self.config.learning_rate(self.step + 1)
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
            # A step whose float16 gradients overflowed is skipped, and the next loss is scaled less.
            "gradient_norm": norm if math.isfinite(norm) else None,
            "tokens_per_second": tokens / (time.perf_counter() - started),
        }

    def prepare(self, step: int) -> Prepared:
        """Return what this process has to compute in a step, counted from 0."""
        batch = self.batches[step]
        parts = distributed.own_parts(batch, self.config.accumulate)
        if isinstance(self.add_gradients, GraphedFunction):
            parts = [pad_rows(part, self.model.config.pad_id) for part in parts]
        if self.device.type == "cuda":  # pinned memory is copied asynchronously
            with torch.cuda.device(self.device):
                parts = [Batch(*(ids.pin_memory() for ids in part)) for part in parts]
        return int((batch.tgt_out != self.model.config.pad_id).sum()), parts

    def _backward(self, tokens: int, parts: list[Batch]) -> Tensor:
        """Add up gradients of the loss per token over all parts; return the batch's loss and right tokens."""
        # A replayed graph adds to the same tensors each time.
        self.optimizer.zero_grad(set_to_none=not isinstance(self.add_gradients, GraphedFunction))
        device, dtype = self.device.type, self.parameters[0].dtype
        sums = torch.zeros(2, dtype=torch.float64 if device != "mps" else None, device=self.device)
        # Gradients are averaged over the processes, but a sum is needed.
        factor = torch.full((), distributed.world_size() / tokens, dtype=dtype, device=self.device)
        for number, part in enumerate(parts, start=1):
            # Processes with replicas exchange gradients once per step, with those of the last part.
            self.loss.require_backward_grad_sync = number == len(parts)
            sums += self.add_gradients(*part.to(self.device, non_blocking=device == "cuda"), factor)
        return distributed.summed(sums)

    def _add_gradients(self, *batch_and_factor: Tensor) -> Tensor:
        """Add the gradients of one part; return its loss and its number of right tokens."""
        *batch, factor = batch_and_factor
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            loss, _, right = self.loss(Batch(*batch))
        self.scaler.scale(loss * factor).backward()
        return torch.stack([loss.detach(), right])

    def run(self, *, progress: bool = True) -> bool:
        """Train to the last step; return True if it was reached, False if Ctrl-C (or SIGTERM) came first.

        Either way the checkpoint holds the last completed step. A second Ctrl-C stops immediately.
        """
        if distributed.rank():
            torch.manual_seed(self.config.seed + 1_000_003 * distributed.rank() + self.step)  # other dropout
        bar = tqdm(
            total=self.config.steps,
            initial=self.step,
            unit="step",
            disable=not progress or distributed.rank() > 0,
            mininterval=0.1 if sys.stderr.isatty() else 10.0,  # seconds: a log file gets fewer lines
        )
        with (
            bar,
            stop_signal() as stop,
            closing(self._prefetched()) as prefetched,
            self._metrics_file() as metrics,
        ):
            while self.step < self.config.steps and not distributed.any_of(stop.is_set(), self.device):
                record = self.train_step(next(prefetched))
                self.history.append(record)
                if metrics:
                    metrics.write(json.dumps(record) + "\n")
                if self.step % self.config.checkpoint_every == 0:
                    self.save()
                shown = "loss {loss:.3f}, accuracy {accuracy:.1%}, {tokens_per_second:,.0f} tokens/s"
                bar.set_postfix_str(shown.format(**record), refresh=False)
                bar.update()
        self.save()
        return self.step == self.config.steps

    def _prefetched(self) -> Iterator[Prepared]:
        """Yield what `prepare` returns, step after step; a thread prepares the next one during each step.

        A batch of the paper's size takes Python 21 ms, for which a GPU would wait in every step.
        """
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="next batch") as thread:
            future = thread.submit(self.prepare, self.step)
            while True:
                prepared, future = future.result(), thread.submit(self.prepare, self.step + 1)
                yield prepared

    def _metrics_file(self):
        if self.directory is None or distributed.rank():
            return nullcontext()
        path = self.directory / "metrics.jsonl"
        # Steps after the last checkpoint will be done, and recorded, again.
        write_text(path, "".join(json.dumps(record) + "\n" for record in self.history))
        return path.open("a", buffering=1)

    def save(self) -> None:
        """Write the checkpoint, whole or not at all, and the weights alone if snapshots are kept.

        All processes must call this: all help to gather, process 0 writes. The file is the same whether one
        process trained, several with replicas, or several with shards: any of these can resume from it.
        """
        if self.directory is None:
            return
        weights = distributed.full_state_dict(self.model.state_dict())
        content = {"step": self.step, "history": self.history, "scaler": self.scaler.state_dict()}
        content |= {"model": weights, "optimizer": distributed.full_state_dict(self.optimizer.state_dict())}
        content["cpu_random_state"] = torch.get_rng_state()
        content["cuda_random_states"] = torch.cuda.get_rng_state_all()
        if distributed.rank():
            return
        with replacing(self.directory / CHECKPOINT) as temporary:
            torch.save(content, temporary)
        is_due = self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps
        if self.config.snapshots and is_due:  # not where a run was interrupted
            save_snapshot(self.directory, self.step, weights, keep=self.config.snapshots)

    def restore(self) -> None:
        """Load the checkpoint in `directory`, to resume where it was written.

        ValueError if there is none, or it is another model's, damaged, or would run code. A pitfall: models
        with weights of the same shapes may still compute different things.
        """
        path, model = self.directory / CHECKPOINT, self.model
        several = distributed.world_size() > 1  # then each reads only its part
        try:
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=several)
            own = model.state_dict()
            weights = {name: distributed.shard_like(own.get(name), x) for name, x in found["model"].items()}
            model.load_state_dict(weights)
            moments = found["optimizer"]
            for number, state in moments["state"].items():  # numbered in the order of the parameters
                state |= {k: distributed.shard_like(self.parameters[number], x) for k, x in state.items()}
            self.optimizer.load_state_dict(moments)
            self.scaler.load_state_dict(found["scaler"])
            self.step, self.history = found["step"], found["history"]
            torch.set_rng_state(found["cpu_random_state"])
            torch.cuda.set_rng_state_all(found["cuda_random_states"][: torch.cuda.device_count()])  # or fewer
        except Exception as error:  # torch raises all kinds for what is not a checkpoint
            raise ValueError(f"resume: expected a checkpoint that fits, got {path}: {brief(error)}") from None


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets, so that no step is cut short; the second raises.

    A pitfall: outside the main thread no signal can be caught; there the event is never set.
    """
    event, is_main = threading.Event(), threading.current_thread() is threading.main_thread()

    def on_signal(number, frame):
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    previous = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
