"""What the checks compare with: guarded copies of the package's definitions, as they were before the small canon.

The canon's own have neither the guards nor the options that the checks still ask for. Until the issue on the
checks is done, these copies are the checks' references, and what their models, which learners decode with, are
built of. No other part of the package imports them, and the file goes with that issue.
"""
# ruff: noqa: D101, D102, D103

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# ---- What is asked of arguments

NUMBER = (int, float)  # and tuples elsewhere: torch 2.9 cannot compile ``isinstance(x, int | float)``


def expect_sizes(**given: int) -> None:
    _whole(1, given)


def expect_lengths(**given: int) -> None:
    _whole(0, given)


def _whole(least: int, given: dict[str, int]) -> None:
    for name, number in given.items():
        # A SymInt is what a length becomes in a graph that is traced for any length.
        if type(number) not in (int, torch.SymInt) or number < least:
            raise ValueError(f"{name}: expected an integer, {least} or more, got {number!r}")


def expect_integers(**given: int) -> None:
    for name, number in given.items():
        if type(number) is not int:
            raise ValueError(f"{name}: expected an integer, got {number!r}")


def expect_number(**given: float) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, NUMBER) or not 0 <= value < math.inf:
            raise ValueError(f"{name}: expected a number, 0 or more, got {value!r}")


def expect_probability(**given: float) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, NUMBER) or not 0 <= value < 1:
            raise ValueError(f"{name}: expected 0 or more and below 1, got {value!r}")


def expect_kind(wanted: type | tuple[type, ...], **given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, wanted):
            names = " or ".join(
                each.__name__ for each in (wanted if isinstance(wanted, tuple) else (wanted,))
            )
            raise ValueError(f"{name}: expected a {names}, got {_shown(value)}")


def expect_function(**given: object) -> None:
    for name, value in given.items():
        if not callable(value):
            raise ValueError(f"{name}: expected a function or module, got {_shown(value)}")


def expect_several(**given: Iterable) -> None:
    for name, items in given.items():
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise ValueError(f"{name}: expected several, such as a list, got {_shown(items)}")


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def expect_floats(*axes: str, **given: Tensor) -> None:
    for name, x in given.items():
        if not isinstance(x, Tensor):  # asked here too: a step of decoding passes by a hundred times
            expect_kind(Tensor, **{name: x})
        if not x.is_floating_point() or (axes and x.dim() != len(axes)):
            shape = f" of shape ({', '.join(axes)})" if axes else ""
            raise ValueError(f"{name}: expected floats{shape}, got {x.dtype} {tuple(x.shape)}")


def expect_width(
    x: Tensor,
    weight: Tensor,
    *axes: str,
    name: str = "x",
    width_name: str = "d_model",
    same_dtype: bool = False,
) -> None:
    # Called for every input of every layer: what fits must be through in a microsecond or two.
    if not isinstance(x, Tensor) or not x.is_floating_point() or (axes and x.dim() != len(axes)):
        expect_floats(*axes, **{name: x})
    if x.dim() == 0 or x.size(-1) != weight.size(-1):
        raise ValueError(
            f"{name}: expected a last axis of {width_name} = {weight.shape[-1]}, got {tuple(x.shape)}"
        )
    if x.device != weight.device:
        expect_same_device(weight, **{name: x})
    if same_dtype and x.dtype != weight.dtype and not _is_autocast(x.device.type):
        raise ValueError(f"{name}: expected {weight.dtype}, as the weights, got {x.dtype}")


def _is_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def expect_same_device(other: Tensor, of: str = "the weights", **given: Tensor) -> None:
    for name, x in given.items():
        if x.device != other.device:
            raise ValueError(f"{name}: expected device {other.device}, as {of}, got {x.device}")


def expect_ids(*axes: str, **given: Tensor) -> None:
    axes = axes or ("batch", "length")
    for name, x in given.items():
        expect_kind(Tensor, **{name: x})
        if x.dim() != len(axes) or x.dtype not in (torch.int64, torch.int32):
            expected = f"expected int64 or int32 of shape ({', '.join(axes)})"
            raise ValueError(f"{name}: {expected}, got {x.dtype} {tuple(x.shape)}")


def expect_below(count: int, reason: str = "", **given: Tensor) -> None:
    for name, x in given.items():
        if expect_readable(x) and x.numel():
            low, high = int(x.min()), int(x.max())
            if low < 0 or high >= count:
                raise ValueError(f"{name}: expected 0 to {count - 1}{reason}, got {low if low < 0 else high}")


def expect_readable(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def expect_broadcasts(mask: Tensor, shape: tuple[int, ...], name: str = "mask") -> None:
    axes = range(-mask.dim(), 0)  # aligned at the last one
    if mask.dim() > len(shape) or any(mask.size(axis) not in (1, shape[axis]) for axis in axes):
        raise ValueError(f"{name}: expected to broadcast to {tuple(shape)}, got {tuple(mask.shape)}")


def expect_offset(given: int | Tensor) -> int:
    if isinstance(given, Tensor):
        if given.dim() or given.dtype not in (torch.int64, torch.int32):
            expected = "an integer, or a tensor of one without axes"
            raise ValueError(f"offset: expected {expected}, got {given.dtype} {tuple(given.shape)}")
        given = int(given) if expect_readable(given) else 0
    expect_lengths(offset=given)
    return given


# ---- config

SWITCHES = ("norm_first", "tie_embeddings", "shared_vocabulary")
SIZES = (
    "source_vocab_size",
    "target_vocab_size",
    "d_model",
    "num_heads",
    "d_ff",
    "num_encoder_layers",
    "num_decoder_layers",
    "max_length",
)


@dataclass(frozen=True)
class TransformerConfig:
    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1
    norm_first: bool = False
    tie_embeddings: bool = True
    shared_vocabulary: bool = False
    max_length: int = 1024
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self):
        expect_sizes(**{name: getattr(self, name) for name in SIZES})
        expect_probability(dropout=self.dropout)
        for name in SWITCHES:
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of d_model = {self.d_model}, got {self.num_heads}"
            )
        self._check_vocabularies()

    def _check_vocabularies(self):
        smaller = min(self.source_vocab_size, self.target_vocab_size)
        for name in ("pad_id", "bos_id", "eos_id"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number < smaller:
                raise ValueError(f"{name}: expected an integer, 0 to {smaller - 1}, got {number!r}")
        if len({self.pad_id, self.bos_id, self.eos_id}) < 3:
            raise ValueError(
                f"pad_id, bos_id, eos_id: expected three different ids, "
                f"got {self.pad_id}, {self.bos_id}, {self.eos_id}"
            )
        if self.shared_vocabulary and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"shared_vocabulary: expected vocabularies of one size, "
                f"got {self.source_vocab_size} and {self.target_vocab_size}"
            )


