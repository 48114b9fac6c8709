"""Our functions beside independent ones; of modules with weights, `transformer_lessons.oracles` has the table."""

from transformer_lessons.oracles import is_within
from transformer_lessons.oracles.measure import compare


def assert_same_function(ours, theirs, *inputs):
    """Equal values, and for a random cotangent equal gradients of every input."""
    deviation = compare(ours, theirs, inputs)
    assert is_within(deviation, inputs[0].dtype), deviation
