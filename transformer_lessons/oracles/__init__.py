"""Every component beside an implementation that we did not write: ``lessons oracles`` prints the distance.

A `Case` builds both at small sizes that are different primes, gives them the same weights and inputs, and
measures (`measure.Deviation`). The cases are in the modules beside this one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec

import torch

from transformer_lessons.oracles.measure import BOUNDS, Deviation


@dataclass(frozen=True)
class Case:
    """One component, one oracle, and how to compare them.

    A pitfall: agreement at one seed may be luck, where a mistake needs a certain input; hence several.

    Attributes:
        component: its name in the package.
        oracle: what it is compared with.
        compare: from a dtype to the deviation, for weights and inputs drawn from torch's global generator.
        options: passed on to `compare`.
        needs: the library that the oracle comes from.
    """

    component: str
    oracle: str
    compare: Callable[..., Deviation]
    options: dict = field(default_factory=dict)
    needs: str = "torch"

    @property
    def name(self) -> str:
        """Component and oracle, with the options that tell this case from its like."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.component} | {self.oracle}" + (f" ({options})" if options else "")

    @property
    def is_available(self) -> bool:
        """Whether the oracle's library is installed."""
        return find_spec(self.needs) is not None

    def worst(self, dtype: torch.dtype, seeds: int = 3) -> Deviation:
        """The largest deviations over the seeds; the global generator is left as it was."""
        found = []
        with torch.random.fork_rng(devices=[]):
            for seed in range(seeds):
                torch.manual_seed(seed)
                found.append(self.compare(dtype, **self.options))
        gradients = [deviation.gradient for deviation in found if deviation.gradient is not None]
        return Deviation(max(deviation.value for deviation in found), max(gradients, default=None))


def is_within(deviation: Deviation, dtype: torch.dtype) -> bool:
    """Whether values and gradients are within the bound of the dtype: 1e-10 in float64, 1e-5 in float32.

    A pitfall: the bound is relative to the largest entry (`measure.Deviation`), not to each.
    """
    return max(deviation.value, deviation.gradient or 0.0) <= BOUNDS[dtype]


def cases() -> list[Case]:
    """All cases, layer by layer. A pitfall: some need a library; ask `Case.is_available`."""
    from transformer_lessons.oracles import (
        attention_cases,
        layer_cases,
        marian_cases,
        model_cases,
        transformers_cases,
    )

    modules = layer_cases, attention_cases, model_cases, transformers_cases, marian_cases
    return [case for module in modules for case in module.CASES]
