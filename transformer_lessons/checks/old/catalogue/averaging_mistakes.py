"""Known wrong ways to average checkpoints."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MISTAKES", "State", "Steps", "assemble"]

AVERAGE = "#ch14-loop"
State = dict[str, Tensor]


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
    is_float: Callable = Tensor.is_floating_point
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
            if steps.is_float(last):
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


def _type_of(number: int) -> Callable:
    """The result in the type of this entry."""

    def result(state: State, states: list[State]) -> State:
        dtype = list(states[0].values())[number].dtype
        dtype = dtype if dtype.is_floating_point else torch.float64
        return {name: t.to(dtype) if t.is_floating_point() else t for name, t in state.items()}

    return result


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
        "type_of_one_entry",
        "you give all averaged entries the type of a single one; each has its own",
        "All weights of a model are of one type, mostly.",
        "The scales of a quantised layer, or norms that were kept in float32, come back rounded.",
        AVERAGE,
        ({"result": _type_of(0)}, {"result": _type_of(-1)}),
    ),
    Mistake(
        "types_listed",
        "you average the types that you thought of only; floating-point numbers have others, such as bfloat16",
        "A list of dtypes stands where is_floating_point() would.",
        "A model in bfloat16 is not averaged at all: it is the last checkpoint.",
        AVERAGE,
        tuple(
            {"is_float": lambda tensor, types=types: tensor.dtype in types}
            for types in (
                (torch.float64, torch.float32, torch.float16),
                (torch.float64, torch.float32, torch.bfloat16),
                (torch.float64, torch.float32),
                (torch.float32, torch.float16, torch.bfloat16),
                (torch.float32, torch.float16),
                (torch.float32,),
            )
        ),
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