# ---- masks

# What people write for −inf: −1e9, −1e4 (which float16 can hold), the smallest number of a dtype.
HIDDEN = -1e4


def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    expect_ids(ids=ids)
    expect_integers(pad_id=pad_id)
    return (ids != pad_id)[:, None, None, :]


def causal_mask(queries: int, keys: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    keys = queries if keys is None else keys
    expect_lengths(queries=queries, keys=keys)
    if keys < queries:
        raise ValueError(f"keys: expected at least as many as queries ({queries}), got {keys}")
    mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return mask.tril(diagonal=keys - queries)


def segment_mask(query_segments: Tensor, key_segments: Tensor) -> Tensor:
    expect_ids("batch", "queries", query_segments=query_segments)
    expect_ids("batch", "keys", key_segments=key_segments)
    expect_same_device(query_segments, "query_segments", key_segments=key_segments)
    if query_segments.size(0) != key_segments.size(0):
        raise ValueError(
            f"key_segments: expected batch size {query_segments.size(0)}, got {key_segments.size(0)}"
        )
    return (query_segments[:, :, None] == key_segments[:, None, :])[:, None]


def boolean(mask: Tensor, name: str = "mask") -> Tensor:
    expect_kind(Tensor, **{name: mask})
    if mask.dtype is torch.bool:
        return mask
    expected = f"{name}: expected booleans, True = may attend, or floats, 0 = may attend and −inf = may not"
    if not mask.is_floating_point():
        raise ValueError(f"{expected}, got {mask.dtype}")
    visible = mask == 0
    if mask.device.type == "meta" or torch.compiler.is_compiling():
        return visible  # there are no values to look at
    if not (visible | (mask <= HIDDEN)).all():
        odd = mask[~visible & ~(mask <= HIDDEN)][0].item()
        raise ValueError(f"{expected}, got {mask.dtype} with {odd:g} in it")
    return visible


def combine(*masks: Tensor | None) -> Tensor | None:
    combined = None
    for number, mask in enumerate(masks):
        if mask is not None:
            visible = boolean(mask, f"masks[{number}]")
            combined = visible if combined is None else _both(combined, visible, f"masks[{number}]")
    return combined


def _both(combined: Tensor, mask: Tensor, name: str) -> Tensor:
    expect_same_device(combined, "those before", **{name: mask})
    axes = range(-min(mask.dim(), combined.dim()), 0)  # aligned at the last one
    sizes = ((mask.size(axis), combined.size(axis)) for axis in axes)
    if any(size != other and 1 not in (size, other) for size, other in sizes):
        raise ValueError(
            f"{name}: expected to broadcast with {tuple(combined.shape)}, got {tuple(mask.shape)}"
        )
    return combined & mask


# ---- encodings


def sinusoidal(
    length: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    expect_lengths(length=length)
    # On the CPU, wherever it goes: not every device has float64.
    angle = torch.outer(torch.arange(length, dtype=torch.float64, device="cpu"), _frequencies(d_model, base))
    table = torch.empty(length, d_model, dtype=torch.float64, device="cpu")
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.to(dtype or torch.get_default_dtype()).to(device or torch.get_default_device())


def _frequencies(d_model: int, base: float) -> Tensor:
    expect_sizes(d_model=d_model)
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not 1 < base < float("inf"):
        raise ValueError(f"base: expected a number above 1, got {base!r}")
    return float(base) ** (-torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu") / d_model)


def shift_matrix(
    k: int, d_model: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Tensor:
    expect_integers(k=k)
    if type(d_model) is not int or d_model < 2 or d_model % 2:
        raise ValueError(f"d_model: expected an even number, 2 or more, got {d_model!r}")
    angle = k * _frequencies(d_model, 10_000.0)
    rotations = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], dim=-1).view(-1, 2, 2)
    matrix = torch.block_diag(*rotations)
    return matrix.to(dtype or torch.get_default_dtype()).to(device or torch.get_default_device())


def _check_positions(positions: Tensor, shape: torch.Size, count: int, table: Tensor, of: str) -> None:
    expect_ids(*("batch", "length")[-len(shape) :], positions=positions)
    expect_same_device(table, positions=positions)
    if positions.shape != shape:
        raise ValueError(f"positions: expected shape {tuple(shape)}, as {of}, got {tuple(positions.shape)}")
    expect_below(count, ", below max_length", positions=positions)


class SinusoidalEncoding(nn.Module):
    def __init__(self, d_model: int, max_length: int):
        super().__init__()
        expect_sizes(d_model=d_model, max_length=max_length)
        self.register_buffer("table", sinusoidal(max_length, d_model), persistent=False)

    def forward(self, x: Tensor, offset: int | Tensor = 0) -> Tensor:
        max_length = len(self.table)
        expect_width(x, self.table, "batch", "length", "d_model")
        first = expect_offset(offset)
        if first + x.size(1) > max_length:
            raise ValueError(
                f"x: expected at most max_length = {max_length} positions, got {first + x.size(1)}"
            )
        return x + self.table[torch.arange(x.size(1), device=x.device) + offset]

    def _apply(self, fn, recurse=True):
        # What `.to()` & co. end in. Cast to float64, the table would keep the digits of float32.
        super()._apply(fn, recurse)
        self.table = sinusoidal(*self.table.shape, dtype=self.table.dtype, device=self.table.device)
        return self


class RotaryEncoding(nn.Module):
    def __init__(self, d_k: int, max_length: int, *, base: float = 10_000.0):
        super().__init__()
        expect_sizes(d_k=d_k, max_length=max_length)
        if d_k % 2:
            raise ValueError(f"d_k: expected an even number, got {d_k}")
        self.base = base
        table = sinusoidal(max_length, d_k, base=base)
        self.register_buffer("table", table, persistent=False)

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        expect_width(heads, self.table, "batch", "heads", "length", "d_k", name="heads", width_name="d_k")
        has_rows = isinstance(positions, Tensor) and positions.dim() == 2
        shape = heads.shape[0:3:2] if has_rows else heads.shape[2:3]
        _check_positions(positions, shape, len(self.table), self.table, "heads")
        # The same for all heads: their axis is the third from the end.
        sine, cosine = self.table[positions].unsqueeze(-3).unflatten(-1, (-1, 2)).unbind(-1)
        even, odd = heads.to(self.table.dtype).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        return turned.flatten(-2).to(heads.dtype)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        wide = torch.promote_types(self.table.dtype, torch.float32)
        table = sinusoidal(*self.table.shape, base=self.base, dtype=wide, device=self.table.device)
        self.table = table
        return self


# ---- dropout

STEPS = 2**16


class Dropout(nn.Dropout):
    def __init__(self, p: float = 0.1):
        expect_probability(p=p)
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        expect_floats(x=x)
        if not self.training:
            return x
        if not expect_readable(x):
            return F.dropout(x, self.p)
        dropped = min(round(self.p * STEPS), STEPS - 1)
        if not dropped:
            return x
        # As numbers of a byte: truth values multiply at a third of the speed.
        keep = (_uniform_16_bits(x.shape) >= dropped - STEPS // 2).view(torch.int8)
        return x * keep * (STEPS / (STEPS - dropped))


def _uniform_16_bits(shape: torch.Size) -> Tensor:
    count = shape.numel()
    wide = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return wide.view(torch.int16)[:count].view(shape)


# ---- norms


class LayerNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        _check_norm(d_model, eps)
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        expect_width(x, self.weight)
        if x.dtype != self.weight.dtype:
            return self.step_by_step(x)
        # One pass over x instead of seven: buys 5% of a training step on a CPU, and 10% of a step of decoding.
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def step_by_step(self, x: Tensor) -> Tensor:
        expect_width(x, self.weight)
        # Squares of float16 overflow from 256 on: the statistics are taken in float32 at least.
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        normalised = centred * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        _check_norm(d_model, eps)
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        expect_width(x, self.weight)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight).to(x.dtype)


class BatchNorm(nn.Module):
    def __init__(self, d_model: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        _check_norm(d_model, eps)
        expect_number(momentum=momentum)
        if momentum > 1:
            raise ValueError(f"momentum: expected 0 to 1, got {momentum!r}")
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        expect_width(x, self.weight)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = self._statistics(wide) if self.training else (self.running_mean, self.running_var)
        normalised = (wide - mean) * torch.rsqrt(variance + self.eps)
        return (normalised * self.weight + self.bias).to(x.dtype)

    def _apply(self, fn, recurse=True):
        # What `.to()` & co. end in. Squares do not fit into float16: the statistics stay in float32 at least.
        before = {name: getattr(self, name) for name in ("running_mean", "running_var")}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype.itemsize < 4:
                setattr(self, name, old.to(new.device, torch.float32))
        return self

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        vectors = x.flatten(0, -2) if x.dim() > 1 else x[None]
        count = len(vectors)
        if count < 2:
            raise ValueError(f"x: expected two vectors or more to take a variance in training, got {count}")
        mean = vectors.mean(0)
        variance = (vectors - mean).square().mean(0)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = variance * count / (count - 1)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
            self.num_batches_tracked += 1
        return mean, variance


def _check_norm(d_model: int, eps: float) -> None:
    expect_sizes(d_model=d_model)
    expect_number(eps=eps)


# ---- embeddings


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size: int, d_model: int):
        super().__init__()
        expect_sizes(vocab_size=vocab_size, d_model=d_model)
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) / math.sqrt(d_model))

    def forward(self, ids: Tensor) -> Tensor:
        vocab_size, d_model = self.weight.shape
        expect_ids(ids=ids)
        expect_same_device(self.weight, ids=ids)
        expect_below(vocab_size, ids=ids)
        return nn.functional.embedding(ids, self.weight) * math.sqrt(d_model)


