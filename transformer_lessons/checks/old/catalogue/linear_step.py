"""The check of `linear_attention_step`: one position of a linear attention that slowly forgets, an exercise."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.linear_steps import (
    ON_ONE_SIDE,
    ONE_MISSING,
    elu_plus_one,
    other_features,
    raw,
)
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

STATE, WRONG, PRECISION = "#ch08-recurrent", "#ch08-wrong", "#ch08-precision"
SMALL = [10.0**-n for n in (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16)]  # numbers that are put into divisors


def _sizes(seed: int) -> dict[str, int]:
    batch, heads, d_k, d_v = random.Random(seed).sample([2, 3, 5, 7, 11], 4)
    return {"batch": batch, "heads": heads, "d_k": d_k, "d_v": d_v}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, h, d_k, d_v = s["batch"], s["heads"], s["d_k"], s["d_v"]

    def inputs(*lead: int) -> list:
        return [draw.normal(*lead, d_k), draw.normal(*lead, d_k), draw.normal(*lead, d_v)]

    def state(*lead: int) -> list:
        return [draw.normal(*lead, d_k, d_v), draw.normal(*lead, d_k).abs() + 0.5]

    new, old = inputs(b, h), state(b, h)
    back = [draw.normal(b, h, d_v), draw.normal(b, h, d_k, d_v), draw.normal(b, h, d_k)]
    return {
        "later": Probe([*new, *old], cotangents=back),
        "decayed": Probe([*new, *old], {"decay": 0.75}, cotangents=back),
        "first": Probe(new, cotangents=back),
        "first_decayed": Probe(inputs(h), {"decay": 0.5}, note="one axis in front"),
        "first_single": Probe(inputs(), note="no axis in front"),
        "single": Probe([*inputs(), *state()], {"decay": 0.75}),
        "one_head": Probe(
            [*inputs(2, b, 1), *state(2, b, 1)],
            {"decay": 0.75},
            note="three axes in front, one of them of size one",
        ),
        "first_small": Probe([new[0] - 12, new[1] - 12, new[2]], note="all features are small"),
        "first_tiny": Probe([new[0] - 22, new[1] - 22, new[2]], note="all features are tiny"),
        "float32": Probe([x.float() for x in (*new, *old)]),
        "first_float32": Probe([x.float() for x in new]),
        "whole": Probe([*new, *old], {"decay": 1}, note="decay is an int"),
        "zero": Probe([*new, *old], {"decay": 0.0}, refused="decay=0.0"),
        "negative": Probe(new, {"decay": -0.5}, refused="decay=-0.5, in the first step"),
        "growing": Probe([*new, *old], {"decay": 1.5}, refused="decay=1.5"),
    }


def _accept(decay: float) -> None:
    if not 0 < decay <= 1:
        raise ValueError("decay: expected a number above 0 and up to 1")


def _start(S: Tensor | None, z: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if S is None:
        return k.new_zeros(*k.shape, v.size(-1)), torch.zeros_like(k)
    return S, z


def _numerator(q: Tensor, S: Tensor) -> Tensor:
    return (q[..., None] * S).sum(-2)


def _divisor(q: Tensor, z: Tensor) -> Tensor:
    return (q * z).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    inputs: Callable = lambda query, key, value: (query, key, value)
    start: Callable = _start
    given: Callable = lambda S, z: (S, z)
    phi: Callable = elu_plus_one
    query_phi: Callable = lambda x, phi: phi(x)
    key_phi: Callable = lambda x, phi: phi(x)
    fade: Callable = lambda S, decay: S * decay
    fade_z: Callable = lambda z, decay: z * decay
    new: Callable = lambda outer, k, decay: (outer, k)
    add: Callable = lambda old, new: old + new
    add_z: Callable = lambda old, new: old + new
    seen: Callable = lambda before, after: after
    numerator: Callable = _numerator
    divisor: Callable = _divisor
    result: Callable = lambda output, S, z: (output, S, z)


def assemble(steps: Steps) -> Callable:
    """One step of linear attention in these steps."""

    def step(query, key, value, S=None, z=None, *, decay=1.0):
        if steps.accept(decay) is not None:
            return query  # a stand-in for numbers: only that it was accepted counts
        query, key, value = steps.inputs(query, key, value)
        q, k = steps.query_phi(query, steps.phi), steps.key_phi(key, steps.phi)
        S, z = steps.given(*steps.start(S, z, k, value))
        outer, more = steps.new(k[..., :, None] * value[..., None, :], k, decay)
        after = steps.add(steps.fade(S, decay), outer), steps.add_z(steps.fade_z(z, decay), more)
        seen_S, seen_z = steps.seen((S, z), after)
        return steps.result(steps.numerator(q, seen_S) / steps.divisor(q, seen_z), *after)

    return step


def _none_crashes(message: str) -> Callable:
    def start(S: Tensor | None, z: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if S is None:
            raise TypeError(message)
        return S, z

    return start


def _plain_zeros(S: Tensor | None, z: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if S is None:
        return torch.zeros(k.size(-1), v.size(-1)), torch.zeros(k.size(-1))
    return S, z


def _zeros_of_three_axes(S: Tensor | None, z: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if S is None:
        b, h, d = k.shape
        return k.new_zeros(b, h, d, v.size(-1)), k.new_zeros(b, h, d)
    return S, z


def _by_letters(q: Tensor, S: Tensor) -> Tensor:
    return torch.einsum("bhf,bhfv->bhv", q, S)


def _ones(S: Tensor | None, z: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if S is None:
        return k.new_zeros(*k.shape, v.size(-1)), torch.ones_like(k)
    return S, z


def _crash_if_refused(decay: float) -> None:
    if not 0 < decay <= 1:
        raise AssertionError


def _below(decay: float) -> bool | None:
    return None if 0 < decay <= 1 else True


def _only_positive(decay: float) -> bool | None:
    return _accept(min(decay, 1.0)) if decay <= 1 else True


def _zero_too(decay: float) -> bool | None:
    return True if decay == 0 else _accept(decay)


def _kept(x: Tensor, decay: float) -> Tensor:
    return x


MISTAKES = (
    Mistake(
        "read_before_writing",
        "you read the output from the old state; a position sees itself, so the state is updated first",
        "Recurrent networks are drawn with the old state going in.",
        "Every output is one position late, and the first is 0/0.",
        STATE,
        ({"seen": lambda before, after: before},),
    ),
    Mistake(
        "state_replaced",
        "your new state holds the new key and value only; they are added to what was there",
        "= was written for +=.",
        "The output is always the newest value.",
        STATE,
        (
            {"add": lambda old, new: new, "add_z": lambda old, new: new},
            {"start": lambda S, z, k, v: _start(None, None, k, v)},
        ),
    ),
    Mistake(
        "state_not_updated",
        "you return the state as it came; the caller needs the one with the new key and value in it",
        "The update was meant for the output only.",
        "Nothing is ever remembered.",
        STATE,
        ({"add": lambda old, new: old, "add_z": lambda old, new: old},),
    ),
    Mistake(
        "divisor_not_updated",
        "you add to S but not to z",
        "S is what holds the values.",
        "The divisor stays behind, and outputs grow.",
        STATE,
        ({"add_z": lambda old, new: old},),
    ),
    Mistake(
        "decay_ignored",
        "you never use decay",
        "With decay = 1 nothing is missing.",
        "Nothing is ever forgotten.",
        STATE,
        ({"fade": _kept, "fade_z": _kept},),
    ),
    Mistake(
        "divisor_not_decayed",
        "you let S decay, but not z: both are sums over the same positions",
        "S is the state, z is taken for a counter.",
        "Outputs shrink towards zero as the text goes on.",
        STATE,
        ({"fade_z": _kept},),
    ),
    Mistake(
        "values_not_decayed",
        "you let z decay, but not S: both are sums over the same positions",
        "The two lines were not written alike.",
        "Outputs grow as the text goes on.",
        STATE,
        ({"fade": _kept},),
    ),
    Mistake(
        "new_decayed_too",
        "you multiply everything by decay, the new key and value too; only what is old decays",
        "The decay was put around the sum.",
        "The output is the same, and the state is off by one factor.",
        STATE,
        ({"new": lambda outer, k, decay: (outer * decay, k * decay)},),
    ),
    Mistake(
        "new_decayed_instead",
        "you multiply the new key and value by decay; the old state is what decays",
        "The factor slipped to the other term.",
        "The past weighs more than the present.",
        STATE,
        ({"fade": _kept, "fade_z": _kept, "new": lambda outer, k, decay: (outer * decay, k * decay)},),
    ),
    Mistake(
        "moving_average",
        "you weight the new key and value with 1 − decay, as in a moving average; here they count in full",
        "Moving averages are written so.",
        "With decay = 1 nothing new gets in.",
        STATE,
        ({"new": lambda outer, k, decay: (outer * (1 - decay), k * (1 - decay))},),
    ),
    Mistake(
        "no_features",
        "you use query and key as they are, without the feature map φ",
        "(8.5) is read with φ left out.",
        "Weights can be negative, and the divisor near zero.",
        WRONG,
        ({"query_phi": raw, "key_phi": raw},),
    ),
    replace(
        ON_ONE_SIDE,
        name="you apply φ to the query or to the key only; it belongs to both",
        symptom="Weights can be negative.",
    ),
    ONE_MISSING,
    other_features(),
    Mistake(
        "not_divided",
        "you left out the division by φ(q)·z",
        "φ(q) S looks complete.",
        "Outputs are sums, not averages.",
        WRONG,
        ({"divisor": lambda q, z: torch.ones_like(z[..., :1])},),
    ),
    Mistake(
        "divided_without_query",
        "you divide by the sum of z; it is φ(q)·z that makes the weights sum to one",
        "z is a sum already, so a sum of it seems to be what is missing.",
        "Values that are all 1 are not averaged to 1.",
        STATE,
        ({"divisor": lambda q, z: z.sum(-1, keepdim=True)},),
    ),
    Mistake(
        "epsilon_in_divisor",
        "you add a small constant to the divisor: outputs are all a little too small",
        "A division by zero is feared; after the new key was added it cannot be.",
        "Off in the sixth digit or so.",
        STATE,
        tuple({"divisor": lambda q, z, e=e: _divisor(q, z) + e} for e in SMALL),
    ),
    Mistake(
        "divisor_clamped",
        "you raise small divisors to a constant; after the new key was added, no divisor is zero",
        "clamp(min=1e-6) avoids a division by zero as well.",
        "Where all features are small, outputs shrink towards zero.",
        STATE,
        tuple({"divisor": lambda q, z, e=e: _divisor(q, z).clamp(min=e)} for e in SMALL),
    ),
    Mistake(
        "state_transposed",
        "your S has shape (…, d_v, d_k); features come first, (…, d_k, d_v)",
        "The outer product was written the other way round.",
        "It cannot be added to the state that the caller hands over.",
        STATE,
        (
            {"result": lambda output, S, z: (output, S.transpose(-2, -1), z)},
            {"new": lambda outer, k, decay: (outer.transpose(-2, -1), k)},
        ),
    ),
    Mistake(
        "output_only",
        "you return the output alone; the next step needs S and z",
        "The output is what attention returns.",
        "The caller has no state to go on with.",
        STATE,
        ({"result": lambda output, S, z: output},),
    ),
    Mistake(
        "state_nested",
        "you return the state as a pair of its own; wanted are three tensors, (output, S, z)",
        "S and z belong together.",
        "The caller's `output, S, z = …` fails.",
        STATE,
        ({"result": lambda output, S, z: (output, (S, z))},),
    ),
    Mistake(
        "state_edited",
        "you change the caller's S and z in place",
        "+= and *= write into the tensor itself.",
        "Who keeps an old state, as beam search does, finds it changed.",
        STATE,
        (
            {
                "fade": lambda S, decay: S.mul_(decay),
                "fade_z": lambda z, decay: z.mul_(decay),
                "add": Tensor.add_,
                "add_z": Tensor.add_,
            },
            {"add": Tensor.add_, "add_z": Tensor.add_, "fade": lambda S, d: S if d == 1 else S.mul_(d)},
        ),
    ),
    Mistake(
        "state_detached",
        "you cut the gradient off at the state",
        "Long sequences are trained in pieces so; that is for the caller to decide.",
        "No position learns what to write down for later ones.",
        STATE,
        ({"given": lambda S, z: (S.detach(), z.detach())},),
    ),
    Mistake(
        "no_first_step",
        "you do not start a state where none is given (S and z are None)",
        "In the middle of a text there always is one.",
        "The first position raises TypeError.",
        STATE,
        tuple(
            {"start": _none_crashes(message)}
            for message in (
                "unsupported operand type(s) for *: 'float' and 'NoneType'",
                "unsupported operand type(s) for *: 'NoneType' and 'float'",
            )
        ),
    ),
    Mistake(
        "axes_counted",
        "you expect a certain number of axes; in front of the features there may be any number, or none",
        "b, h, d = query.shape and “bhd” in an einsum name the axes that a model has.",
        "It fails for a single position without batch or heads, or for more axes than two.",
        STATE,
        (
            {"start": _zeros_of_three_axes},
            {"numerator": _by_letters},
            {"numerator": lambda q, S: _numerator(q, S) if q.dim() == 1 else _by_letters(q, S)},
        ),
    ),
    Mistake(
        "starts_with_ones",
        "your z starts with ones; before the first key, its sum is zero",
        "A division by zero is feared; it would need an empty state.",
        "All outputs are a little too small.",
        STATE,
        ({"start": _ones},),
    ),
    Mistake(
        "decay_unchecked",
        "you do not refuse, with ValueError, a decay that is not above 0 and at most 1",
        "Any number can be multiplied.",
        "A typo in a configuration makes the state explode, or forget everything.",
        PRECISION,
        (
            {"accept": _crash_if_refused},
            {"accept": _below},
            {"accept": _only_positive},
            {"accept": _zero_too},
        ),
    ),
)

TASK = Task(
    name="linear_attention_step",
    signature="linear_attention_step(query, key, value, S=None, z=None, *, decay=1.0)",
    arguments=("query", "key", "value", "S", "z"),
    returns=("output", "S", "z"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns a tuple (output, S, z) of shapes (…, d_v), (…, d_k, d_v) and (…, d_k).",
            ("later", "one_head"),
            STATE,
            ("structure",),
        ),
        Requirement(
            "values",
            "φ(k)ᵀv is added to S and φ(k) to z, then output = φ(q) S / (φ(q)·z), with φ(x) = elu(x) + 1.",
            ("later",),
            STATE,
        ),
        Requirement(
            "first",
            "without S and z it starts with an empty state.",
            ("first", "first_decayed", "first_single", "first_small", "first_tiny"),
            STATE,
        ),
        Requirement(
            "decay",
            "what was in S and z before is multiplied by decay, and nothing else is.",
            ("decayed", "single", "one_head"),
            STATE,
        ),
        Requirement(
            "gradients",
            "gradients reach query, key, value and the old state, through all that is returned.",
            ("decayed", "first"),
            STATE,
            ("gradients",),
        ),
        Requirement(
            "dtype",
            "results have the dtype of the inputs.",
            ("float32", "first_float32", "first"),
            STATE,
            ("dtype",),
        ),
        Requirement(
            "inputs",
            "the caller's tensors, the old state among them, are left unchanged.",
            ("later", "decayed"),
            STATE,
            ("inputs",),
        ),
        Requirement(
            "refusals",
            "a decay that is not above 0 and at most 1 is refused with ValueError; a whole number of 1 is not.",
            ("whole", "zero", "negative", "growing"),
            PRECISION,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "heads": 1, "d_k": 1, "d_v": 1},
        {"batch": 1, "heads": 1, "d_k": 2, "d_v": 1},
        {"batch": 1, "heads": 2, "d_k": 2, "d_v": 3},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=11,  # all but the refusals
)
