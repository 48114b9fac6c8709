"""Plain values over a socket: a header in JSON, followed by tensors as raw bytes; never pickle.

A frame is two lengths (of the header and of the bytes, 8 bytes each, little-endian), the header, and the
bytes of all tensors in the order in which the header names them. In the header

    None, bool, int, float, str   stand for themselves,
    [value, …]                    for a list, or a tuple, which arrives as a list,
    {"dict": {name: value, …}}    for a dict with string keys,
    {"tensor": [dtype, shape, order]}    for a tensor; the order is that of its axes in memory.

The sender of a frame may be hostile: everything is bounded before it is read or built, and all that a reader
can raise is `WireError` (what came breaks these rules) and `PeerGoneError` (nothing comes, or nobody reads).
"""

import json
import math
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

HEADER_BYTES = 2 << 20
TENSOR_BYTES = 64 << 20
VALUES = 20_000  # the most in one frame: tensors, numbers, lists and what they contain
DEPTH = 24
TEXT = 1 << 19  # the longest string
AXES = 16
LENGTHS = struct.Struct("<QQ")
_NUMBERS = "float64 float32 float16 bfloat16 complex128 complex64 int64 int32 int16 int8 uint8 bool"
DTYPES = {name: getattr(torch, name) for name in _NUMBERS.split()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class WireError(Exception):
    """Raised for a value that cannot be sent, or a frame that breaks the rules; nothing more may be read."""


class PeerGoneError(Exception):
    """Raised when the other side has ended, or took longer than it may."""


def send(connection: socket.socket, value: Any, deadline: float) -> None:
    """Send one frame with a plain value, see above; tensors may be on any device, but must be strided.

    The deadline is by `time.monotonic`; infinite for none.

    Raises:
        WireError: if the value is too large, too deep, or of another kind. Nothing was sent then.
        PeerGoneError: if the other side does not read it in time, or has ended.
    """
    frame = _Frame()
    encoded = _encoded(value, frame, 0)
    size = sum(tensor.nbytes for tensor in frame.tensors)
    if size > TENSOR_BYTES:
        raise WireError(f"tensors: expected at most {TENSOR_BYTES:,} bytes in all")
    header = json.dumps(encoded, ensure_ascii=False).encode("utf-8", "replace")
    if len(header) > HEADER_BYTES:
        raise WireError(f"value: expected at most {HEADER_BYTES:,} bytes not in tensors, got {len(header):,}")
    for part in (LENGTHS.pack(len(header), size) + header, *map(_bytes_of, frame.tensors)):
        with _within_deadline(connection, deadline, "read"):
            connection.sendall(part)  # the deadline is that of all parts together


def receive(connection: socket.socket, deadline: float) -> Any:
    """Receive the next frame and return its value.

    Raises:
        WireError: if the frame breaks the rules.
        PeerGoneError: if it does not come in time, or the other side has ended.
    """
    header_bytes, tensor_bytes = LENGTHS.unpack(_read(connection, LENGTHS.size, deadline))
    if header_bytes > HEADER_BYTES or tensor_bytes > TENSOR_BYTES:
        raise WireError(f"frame: too large, {header_bytes:,} and {tensor_bytes:,} bytes")
    try:
        encoded = json.loads(bytes(_read(connection, header_bytes, deadline)))
    except (ValueError, RecursionError) as error:
        raise WireError(f"header: expected JSON ({type(error).__name__})") from None
    frame = _Frame(_read(connection, tensor_bytes, deadline))
    value = _decoded(encoded, frame, 0)
    if len(frame.left):
        raise WireError(f"frame: {len(frame.left):,} bytes too many")
    return value


class _Frame:
    """A frame in progress: how many values it has, its tensors (if sent), the bytes left (if received)."""

    def __init__(self, data: bytes | bytearray = b""):
        self.values = 0
        self.tensors: list[Tensor] = []
        self.left = memoryview(data)

    def count_value(self, depth: int) -> None:
        self.values += 1
        if self.values > VALUES:
            raise WireError(f"value: expected at most {VALUES:,} values in all")
        if depth > DEPTH:
            raise WireError(f"value: expected to be nested at most {DEPTH} deep")


def _is_scalar(value: Any) -> bool:
    """Whether a value stands for itself in a header; of exact types, as others may lie about themselves."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return value is None or type(value) in (bool, float) or (type(value) is str and len(value) <= TEXT)


def _encoded(value: Any, frame: _Frame, depth: int) -> Any:
    """A value in the form that it has in the header."""
    frame.count_value(depth)
    if _is_scalar(value):
        return value
    if type(value) in (list, tuple):
        return [_encoded(item, frame, depth + 1) for item in value]
    if type(value) is dict and all(type(name) is str for name in value):
        return {"dict": {name: _encoded(item, frame, depth + 1) for name, item in value.items()}}
    if isinstance(value, Tensor) and value.layout is torch.strided and value.dtype in NAMES:
        plain = value.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg()
        order = _order(plain)
        frame.tensors.append(plain.permute(order).contiguous())
        return {"tensor": [NAMES[plain.dtype], list(plain.shape), order]}
    raise WireError(f"value: expected plain values, got {type(value).__name__}")


def _order(tensor: Tensor) -> list[int]:
    """The order of the axes in memory: after a transpose `view` fails, on the other side too."""
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    is_other = tensor.permute(order).is_contiguous() and not tensor.is_contiguous()
    return order if is_other else list(range(tensor.dim()))


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def _decoded(encoded: Any, frame: _Frame, depth: int) -> Any:
    """The value that a header describes."""
    frame.count_value(depth)
    if _is_scalar(encoded):
        return encoded
    if type(encoded) is list:
        return [_decoded(item, frame, depth + 1) for item in encoded]
    if type(encoded) is dict and encoded.keys() == {"dict"} and type(encoded["dict"]) is dict:
        return {name: _decoded(item, frame, depth + 1) for name, item in encoded["dict"].items()}
    if type(encoded) is dict and encoded.keys() == {"tensor"}:
        return _tensor(encoded["tensor"], frame)
    raise WireError("header: expected a value")


def _tensor(described: Any, frame: _Frame) -> Tensor:
    """A tensor from the first of the remaining bytes."""
    if type(described) is not list or len(described) != 3 or described[0] not in NAMES.values():
        raise WireError("tensor: expected dtype, shape and order")
    dtype, shape, order = DTYPES[described[0]], *described[1:]
    if not all(map(_are_sizes, (shape, order))) or sorted(order) != list(range(len(shape))):
        raise WireError("tensor: expected a shape and the order of its axes")
    size = math.prod(shape) * dtype.itemsize
    if size > len(frame.left):
        raise WireError(f"tensor: expected {size:,} bytes, got {len(frame.left):,}")
    if not size:
        try:
            return torch.empty(shape, dtype=dtype)
        except RuntimeError:  # one axis is 0, and others are out of all bounds
            raise WireError("tensor: expected a possible shape") from None
    raw, frame.left = torch.frombuffer(frame.left[:size], dtype=torch.uint8), frame.left[size:]
    # As booleans, bytes other than 0 and 1 would be neither True nor False.
    found = raw != 0 if dtype is torch.bool else raw.clone().view(dtype)
    return found.reshape([shape[axis] for axis in order]).permute([*map(order.index, range(len(order)))])


def _are_sizes(found: Any) -> bool:
    is_short = type(found) is list and len(found) <= AXES
    return is_short and all(type(size) is int and 0 <= size < 2**63 for size in found)


def _read(connection: socket.socket, size: int, deadline: float) -> bytearray:
    found = bytearray(size)
    left = memoryview(found)
    while left:
        with _within_deadline(connection, deadline, "answer"):
            got = connection.recv_into(left)
        if not got:
            raise PeerGoneError("the other process has ended, by an exit, a crash, or for lack of memory")
        left = left[got:]
    return found


@contextmanager
def _within_deadline(connection: socket.socket, deadline: float, what: str) -> Iterator[None]:
    """Wait for the peer until the deadline and no longer, even if it sends or takes a byte at a time."""
    seconds = deadline - time.monotonic()
    try:
        if seconds <= 0:
            raise TimeoutError
        connection.settimeout(None if math.isinf(seconds) else seconds)
        yield
    except TimeoutError:
        raise PeerGoneError(f"the other process took too long to {what}") from None
    except OSError as error:
        raise PeerGoneError(f"the other process has ended: {error}") from None
