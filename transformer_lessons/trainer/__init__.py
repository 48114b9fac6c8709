"""Training runs that can be interrupted, resumed, spread over several GPUs, and evaluated."""

# ruff: noqa: F401
from transformer_lessons.trainer.checkpoints import average_checkpoints, snapshots
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.trainer import Trainer