class TransformerEmbedding(nn.Module):
    def __init__(
        self, vocab_size: int, d_model: int, *, position: nn.Module | None = None, dropout: float = 0.0
    ):
        super().__init__()
        if position is not None:
            expect_function(position=position)
        expect_probability(dropout=dropout)
        self.token = TokenEmbedding(vocab_size, d_model)
        self.position = position
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, offset: int | Tensor = 0) -> Tensor:
        x = self.token(ids)
        expect_offset(offset)
        if self.position is not None:
            x = self.position(x, offset)
        return self.dropout(x)


# ---- feed_forward

ACTIVATIONS = {"relu": torch.relu, "gelu": nn.functional.gelu}


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        if activation not in tuple(ACTIVATIONS):
            raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        expect_sizes(d_model=d_model, d_ff=d_ff)
        expect_probability(dropout=dropout)
        self.W_1 = _linear(d_model, d_ff)
        self.W_2 = _linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        expect_width(x, self.W_1.weight, same_dtype=True)
        return self.W_2(self.dropout(self.activation(self.W_1(x))))


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0, bias: bool = False):
        super().__init__()
        expect_sizes(d_model=d_model, d_ff=d_ff)
        expect_probability(dropout=dropout)
        self.W_1 = _linear(d_model, d_ff, bias)
        self.W_2 = _linear(d_ff, d_model, bias)
        self.W_3 = _linear(d_model, d_ff, bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        expect_width(x, self.W_1.weight, same_dtype=True)
        return self.W_2(self.dropout(nn.functional.silu(self.W_1(x)) * self.W_3(x)))


def _linear(width_in: int, width_out: int, bias: bool = True) -> nn.Linear:
    linear = nn.Linear(width_in, width_out, bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


# ---- attention.inputs


def check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        expect_kind(Tensor, **{name: tensor})
        if tensor.dim() < 2 or not tensor.is_floating_point():
            raise ValueError(
                f"{name}: expected floats of two axes or more, got {tensor.dtype} {tuple(tensor.shape)}"
            )
    *batch, _, d_k = query.shape
    if not d_k:
        raise ValueError(f"query: expected a last axis of d_k = 1 or more, got {tuple(query.shape)}")
    *key_batch, keys, key_width = key.shape
    if key_width != d_k or key_batch != batch:
        raise ValueError(f"key: expected shape {(*batch, '…', d_k)}, got {tuple(key.shape)}")
    if list(value.shape[:-1]) != [*batch, keys]:
        raise ValueError(
            f"value: expected shape {(*batch, keys, '…')}, as the keys, got {tuple(value.shape)}"
        )
    expected = f"{query.dtype} on {query.device}"
    for name, tensor in (("key", key), ("value", value)):
        got = f"{tensor.dtype} on {tensor.device}"
        if got != expected:
            raise ValueError(f"{name}: expected {expected}, as query, got {got}")


def check_mask(mask: Tensor | None, query: Tensor, key: Tensor, is_causal: bool = False) -> Tensor | None:
    scores = (*query.shape[:-1], key.size(-2))
    if mask is not None:
        mask = torch.atleast_2d(boolean(mask))  # the kernels want an axis for the queries
        expect_broadcasts(mask, scores)
        expect_same_device(query, "query", mask=mask)
    if is_causal:
        mask = combine(mask, causal_mask(*scores[-2:], device=query.device)[0, 0])
    return mask


# ---- attention.dot_product

# That exist at a time of each head, on the CPU and with dropout: 1 MiB in float32, the whole of 512 positions.
MOST_WEIGHTS = 2**18


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    check_inputs(query, key, value)
    mask = check_mask(mask, query, key, is_causal)
    expect_probability(dropout=dropout)
    # Products of large float16 overflow: scores and softmax are taken in float32 at least, as fused kernels do.
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).mT / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The smallest number, not −inf: a row without any key would be NaN, in the backward pass too.
        masked = scores.masked_fill(~mask, torch.finfo(wide).min)
        weights = masked.softmax(-1).masked_fill(~mask, 0.0)
    # The values wide as well: the gradient of the weights is a product with them.
    output = F.dropout(weights, dropout) @ value.to(wide)
    return output.to(value.dtype), weights.to(value.dtype)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    check_inputs(query, key, value)
    expect_probability(dropout=dropout)
    # With dropout PyTorch has no kernel for the CPU: there it would hold all weights.
    if dropout and expect_readable(query) and query.size(-2) * key.size(-2) > MOST_WEIGHTS:
        return _by_blocks(query, key, value, check_mask(mask, query, key), is_causal, dropout)
    return _by_kernel(query, key, value, mask, is_causal, dropout)


def _by_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    if is_causal and mask is None and query.size(-2) == key.size(-2):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = check_mask(mask, query, key, is_causal)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    # Kernels disagree on a query without any key (zeros, NaN, an average): let it see all, then zero it.
    blind = ~mask.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(query, key, value, mask | blind, dropout_p=dropout)
    return output.masked_fill(blind, 0.0)


def _by_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    queries, keys = query.size(-2), key.size(-2)
    if is_causal:
        causal_mask(queries, keys, device="meta")  # refuses more queries than keys
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], queries, keys)
    outputs = []
    for start in range(0, queries, size := max(1, MOST_WEIGHTS // keys)):
        rows = slice(start, start + size)
        seen = min(start + size, queries) + keys - queries if is_causal else keys
        block = query[..., rows, :], key[..., :seen, :], value[..., :seen, :]
        visible = None if mask is None else mask[..., rows, :seen]
        outputs.append(checkpoint(_by_kernel, *block, visible, is_causal, dropout, use_reentrant=False))
    return torch.cat(outputs, dim=-2)


# ---- attention.linear

CHUNK = 64


def elu_plus_one(x: Tensor) -> Tensor:
    expect_floats(x=x)
    return F.elu(x) + 1


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    is_causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    q, k, v = _features(query, key, value, feature_map, key_mask)
    if not is_causal:
        return _normalised(q @ (k.mT @ v)).to(value.dtype)
    past = key.size(-2) - query.size(-2)
    if past < 0:
        raise ValueError(f"keys: expected at least as many as queries ({query.size(-2)}), got {key.size(-2)}")
    state = k[..., :past, :].mT @ v[..., :past, :]
    k, v, outputs = k[..., past:, :], v[..., past:, :], []
    for q_c, k_c, v_c in zip(*(x.split(CHUNK, dim=-2) for x in (q, k, v)), strict=True):
        outputs.append(q_c @ state + (q_c @ k_c.mT).tril() @ v_c)
        state = state + k_c.mT @ v_c
    return _normalised(torch.cat(outputs, dim=-2)).to(value.dtype)


def _features(
    query: Tensor, key: Tensor, value: Tensor, feature_map: Callable, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    check_inputs(query, key, value)
    expect_function(feature_map=feature_map)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = feature_map(query.to(wide)), feature_map(key.to(wide)), value.to(wide)
    for x, features in ((query, q), (key, k)):
        expect_floats(feature_map=features)
        if features.shape[:-1] != x.shape[:-1]:
            expected = (*x.shape[:-1], "…")
            raise ValueError(f"feature_map: expected shape {expected} of it, got {tuple(features.shape)}")
    if key_mask is not None:
        expect_kind(Tensor, key_mask=key_mask)
        if key_mask.dtype is not torch.bool:
            raise ValueError(f"key_mask: expected booleans, True = may attend, got {key_mask.dtype}")
        expect_broadcasts(key_mask, key.shape[:-1], "key_mask")
        expect_same_device(key, "key", key_mask=key_mask)
        k = k.masked_fill(~key_mask[..., None], 0.0)
    return q, k, torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


def _normalised(sums: Tensor) -> Tensor:
    numerator, divisor = sums[..., :-1], sums[..., -1:]
    return numerator / divisor.masked_fill(divisor == 0, 1.0)


# ---- cache


class KeyValueCache:
    def __init__(
        self,
        batch: int,
        max_length: int,
        num_heads: int,
        d_k: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        shape = (batch, num_heads, max_length, d_k)
        expect_lengths(batch=batch, max_length=max_length)
        expect_sizes(num_heads=num_heads, d_k=d_k)
        self.keys = torch.zeros(*shape, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, dtype=dtype, device=device)
        self.position = torch.zeros((), dtype=torch.long, device=device)
        self.is_filled = False

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self._check(k, v)
        new, max_length = k.size(2), self.keys.size(2)
        if expect_readable(k) and self.position + new > max_length:
            raise ValueError(
                f"cache: expected at most max_length = {max_length} positions, got {int(self.position) + new}"
            )
        slots = self.position + torch.arange(new, device=k.device)
        self.keys.index_copy_(2, slots, k)
        self.values.index_copy_(2, slots, v)
        self.position.add_(new)
        slots = self._slots()
        return self.keys[:, :, :slots], self.values[:, :, :slots]

    def _slots(self) -> int:
        return int(self.position) if expect_readable(self.position) else self.keys.size(2)

    def visible(self, queries: int) -> Tensor | None:
        expect_lengths(queries=queries)
        if queries == 1 and expect_readable(self.position):
            return None
        slots = torch.arange(self._slots(), device=self.keys.device)
        own = self.position - queries + torch.arange(queries, device=self.keys.device)
        return (slots <= own[:, None])[None, None]

    def fill_once(self, keys_and_values: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        expect_function(keys_and_values=keys_and_values)
        if not self.is_filled:
            k, v = keys_and_values()
            self._check(k, v)
            # Every later step reads them: each head's in one piece.
            self.keys, self.values = k.contiguous(), v.contiguous()
            self.is_filled = True
        return self.keys, self.values

    def reorder(self, indices: Tensor) -> None:
        expect_ids("batch", indices=indices)
        expect_same_device(self.keys, "the cache", indices=indices)
        expect_below(len(self.keys), indices=indices)
        if len(indices) != len(self.keys):
            self.keys, self.values = self.keys[indices], self.values[indices]
            return
        slots = self.keys.size(2) if self.is_filled else self._slots()
        for kept in (self.keys, self.values):
            filled = kept[:, :, :slots]
            filled.copy_(filled[indices])

    def _check(self, k: Tensor, v: Tensor) -> None:
        for name, x, own in (("keys", k, self.keys), ("values", v, self.values)):
            expect_floats("batch", "heads", "length", "width", **{name: x})
            batch, heads, _, width = own.shape
            if x.shape != (batch, heads, k.size(2), width) or (x.dtype, x.device) != (own.dtype, own.device):
                expected = f"{(batch, heads, k.size(2), width)} {own.dtype} on {own.device}"
                got = f"{tuple(x.shape)} {x.dtype} on {x.device}"
                raise ValueError(f"cache: expected {name} of {expected}, got {got}")


# ---- attention.multi_head


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0):
        super().__init__()
        expect_sizes(d_model=d_model, num_heads=num_heads)
        expect_probability(dropout=dropout)
        if d_model % num_heads:
            raise ValueError(f"num_heads: expected a divisor of d_model = {d_model}, got {num_heads}")
        self.d_k, self.num_heads, self.dropout = d_model // num_heads, num_heads, dropout
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))
        for projection in (self.W_q, self.W_k, self.W_v, self.W_o):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        is_self = key is None
        if is_self and value is not None:
            raise ValueError("key: expected the keys of these values, got None")
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value, cache)
        q = self._split(self.W_q(query))
        if cache is None:
            k, v = self._read(key, value)
        elif is_self:
            mask = check_mask(mask, q, cache.keys)
            k, v = cache.append(*self._read(key, value))
            mask, is_causal = combine(_of_slots(mask, k), cache.visible(q.size(2))), False
        else:
            k, v = cache.fill_once(partial(self._read, key, value))
        if len(k) != len(q):
            raise ValueError(f"cache: expected batch size {len(q)}, as query, got {len(k)}")
        heads, weights = self._attend(q, k, v, mask, is_causal, need_weights)
        output = self.W_o(heads.transpose(1, 2).flatten(-2))
        return (output, weights) if need_weights else output

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        expect_width(memory, self.W_k.weight, "batch", "length", "width", name="memory", same_dtype=True)
        return self._read(memory, memory)

    def _read(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(self.W_k(key)), self._split(self.W_v(value))

    def _check(self, query: Tensor, key: Tensor, value: Tensor, cache: KeyValueCache | None) -> None:
        inputs = (("query", query, self.W_q), ("key", key, self.W_k), ("value", value, self.W_v))
        for name, x, projection in inputs:
            weight, axes = projection.weight, ("batch", "length", "width")
            expect_width(x, weight, *axes, name=name, width_name="width", same_dtype=True)
        if len(key) != len(query):
            raise ValueError(f"key: expected batch size {len(query)}, as query, got {len(key)}")
        if value.shape[:2] != key.shape[:2]:
            expected = (*key.shape[:2], "…")
            raise ValueError(f"value: expected shape {expected}, as key, got {tuple(value.shape)}")
        if cache is not None:
            expect_kind(KeyValueCache, cache=cache)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        options = {"is_causal": is_causal, "dropout": self.dropout if self.training else 0.0}
        if need_weights:
            return scaled_dot_product_attention(q, k, v, mask, **options)
        return fused_attention(q, k, v, mask, **options), None

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _of_slots(mask: Tensor | None, k: Tensor) -> Tensor | None:
    return mask if mask is None or mask.size(-1) == 1 else mask[..., : k.size(2)]


# ---- layers


class LayerCache(NamedTuple):
    self_attention: KeyValueCache
    cross_attention: KeyValueCache


class AddAndNorm(nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect_kind(TransformerConfig, config=config)
        self.norm = LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.norm_first = config.norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        expect_floats("batch", "length", "d_model", x=x)
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    # The paper drops the sub-layers' outputs, not the attention weights (§5.4), which PyTorch's layers drop too.
    return MultiHeadAttention(config.d_model, config.num_heads)


class EncoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect_kind(TransformerConfig, config=config)
        self.self_attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        _check_width(self, x=x)
        x = self.add_norm_self(x, lambda y: self.self_attention(y, mask=mask))
        return self.add_norm_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect_kind(TransformerConfig, config=config)
        self.self_attention = _attention(config)
        self.cross_attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff)
        self.add_norm_self = AddAndNorm(config)
        self.add_norm_cross = AddAndNorm(config)
        self.add_norm_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        *,
        cache: LayerCache | None = None,
    ) -> Tensor:
        if cache is not None:
            expect_kind(LayerCache, cache=cache)
        own, cross = cache if cache is not None else (None, None)
        src_mask, tgt_mask = self._check(x, memory, src_mask, tgt_mask, own)
        looking_back = {"mask": tgt_mask, "is_causal": True, "cache": own}
        x = self.add_norm_self(x, lambda y: self.self_attention(y, **looking_back))
        x = self.add_norm_cross(x, lambda y: self.cross_attention(y, memory, mask=src_mask, cache=cross))
        return self.add_norm_feed_forward(x, self.feed_forward)

    def _check(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        tgt_mask: Tensor | None,
        cache: KeyValueCache | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        _check_width(self, x=x, memory=memory)
        if len(memory) != len(x):
            raise ValueError(f"memory: expected batch size {len(x)}, as x, got {len(memory)}")
        queries = (len(x), self.self_attention.num_heads, x.size(1))
        keys = x.size(1) if cache is None else cache.keys.size(2)
        return (
            _visible(src_mask, (*queries, memory.size(1)), "src_mask"),
            _visible(tgt_mask, (*queries, keys), "tgt_mask"),
        )


def _check_width(layer: nn.Module, **given: Tensor) -> None:
    weight = layer.self_attention.W_q.weight
    for name, x in given.items():
        expect_width(x, weight, "batch", "length", "d_model", name=name, same_dtype=True)


def _visible(mask: Tensor | None, scores: tuple[int, ...], name: str) -> Tensor | None:
    if mask is None:
        return None
    mask = boolean(mask, name)
    expect_broadcasts(mask, scores, name)
    return mask


# ---- model


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig):
        super().__init__()
        expect_kind(TransformerConfig, config=config)
        self.config = config
        self.source_embedding = self._embedding(config.source_vocab_size)
        self.target_embedding = self._embedding(config.target_vocab_size)
        if config.shared_vocabulary:
            self.source_embedding.token = self.target_embedding.token
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Pre-norm layers end with a sum, which nothing normalises yet; post-norm layers end with a norm.
        last = LayerNorm if config.norm_first else nn.Identity
        self.encoder_norm, self.decoder_norm = last(config.d_model), last(config.d_model)
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        if config.tie_embeddings:
            self.output.weight = self.target_embedding.token.weight

    def _embedding(self, vocab_size: int) -> TransformerEmbedding:
        position = SinusoidalEncoding(self.config.d_model, self.config.max_length)
        dropout = self.config.dropout
        return TransformerEmbedding(vocab_size, self.config.d_model, position=position, dropout=dropout)

    def _check_ids(self, name: str, ids: Tensor) -> None:
        expect_ids(**{name: ids})
        expect_same_device(self.output.weight, **{name: ids})
        longest = self.config.max_length
        if ids.size(1) > longest:
            raise ValueError(f"{name}: expected at most max_length = {longest} tokens, got {ids.size(1)}")

    def encode(
        self, src: Tensor, src_mask: Tensor | None = None
    ) -> Tensor:  # as the canon has it, and as it was
        self._check_ids("src", src)
        src_mask = padding_mask(src, self.config.pad_id) if src_mask is None else src_mask
        x = self.source_embedding(src)
        for layer in self.encoder_layers:
            x = layer(x, src_mask)
        return self.encoder_norm(x)

    def decode(
        self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor, caches: list[LayerCache] | None = None
    ) -> Tensor:
        self._check_ids("tgt_in", tgt_in)
        layers = self.decoder_layers
        if caches is not None and len(caches) != len(layers):
            raise ValueError(f"caches: expected {len(layers)}, one a layer, got {len(caches)}")
        for cache in caches or ():
            expect_kind(LayerCache, caches=cache)
        x = self.target_embedding(tgt_in, caches[0].self_attention.position if caches else 0)
        for layer, cache in zip(layers, caches or [None] * len(layers), strict=True):
            x = layer(x, memory, src_mask, cache=cache)
        return self.decoder_norm(x)

    def hidden(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        self._check_ids("src", src)
        self._check_ids("tgt_in", tgt_in)
        if src.size(0) != tgt_in.size(0):
            raise ValueError(f"tgt_in: expected batch size {src.size(0)}, as src, got {tgt_in.size(0)}")
        return self.decode(tgt_in, self.encode(src), padding_mask(src, self.config.pad_id))

    def project(self, hidden: Tensor) -> Tensor:
        expect_width(hidden, self.output.weight, name="hidden", same_dtype=True)
        return self.output(hidden)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        return self.project(self.hidden(src, tgt_in))

    def new_caches(self, batch: int, max_length: int) -> list[LayerCache]:
        weight = self.output.weight

        def empty(length: int, attention: MultiHeadAttention) -> KeyValueCache:
            heads, d_k = attention.num_heads, attention.d_k
            return KeyValueCache(batch, length, heads, d_k, dtype=weight.dtype, device=weight.device)

        return [
            LayerCache(empty(max_length, layer.self_attention), empty(0, layer.cross_attention))
            for layer in self.decoder_layers
        ]


# ---- decoding_steps


class Steps:
    def __init__(
        self, model: Transformer, src: Tensor, max_length: int, *, use_cache: bool = True, copies: int = 1
    ):
        expect_kind(Transformer, model=model)
        expect_sizes(max_length=max_length, copies=copies)
        self.model, self.copies = model, copies
        self.memory = model.encode(src).repeat_interleave(copies, dim=0)
        self.src_mask = padding_mask(src, model.config.pad_id).repeat_interleave(copies, dim=0)
        self.caches = None
        if use_cache:
            self.caches = model.new_caches(len(self.memory), max_length)
            for layer, kept in zip(model.decoder_layers, self.caches, strict=True):
                kept.cross_attention.fill_once(partial(layer.cross_attention.keys_and_values, self.memory))

    def next_logits(self, tokens: Tensor) -> Tensor:
        expect_ids("rows", "length", tokens=tokens)
        last = tokens[:, -1:] if self.caches else tokens
        return self.model.project(self.model.decode(last, self.memory, self.src_mask, self.caches)[:, -1])

    @torch.no_grad()
    def likeliest(self, tokens: Tensor, length: int, is_done: Tensor) -> tuple[int, Tensor]:
        expect_ids("rows", "room", tokens=tokens)
        expect_sizes(length=length)
        _expect_truths(is_done)
        if length >= tokens.size(1):
            raise ValueError(f"length: expected less than the room of {tokens.size(1)} tokens, got {length}")
        if len(is_done) != len(tokens):
            raise ValueError(f"is_done: expected {len(tokens)} rows, as tokens, got {len(is_done)}")
        config = self.model.config
        token = self.next_logits(tokens[:, :length]).argmax(-1).masked_fill(is_done, config.pad_id)
        tokens[:, length] = token
        return length + 1, is_done | (token == config.eos_id)

    def reorder(self, rows: Tensor) -> None:
        for layer in self.caches or ():
            layer.self_attention.reorder(rows)

    def keep(self, sentences: Tensor) -> None:
        expect_ids("sentences", sentences=sentences)
        expect_same_device(self.memory, "the memory", sentences=sentences)
        expect_below(len(self.memory) // self.copies, sentences=sentences)
        copies = torch.arange(self.copies, device=sentences.device)
        rows = (self.copies * sentences[:, None] + copies).flatten()
        for kept in (kept for layer in self.caches or () for kept in layer):
            kept.reorder(rows)
        self.memory, self.src_mask = self.memory[rows], self.src_mask[rows]


def going_on(is_done: Tensor) -> Tensor | None:
    _expect_truths(is_done)
    left = (~is_done).nonzero().squeeze(1)
    return left if 2 * len(left) <= len(is_done) else None


def _expect_truths(is_done: Tensor) -> None:
    expect_kind(Tensor, is_done=is_done)
    if is_done.dtype != torch.bool or is_done.dim() != 1:
        raise ValueError(
            f"is_done: expected truth values of one axis, got {is_done.dtype} {tuple(is_done.shape)}"
        )


# ---- decoding


@torch.no_grad()
def greedy(model: Transformer, src: Tensor, *, max_length: int, use_cache: bool = True) -> Tensor:
    expect_kind(Transformer, model=model)
    config = model.config
    _check_max_length(max_length, config.max_length)
    with evaluating(model):
        steps = Steps(model, src, max_length, use_cache=use_cache)
        tokens = src.new_full((len(src), 1 + max_length), config.pad_id, dtype=torch.long)
        tokens[:, 0], length, said = config.bos_id, 1, tokens.clone()
        rows = torch.arange(len(src), device=src.device)  # those not done yet, and some that are
        is_done = torch.zeros_like(rows, dtype=torch.bool)
        while length <= max_length and len(rows):
            length, is_done = steps.likeliest(tokens, length, is_done)
            if (left := going_on(is_done)) is not None:
                said[rows] = tokens
                steps.keep(left)
                rows, tokens, is_done = rows[left], tokens[left], is_done[left]
        said[rows] = tokens
    return said[:, 1:length]


@torch.no_grad()
def beam(
    model: Transformer,
    src: Tensor,
    *,
    beam_size: int = 4,
    length_penalty: float = 0.6,
    max_length: int,
    use_cache: bool = True,
) -> Tensor:
    expect_kind(Transformer, model=model)
    _check_max_length(max_length, model.config.max_length)
    expect_sizes(beam_size=beam_size)
    expect_number(length_penalty=length_penalty)
    with evaluating(model):
        steps = Steps(model, src, max_length, copies=beam_size, use_cache=use_cache)
        search = _BeamSearch(src, beam_size, length_penalty, max_length, model)
        while search.length < max_length and len(search.rows):
            logits = steps.next_logits(search.tokens.flatten(0, 1))
            steps.reorder(search.advance(logits.unflatten(0, (-1, beam_size))))
            if (left := going_on(search.is_done)) is not None:
                steps.keep(left)
                search.keep(left)
    return search.answer()


class _BeamSearch:
    def __init__(self, src: Tensor, beam_size: int, alpha: float, max_length: int, model: Transformer):
        self.config, self.alpha, self.max_length, self.length = model.config, alpha, max_length, 0
        batch, wide = src.size(0), torch.promote_types(model.output.weight.dtype, torch.float32)
        self.rows = torch.arange(batch, device=src.device)  # of those still searched for
        self.said = src.new_full((batch, max_length), self.config.pad_id, dtype=torch.long)
        self.longest = 0
        self.tokens = src.new_full((batch, beam_size, 1), self.config.bos_id)
        # log p of each beginning. At first all are the same: but for one, they must not go on.
        self.scores = src.new_full((batch, beam_size), -torch.inf, dtype=wide)
        self.scores[:, 0] = 0.0
        self.best = self.said.clone()
        self.best_score = src.new_full((batch,), -torch.inf, dtype=wide)
        self.best_length = src.new_zeros(batch)
        self.is_done = src.new_zeros(batch, dtype=torch.bool)

    def advance(self, logits: Tensor) -> Tensor:
        batch, beams, vocab = logits.shape
        log_p = self.scores[..., None] + logits.to(self.scores.dtype).log_softmax(-1)
        # At most `beams` of these end, one of each beginning: enough are left to go on.
        top, index = log_p.flatten(1).topk(2 * beams)
        parent, token = index // vocab, index % vocab
        sentences = torch.cat([self._of(parent), token[..., None]], dim=-1)
        self.length += 1
        is_end = token == self.config.eos_id
        self._finish(sentences[:, :beams], top[:, :beams].masked_fill(~is_end[:, :beams], -torch.inf))
        alive = is_end.to(torch.uint8).argsort(stable=True)[:, :beams]
        self.scores = top.gather(1, alive)
        self.tokens = sentences.gather(1, alive[..., None].expand(-1, -1, sentences.size(-1)))
        self._stop()
        first_rows = beams * torch.arange(batch, device=index.device)[:, None]
        return (first_rows + parent.gather(1, alive)).flatten()

    def _of(self, parent: Tensor) -> Tensor:
        return self.tokens.gather(1, parent[..., None].expand(-1, -1, self.tokens.size(-1)))

    def _finish(self, sentences: Tensor, log_p: Tensor) -> None:
        score, which = self._penalised(log_p, self.length).max(1)
        better = (score > self.best_score) & ~self.is_done
        chosen = sentences[torch.arange(len(which)), which, 1:]
        self.best[:, : self.length] = torch.where(better[:, None], chosen, self.best[:, : self.length])
        self.best_score = torch.where(better, score, self.best_score)
        self.best_length = self.best_length.masked_fill(better, self.length)

    def _stop(self) -> None:
        attainable = self._penalised(self.scores[:, 0], self.max_length)
        self.is_done = self.is_done | (attainable <= self.best_score)
        if self.length == self.max_length:
            self._finish(self.tokens, self.scores)

    def _penalised(self, log_p: Tensor, length: int) -> Tensor:
        return log_p / ((5 + length) / 6) ** self.alpha

    def keep(self, sentences: Tensor) -> None:
        self._store()
        for name in ("rows", "tokens", "scores", "best", "best_score", "best_length", "is_done"):
            setattr(self, name, getattr(self, name)[sentences])

    def answer(self) -> Tensor:
        self._store()
        return self.said[:, : self.longest]

    def _store(self) -> None:
        self.said[self.rows] = self.best
        self.longest = max([self.longest, *self.best_length.tolist()])


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    expect_kind(nn.Module, model=model)
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _check_max_length(max_length: int, longest: int) -> None:
    if type(max_length) is not int or not 1 <= max_length <= longest:
        raise ValueError(f"max_length: expected 1 to {longest}, the model's, got {max_length!r}")


# ---- losses


def label_smoothed_loss(
    logits: Tensor, targets: Tensor, *, pad_id: int | None, smoothing: float = 0.1
) -> tuple[Tensor, Tensor]:
    expect_floats(logits=logits)
    if not logits.dim() or not logits.size(-1):
        raise ValueError(f"logits: expected a last axis of one class or more, got {tuple(logits.shape)}")
    _check_targets(targets, pad_id, logits.size(-1), logits=logits)
    expect_probability(smoothing=smoothing)
    real = torch.ones_like(targets, dtype=torch.bool) if pad_id is None else targets != pad_id
    return _SmoothedCrossEntropy.apply(logits, targets.long(), real, pad_id, smoothing), real.sum()


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, real: Tensor, pad_id: int | None, smoothing: float):
        log_p = logits.to(_at_least_float32(logits.dtype)).log_softmax(-1)
        ctx.save_for_backward(log_p, targets, real)
        ctx.dtype, ctx.pad_id, ctx.smoothing = logits.dtype, pad_id, smoothing
        return -_expected(log_p, targets, pad_id, smoothing).masked_fill(~real, 0.0).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient: Tensor):
        log_p, targets, real = ctx.saved_tensors
        difference = _difference(log_p.exp(), targets, ctx.pad_id, ctx.smoothing)
        difference.mul_(gradient * real[..., None])
        return difference.to(ctx.dtype), None, None, None, None


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _expected(scores: Tensor, targets: Tensor, pad_id: int | None, smoothing: float) -> Tensor:
    of_right = (1 - smoothing) * scores.gather(-1, targets[..., None]).squeeze(-1)
    if not smoothing:
        return of_right
    # Slices instead of a difference: a padding score of −inf stays out altogether.
    slices = [scores] if pad_id is None else [scores[..., :pad_id], scores[..., pad_id + 1 :]]
    return of_right + _share(scores, pad_id, smoothing) * sum(part.sum(-1) for part in slices)


def _difference(p: Tensor, targets: Tensor, pad_id: int | None, smoothing: float) -> Tensor:
    share = _share(p, pad_id, smoothing)
    p.sub_(share)
    if pad_id is not None:
        p[..., pad_id] += share
    right = torch.full_like(targets[..., None], smoothing - 1, dtype=p.dtype)
    return p.scatter_add_(-1, targets[..., None], right)


def _share(p: Tensor, pad_id: int | None, smoothing: float) -> float:
    classes = p.size(-1) if pad_id is None else p.size(-1) - 1
    return smoothing / max(classes, 1)


def _check_targets(targets: Tensor, pad_id: int | None, vocab_size: int, **predicted: Tensor) -> None:
    ((name, rows),) = predicted.items()
    expect_kind(Tensor, targets=targets)
    if rows.shape[:-1] != targets.shape:
        raise ValueError(f"targets: expected shape {tuple(rows.shape[:-1])}, got {tuple(targets.shape)}")
    if targets.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"targets: expected int64 or int32, got {targets.dtype}")
    expect_same_device(rows, name, targets=targets)
    if pad_id is not None and (type(pad_id) is not int or not 0 <= pad_id < vocab_size):
        raise ValueError(f"pad_id: expected an integer, 0 to {vocab_size - 1}, or None, got {pad_id!r}")
    expect_below(vocab_size, targets=targets)


