"""The check of `teacher_forcing`, an exercise: decoder input and target of several sentences."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

SHIFT, WRONG = "#ch14-teacher-forcing", "#ch14-wrong"
Rows = list[list[int]]


def _sizes(seed: int) -> dict[str, int]:
    batch, length = random.Random(seed).sample([3, 5, 7, 11], 2)
    return {"batch": batch, "length": length}


def _types(value: Any) -> dict:
    sentence = "tgt_in and tgt_out should be of type int64, as an embedding and a loss take them"
    return {sentence: [str(tensor.dtype) for tensor in value]}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, n = s["batch"], s["length"]

    def sentences(*lengths: int, low: int = 5) -> Rows:
        return [draw.integers(low, low + 23, length).tolist() for length in lengths]

    same = sentences(*[n] * b)
    unequal = sentences(*[n - 1, n, *(1 + row % n for row in range(b))][:b])  # in no order
    return {
        "one": Probe([sentences(n), 1, 2, 0]),
        "same": Probe([same, 1, 2, 0]),
        "unequal": Probe([unequal, 1, 2, 0]),
        "pad": Probe([unequal, 1, 2, 3]),
        "marks": Probe([unequal, 4, 3, 0]),
        "one_mark": Probe([unequal, 2, 2, 0]),
        "others": Probe([[*sentences(n, 1, n + 1, low=0), [2, 1, 36_999, 0]], 41, 31, 37]),
        "empty": Probe([[[], same[0]], 1, 2, 0]),
        "only_empty": Probe([[[]], 1, 2, 0]),
        "types": Probe([unequal, 1, 2, 0], view=_types),
        "empty_types": Probe([[[], same[0]], 1, 2, 0], view=_types),
        "none": Probe([[], 1, 2, 0], refused="no targets"),
        "padding_ends": Probe([unequal, 1, 2, 2], refused="pad_id=2, which is also eos_id"),
        "padding_starts": Probe([unequal, 1, 2, 1], refused="pad_id=1, which is also bos_id"),
    }


def _accept_ids(bos_id: int, eos_id: int, pad_id: int) -> None:
    if pad_id in (bos_id, eos_id):
        raise ValueError("pad_id: expected another id than those of the marks")


def _accept_targets(targets: Rows) -> None:
    if not targets:
        raise ValueError("targets: expected one sentence or more")


def _filled(rows: Rows, pad_id: int) -> Rows:
    longest = max(map(len, rows), default=0)
    return [[*row, *[pad_id] * (longest - len(row))] for row in rows]


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept_ids: Callable = _accept_ids
    accept_targets: Callable = _accept_targets
    order: Callable = lambda targets: targets
    marks: Callable = lambda bos_id, eos_id: (bos_id, eos_id)
    pad: Callable = lambda pad_id: pad_id
    reads: Callable = lambda y, bos, eos: [bos, *y]
    says: Callable = lambda y, bos, eos: [*y, eos]
    fill: Callable = _filled
    late: Callable = lambda tgt_in, tgt_out, targets, eos, pad_id: (tgt_in, tgt_out)
    kind: Callable = torch.tensor
    result: Callable = lambda tgt_in, tgt_out: (tgt_in, tgt_out)


def assemble(steps: Steps) -> Callable:
    """Input and target in these steps."""

    def teacher_forcing(targets, bos_id, eos_id, pad_id):
        steps.accept_targets(targets)
        steps.accept_ids(bos_id, eos_id, pad_id)
        (bos, eos), pad, targets = steps.marks(bos_id, eos_id), steps.pad(pad_id), steps.order(targets)
        both = (steps.fill([side(y, bos, eos) for y in targets], pad) for side in (steps.reads, steps.says))
        return steps.result(*map(steps.kind, steps.late(*both, targets, eos, pad)))

    return teacher_forcing


def _appended(y: list[int], bos: int, eos: int) -> list[int]:
    y.append(eos)
    return list(y)


def _end_kept(tgt_in: Rows, tgt_out: Rows, targets: Rows, eos: int, pad_id: int) -> tuple[Rows, Rows]:
    """What is left of [bos, y, eos, padding …] without its last column."""
    tgt_in = [row.copy() for row in tgt_in]
    for row, y in zip(tgt_in, targets, strict=True):
        if len(y) + 1 < len(row):
            row[len(y) + 1] = eos
    return tgt_in, tgt_out


def _end_last(tgt_in: Rows, tgt_out: Rows, targets: Rows, eos: int, pad_id: int) -> tuple[Rows, Rows]:
    longest = max(map(len, targets), default=0)
    return tgt_in, [[*y, *[pad_id] * (longest - len(y)), eos] for y in targets]


def _left_filled(rows: Rows, pad_id: int) -> Rows:
    longest = max(map(len, rows), default=0)
    return [[*[pad_id] * (longest - len(row)), *row] for row in rows]


def _cut(rows: Rows, pad_id: int) -> Rows:
    shortest = min(map(len, rows), default=0)
    return [row[:shortest] for row in rows]


def _nothing_crashes(targets: Rows) -> None:
    if not targets:
        raise IndexError("list index out of range")


def _empty_refused(targets: Rows) -> None:
    if not any(targets):
        raise ValueError("targets: expected one sentence or more")


def _single_empty_refused(targets: Rows) -> None:
    if len(targets) < 2:
        _empty_refused(targets)


def _floats_of_empty(tgt_in: Rows, tgt_out: Rows, targets: Rows, eos: int, pad_id: int) -> tuple[Rows, Rows]:
    """As `cat` makes them of whole numbers and torch.tensor([])."""
    if all(targets):
        return tgt_in, tgt_out
    return tuple([[float(id_) for id_ in row] for row in side] for side in (tgt_in, tgt_out))


def _longest_first(targets: Rows) -> Rows:
    return sorted(targets, key=len, reverse=True)


MISTAKES = (
    Mistake(
        "no_shift",
        "your tgt_in and tgt_out are the same: the decoder reads the very token that it should say",
        "Both are “the target sentence”.",
        "The loss falls to nothing within a few steps, and the model has learned to copy.",
        WRONG,
        (
            {"reads": lambda y, bos, eos: [*y, eos]},
            {"says": lambda y, bos, eos: [bos, *y]},
            {"reads": lambda y, bos, eos: [bos, *y, eos], "says": lambda y, bos, eos: [bos, *y, eos]},
            {"reads": lambda y, bos, eos: y, "says": lambda y, bos, eos: y},
        ),
    ),
    Mistake(
        "swapped",
        "you return (tgt_out, tgt_in): what the decoder reads comes first",
        "Which of the two is shifted, and which way, is easily mixed up.",
        "The decoder reads the next token, and should say the one before.",
        SHIFT,
        ({"result": lambda tgt_in, tgt_out: (tgt_out, tgt_in)},),
    ),
    Mistake(
        "no_end_mark",
        "your tgt_out has no end mark, and tgt_in stops one token early",
        "tgt[:-1] and tgt[1:] were taken of a row that has a start mark only.",
        "The model never learns to stop.",
        SHIFT,
        ({"reads": lambda y, bos, eos: [bos, *y][:-1], "says": lambda y, bos, eos: y},),
    ),
    Mistake(
        "no_start_mark",
        "your tgt_in has no start mark: the first token is never predicted",
        "tgt[:-1] and tgt[1:] were taken of a row that has an end mark only.",
        "Decoding has nothing to start from.",
        SHIFT,
        ({"reads": lambda y, bos, eos: y, "says": lambda y, bos, eos: [*y, eos][1:]},),
    ),
    Mistake(
        "start_mark_in_target",
        "your tgt_out begins with the start mark, so the decoder should say what it has just read",
        "The mark was put into the list itself, which then served for both.",
        "The two are one place apart no longer.",
        SHIFT,
        ({"says": lambda y, bos, eos: [bos, *y, eos]},),
    ),
    Mistake(
        "end_mark_in_input",
        "your tgt_in holds the end mark after the last token; nothing is to be read after the end",
        "[bos, y …, eos] was padded and its last column cut off, which is the end mark of the longest row only.",
        "Padded rows of tgt_in read the end mark. No loss is taken there, but it is not what was asked for.",
        SHIFT,
        (
            {"late": _end_kept},
            {"reads": lambda y, bos, eos: [bos, *y, eos]},
        ),
    ),
    Mistake(
        "marks_exchanged",
        "you exchanged the marks: sentences start with bos_id and end with eos_id",
        "Both are small numbers.",
        "A model trained elsewhere takes the start for an end.",
        SHIFT,
        ({"marks": lambda bos_id, eos_id: (eos_id, bos_id)},),
    ),
    Mistake(
        "marks_fixed",
        "you use fixed numbers for the marks, whatever bos_id and eos_id are",
        "1 and 2 are what this course's vocabularies have.",
        "With another vocabulary, real words are taken for marks.",
        SHIFT,
        ({"marks": lambda bos_id, eos_id: (1, 2)},),
    ),
    Mistake(
        "pad_fixed",
        "you pad with 0, whatever pad_id is",
        "torch.zeros and pad_sequence fill with 0.",
        "With another pad_id, the loss takes padding for a word.",
        SHIFT,
        ({"pad": lambda pad_id: 0},),
    ),
    Mistake(
        "ignore_index",
        "you pad with −100; here padding is pad_id",
        "It is what F.cross_entropy ignores unless told otherwise.",
        "An embedding cannot look up −100.",
        SHIFT,
        ({"pad": lambda pad_id: -100},),
    ),
    Mistake(
        "padded_left",
        "you pad on the left; padding comes after the sentence",
        "Models with a decoder only are often padded so when they generate.",
        "Positions no longer count from the start, and the causal mask does not hide padding.",
        SHIFT,
        ({"fill": _left_filled},),
    ),
    Mistake(
        "end_mark_after_padding",
        "you put the end mark behind the padding; it follows the last token",
        "It was added after padding, as a last column.",
        "The model should say padding, and after it the end.",
        SHIFT,
        ({"late": _end_last},),
    ),
    Mistake(
        "cut_to_shortest",
        "you cut all sentences to the length of the shortest",
        "zip(*rows) stops there.",
        "Most of the data is never learned.",
        SHIFT,
        ({"fill": _cut},),
    ),
    Mistake(
        "sorted_by_length",
        "you sort the sentences; they must stay in the order of their sources",
        "Packed sequences for recurrent networks had to be sorted.",
        "Each source is trained on another's translation.",
        SHIFT,
        ({"order": _longest_first}, {"order": lambda targets: sorted(targets, key=len)}),
    ),
    Mistake(
        "not_int64",
        "your ids are not int64",
        "torch.zeros makes floating-point numbers.",
        "An embedding refuses floating-point ids.",
        SHIFT,
        tuple(
            {"kind": lambda rows, dtype=dtype: torch.tensor(rows, dtype=dtype)}
            for dtype in (torch.float32, torch.float64, torch.int32)
        ),
    ),
    Mistake(
        "floats_of_empty",
        "your ids are floating-point numbers if a sentence is empty",
        "torch.tensor([]) is float32, and torch.cat takes the widest type.",
        "One empty sentence, and an embedding refuses the batch.",
        SHIFT,
        ({"late": _floats_of_empty},),
    ),
    Mistake(
        "narrow_ids",
        "you keep ids in a type that is too narrow for large ones; they are int64 from the start",
        "Tokens of the example are small, and int16 takes a quarter of the space.",
        "Of a real vocabulary, words from some number on become others, without an error.",
        SHIFT,
        tuple(
            {"kind": lambda rows, dtype=dtype: torch.tensor(rows).to(dtype).long()}
            for dtype in (torch.int16, torch.int8, torch.uint8, torch.float16, torch.bfloat16)
        ),
    ),
    Mistake(
        "empty_refused",
        "you refuse a batch of empty sentences only; those are allowed, no sentences at all are not",
        "any(targets) asks whether one of them is not empty, bool(targets) whether there is one.",
        "A batch that holds nothing but empty lines stops a run.",
        SHIFT,
        ({"accept_targets": _empty_refused}, {"accept_targets": _single_empty_refused}),
    ),
    Mistake(
        "lists_returned",
        "you return lists; tensors are wanted",
        "The last conversion is missing.",
        "A model cannot take them.",
        SHIFT,
        ({"kind": lambda rows: rows},),
    ),
    Mistake(
        "nothing_accepted",
        "you do not refuse an empty batch",
        "It does not occur.",
        "A tensor without rows, or an error about an index, far from its cause.",
        SHIFT,
        ({"accept_targets": lambda targets: None}, {"accept_targets": _nothing_crashes}),
    ),
    Mistake(
        "padding_accepted_as_mark",
        "you do not refuse a pad_id that is also one of the marks",
        "Vocabularies without padding borrow the end mark's id.",
        "The loss skips padding, and with it every end mark: the model never learns to stop.",
        SHIFT,
        ({"accept_ids": lambda bos_id, eos_id, pad_id: None},),
    ),
    Mistake(
        "marks_into_targets",
        "you append the end mark to the caller's own sentences",
        "`append` changes the list that it is called on.",
        "The next call on these sentences gives them a second end mark.",
        SHIFT,
        ({"says": _appended},),
    ),
)


TASK = Task(
    name="teacher_forcing",
    signature="teacher_forcing(targets, bos_id, eos_id, pad_id)",
    arguments=("targets", "bos_id", "eos_id", "pad_id"),
    returns=("tgt_in", "tgt_out"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns two tensors of shape (sentences, longest + 1).",
            ("one", "unequal"),
            SHIFT,
            ("structure",),
        ),
        Requirement(
            "values",
            "tgt_in is a start mark and the sentence, tgt_out the sentence and an end mark.",
            ("one", "same"),
            SHIFT,
        ),
        Requirement("padding", "shorter rows are filled with padding on the right.", ("unequal",), SHIFT),
        Requirement(
            "ids", "any ids can be the marks and the padding.", ("pad", "marks", "one_mark", "others"), SHIFT
        ),
        Requirement("empty", "of an empty sentence, the marks are left.", ("empty", "only_empty"), SHIFT),
        Requirement("dtype", "both are of type int64.", ("types", "empty_types"), SHIFT),
        Requirement(
            "inputs", "the caller's sentences are left unchanged.", ("same", "unequal"), SHIFT, ("inputs",)
        ),
        Requirement(
            "refusals",
            "no targets at all, and a pad_id that is also a mark, are refused with ValueError.",
            ("none", "padding_ends", "padding_starts"),
            SHIFT,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "length": 2}, {"batch": 2, "length": 3}),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
