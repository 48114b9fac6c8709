"""Greedy decoding, with a model that one can read: a table of what follows each token."""

from dataclasses import replace

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Given, Task
from transformer_lessons.decoding import evaluating

# Probabilities of the next token: 1 begins a sentence, 2 ends it. LONG ends a step later than SHORT.
SHORT = {1: {3: 0.6, 4: 0.4}, 3: {2: 0.9, 4: 0.1}, 4: {3: 1.0}, 2: {5: 1.0}, 5: {5: 1.0}, 0: {3: 1.0}}
LONG = {1: {4: 0.7, 3: 0.3}, 4: {5: 0.8, 2: 0.2}, 5: {2: 0.6, 3: 0.4}, 3: {2: 1.0}, 2: {3: 1.0}, 0: {4: 1.0}}
# After 4 alone comes 5; after 3 and then 4 comes the end.
BOTH = {1: {3: 1.0}, 3: {4: 0.6, 2: 0.4}, (3, 4): {2: 1.0}, 4: {5: 1.0}, 5: {5: 1.0}}
ENDLESS = {1: {3: 1.0}, 3: {4: 1.0}, 4: {3: 0.9, 2: 0.1}}
TINY = {1: {3: 0.6, 2: 0.4}, 3: {2: 1.0}}, {1: {2: 1.0}}
OTHER = {"pad_id": 5, "bos_id": 3, "eos_id": 4}
RENAMED = {3: {1: 0.6, 2: 0.4}, 1: {0: 1.0}, 0: {2: 1.0}, 2: {4: 1.0}}, {3: {2: 1.0}, 2: {4: 1.0}}


def greedy(model, src, *, max_length):
    """The likeliest next token, again and again."""
    config = model.config
    tokens = torch.full((len(src), 1), config.bos_id)
    is_done = torch.zeros(len(src), dtype=torch.bool)
    with evaluating(model), torch.no_grad():
        while tokens.size(1) <= max_length and not is_done.all():
            likeliest = model(src, tokens)[:, -1].argmax(-1)
            likeliest = likeliest.masked_fill(is_done, config.pad_id)
            tokens = torch.cat([tokens, likeliest[:, None]], dim=1)
            is_done = is_done | (likeliest == config.eos_id)
    return tokens[:, 1:]


def model(*tables: dict, training: bool = False, **settings: int) -> Given:
    """A model made of these tables; each source sentence selects one."""
    options = ["training=True"] * training + [f"{name}={value}" for name, value in settings.items()]
    shown = f"checks.given.table({', '.join([*map(str, tables), *options])})"
    return Given("table", [list(tables), training, settings], shown)


def source(tables: tuple, rows: tuple[int, ...], pad_id: int = 0) -> Tensor:
    """Sources in which sentence n selects the table `rows[n]`; every second sentence is padded."""
    return torch.tensor([[len(tables) * 3 + row, pad_id if n % 2 else 6] for n, row in enumerate(rows)])


def call(*tables: dict, rows: tuple[int, ...] = (0,), max_length: int = 5, **options) -> Call:
    """A call with a batch of sentences, one for each number in `rows`."""
    src = source(tables, rows, options.get("pad_id", 0))
    return Call((model(*tables, **options), src), {"max_length": max_length}, view=Tensor.long)


def call_in_mode(training: bool) -> Call:
    """A call of a model in training or evaluation mode: its tokens, and the mode it is left in."""
    args = model(SHORT, training=training), torch.tensor([[3, 4]])
    return Call(args, {"max_length": 5}, weights_after=(0,), view=tokens_and_mode)


def tokens_and_mode(value: list) -> dict:
    """The tokens, and the model's mode afterwards."""
    tokens, state = value
    return {"tokens": tokens.long(), "model.training after the call": bool(state["is_training"])}


WHOLE = replace(call(), args=(model(*TINY), torch.tensor([[4, 4, 3]])))  # the sum of ids selects the table
VALUES = [*map(call, (TINY[0], BOTH, SHORT, LONG)), WHOLE]
BATCH = [call(LONG, rows=(0, 0)), call(SHORT, LONG, rows=(0, 1)), call(SHORT, LONG, rows=(1, 0, 0))]
BATCH += [call(SHORT, ENDLESS, rows=(1, 0))]
LENGTHS = [call(ENDLESS, max_length=3), call(LONG, max_length=1)]
LENGTHS += [call(SHORT, max_length=8), call(ENDLESS, max_length=8)]
IDS = [call(*RENAMED, rows=(0, 1), **OTHER), call(RENAMED[0], **OTHER)]
MODES = [call_in_mode(training) for training in (True, False)]

TASK = Task(
    name="greedy",
    solution=[greedy],
    probes={
        "values": (VALUES, VALUES),
        "batch": (BATCH, [call(*TINY, rows=(0, 1)), *BATCH]),
        "stopping": (LENGTHS, [*LENGTHS, call(*TINY, rows=(0, 1))]),
        "ids": (IDS, IDS),
        "evaluation": (MODES, MODES),
    },
)