# ---- schedule


def warmup_inverse_sqrt(step: int, d_model: int, warmup_steps: int) -> float:
    expect_lengths(step=step)
    expect_sizes(d_model=d_model, warmup_steps=warmup_steps)
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


# ---- data.lengths

SHOWN = 3
EOS_ID = 2  # of `data.vocabulary`


def limit_lengths(
    sentences: Sequence[Sequence[int]], max_length: int, *, too_long: str = "refuse"
) -> tuple[list[list[int]], list[int]]:
    expect_sizes(max_length=max_length)
    expect_several(sentences=sentences)
    return _limit(sentences, max_length, too_long, "sentences")


def _limit(
    sentences: Sequence[Sequence[int]], longest: int, too_long: str, name: str
) -> tuple[list[list[int]], list[int]]:
    if too_long not in ("refuse", "truncate"):
        raise ValueError(f"too_long: expected 'refuse' or 'truncate', got {too_long!r}")
    for sentence in sentences:
        expect_several(**{name: sentence})
    numbers = [number for number, sentence in enumerate(sentences) if len(sentence) > longest]
    if numbers and too_long == "refuse":
        which = ", ".join(f"number {number} with {len(sentences[number])}" for number in numbers[:SHOWN])
        more = ", …" if len(numbers) > SHOWN else ""
        raise ValueError(
            f"{name}: expected at most {longest} tokens each, got {len(numbers)} longer: {which}{more}"
        )
    return [_cut(sentence, longest) for sentence in sentences], numbers


def _cut(sentence: Sequence[int], longest: int) -> list[int]:
    cut = list(sentence[:longest])
    if cut and sentence[-1] == EOS_ID:
        cut[-1] = EOS_ID
    return cut
