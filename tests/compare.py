"""Our modules beside independent ones (see `transformer_lessons.oracles`): equal values, equal gradients."""

import torch
from torch import nn

from transformer_lessons.oracles import is_within
from transformer_lessons.oracles.measure import leaves, perturb, same_function, same_module
from transformer_lessons.oracles.names import attention_to_torch, layer_to_torch, renamed

__all__ = [
    "DTYPES",
    "assert_same_function",
    "assert_same_module",
    "attention_to_torch",
    "layer_to_torch",
    "leaves",
    "perturb",
    "renamed",
]

DTYPES = [torch.float64, torch.float32]


def assert_same_function(ours, theirs, *inputs):
    """Equal values, and for a random cotangent equal gradients of every input."""
    deviation = same_function(ours, theirs, *inputs)
    assert is_within(deviation, inputs[0].dtype), deviation


def assert_same_module(ours: nn.Module, theirs: nn.Module, translate, call_ours, call_theirs, *inputs):
    """As `assert_same_function`, and the gradients of all parameters; `translate` renames our state dict."""
    dtype = next(ours.parameters()).dtype
    deviation = same_module(ours, theirs, translate, call_ours, call_theirs, *inputs)
    assert is_within(deviation, dtype), deviation
