"""The check of `beam`: its requirements and the calls that probe them."""

from transformer_lessons.checks.old.catalogue.beam_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.catalogue.small_models import (
    NEARLY_ALL,
    WATCHED,
    Small,
    in_evaluation,
    in_training,
)
from transformer_lessons.checks.old.core import Draw, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import beam

__all__ = ["TASK"]

BEAM, STOPPING, PENALTY = "#ch15-beam", "#ch15-stopping", "#ch15-length-penalty"
# Number, readiness to end and sureness of two small models that together tell all mistakes apart.
EAGER, HESITANT = (62208, -0.5, 0.6), (11291, -2.0, 0.4)
ROWS = 17


def _sizes(seed: int) -> dict[str, int]:
    return {"seed": seed, "rows": ROWS}


def _options(beam_size: int, length_penalty: float, max_length: int) -> dict[str, float]:
    return {"beam_size": beam_size, "length_penalty": length_penalty, "max_length": max_length}


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    eager, hesitant = (Small(n, s["seed"], ROWS, ending=e, sharp=sure) for n, e, sure in (EAGER, HESITANT))
    rows, other_rows, other = eager.order[: s["rows"]], hesitant.order[: s["rows"]], (5, 3, 6)
    model, src = eager.model(), eager.source(rows)
    second = [hesitant.model(), hesitant.source(other_rows)]
    third = [hesitant.model(other), hesitant.source(other_rows, other)]
    training, evaluated = (eager.model(kind=kind, dropout=NEARLY_ALL) for kind in WATCHED)
    return {
        "one": Probe([model, src], _options(1, 0.0, 4)),
        "several": Probe(second, _options(4, 0.0, 4)),
        "penalty": Probe([model, src], _options(2, 2.5, 7)),
        "wide": Probe(second, _options(hesitant.target_vocab + 2, 0.0, 4)),
        "ids": Probe(third, _options(4, 2.5, 7)),
        "training": Probe([training, src], _options(2, 1.0, 1), look=(0,), view=in_training),
        "evaluation": Probe([evaluated, src], _options(2, 1.0, 1), look=(0,), view=in_evaluation),
        "no_beam": Probe([model, src], _options(0, 1.0, 3), refused="beam_size=0"),
        "negative": Probe([model, src], _options(2, -1.0, 3), refused="length_penalty=-1.0"),
        "no_length": Probe([model, src], _options(2, 1.0, 0), refused="max_length=0"),
    }


TASK = Task(
    name="beam",
    signature="beam(model, src, beam_size=…, length_penalty=…, max_length=…)",
    arguments=("model", "src"),
    returns=("tokens",),
    reference=beam,
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, length), without bos_id.",
            ("one",),
            BEAM,
            ("structure",),
        ),
        Requirement("one", "with one beam it is greedy decoding.", ("one",), BEAM),
        Requirement(
            "values",
            "the beam_size beginnings with the largest log p go on; what ends is a candidate if it is among the "
            "beam_size best continuations; what max_length cuts off competes too.",
            ("several",),
            BEAM,
        ),
        Requirement(
            "penalty",
            "finished sentences, and they alone, are compared by log p / ((5 + n)/6)^length_penalty.",
            ("penalty",),
            PENALTY,
        ),
        Requirement("wide", "as wide as the vocabulary and wider, it works too.", ("wide",), BEAM),
        Requirement("ids", "the special tokens are those of model.config.", ("ids",), BEAM),
        Requirement(
            "evaluation",
            "the model decodes in evaluation mode, and is left in the mode it came in.",
            ("training", "evaluation"),
            "#ch15-wrong",
        ),
        Requirement("inputs", "src is left unchanged.", ("several",), BEAM, ("inputs",)),
        Requirement(
            "refusals",
            "a beam_size or max_length below 1, and a negative length_penalty, are refused with ValueError.",
            ("no_beam", "negative", "no_length"),
            BEAM,
        ),
    ),
    sizes=_sizes,
    small=(
        {"seed": 0, "rows": 1},
        {"seed": 1, "rows": 2},
        {"seed": 2, "rows": 5},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
