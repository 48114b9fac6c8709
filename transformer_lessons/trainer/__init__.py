"""Runs: training that can be interrupted, resumed, spread over several GPUs, and judged."""

from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.trainer.checkpoints import average_checkpoints, snapshots
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.trainer import Trainer

__all__ = ["Trainer", "TrainingConfig", "average_checkpoints", "batch_loss", "snapshots"]
