"""`lessons my-transformer` for other people's notebooks: their code runs in a box; weights and text come out."""

import contextlib
import io
import json
import os
import socket
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from exercises.autograder.box.confine import HOME, Limits, spawn_sandboxed, terminate
from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send
from transformer_lessons import checks
from transformer_lessons.checks.translator.assembly import SETTINGS
from transformer_lessons.checks.translator.notebooks import cells_of
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import load_model, save_model
from transformer_lessons.trainer.tasks import NumberWords

LIMITS = Limits(seconds=600.0)


def boxed_transformer(paths: list[Path], *, fill: bool, output: Path) -> str:
    """Build a Transformer from notebooks' parts and train it in a box; save its weights outside, here.

    Returns what was printed in the box, made inert.

    Raises:
        ValueError: for files that are not notebooks, and for what goes wrong in the box.
        ConfinementError: if there can be no box.
    """
    texts = {path.name: json.dumps({"cells": list(map(vars, cells_of(path)))}) for path in paths}
    torch.set_num_threads(1)  # a process with threads cannot fork safely
    checks.check("transformer", None)  # torch asks about the machine, which a box does not show
    with TemporaryDirectory(prefix="box-") as folder:
        boxed = spawn_sandboxed(build_and_train, folder, LIMITS)
        try:
            boxed.connection.settimeout(None)
            deadline = time.monotonic() + LIMITS.seconds
            send(boxed.connection, {"notebooks": texts, "fill": fill}, deadline)
            answer = receive(boxed.connection, deadline)
            printed, state = str(answer["said"]), answer["state"]
        except (WireError, PeerGoneError, KeyError, TypeError) as error:
            raise ValueError(f"the box: expected a model, got {type(error).__name__}: {error}") from None
        finally:
            terminate(boxed)
    printed = "".join(c if c.isprintable() or c == "\n" else " " for c in printed)  # it goes to a terminal
    if not state:
        raise ValueError(printed.strip())
    printed = printed.rpartition("\nSaved.")[0]
    save(state, output)
    return f"{printed}\nSaved. Go on with: lessons translate --model {output} 421"


def build_and_train(connection: socket.socket) -> None:
    """Run `checks.my_transformer` in the box; send what it prints, and the weights, or none if it failed."""
    torch.set_num_threads(1)
    job, state = receive(connection, time.monotonic() + LIMITS.seconds), {}
    os.chdir(HOME)
    for name, text in job["notebooks"].items():
        Path(name).write_text(text, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            checks.my_transformer(list(job["notebooks"]), fill=job["fill"], output="mine")
            state = load_model(Path("mine"))[0].state_dict()
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    send(connection, {"said": printed.getvalue(), "state": dict(state)}, time.monotonic() + LIMITS.seconds)


def save(state: dict[str, Any], output: Path) -> None:
    """Save weights from a box, which may be anything, as a run.

    Raises:
        ValueError: if they are not weights of this model.
    """
    source, target = number_words.vocabularies()
    model = Transformer(TransformerConfig(len(source), len(target), **NumberWords.sizes))
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"the box: expected the model's weights, got others: {error}") from None
    save_model(output, model, source, target, task=NumberWords.name, training=asdict(SETTINGS))
