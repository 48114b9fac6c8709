"""The check of `Transformer`: the wiring of a whole model, from ids to logits, around layers that are given."""

import random
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.layer_parts import RATE
from transformer_lessons.checks.old.catalogue.transformer_dropout import training
from transformer_lessons.checks.old.catalogue.transformer_mistakes import MISTAKES, Steps, assemble
from transformer_lessons.checks.old.core import Build, Draw, Probe, Requirement, Task

__all__ = ["TASK"]

ENDS, LINES, PROPERTIES, WRONG = "#ch13-both-ends", "#ch13-hundred-lines", "#ch13-properties", "#ch13-wrong"
START = "#ch13-start"


def _sizes(seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    batch, source, target = chance.sample([2, 3, 5, 7], 3)
    heads, d_k = chance.sample([2, 3], 2)
    vocab_size = chance.choice([11, 13, 17])
    return {
        "batch": batch,
        "source": source + 2,
        "target": target + 1,
        "heads": heads,
        "d_k": d_k,
        "vocab_size": vocab_size,
    }


def _ids(draw: Draw, batch: int, length: int, vocab_size: int, pad_id: int) -> Tensor:
    """Ids padded on the right, but for those of the first row."""
    ids = draw.integers(0, vocab_size - 1, batch, length)
    ids += ids >= pad_id
    for row in range(1, batch):
        ids[row, length - row % (length - 1) :] = pad_id
    return ids


def _drawn(state: dict) -> dict:
    """Which of the usual starts the matrix has: chance forbids comparing the numbers."""
    weight = state["embedding.weight"]
    usual = {"1/√d": weight.size(1) ** -0.5, "1": 1.0, "0.02": 0.02, "1/d": 1 / weight.size(1)}
    kind = next((name for name, size in usual.items() if abs(weight.std().item() / size - 1) < 0.05), "other")
    return {"the matrix should start with a standard deviation of 1/√d_model": kind}


def _before_padding(tgt: Tensor, pad_id: int) -> Callable[[Tensor], Tensor]:
    """A view of the logits without those of padding, which nobody reads."""
    return lambda logits: logits.masked_fill((tgt[:, :-1] == pad_id)[..., None], 0.0)


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, d, v = s["batch"], s["heads"] * s["d_k"], s["vocab_size"]
    sizes = {"vocab_size": v, "d_model": d, "num_heads": s["heads"], "d_ff": 7, "num_layers": 2}
    settings = sizes | {"dropout": 0.0, "norm_first": False, "pad_id": 0}

    def built(**changes) -> Build:
        changed = settings | changes
        own = assemble(Steps())(changed).state_dict()
        # Float32, as tables of positions often are, and so small that no layer amplifies what it rounds.
        drawn = {name: 0.3 * draw.normal(*t.shape, dtype=torch.float32) for name, t in own.items()}
        state = {name: t + own[name] * ("norm" in name) for name, t in drawn.items()}
        return Build([changed], state=state, training=False)

    post, other = built(num_layers=1), built(num_layers=1, pad_id=v - 1)
    pre = built(norm_first=True, dropout=RATE)  # of two layers; in evaluation, nothing is dropped
    src, tgt = _ids(draw, b, s["source"], v, 0), _ids(draw, b, s["target"], v, 0)
    others = [_ids(draw, b, s[side], v, v - 1) for side in ("source", "target")]
    whole, wholes = draw.integers(1, v, b, s["source"]), draw.integers(1, v, b, s["target"])
    # After a call with no padding and a longer target, of which no mask may be kept.
    used = replace(post, earlier=(("", [whole, torch.cat([wholes, wholes[:, :1]], dim=1)], {}),))
    cotangents = [0.1 * draw.normal(b, s["target"] - 1, v, dtype=torch.float32)]
    return {
        "post": Probe([whole, wholes], build=post, cotangents=cotangents),
        "pre": Probe([whole, wholes], build=pre),
        "padded": Probe([src, tgt], build=used, view=_before_padding(tgt, 0)),
        "pad_id": Probe(others, build=other, view=_before_padding(others[1], v - 1)),
        **training(draw),
        "start": Probe(
            [],
            build=Build([settings | {"vocab_size": 211, "d_model": 60, "num_heads": 2, "num_layers": 1}]),
            method="state",
            view=_drawn,
        ),
        "two_tokens": Probe([whole, wholes[:, :2]], build=post),
        "empty": Probe([src, tgt[:, :0]], build=post, refused="a target without tokens"),
        "short": Probe([src, tgt[:, :1]], build=post, refused="a target of one token, with nothing after it"),
        "batches": Probe([src[:1], torch.cat([tgt, tgt])], build=post, refused="batches of two sizes"),
    }


TASK = Task(
    name="transformer",
    signature="Transformer(settings)(src, tgt)",
    arguments=("src", "tgt"),
    returns=("logits",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor of shape (batch, target − 1, vocab_size).",
            ("post",),
            ENDS,
            ("structure",),
        ),
        Requirement(
            "post_norm",
            "embed, encode, embed the target without its last token, decode, project with the same matrix.",
            ("post",),
            LINES,
        ),
        Requirement(
            "pre_norm",
            "a pre-norm model has a final norm behind either stack; in training alone, embedded tokens with "
            "their positions are dropped, and so is what the layers' parts give.",
            ("pre", "training", "training_source", "training_encoder"),
            LINES,
        ),
        Requirement("padding", "padding of the source is hidden everywhere.", ("padded",), PROPERTIES),
        Requirement("pad_id", "any id may be the padding.", ("pad_id",), PROPERTIES),
        Requirement(
            "gradients",
            "gradients reach all parameters, the embedding from all its three uses.",
            ("post",),
            WRONG,
            ("parameters",),
        ),
        Requirement(
            "start",
            "the matrix starts with a standard deviation of 1/√d_model: it makes the first logits, too.",
            ("start",),
            START,
        ),
        Requirement(
            "refusals",
            "a target of fewer than two tokens and batches of different sizes are refused with ValueError.",
            ("two_tokens", "short", "empty", "batches"),
            PROPERTIES,
        ),
    ),
    sizes=_sizes,
    small=({"batch": 1, "source": 2, "target": 2, "heads": 1, "d_k": 2, "vocab_size": 5},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
