"""The check of `average_checkpoints`, an exercise: the mean of several state dicts."""

import random
from typing import Any

import torch

from transformer_lessons.checks.old.catalogue.averaging_mistakes import MISTAKES, State, Steps, assemble
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task

__all__ = ["TASK"]

AVERAGE = "#ch14-loop"


def _sizes(seed: int) -> dict[str, int]:
    rows, columns, number = random.Random(seed).sample([3, 5, 7], 3)
    return {"rows": rows, "columns": columns, "number": number}


def _shapes(state: Any) -> dict:
    sentence = "it should return a dict with the names and shapes of a checkpoint's entries"
    return {sentence: {name: list(state[name].shape) for name in sorted(state)}}


def _floats(state: Any) -> dict:
    sentence = "each entry of floating-point numbers should be the mean over all checkpoints"
    return {sentence: {name: t.double() for name, t in sorted(state.items()) if name.startswith("layer")}}


def _roughly(state: Any) -> dict:
    """To the precision of float32: how whole numbers are averaged may leave that much."""
    return {sentence: {name: t.float() for name, t in ts.items()} for sentence, ts in _floats(state).items()}


def _whole(state: Any) -> dict:
    sentence = "an entry that holds no floating-point numbers should be the last checkpoint's, of its type"
    return {sentence: {name: t for name, t in sorted(state.items()) if not name.startswith("layer")}}


def _types(state: Any) -> dict:
    sentence = "each entry should keep its type"
    return {sentence: {name: str(t.dtype) for name, t in sorted(state.items())}}


def _halves(state: Any) -> dict:
    return {"the mean of numbers near 40,000, in float16, should not overflow": dict(sorted(state.items()))}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    r, c, number = s["rows"], s["columns"], s["number"]

    def state(dtype: torch.dtype = torch.float64) -> State:
        return {
            "layer.weight": draw.normal(r, c, dtype=dtype),
            "layer.bias": draw.normal(c, dtype=dtype),
            "layer.scale": draw.normal(1, dtype=dtype)[0],
        }

    def mixed() -> State:
        """An entry of each type; whole numbers that three divides, so that a mean of three is exact in all."""
        types = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
        return {f"layer.{n}": 3.0 * draw.integers(-9, 10, c).to(dtype) for n, dtype in enumerate(types)}

    several = [state() for _ in range(number)]
    counters = [
        {**state, "steps": torch.tensor(100 * n + 7 if n < number - 1 else 61)}
        for n, state in enumerate(several)
    ]
    masks = [{**state, "seen": draw.integers(0, 2, 3 * r) > 0} for state in counters]
    half = [{"layer.weight": (40_000 + 1000 * draw.normal(c)).half()} for _ in range(3)]
    many = [state() for _ in range(11)]
    types = [mixed() for _ in range(3)]
    backwards = [several[0], dict(reversed(several[1].items()))]
    return {
        "names": Probe([several], view=_shapes),
        "two": Probe([several[:2]], view=_floats),
        "several": Probe([several], view=_floats),
        "one": Probe([several[:1]], view=_floats),
        "whole": Probe([counters], view=_whole),
        "types": Probe([types], view=_types),
        "mixed": Probe([types], view=_roughly),
        "half": Probe([half], view=_halves),
        "half_types": Probe([half], view=_types),
        "masks": Probe([masks], view=_whole),
        **_refusals(several, masks, draw),
        "many": Probe([many], view=_floats),
        "backwards": Probe([backwards], view=_floats),
    }


def _refusals(several: list[State], masks: list[State], draw: Draw) -> dict[str, Probe]:
    """Checkpoints that do not fit together."""
    r, c = several[0]["layer.weight"].shape
    renamed = {("other" if name == "layer.bias" else name): t for name, t in several[1].items()}
    other_names = [several[0], renamed]
    more = [several[0], {**several[1], "layer.more": draw.normal(c)}]
    fewer = [several[0], {name: t for name, t in several[1].items() if name != "layer.bias"}]
    other_shape = [several[0], {**several[1], "layer.bias": draw.normal(1)}]
    turned = [several[0], {**several[1], "layer.weight": draw.normal(c, r)}]
    longer_mask = [masks[0], {**masks[1], "seen": draw.integers(0, 2, 3 * r + 1) > 0}]
    return {
        "none": Probe([[]], refused="no checkpoints"),
        "other_names": Probe([other_names], refused="checkpoints with other names"),
        "more_names": Probe([more], refused="a second checkpoint with an entry more"),
        "fewer_names": Probe([fewer], refused="a second checkpoint with an entry less"),
        "other_shape": Probe([other_shape], refused=f"checkpoints with shapes ({c},) and (1,)"),
        "turned": Probe([turned], refused=f"checkpoints with shapes {(r, c)} and {(c, r)}"),
        "longer_mask": Probe([longer_mask], refused="masks of different lengths"),
        "second_of_three": Probe([[*other_names, several[0]]], refused="a second of three with other names"),
        "third_of_three": Probe([[several[0], *other_names]], refused="a third of three with other names"),
        "second_shape": Probe([[*other_shape, several[0]]], refused="a second of three with another shape"),
        "third_shape": Probe([[several[0], *other_shape]], refused="a third of three with another shape"),
    }


TASK = Task(
    name="average_checkpoints",
    signature="average_checkpoints(states)",
    arguments=("states",),
    returns=("state",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one dict with the checkpoints' names and shapes.",
            ("names",),
            AVERAGE,
        ),
        Requirement(
            "values",
            "floating-point entries are averaged.",
            ("two", "several", "one", "many", "mixed"),
            AVERAGE,
        ),
        Requirement(
            "whole",
            "entries of whole numbers or booleans are the last checkpoint's.",
            ("whole", "masks"),
            AVERAGE,
        ),
        Requirement("dtype", "each entry keeps its type.", ("types", "half_types"), AVERAGE),
        Requirement("precision", "float16 does not overflow on the way.", ("half",), AVERAGE),
        Requirement("inputs", "the checkpoints are left unchanged.", ("several",), AVERAGE, ("inputs",)),
        Requirement(
            "refusals",
            "no checkpoints, and checkpoints with other names or shapes, are refused with ValueError; the same "
            "names in another order are not.",
            (
                *("none", "other_names", "more_names", "fewer_names", "other_shape", "turned", "longer_mask"),
                *("second_of_three", "third_of_three", "second_shape", "third_shape", "backwards"),
            ),
            AVERAGE,
        ),
    ),
    sizes=_sizes,
    small=({"rows": 1, "columns": 2, "number": 3},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=9,  # what a draft does with booleans is its own affair
)
