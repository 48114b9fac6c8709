"""The check of `average_checkpoints`, an exercise: the mean of several state dicts."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_lessons.checks.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

AVERAGE = "#ch14-loop"
State = dict[str, Tensor]


def _sizes(seed: int) -> dict[str, int]:
    rows, columns, number = random.Random(seed).sample([3, 5, 7], 3)
    return {"rows": rows, "columns": columns, "number": number}


def _shapes(state: Any) -> dict:
    sentence = "it should return a dict with the names and shapes of a checkpoint's entries"
    return {sentence: {name: list(state[name].shape) for name in sorted(state)}}


def _floats(state: Any) -> dict:
    sentence = "each entry of floating-point numbers should be the mean over all checkpoints"
    return {sentence: {name: t.double() for name, t in sorted(state.items()) if name.startswith("layer")}}


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

    several, single = [state() for _ in range(number)], [state(torch.float32) for _ in range(2)]
    counters = [
        {**state, "steps": torch.tensor(100 * n + 7 if n < number - 1 else 61)}
        for n, state in enumerate(several)
    ]
    masks = [{**state, "seen": draw.integers(0, 2, 3 * r) > 0} for state in counters]
    half = [{"layer.weight": (40_000 + 1000 * draw.normal(c)).half()} for _ in range(3)]
    many = [state() for _ in range(11)]
    backwards = [several[0], dict(reversed(several[1].items()))]
    return {
        "names": Probe([several], view=_shapes),
        "two": Probe([several[:2]], view=_floats),
        "several": Probe([several], view=_floats),
        "one": Probe([several[:1]], view=_floats),
        "whole": Probe([counters], view=_whole),
        "types": Probe([single], view=_types),
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


def _accept_number(states: list[State]) -> None:
    if not states:
        raise ValueError("states: expected one checkpoint or more")


def _accept_names(states: list[State]) -> None:
    if any(state.keys() != states[0].keys() for state in states):
        raise ValueError("states: expected checkpoints with the same entries")


def _accept_shapes(states: list[State]) -> None:
    shapes = [{name: t.shape for name, t in state.items() if name in states[0]} for state in states]
    if any(those[name] != shapes[0][name] for those in shapes for name in those):
        raise ValueError("states: expected checkpoints of the same shapes")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_number: Callable = _accept_number
    accept_names: Callable = _accept_names
    accept_shapes: Callable = _accept_shapes
    chosen: Callable = lambda states: states
    wide: Callable = lambda tensor: tensor.double()
    mean: Callable = lambda tensors, n: sum(tensors) / n
    narrow: Callable = lambda mean, dtype: mean.to(dtype)
    whole: Callable = lambda tensors: tensors[-1]
    result: Callable = lambda state, states: state


def assemble(steps: Steps) -> Callable:
    """The average in these steps."""

    def average_checkpoints(states):
        steps.accept_number(states)
        steps.accept_names(states)
        steps.accept_shapes(states)
        chosen, state = steps.chosen(states), {}
        for name, last in chosen[-1].items():
            tensors = [state[name] for state in chosen]
            if last.is_floating_point():
                mean = steps.mean([steps.wide(tensor) for tensor in tensors], len(tensors))
                state[name] = steps.narrow(mean, last.dtype)
            else:
                state[name] = steps.whole(tensors)
        return steps.result({name: t for name, t in state.items() if t is not None}, states)

    return average_checkpoints


def _halved_each_time(tensors: list[Tensor], n: int) -> Tensor:
    mean = tensors[0]
    for tensor in tensors[1:]:
        mean = (mean + tensor) / 2
    return mean


def _written_over(number: int, which: Callable = Tensor.is_floating_point) -> Callable:
    """The result written into one of the checkpoints."""

    def result(state: State, states: list[State]) -> State:
        for name, tensor in state.items():
            if which(tensor):
                states[number][name].copy_(tensor)
        return state

    return result


def _summed_up(state: State, states: list[State]) -> State:
    """Added up in the first checkpoint, and divided into a new one."""
    for name, tensor in state.items():
        if tensor.is_floating_point():
            states[0][name].copy_(tensor * len(states))
    return state


def _first_only(states: list[State]) -> None:
    """Names that are missing fail, names too many do not."""
    for state in states:
        for name in states[0]:
            _ = state[name]


def _last_only(states: list[State]) -> None:
    """The other way round."""
    for state in states:
        for name in states[-1]:
            _ = state[name]


def _names_of_first(states: list[State]) -> list[State]:
    return [{name: state[name] for name in states[0]} for state in states]


def _any_crashes(states: list[State]) -> None:
    if any(state.keys() != states[0].keys() for state in states):
        raise KeyError("layer")


def _completed(states: list[State]) -> list[State]:
    every = {name: tensor for state in states for name, tensor in state.items()}
    return [{**every, **state} for state in states]


def _nothing(states: list[State]) -> None:
    if not states:
        raise IndexError("list index out of range")


def _added(states: list[State]) -> None:
    for name in states[0].keys() & states[-1].keys():
        if states[0][name].shape != states[-1][name].shape:
            raise RuntimeError("sizes differ")


def _same_lists(states: list[State]) -> None:
    if any(list(state) != list(states[0]) for state in states):
        raise ValueError("states: expected checkpoints with the same entries")


def _same_sizes(states: list[State]) -> None:
    """As many numbers, in whatever shape."""
    _accept_shapes([{name: tensor.flatten() for name, tensor in state.items()} for state in states])


def _shapes_of_floats(states: list[State]) -> None:
    floats = [{name: t for name, t in state.items() if t.is_floating_point()} for state in states]
    _accept_shapes(floats)


MISTAKES = (
    Mistake(
        "not_divided",
        "you add the checkpoints up and never divide by their number",
        "The loop was written, and the line after it forgotten.",
        "All weights are several times too large.",
        AVERAGE,
        ({"mean": lambda tensors, n: sum(tensors)},),
    ),
    Mistake(
        "halved_each_time",
        "you take the mean of the mean so far and the next one: the last counts half, the first hardly",
        "(average + new) / 2 is right for two.",
        "Most of the averaging is lost.",
        AVERAGE,
        ({"mean": _halved_each_time},),
    ),
    Mistake(
        "last_only",
        "you return the last checkpoint",
        "Each turn of the loop overwrites the one before.",
        "Nothing is averaged.",
        AVERAGE,
        ({"mean": lambda tensors, n: tensors[-1]},),
    ),
    Mistake(
        "first_only",
        "you return the first checkpoint",
        "The loop's result goes nowhere.",
        "The model is worse than the last one.",
        AVERAGE,
        ({"mean": lambda tensors, n: tensors[0]},),
    ),
    Mistake(
        "one_left_out",
        "you leave one checkpoint out of the sum, but divide by the number of all",
        "The loop starts from zeros and at the second.",
        "All weights are too small.",
        AVERAGE,
        (
            {"mean": lambda tensors, n: sum(tensors[1:], torch.zeros_like(tensors[0])) / n},
            {"mean": lambda tensors, n: sum(tensors[:-1], torch.zeros_like(tensors[0])) / n},
        ),
    ),
    Mistake(
        "divided_by_wrong_number",
        "you divide by another number than that of the checkpoints, off by one",
        "The loop ran over the rest only, and so did the counter.",
        "All weights are a little too large, or too small.",
        AVERAGE,
        (
            {"mean": lambda tensors, n: sum(tensors) / max(n - 1, 1)},
            {"mean": lambda tensors, n: sum(tensors) / (n + 1)},
        ),
    ),
    Mistake(
        "median",
        "you take the median; the mean is wanted",
        "It is another word for the middle.",
        "Each weight comes from one checkpoint.",
        AVERAGE,
        ({"mean": lambda tensors, n: torch.stack(tensors).median(0).values},),
    ),
    Mistake(
        "whole_numbers_averaged",
        "you average whole numbers too; a counter of steps, or a mask, is the last checkpoint's",
        "All entries were treated alike.",
        "The mean of counters is no count, and of another type at that.",
        AVERAGE,
        (
            {"whole": lambda tensors: sum(tensors) / len(tensors)},
            {"whole": lambda tensors: (sum(tensors) / len(tensors)).to(tensors[0].dtype)},
            {"whole": lambda tensors: sum(tensors) // len(tensors)},
            {"whole": lambda tensors: sum(t.double() for t in tensors) / len(tensors)},
            {"whole": lambda tensors: (sum(t.double() for t in tensors) / len(tensors)).to(tensors[0].dtype)},
            {"whole": lambda tensors: torch.stack([t.float() for t in tensors]).mean(0).to(tensors[0].dtype)},
            {"whole": lambda tensors: torch.stack([t.float() for t in tensors]).mean(0)},
        ),
    ),
    Mistake(
        "whole_numbers_of_first",
        "you take whole numbers from the first checkpoint; they are the last's",
        "The result started as a copy of the first.",
        "A counter runs from too early a step.",
        AVERAGE,
        ({"whole": lambda tensors: tensors[0]},),
    ),
    Mistake(
        "whole_numbers_left_out",
        "you leave out entries that are no floating-point numbers",
        "They cannot be averaged, so they were skipped.",
        "load_state_dict misses them.",
        AVERAGE,
        ({"whole": lambda tensors: None},),
    ),
    Mistake(
        "type_lost",
        "your result has a wider type than the checkpoints",
        "The sum was taken in float64, and left there.",
        "The checkpoint takes two or four times the space.",
        AVERAGE,
        ({"narrow": lambda mean, dtype: mean}, {"narrow": lambda mean, dtype: mean, "wide": Tensor.float}),
    ),
    Mistake(
        "summed_in_half",
        "you add up in float16, whose largest number is 65,504",
        "Tensors are added in their own type.",
        "Sums are infinite, or have three digits left.",
        AVERAGE,
        ({"wide": lambda tensor: tensor},),
    ),
    Mistake(
        "written_into_checkpoint",
        "you write into one of the checkpoints that you were given",
        "average = states[0] is the same dict with the same tensors, and += changes them.",
        "A second call gives another result.",
        AVERAGE,
        (
            {"result": _written_over(0)},
            {"result": _written_over(-1)},
            {"result": _summed_up},
            {"result": lambda state, states: states[0].update(state) or states[0]},
        ),
    ),
    Mistake(
        "nothing_accepted",
        "you do not refuse an empty list",
        "It does not occur.",
        "An error about an index or a division by zero, far from its cause.",
        AVERAGE,
        (
            {"accept_number": _nothing},
            {"accept_number": lambda states: None, "chosen": lambda states: states or [{}]},
        ),
    ),
    Mistake(
        "last_five",
        "you average the last five only; all that were given count",
        "The paper averages five.",
        "Whoever gives more, such as twenty for the big model, gets the mean of a few.",
        AVERAGE,
        ({"chosen": lambda states: states[-5:]},),
    ),
    Mistake(
        "order_refused",
        "you refuse checkpoints whose names come in another order; a dict's order says nothing",
        "Lists of names were compared.",
        "A checkpoint that another program wrote is turned away.",
        AVERAGE,
        ({"accept_names": _same_lists},),
    ),
    Mistake(
        "names_unchecked",
        "you do not check that all checkpoints have the same entries",
        "They come from one run.",
        "Entries that only one checkpoint has are dropped without a word, or a KeyError names one and no file.",
        AVERAGE,
        (
            {"accept_names": _first_only, "chosen": _names_of_first},
            {"accept_names": _last_only},
            {"accept_names": _any_crashes},
            {"accept_names": lambda states: None, "chosen": _completed},
            {"accept_names": lambda states: _accept_names(states[:2])},
            {"accept_names": lambda states: _accept_names([states[0], states[-1]])},
        ),
    ),
    Mistake(
        "shapes_unchecked",
        "you do not check that entries of one name have one shape",
        "They come from one run.",
        "Broadcasting averages a row with a number, and nobody hears of it.",
        AVERAGE,
        (
            {"accept_shapes": lambda states: None},
            {"accept_shapes": _added},
            {"accept_shapes": lambda states: _accept_shapes(states[:2])},
            {"accept_shapes": lambda states: _accept_shapes([states[0], states[-1]])},
            {"accept_shapes": _same_sizes},
            {"accept_shapes": _shapes_of_floats},
        ),
    ),
)

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
            "values", "floating-point entries are averaged.", ("two", "several", "one", "many"), AVERAGE
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
    essential=8,  # what a draft does with booleans is its own affair
)
