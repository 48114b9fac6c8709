"""Our modules beside independent ones (see `transformer_lessons.oracles`): equal values, equal gradients."""

from functools import partial

import torch
from torch import nn

from transformer_lessons.oracles import is_within
from transformer_lessons.oracles.measure import compare, leaves, perturb
from transformer_lessons.oracles.names import layer_to_torch, renamed

__all__ = [
    "DTYPES",
    "assert_same_function",
    "assert_same_module",
    "layer_to_torch",
    "leaves",
    "perturb",
    "renamed",
]

DTYPES = [torch.float64, torch.float32]


def assert_same_function(ours, theirs, *inputs):
    """Equal values, and for a random cotangent equal gradients of every input."""
    deviation = compare(ours, theirs, inputs)
    assert is_within(deviation, inputs[0].dtype), deviation


def assert_same_module(ours: nn.Module, theirs: nn.Module, translate, call_ours, call_theirs, *inputs):
    """As `assert_same_function`, and the gradients of all parameters; `translate` renames our state dict."""
    dtype = next(ours.parameters()).dtype
    calls = partial(call_ours, ours), partial(call_theirs, theirs)
    deviation = compare(*calls, inputs, (ours, theirs), translate)
    assert is_within(deviation, dtype), deviation
