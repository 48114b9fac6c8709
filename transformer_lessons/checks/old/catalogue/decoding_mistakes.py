"""Known wrong ways to decode that greedy decoding and beam search have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from transformer_lessons.checks.old.core import Mistake

__all__ = ["MODES", "SOURCE_PADDING_SEEN", "ids_assumed"]

BATCH, WRONG = "#ch15-batch", "#ch15-wrong"


def _usual(*which: str) -> Callable:
    usual = {"pad_id": 0, "bos_id": 1, "eos_id": 2}

    def ids(config):
        return tuple(usual[n] if n in which else getattr(config, n) for n in usual)

    return ids


SOURCE_PADDING_SEEN = Mistake(
    "source_padding_seen",
    "you let the decoder look at the source's padding",
    "decode wants a mask, and one of ones fits.",
    "A sentence's translation depends on how long its batch-mates are.",
    BATCH,
    ({"source_mask": lambda src, pad_id: torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool)},),
)


def ids_assumed(anchor: str) -> Mistake:
    """The numbers of special tokens written down, all or one of them; the book explains it at `anchor`."""
    return Mistake(
        "ids_assumed",
        "you wrote the numbers of special tokens down; pad_id, bos_id and eos_id are in model.config",
        "0, 1 and 2 are what they usually are.",
        "With another vocabulary, sentences begin or end with some word.",
        anchor,
        tuple(
            {"ids": _usual(*which)}
            for which in (("pad_id", "bos_id", "eos_id"), ("pad_id",), ("bos_id",), ("eos_id",))
        ),
    )


@contextmanager
def _off_and_on(model: nn.Module) -> Iterator[None]:
    model.eval()
    yield
    model.train()


MODES = (
    Mistake(
        "left_in_training",
        "you decode in whatever mode the model is in; it has to be put into evaluation mode",
        "The models that one tries are in evaluation mode already.",
        "After training, dropout garbles the sentences, another way each time.",
        WRONG,
        ({"mode": nullcontext},),
    ),
    Mistake(
        "left_in_evaluation",
        "you leave the model in evaluation mode; it has to go back to the mode it came in",
        "model.eval() is one line, and nothing asks for the way back.",
        "Whoever decodes in the middle of training goes on without dropout.",
        WRONG,
        ({"mode": lambda model: nullcontext(model.eval())},),
    ),
    Mistake(
        "training_afterwards",
        "you put the model into training mode in the end, although it came in evaluation mode",
        "model.eval() and model.train() look like opposites, each undoing the other.",
        "Whoever uses the model afterwards has dropout in it.",
        WRONG,
        ({"mode": _off_and_on},),
    ),
)
