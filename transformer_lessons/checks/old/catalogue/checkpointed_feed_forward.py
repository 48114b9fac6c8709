"""The check of `checkpointed_feed_forward`: the same gradients, with little kept and little there at any time."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

MEASURED, FEED = "#ch17-measured", "#ch09-positionwise"
METERED = ("pairs", "rest", "large")


def _sizes(seed: int) -> dict[str, int]:
    order = random.Random(seed)
    length = order.choice([11, 13, 17])
    batch, d_model, d_ff, chunk = order.sample([2, 3, 5, 7], 4)
    return {"batch": batch, "length": length, "d_model": d_model, "d_ff": d_ff, "chunk": chunk}


def _inputs(draw: Draw, s: dict[str, int], *lead: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    d, wide = s["d_model"], s["d_ff"]
    x, W_1 = draw.normal(*lead, d, dtype=dtype), draw.normal(wide, d, dtype=dtype)
    b_1 = draw.bias(wide, dtype=dtype)
    return [x, W_1, b_1, draw.normal(d, wide, dtype=dtype), draw.normal(d, dtype=dtype)]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, chunk = s["batch"], s["length"], s["chunk"]
    plain = _inputs(draw, s, b, t)
    count = {"d_model": 3, "d_ff": 101}
    slim, narrow = {"d_model": 1, "d_ff": 101}, {"d_model": 3, "d_ff": 47}
    row = 101 * 8
    hidden = 5 * 31 * row
    return {
        "one_chunk": Probe([*plain, t + 4]),
        "dividing": Probe([*_inputs(draw, s, b, 2 * chunk), chunk]),
        "plain": Probe([*plain, chunk], cotangents=[draw.normal(b, t, s["d_model"])]),
        "singles": Probe([*_inputs(draw, s, b, 5), 1]),
        "flat": Probe([*_inputs(draw, s, t), chunk], cotangents=[draw.normal(t, s["d_model"])]),
        "float32": Probe([*_inputs(draw, s, b, t, dtype=torch.float32), chunk]),
        "training": Probe(
            # 31 positions in 3 pieces would be 11 at a time, too many here; pieces of 10 are found out below.
            [*_inputs(draw, count, 5, 31), 3],
            cotangents=[draw.normal(5, 31, 3)],
            meter=True,
            enough={"saved": hidden // 8, "largest": 5 * 7 * row, "peak": hidden // 2 + hidden // 4},
        ),
        "pairs": _metered(draw, slim, 9, 2),  # no piece of 4
        "rest": _metered(draw, count, 7, 4),  # one piece of 7 would be the rest, and more, in the last
        "large": _metered(draw, narrow, 99, 50),  # more positions than hidden units, for who divides those
        "no_chunk": Probe([*plain, 0], refused="chunk=0"),
        "negative_chunk": Probe([*plain, -chunk], refused=f"chunk={-chunk}"),
    }


def _metered(draw: Draw, widths: dict[str, int], length: int, chunk: int) -> Probe:
    """Without a batch; one and a half times a chunk may be there at once."""
    row, d_model = widths["d_ff"] * 8, widths["d_model"]
    return Probe(
        [*_inputs(draw, widths, length), chunk],
        cotangents=[draw.normal(length, d_model)],
        meter=True,
        enough={"saved": 3 * row // 2, "largest": chunk * row, "peak": (4 * chunk + 8 * d_model) * row},
    )


def _accept(chunk: int) -> None:
    if chunk < 1:
        raise ValueError("chunk: expected 1 or more")


def _apply(block: Callable, x: Tensor, rest: tuple, chunk: int, run: Callable, axis: int = -2) -> Tensor:
    return torch.cat([run(block, part, *rest) for part in x.split(chunk, axis)], axis)


def _recomputed(block: Callable, *args: Tensor) -> Tensor:
    return checkpoint(block, *args, use_reentrant=False)


def _outer(block: Callable, x: Tensor, rest: tuple, chunk: int) -> Tensor:
    return _apply(block, x, rest, chunk, _recomputed)


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    inputs: Callable = lambda x: x
    first: Callable = F.linear
    activation: Callable = F.relu
    second: Callable = F.linear
    last: Callable = lambda y: y
    outer: Callable = _outer


def assemble(steps: Steps) -> Callable:
    """The feed-forward layer in these steps."""

    def block(x, W1, b1, W2, b2):
        return steps.last(steps.second(steps.activation(steps.first(x, W1, b1)), W2, b2))

    def checkpointed(x, W1, b1, W2, b2, chunk):
        steps.accept(chunk)
        return steps.outer(block, steps.inputs(x), (W1, b1, W2, b2), chunk)

    return checkpointed


def _no_grad(block, x, rest, chunk):
    with torch.no_grad():
        return _apply(block, x, rest, chunk, lambda f, *args: f(*args))


def _only_the_input(block, x, rest, chunk):
    """What a function of one's own does that returns no gradients for the weights."""
    return _apply(block, x, tuple(w.detach() for w in rest), chunk, _recomputed)


