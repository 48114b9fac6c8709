"""The adapter over a socket: all checks say in another process what they say in this one; liars are shown out."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from exercises.autograder.running.remote import Connection, Remote
from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send
from transformer_lessons import checks
from transformer_lessons.checks.adapter import Adapter, Reply
from transformer_lessons.checks.definitions import changed

ROOT = Path(__file__).parents[1]
# A learner's process: the right answer of each task under its name, and its first known mistake.
LEARNER = """
import socket, sys
from exercises.autograder.running.remote import answers_of, serve
from transformer_lessons import checks
from transformer_lessons.checks.definitions import changed
names = {}
for name in checks.tasks():
    task = checks.task(name)
    names[f"right_{name}"] = task.define(task.source)
    for mistake in task.mistakes[:1]:
        names[f"wrong_{name}"] = task.define(changed(task.source, mistake.ways[0]))
names["huge"] = lambda x: [0] * 100_000
names["ends"] = lambda x: __import__("os")._exit(0)
names["waits"] = lambda x: __import__("time").sleep(60)
answers = answers_of(checks.Local(names))
serve(socket.socket(fileno=int(sys.argv[1])), lambda verb, args, kwargs, _: answers[verb](*args, **kwargs))
"""


@pytest.fixture(scope="module")
def started():
    """Starts learners' processes and ends them."""
    running = []

    def start() -> Connection:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", LEARNER, str(theirs.fileno())]
        running.append((subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT), ours))
        theirs.close()
        return Connection(ours, seconds=600)

    yield start
    for process, end in running:
        end.close()
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def learner(started):
    """A process that stays as it is: starting one takes seconds."""
    return started()


def test_all_checks_say_over_a_socket_what_they_say_here(learner, no_shape_checks):
    for name in checks.tasks():
        task = checks.task(name)
        assert isinstance(Remote(learner, name), Adapter)
        assert checks.check(name, Remote(learner, f"right_{name}"), seed=3).passed, name
        for mistake in task.mistakes[:1]:
            here = checks.check(name, task.answer(changed(task.source, mistake.ways[0])), seed=3)
            there = checks.check(name, Remote(learner, f"wrong_{name}"), seed=3)
            assert (there.message, there.misconception) == (here.message, mistake.name)
            assert there.requirements == here.requirements


def test_what_cannot_be_sent_is_the_learners_error_and_the_next_call_works(learner):
    reply = Remote(learner, "huge").call("f", [1], {})
    assert reply.error["type"] == "ResultError"
    assert "your result is too large" in reply.error["message"]
    missing = Remote(learner, "nowhere").call("f", [1], {})
    assert missing.error["type"] == "NameError"
    x = torch.ones(1, 2, dtype=torch.int64)
    assert Remote(learner, "right_padding_mask").call("f", [x, 0], {}).value.shape == (1, 1, 1, 2)


def test_a_process_that_ends_or_waits_is_over_for_good(started):
    ended = started()
    for _ in range(2):
        with pytest.raises(PeerGoneError, match="has ended"):
            Remote(ended, "ends").call("f", [1], {})
    waiting = started()
    assert Remote(waiting, "nowhere").call("f", [], {}).error  # it has started
    waiting.allow(0.5)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(PeerGoneError, match="took too long"):
            Remote(waiting, "waits").call("f", [1], {})
    assert time.monotonic() - began < 5


def test_without_time_left_nobody_is_asked_and_nothing_is_over(learner):
    learner.allow(0)
    assert Remote(learner, "waits").call("f", [1], {}).error["type"] == "TimeLimitError"
    learner.allow(600)
    assert Remote(learner, "nowhere").call("f", [], {}).error["type"] == "NameError"


PLAIN = vars(Reply(value=1, kind="int"))
FORGED = {
    "nothing": None,
    "an earlier number": {"number": 0, "value": PLAIN},
    "a later number": {"number": 2, "value": PLAIN},
    "true for one": {"number": [1], "value": PLAIN},
    "more": {"number": 1, "value": PLAIN, "more": 1},
    "no reply": {"number": 1, "value": 1},
    "a field too few": {"number": 1, "value": {k: v for k, v in PLAIN.items() if k != "kind"}},
    "a field too many": {"number": 1, "value": {**PLAIN, "passed": True}},
    **{
        f"{name}: {value}": {"number": 1, "value": {**PLAIN, name: value}}
        for name, value in (
            ("kind", 1),
            ("error", "none"),
            ("error", {"type": "E"}),
            ("error", {"type": "E", "message": 1, "line": ""}),
            ("attached", [1]),
            ("gradients", {"0": "x"}),
            ("gradients", [None]),
            ("parameters", {"w": 1.0}),
            ("mutated", "all"),
            ("reseeded", 0),
            ("memory", {"saved": "few"}),
        )
    },
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_replies_end_the_conversation(forged):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        learner = Connection(ours, seconds=5)
        send(theirs, forged, time.monotonic() + 5)
        for _ in range(2):  # and what comes after is not even read
            with pytest.raises(WireError, match="reply"):
                Remote(learner, "f").call("f", [], {})
        receive(theirs, time.monotonic() + 5)
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
