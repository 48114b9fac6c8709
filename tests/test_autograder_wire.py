"""Plain values over a socket, and the adapter that lets checks use it.

Valid values arrive; forged, truncated, late or too large ones are refused.
"""

import json
import math
import socket
import struct
import threading
import time

import pytest
import torch

from exercises.autograder.running import wire
from exercises.autograder.running.proxy import Name
from exercises.autograder.running.remote import Connection, serve
from exercises.autograder.running.wire import PeerGoneError, WireError, receive, send
from transformer_lessons import checks
from transformer_lessons.checks.definitions import changed
from transformer_lessons.checks.learner.adapter import Adapter, Reply


@pytest.fixture
def ends():
    """Both ends of a socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def soon(seconds: float = 10.0) -> float:  # enough for everything that should arrive
    return time.monotonic() + seconds


def crossed(ends, value):
    """The value as it arrives; a thread sends it, as a socket's buffer is limited."""
    ours, theirs = ends
    thread = threading.Thread(target=send, args=(theirs, value, soon()))
    thread.start()
    try:
        return receive(ours, soon())
    finally:
        thread.join()


def test_plain_values_arrive(ends):
    numbers = [None, True, 0, -(2**63), 2**63 - 1, 0.1, -0.0, math.inf]
    for value in (*numbers, "", "ψ\n\x00\ud7ff", [], {}, [[]], {"": [None]}):
        found = crossed(ends, value)
        assert (found, type(found)) == (value, type(value))
    assert crossed(ends, ((1, [()]), "a\ud800b")) == [[1, [[]]], "a?b"]
    assert math.isnan(crossed(ends, math.nan))


# The shape of a tensor, and the order of its axes in memory.
SHAPES = [((), ()), ((1,), (0,)), ((0, 3), (0, 1))]
SHAPES += [((2, 3, 5), order) for order in ((0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0))]


@pytest.mark.parametrize("dtype", wire.DTYPES.values(), ids=wire.DTYPES)
def test_tensors_arrive_bit_for_bit_and_exchanged_axes_stay_exchanged_in_memory(ends, dtype):
    for shape, order in SHAPES:
        sent = (torch.randn(shape) * 100).to(dtype).permute(order)
        [found] = crossed(ends, [sent])
        assert type(found) is torch.Tensor
        assert (found.dtype, found.stride()) == (dtype, sent.stride())
        assert torch.equal(found, sent)
        found.fill_(1)  # it has memory of its own, which is writable


def test_views_gradients_and_subclasses_arrive_as_plain_numbers(ends):
    x = torch.randn(7, 5, dtype=torch.complex64)
    sent = [x.real[::2].requires_grad_(), x.conj(), torch.nn.Parameter(torch.ones(3))]
    found = crossed(ends, sent)
    assert [type(t) for t in found] == [torch.Tensor] * 3
    assert not any(t.requires_grad or t.is_conj() for t in found)
    assert torch.equal(found[0], x.real[::2])
    assert torch.equal(found[1], x.conj().resolve_conj())


def test_what_is_not_plain_or_too_much_is_not_sent(ends, monkeypatch):
    class Liar(list):
        def __iter__(self):
            return iter([1])

    ours, theirs = ends
    monkeypatch.setattr(wire, "TENSOR_BYTES", 100)
    monkeypatch.setattr(wire, "HEADER_BYTES", 100)
    deep: list = []
    for _ in range(wire.DEPTH + 1):
        deep = [deep]
    odd = [object(), Liar([2]), {1: 2}, 2**63, torch.eye(2).to_sparse(), max, "x" * (wire.TEXT + 1)]
    for value, said in (
        *((value, "value: expected plain values, got") for value in odd),
        ([0] * 20_000, "value: expected at most 20,000 values in all"),
        (deep, "nested at most 24 deep"),
        ([torch.zeros(9, dtype=torch.float64)] * 2, "tensors: expected at most 100 bytes in all"),
        ("x" * 99, "at most 100 bytes not in tensors, got 103"),
    ):
        with pytest.raises(WireError, match=said):
            send(theirs, [value], soon())
        send(theirs, "next", soon())
        assert receive(ours, soon()) == "next", "nothing of the refused value may be sent"


