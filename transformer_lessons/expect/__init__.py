"""What several modules demand of their arguments, and how they complain: name, expected, got."""

from transformer_lessons.expect.tensors import (
    below,
    broadcasts,
    computed_in,
    floats,
    ids,
    offset,
    readable,
    same_device,
    width,
)
from transformer_lessons.expect.values import (
    function,
    index,
    integers,
    kind,
    lengths,
    library,
    number,
    path,
    probability,
    several,
    sizes,
)

__all__ = [
    "below",
    "broadcasts",
    "computed_in",
    "floats",
    "function",
    "ids",
    "index",
    "integers",
    "kind",
    "lengths",
    "library",
    "number",
    "offset",
    "path",
    "probability",
    "readable",
    "same_device",
    "several",
    "sizes",
    "width",
]