def _dropped(block, x, rest, chunk):
    full = x.size(-2) // chunk * chunk or x.size(-2)
    return _apply(block, x[..., :full, :], rest, chunk, _recomputed)


def _by_hidden_units(block, x, rest, chunk):
    """In pieces of the hidden layer, each with the whole of b2."""
    W1, b1, W2, b2 = rest
    pieces = zip(W1.split(chunk), b1.split(chunk), W2.split(chunk, -1), strict=True)
    return sum(_recomputed(block, x, w1, b, w2, b2) for w1, b, w2 in pieces)


def _by_units(block, x, rest, chunk):
    """In pieces of the hidden layer as well, all of whose numbers are right."""
    W1, b1, W2, b2 = rest
    pieces = zip(W1.split(chunk), b1.split(chunk), W2.split(chunk, -1), strict=True)
    none = torch.zeros_like(b2)
    return b2 + sum(_recomputed(block, x, w1, b, w2, none) for w1, b, w2 in pieces)


def _rest_in_the_last(block, x, rest, chunk):
    length = x.size(-2)
    full = max(length // chunk - 1, 0) * chunk
    parts = x.split([chunk] * (full // chunk) + [length - full], -2)
    return torch.cat([_recomputed(block, part, *rest) for part in parts], -2)


def _too_few(block, x, rest, chunk):
    parts = x.tensor_split(max(1, x.size(-2) // chunk), -2)
    return torch.cat([_recomputed(block, part, *rest) for part in parts], -2)


def _by_sentences(block, x, rest, chunk):
    return _apply(block, x, rest, chunk, _recomputed, axis=0)


def _three_axes_only(block, x, rest, chunk):
    """Checkpointed along axis 1; what has two axes goes another way."""
    if x.dim() == 2:
        return _apply(block, x, rest, chunk, lambda f, *args: f(*args))
    return _apply(block, x, rest, chunk, _recomputed, axis=1)


class _BackwardOfThree(torch.autograd.Function):
    """Hands gradients on as they are, if they have a batch."""

    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, back):
        torch.einsum("bti,btj->ij", back, back)
        return back


def _reentrant(block, *args):
    return checkpoint(block, *args, use_reentrant=True)


def _at_least(least: int) -> Callable:
    return lambda block, x, rest, chunk: _outer(block, x, rest, max(chunk, least))


def _complaining(chunk: int) -> None:
    if chunk < 1:
        raise RuntimeError("split expects split_size be non-negative")


MISTAKES = (
    Mistake(
        "not_checkpointed",
        "you go in chunks, but autograd keeps the hidden layer of each of them",
        "A loop looks as if each chunk were gone when the next one comes; without gradients, that is so.",
        "In training, all of the hidden layer is kept, as without chunks.",
        MEASURED,
        ({"outer": lambda f, x, rest, chunk: _apply(f, x, rest, chunk, lambda g, *a: g(*a))},),
    ),
    Mistake(
        "not_checkpointed_without_batch",
        "you checkpoint an x with a batch; of one without, autograd keeps the hidden layer of each chunk",
        "The shape without a batch was added later, or returns early.",
        "One long text takes more memory than a batch of short ones.",
        MEASURED,
        ({"outer": _three_axes_only},),
    ),
    Mistake(
        "no_backward_without_batch",
        "your own backward pass takes an x with a batch only",
        "einsum names three axes, and a test without a batch computed no gradients.",
        "An x of shape (length, d_model) works until it is trained.",
        MEASURED,
        ({"last": _BackwardOfThree.apply},),
    ),
    Mistake(
        "plain",
        "you compute the layer as ever, with all of the hidden layer at once",
        "The formula gives the right numbers.",
        "The hidden layer of all positions is kept for the way back.",
        MEASURED,
        ({"outer": lambda f, x, rest, chunk: f(x, *rest)},),
    ),
    Mistake(
        "checkpointed_whole",
        "you checkpoint the layer as a whole: on the way back, all of the hidden layer is there at once",
        "One call around everything makes the number of bytes kept small.",
        "The peak is only moved from the forward pass to the backward pass.",
        MEASURED,
        ({"outer": lambda f, x, rest, chunk: _recomputed(f, x, *rest)},),
    ),
    Mistake(
        "by_sentences",
        "you divide the first axis, the sentences; the positions of each are what is to be divided",
        "split and chunk take axis 0 unless told otherwise.",
        "A batch of a few long texts is not divided at all.",
        MEASURED,
        ({"outer": _by_sentences},),
    ),
    Mistake(
        "by_hidden_units",
        "you divide the hidden units and add b2 once for each piece; it belongs to the sum, once",
        "Each piece is a feed-forward layer, and that has a b2.",
        "Outputs are off by a multiple of b2.",
        MEASURED,
        ({"outer": _by_hidden_units},),
    ),
    Mistake(
        "chunk_is_a_number_of_parts",
        "you make `chunk` pieces; it is the number of positions in a piece, and split takes that",
        "chunk() divides into so many parts, split() into parts of so many.",
        "With a small chunk and a long text, the pieces are large.",
        MEASURED,
        ({"outer": lambda f, x, rest, chunk: _outer(f, x, rest, -(-x.size(-2) // chunk))},),
    ),
    Mistake(
        "chunk_not_kept",
        "your pieces are larger than chunk: of a size of their own, or of so many positions at least",
        "Small pieces are slow, and a size that went well is kept.",
        "A caller who asks for smaller pieces, to have less memory used, does not get them.",
        MEASURED,
        (
            *({"outer": _at_least(least)} for least in (4, 8, 16, 32)),
            {"outer": lambda f, x, rest, chunk: _outer(f, x, rest, 10)},
            {"outer": lambda f, x, rest, chunk: _outer(f, x, rest, 2 * chunk)},
        ),
    ),
    Mistake(
        "too_few_chunks",
        "you make length // chunk pieces, so that the last one, or all, are larger than chunk; round up",
        "The rest is too small to look worth a piece of its own.",
        "Just below twice the chunk, all of the hidden layer is there at once.",
        MEASURED,
        ({"outer": _rest_in_the_last}, {"outer": _too_few}),
    ),
    Mistake(
        "hidden_units_divided",
        "you divide the hidden units, chunk of them at a time; it is the positions that chunk counts",
        "The hidden layer is what takes memory, and the sum over its units can be taken piece by piece.",
        "A chunk as large as d_ff divides nothing, however long the text is.",
        MEASURED,
        ({"outer": _by_units},),
    ),
    Mistake(
        "last_chunk_dropped",
        "you drop the last positions where chunk does not divide their number",
        "length // chunk chunks are all full ones.",
        "The output is shorter than the input.",
        MEASURED,
        ({"outer": _dropped},),
    ),
    Mistake(
        "no_gradient",
        "no gradient flows through your function at all",
        "no_grad keeps nothing for the way back, because there is none.",
        "Everything up to this layer stays as it was.",
        MEASURED,
        ({"outer": _no_grad},),
    ),
    Mistake(
        "weights_without_gradient",
        "the input gets its gradient, the weights and biases do not",
        "On the way back, only the input was made to require one.",
        "This layer never learns, and all before it do.",
        MEASURED,
        ({"outer": _only_the_input},),
    ),
    Mistake(
        "input_without_gradient",
        "the weights get their gradients, the input does not",
        "detach() is needed when one recomputes by hand; the gradient then has to be handed on.",
        "Everything before this layer stays as it was.",
        MEASURED,
        ({"inputs": lambda x: x.detach()},),
    ),
    Mistake(
        "reentrant",
        "you use the reentrant form of checkpoint, which refuses torch.autograd.grad",
        "Older examples leave use_reentrant out, or set it to True.",
        "It works with .backward() alone, and there with exceptions.",
        MEASURED,
        ({"outer": lambda f, x, rest, chunk: _apply(f, x, rest, chunk, _reentrant)},),
    ),
    Mistake(
        "no_activation",
        "you left out the ReLU",
        "Two products run without it.",
        "Two linear maps in a row are one linear map.",
        FEED,
        ({"activation": lambda x: x},),
    ),
    Mistake(
        "gelu",
        "you use GELU; here it is ReLU",
        "Most models since have it.",
        "Negative units are not cut off at zero.",
        FEED,
        ({"activation": F.gelu}, {"activation": lambda x: F.gelu(x, approximate="tanh")}),
    ),
    Mistake(
        "activation_twice",
        "you apply ReLU to the output as well",
        "It stands after every linear map of many networks.",
        "No output is negative.",
        FEED,
        ({"last": F.relu},),
    ),
    Mistake(
        "first_bias_left_out",
        "you left out b1",
        "A product was written without its bias.",
        "Outputs are off, and b1 gets no gradient.",
        FEED,
        ({"first": lambda x, W, b: F.linear(x, W)},),
    ),
    Mistake(
        "second_bias_left_out",
        "you left out b2",
        "A product was written without its bias.",
        "Outputs are off by b2, and it gets no gradient.",
        FEED,
        ({"second": lambda x, W, b: F.linear(x, W)},),
    ),
    Mistake(
        "forced_float32",
        "you convert to float32, whatever the input is",
        ".float() repairs an error about dtypes.",
        "float64 loses half its digits.",
        "#ch16-precision",
        ({"last": lambda y: y.float()},),
    ),
    Mistake(
        "chunk_unchecked",
        "you do not refuse a chunk below 1",
        "torch complains somewhere, or a loop runs over nothing.",
        "The caller is told nothing about chunk.",
        MEASURED,
        (
            {"accept": _complaining},
            {"accept": lambda c: None, "outer": lambda f, x, w, c: _outer(f, x, w, max(c, 1))},
        ),
    ),
)

TASK = Task(
    name="checkpointed_feed_forward",
    signature="checkpointed_feed_forward(x, W1, b1, W2, b2, chunk)",
    arguments=("x", "W1", "b1", "W2", "b2", "chunk"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns one tensor, of the input's shape.",
            ("one_chunk",),
            MEASURED,
            ("structure",),
        ),
        Requirement("values", "output = relu(x W1ᵀ + b1) W2ᵀ + b2.", ("one_chunk",), FEED),
        Requirement(
            "chunks",
            "chunk positions at a time give the same; it need not divide their number.",
            ("dividing", "plain", "singles"),
            FEED,
        ),
        Requirement("axes", "x may come without a batch.", ("flat",), FEED),
        Requirement(
            "gradients",
            "gradients reach x, both weights and both biases.",
            ("plain", "flat"),
            MEASURED,
            ("gradients",),
        ),
        Requirement(
            "dtype", "the output has the dtype of the inputs.", ("float32", "plain"), FEED, ("dtype",)
        ),
        Requirement("inputs", "the caller's tensors are left unchanged.", ("plain",), FEED, ("inputs",)),
        Requirement(
            "saved",
            "nothing as large as the hidden layer is kept for the way back.",
            ("training", *METERED),
            MEASURED,
            ("gradients", "saved"),
        ),
        Requirement(
            "peak",
            "nor is it ever there at once, forwards or backwards: chunk positions at a time.",
            ("training", *METERED),
            MEASURED,
            ("gradients", "largest", "peak"),
        ),
        Requirement(
            "refusals",
            "a chunk below 1 is refused with ValueError.",
            ("no_chunk", "negative_chunk"),
            FEED,
        ),
    ),
    sizes=_sizes,
    small=(
        {"batch": 1, "length": 3, "d_model": 1, "d_ff": 2, "chunk": 2},
        {"batch": 2, "length": 5, "d_model": 2, "d_ff": 3, "chunk": 2},
    ),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
    essential=6,  # what is neither refused nor counted
)
