"""Comparison of every component with independent implementations: ``lessons oracles`` prints the result.

`pairs` has the table: for each component our implementation, theirs, and the inputs of both. `measure`
computes how far apart they are, in values and gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import torch

from transformer_lessons.oracles.measure import BOUNDS, Deviation, compare


@dataclass(frozen=True)
class Case:
    """A component and an oracle; `make`, given the options, returns the arguments of `measure.compare`."""

    component: str
    oracle: str
    make: Callable[..., tuple]
    options: dict = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The component, with the options that distinguish this case from others."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return self.component + (f" ({options})" if options else "")

    def worst(self, dtype: torch.dtype, seeds: int = 3) -> Deviation:
        """The largest deviations over all seeds, as agreement for one may be luck. Keeps the random state."""
        before, found = torch.get_default_dtype(), []
        torch.set_default_dtype(dtype)
        try:
            with torch.random.fork_rng(devices=[]):
                for seed in range(seeds):
                    torch.manual_seed(seed)
                    found.append(compare(*self.make(**self.options)))
        finally:
            torch.set_default_dtype(before)
        gradients = [one.gradient for one in found if one.gradient is not None]
        return Deviation(max(one.value for one in found), max(gradients, default=None))


def is_within(deviation: Deviation, dtype: torch.dtype) -> bool:
    """Whether values and gradients are within the bound of the dtype: 1e-10 in float64, 1e-5 in float32."""
    return max(deviation.value, deviation.gradient or 0.0) <= BOUNDS[dtype]


def cases() -> list[Case]:
    """All cases, layer by layer. A pitfall: some import transformers, which the package does not require."""
    from transformer_lessons.oracles.pairs import TABLE

    return [
        Case(*row, dict(zip(choices, chosen, strict=True)))
        for *row, choices in TABLE
        for chosen in product(*choices.values())
    ]
