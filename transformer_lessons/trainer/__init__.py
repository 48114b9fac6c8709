"""Runs: training that can be interrupted, resumed, spread over several GPUs, and judged."""

from transformer_lessons.trainer.trainer import (
    Trainer,
    TrainingConfig,
    average_checkpoints,
    batch_loss,
    snapshots,
    split,
)

__all__ = ["Trainer", "TrainingConfig", "average_checkpoints", "batch_loss", "snapshots", "split"]
