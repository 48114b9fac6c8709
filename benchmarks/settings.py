"""What a record says of how its runs were trained."""

from dataclasses import asdict

from transformer_lessons.trainer.config import TrainingConfig


def complete(settings: dict) -> dict:
    """A record's settings with those that came after it: the runs had their defaults."""
    return {**settings, "training": asdict(TrainingConfig(**settings["training"]))}