def frame(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<QQ", len(text), len(data)) + text + data


FORGED = {
    "too large a header": struct.pack("<QQ", 2**40, 0),
    "too many bytes": struct.pack("<QQ", 2, 2**40),
    "no JSON": frame(b"{"),
    "no UTF-8": frame(b'"\xff"'),
    "a number of many digits": frame(b"1" * 5000),
    "brackets": frame(b"[" * 100_000),
    "an integer of 65 bits": frame(2**64),
    "a plain object": frame({"a": 1}),
    "two tags": frame({"dict": {}, "tensor": ["bool", [], []]}),
    "a tensor with more": frame({"tensor": ["int8", [1], [0]], "more": 1}, b"1"),
    "a dict that is a list": frame({"dict": [1]}),
    "a tensor that is a number": frame({"tensor": 3}),
    "no such dtype": frame({"tensor": ["object", [1], [0]]}, b"12345678"),
    "a dtype that is a list": frame({"tensor": [["int8"], [1], [0]]}, b"1"),
    "no order": frame({"tensor": ["int8", [1]]}, b"1"),
    "a shape that is a number": frame({"tensor": ["int8", 1, [0]]}, b"1"),
    "a negative axis": frame({"tensor": ["int8", [-1], [0]]}, b"1"),
    "an axis that is a fraction": frame({"tensor": ["int8", [1.0], [0]]}, b"1"),
    "an axis that is true": frame({"tensor": ["int8", [True], [0]]}, b"1"),
    "an axis of 65 bits": frame({"tensor": ["int8", [0, 2**64], [0, 1]]}),
    "many axes": frame({"tensor": ["int8", [1] * 17, list(range(17))]}, b"1"),
    "an axis twice": frame({"tensor": ["int8", [1, 2], [1, 1]]}, b"12"),
    "an order that is a number": frame({"tensor": ["int8", [2], 0]}, b"12"),
    "two orders": frame({"tensor": ["int8", [2], [0], [0]]}, b"12"),
    "more than came": frame({"tensor": ["float64", [2], [0]]}, b"12345678"),
    "less than came": frame({"tensor": ["int8", [1], [0]]}, b"12"),
    "nothing of far too much": frame({"tensor": ["int8", [0, 2**62, 2**62], [0, 1, 2]]}),
    "more than there is": frame({"tensor": ["int8", [2**62, 2**62], [0, 1]]}, b"1"),
}


def received(data: bytes) -> object:
    """The value read from these bytes, after which the other side closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return receive(ours, soon())


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_frames_are_refused(forged):
    with pytest.raises(WireError):
        received(forged)


def test_booleans_are_true_or_false_whatever_came():
    found = received(frame({"tensor": ["bool", [3], [0]]}, bytes([0, 1, 77])))
    assert found.tolist() == [False, True, True]
    assert found.view(torch.uint8).tolist() == [0, 1, 1]


def test_silent_stalled_or_closed_peer_is_noticed_in_time(ends):
    ours, theirs = ends
    began = time.monotonic()
    theirs.sendall(frame("whole"))
    # Although it is there: otherwise a byte now and then would put off the deadline for ever.
    with pytest.raises(PeerGoneError, match="too long to answer"):
        receive(ours, soon(0))
    assert receive(ours, soon()) == "whole"
    with pytest.raises(PeerGoneError, match="too long to answer"):
        receive(ours, soon(0.2))
    theirs.sendall(frame("whole")[:10])
    with pytest.raises(PeerGoneError, match="too long to answer"):
        receive(ours, soon(0.2))
    with pytest.raises(PeerGoneError, match="too long to read"):
        send(ours, torch.zeros(1 << 22), soon(0.2))
    assert time.monotonic() - began < 5
    theirs.close()
    with pytest.raises(PeerGoneError, match="ended"):
        send(ours, torch.zeros(1 << 22), soon())
    with pytest.raises(PeerGoneError, match="ended"):
        receive(ours, soon())


# ---- The adapter

# A function, a module, one that gets objects, one whose memory is measured; grading masters tests the rest.
TASKS = ("scaled_dot_product_attention", "token_embedding", "influence", "chunked_cross_entropy")


def wrong(name: str):
    """A task's first known mistake."""
    task = checks.task(name)
    return task.define(changed(task.source, task.mistakes[0].ways[0]))


@pytest.fixture
def learner(ends):
    """A connection to a thread that has a right and a wrong answer to each task."""
    ours, theirs = ends
    names = {f"right_{name}": checks.task(name).define(checks.task(name).source) for name in TASKS}
    names |= {f"wrong_{name}": wrong(name) for name in TASKS}
    local = checks.Local(names)
    answer = lambda verb, args, kwargs, _: vars(getattr(local, verb)(*args, **kwargs))  # noqa: E731
    thread = threading.Thread(target=serve, args=(theirs, answer))
    thread.start()
    yield Connection(ours, seconds=600)
    ours.close()
    thread.join()


def test_checks_say_over_a_socket_what_they_say_here(learner, no_shape_checks):
    for name in TASKS:
        assert isinstance(Name(learner, name), Adapter)
        assert checks.check(name, Name(learner, f"right_{name}"), seed=3).passed, name
        here = checks.check(name, wrong(name), seed=3)
        there = checks.check(name, Name(learner, f"wrong_{name}"), seed=3)
        assert (there.message, there.misconception) == (here.message, here.misconception)
        assert there.misconception
        assert there.requirements == here.requirements


def test_without_time_left_a_call_fails_but_the_connection_stays_open(learner):
    """Otherwise a check that runs out of time would lose the points of its earlier requirements."""
    learner.allow(0)
    assert Name(learner, "nowhere").call("f", [], {}).error["type"] == "TimeLimitError"
    learner.allow(600)
    assert Name(learner, "nowhere").call("f", [], {}).error["type"] == "NameError"


PLAIN = vars(Reply(value=1, kind="int"))
REPLIES = {
    "nothing": None,
    "a later number": {"number": 2, "value": PLAIN},
    "true for one": {"number": [1], "value": PLAIN},
    "more": {"number": 1, "value": PLAIN, "more": 1},
    "no reply": {"number": 1, "value": 1},
    "a field too few": {"number": 1, "value": {k: v for k, v in PLAIN.items() if k != "kind"}},
    "a field too many": {"number": 1, "value": {**PLAIN, "passed": True}},
}
WRONG = [("kind", 1), ("attached", [1]), ("error", "none"), ("error", dict(type="E", message=1, line=""))]
WRONG += [("gradients", {"0": "x"}), ("gradients", [None]), ("memory", {"saved": "few"})]
REPLIES |= {f"{name}: {value}": {"number": 1, "value": {**PLAIN, name: value}} for name, value in WRONG}


@pytest.mark.parametrize("forged", REPLIES.values(), ids=REPLIES)
def test_forged_replies_end_the_conversation(ends, forged):
    ours, theirs = ends
    learner = Connection(ours, seconds=5)
    send(theirs, forged, soon())
    for _ in range(2):  # the second call does not even send a request
        with pytest.raises(WireError, match="reply"):
            Name(learner, "f").call("f", [], {})
    receive(theirs, soon())
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
