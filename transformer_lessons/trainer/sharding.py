"""Until `runs` imports `distributed.gather_model`."""

from transformer_lessons.trainer.distributed import gather_model as whole_model  # noqa: F401
