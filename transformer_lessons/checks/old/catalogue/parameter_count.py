"""The check of `parameter_count`, which goes beyond the chapter's formula: free d_k, tying, shared layers."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task

__all__ = ["TASK"]

PARTS, TABLE, TYING, SHARED = "#ch13-parameters", "#ch13-table-3", "#ch13-both-ends", "#ch12-wrong"
MATRICES = {"all": 1, "output": 2, "none": 3}
SIZES = ("vocab_size", "d_model", "d_ff", "num_layers", "num_heads", "d_k")


def _sizes(seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    d_model, d_ff = chance.sample([11, 13, 17, 19, 23], 2)
    num_layers, num_heads, d_k = chance.sample([2, 3, 5, 7], 3)
    return {
        "vocab_size": chance.choice([29, 31, 37]),
        "d_model": d_model,
        "d_ff": d_ff,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "d_k": d_k,
    }


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    sizes = [s[name] for name in SIZES]

    def counted(args: list, **options) -> Probe:
        number = count(Steps(), *args, **options)
        return Probe(args, options, view=lambda got: {f"the number should be {number:,}": _whole(got)})

    def without(number: int, size: int) -> list:
        return [size if n == number else given for n, given in enumerate(sizes)]

    return {
        "type": Probe(sizes, view=_type),
        "type_together": Probe(sizes, {"norm_first": True, "share_layers": True}, view=_type),
        "base": counted([37_000, 512, 2048, 6, 8, 64]),
        "big": counted([37_000, 1024, 4096, 6, 16, 64]),
        "one_layer": counted([1, *sizes[1:3], 1, 1, sizes[1]]),
        "d_k": counted(sizes),
        "wide_heads": counted(without(5, s["d_model"] + 2)),
        "output": counted(sizes, tied="output"),
        "none": counted(sizes, tied="none"),
        "norm_first": counted(sizes, norm_first=True),
        "output_norm_first": counted(sizes, tied="output", norm_first=True),
        "none_norm_first": counted(sizes, tied="none", norm_first=True),
        "shared": counted(sizes, share_layers=True),
        "together": counted(sizes, tied="output", norm_first=True, share_layers=True),
        "unknown": Probe(sizes, {"tied": "input"}, refused="tied='input'"),
        **{f"no_{name}": Probe(without(n, 0), refused=f"{name}=0") for n, name in enumerate(SIZES)},
        "two_negative": Probe([*sizes[:2], -1, -1, *sizes[4:]], refused="d_ff=-1, num_layers=-1"),
        "negative": Probe(without(1, -1), refused="d_model=-1"),
        "empty_word": Probe(sizes, {"tied": ""}, refused="tied=''"),
    }


def _type(number: Any) -> dict[str, bool]:
    return {"the number should be a Python int": type(number) is int}


def _whole(number: Any) -> Any:
    """A float that is a whole number is of the wrong type, but not a wrong number."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _accept_sizes(*sizes: int) -> None:
    if min(sizes) < 1:
        raise ValueError("sizes: expected 1 or more")


def _heads_within(
    vocab_size: int, d_model: int, d_ff: int, num_layers: int, num_heads: int, d_k: int
) -> None:
    _accept_sizes(vocab_size, d_model, d_ff, num_layers, num_heads, d_k, d_model - num_heads * d_k + 1)


def _head_within(vocab_size: int, d_model: int, d_ff: int, num_layers: int, num_heads: int, d_k: int) -> None:
    _accept_sizes(vocab_size, d_model, d_ff, num_layers, num_heads, d_k, d_model - d_k + 1)


def _accept_tying(tied: str) -> None:
    if tied not in MATRICES:
        raise ValueError("tied: expected all, output or none")


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept_sizes
    accept_tying: Callable = _accept_tying
    inner: Callable = lambda d_model, num_heads, d_k: num_heads * d_k
    attention: Callable = lambda d, inner, heads: 4 * d * inner
    attention_biases: Callable = lambda d, inner, heads: 3 * inner + d
    feed_forward: Callable = lambda d, d_ff: 2 * d * d_ff
    feed_forward_biases: Callable = lambda d, d_ff: d_ff + d
    norm: Callable = lambda d: 2 * d
    decoder: Callable = lambda attention, feed_forward, norm: 2 * attention + feed_forward + 3 * norm
    encoder: Callable = lambda attention, feed_forward, norm: attention + feed_forward + 2 * norm
    layers: Callable = lambda num_layers, encoder, decoder: num_layers * (encoder + decoder)
    shared: Callable = lambda num_layers, share_layers: 1 if share_layers else num_layers
    matrices: Callable = lambda tied: MATRICES[tied]
    output_bias: Callable = lambda vocab_size: 0
    final: Callable = lambda norm_first, norm, tied: 2 * norm if norm_first else 0
    result: Callable = lambda number: number


def count(
    steps: Steps,
    vocab_size: int,
    d_model: int,
    d_ff: int,
    num_layers: int,
    num_heads: int,
    d_k: int,
    *,
    tied: str = "all",
    norm_first: bool = False,
    share_layers: bool = False,
) -> int:
    """The number of parameters in these steps."""
    steps.accept(vocab_size, d_model, d_ff, num_layers, num_heads, d_k)
    steps.accept_tying(tied)
    inner = steps.inner(d_model, num_heads, d_k)
    attention = steps.attention(d_model, inner, num_heads) + steps.attention_biases(d_model, inner, num_heads)
    feed_forward = steps.feed_forward(d_model, d_ff) + steps.feed_forward_biases(d_model, d_ff)
    norm = steps.norm(d_model)
    parts = attention, feed_forward, norm
    number = steps.shared(num_layers, share_layers)
    layers = steps.layers(number, steps.encoder(*parts), steps.decoder(*parts))
    ends = steps.matrices(tied) * vocab_size * d_model + steps.output_bias(vocab_size)
    return steps.result(layers + ends + steps.final(norm_first, norm, tied))


def assemble(steps: Steps) -> Callable:
    """`parameter_count` in these steps."""

    def parameter_count(*args, **options):
        return count(steps, *args, **options)

    return parameter_count


MISTAKES = (
    Mistake(
        "no_biases",
        "you left out all biases; every linear map in the layers has one",
        "Formulas in papers count matrices.",
        "The number is a few thousandths too small.",
        PARTS,
        ({"attention_biases": lambda d, inner, heads: 0, "feed_forward_biases": lambda d, d_ff: 0},),
    ),
    Mistake(
        "attention_biases_missing",
        "you left out the biases of attention's projections",
        "The paper's formula of multi-head attention shows none.",
        "The number is too small by three times h·d_k plus d_model for each attention.",
        PARTS,
        ({"attention_biases": lambda d, inner, heads: 0},),
    ),
    Mistake(
        "attention_biases_all_of_d_model",
        "you gave attention's four projections biases of one length; three have h·d_k numbers, W_o has d_model",
        "With the paper's own sizes the two are equal.",
        "It shows as soon as h·d_k is not d_model.",
        TABLE,
        ({"attention_biases": lambda d, *_: 4 * d}, {"attention_biases": lambda d, inner, _: 4 * inner}),
    ),
    Mistake(
        "attention_biases_of_one_head",
        "you count the biases of one head; each head has its own, so three of attention's have h·d_k numbers",
        "The formula projects to d_k, and the index of the heads is overlooked.",
        "The number is a little too small.",
        PARTS,
        ({"attention_biases": lambda d, inner, heads: 3 * inner // heads + d},),
    ),
    Mistake(
        "feed_forward_biases_missing",
        "you left out the two biases of the feed-forward network",
        "Two matrices are what the picture shows.",
        "The number is too small by d_ff + d_model a layer.",
        PARTS,
        ({"feed_forward_biases": lambda d, d_ff: 0},),
    ),
    Mistake(
        "feed_forward_biases_equal",
        "you gave both maps of the feed-forward network biases of one size; they are d_ff and d_model",
        "Both are called b.",
        "The number is off by d_ff − d_model a layer.",
        PARTS,
        (
            {"feed_forward_biases": lambda d, d_ff: 2 * d},
            {"feed_forward_biases": lambda d, d_ff: 2 * d_ff},
            {"feed_forward_biases": lambda d, d_ff: d},
        ),
    ),
    Mistake(
        "d_k_ignored",
        "you count attention's matrices as d_model × d_model; their inner width is h·d_k",
        "In the paper's base model the two are equal.",
        "It shows in rows (B) of Table 3 only.",
        TABLE,
        ({"inner": lambda d_model, num_heads, d_k: d_model},),
    ),
    Mistake(
        "matrices_for_each_head",
        "you count full-size matrices for every head; heads cut one matrix into pieces",
        "The formula has an index i at each matrix.",
        "The number is many times too large.",
        PARTS,
        (
            {"attention": lambda d, inner, heads: 4 * d * inner * heads},
            {"attention": lambda d, inner, heads: 3 * d * inner * heads + d * inner},
            {"inner": lambda d_model, num_heads, d_k: num_heads * d_model},
        ),
    ),
    Mistake(
        "one_head_only",
        "you count one head; there are num_heads of width d_k",
        "The heads are projected all at once, and h drops out of sight.",
        "The number is too small.",
        PARTS,
        ({"inner": lambda d_model, num_heads, d_k: d_k},),
    ),
    Mistake(
        "output_projection_missing",
        "you count three matrices in an attention; the fourth maps the heads' results back, W_o",
        "Queries, keys and values are what one remembers.",
        "A quarter of attention is missing.",
        PARTS,
        (
            {"attention": lambda d, inner, heads: 3 * d * inner},
            {
                "attention": lambda d, inner, heads: 3 * d * inner,
                "attention_biases": lambda d, inner, heads: 3 * inner,
            },
        ),
    ),
    Mistake(
        "cross_attention_missing",
        "you count a decoder layer like an encoder layer, or its cross-attention as free",
        "Both boxes in the diagram look much alike.",
        "One attention a layer is missing.",
        PARTS,
        (
            {"decoder": lambda attention, feed_forward, norm: attention + feed_forward + 2 * norm},
            {"decoder": lambda attention, feed_forward, norm: attention + feed_forward + 3 * norm},
        ),
    ),
    Mistake(
        "third_norm_missing",
        "you are 2·d_model short for each pair of layers: as by two norms instead of three in a decoder layer, "
        "or feed-forward networks without their second bias",
        "Two norms are right for the encoder.",
        "The gap grows with num_layers and d_model alone.",
        PARTS,
        (
            {"decoder": lambda attention, feed_forward, norm: 2 * attention + feed_forward + 2 * norm},
            {"feed_forward_biases": lambda d, d_ff: d_ff},
        ),
    ),
    Mistake(
        "norms_missing",
        "you left out the norms, each with a scale and a shift",
        "Normalising sounds like something that needs no parameters.",
        "The number is about a thousandth too small.",
        PARTS,
        ({"norm": lambda d: 0},),
    ),
    Mistake(
        "norm_without_shift",
        "you count d_model numbers in a norm; a LayerNorm has a scale and a shift",
        "RMSNorm has a scale alone.",
        "Half of the norms' parameters are missing.",
        PARTS,
        ({"norm": lambda d: d},),
    ),
    Mistake(
        "one_stack_only",
        "you count num_layers in all; encoder and decoder have so many each",
        "N = 6 stands once in the paper's table.",
        "About half is missing.",
        PARTS,
        (
            {"layers": lambda num_layers, encoder, decoder: num_layers * encoder},
            {"layers": lambda num_layers, encoder, decoder: num_layers * decoder},
            {
                "layers": lambda num_layers, encoder, decoder: num_layers * (encoder + decoder) / 2,
                "result": int,
            },
        ),
    ),
    Mistake(
        "tying_ignored",
        "you count the same number of vocabulary matrices whatever tied says",
        "Only one of the three cases was thought of.",
        "A row of the vocabulary counts once for each role: as source, target or output.",
        TYING,
        ({"matrices": lambda tied: 1}, {"matrices": lambda tied: 2}, {"matrices": lambda tied: 3}),
    ),
    Mistake(
        "output_counted_twice",
        "you count the output projection although it is the target's embedding",
        "It is a module of its own with a weight of its own name.",
        "V·d_model too many; a state dict that lists it twice invites that.",
        TYING,
        (
            {"matrices": lambda tied: {"all": 2, "output": 3}.get(tied, 3)},
            {"matrices": lambda tied: {"all": 1, "output": 3}.get(tied, 3)},
        ),
    ),
    Mistake(
        "output_bias_counted",
        "you count a bias of the output projection; tied to an embedding, it has none",
        "nn.Linear has one unless told otherwise.",
        "The number is V too large.",
        TYING,
        ({"output_bias": lambda vocab_size: vocab_size},),
    ),
    Mistake(
        "final_norms_missing",
        "you left out the two final norms of a pre-norm model",
        "They are in neither of the layers.",
        "4·d_model are missing.",
        PARTS,
        ({"final": lambda norm_first, norm, tied: 0},),
    ),
    Mistake(
        "final_norms_always",
        "you count two final norms in post-norm too",
        "nn.Transformer has them in either order.",
        "4·d_model too many.",
        PARTS,
        ({"final": lambda norm_first, norm, tied: 2 * norm},),
    ),
    Mistake(
        "final_norms_unless_untied",
        "with one of the words for tied you leave out the final norms of a pre-norm model",
        "That branch ends with a return of its own.",
        "4·d_model are missing where two options meet.",
        PARTS,
        (
            {"final": lambda norm_first, norm, tied: 2 * norm if norm_first and tied != "none" else 0},
            {"final": lambda norm_first, norm, tied: 2 * norm if norm_first and tied != "output" else 0},
        ),
    ),
    Mistake(
        "float_returned",
        "you return a float, if only with some of the options; a number of parameters is an int",
        "/ gives a float even where nothing is left over, and so does a factor like 2.0.",
        "From 2⁵³ on it is no longer exact, and range() and tensor sizes refuse it.",
        PARTS,
        (
            {"result": float},
            {"shared": lambda num_layers, share_layers: 1.0 if share_layers else num_layers},
            {"final": lambda norm_first, norm, tied: 2.0 * norm if norm_first else 0},
        ),
    ),
    Mistake(
        "wide_heads_refused",
        "you refuse heads that together, or alone, are wider than d_model; h·d_k may be any number",
        "In most models h·d_k is d_model, and multi-head layers check something like it.",
        "Models whose heads have more numbers together than the stream cannot be counted.",
        TABLE,
        ({"accept": _heads_within}, {"accept": _head_within}),
    ),
    Mistake(
        "one_final_norm",
        "you count one final norm; encoder and decoder have one each",
        "Decoder-only models have one.",
        "2·d_model are missing.",
        PARTS,
        ({"final": lambda norm_first, norm, tied: norm if norm_first else 0},),
    ),
    Mistake(
        "sharing_ignored",
        "you count layers that are one and the same object several times",
        "The model still runs through all of them.",
        "The number is num_layers times too large.",
        SHARED,
        ({"shared": lambda num_layers, share_layers: num_layers},),
    ),
    Mistake(
        "sizes_unchecked",
        "you accept sizes below 1",
        "Products with zero give a number like any other.",
        "A typo in a configuration goes unnoticed.",
        PARTS,
        (
            {"accept": lambda *sizes: None},
            {"accept": lambda *sizes: _accept_sizes(*sizes[3:])},
            {"accept": lambda *sizes: _accept_sizes(*sizes[:3])},
            {"accept": lambda *sizes: _accept_sizes(*map(abs, sizes))},
            {"accept": lambda *sizes: _accept_sizes(math.prod(sizes))},
            {"accept": lambda *sizes: _accept_sizes(sizes[1], *map(abs, sizes))},
        ),
    ),
    Mistake(
        "tying_unchecked",
        "you accept any word for tied",
        "The last else takes all that is left.",
        "A typo gives the count of another model.",
        TYING,
        (
            {"accept_tying": lambda tied: None, "matrices": lambda tied: MATRICES.get(tied, 3)},
            {"accept_tying": lambda tied: _accept_tying(tied or "all")},
        ),
    ),
    Mistake(
        "tying_left_to_python",
        "you do not check tied yourself: another word raises some error, but no ValueError",
        "A dict, or a variable that no branch has set, finds out by itself.",
        "The message is about your code, and says nothing of what is possible.",
        TYING,
        ({"accept_tying": lambda tied: MATRICES[tied]},),
    ),
)

TASK = Task(
    name="parameter_count",
    signature="parameter_count(vocab_size, d_model, d_ff, num_layers, num_heads, d_k, *, "
    'tied="all", norm_first=False, share_layers=False)',
    arguments=SIZES,
    returns=("number",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns an int.", ("type", "type_together"), PARTS),
        Requirement(
            "values",
            "the paper's two models have 63,082,496 and 214,245,376 parameters with a vocabulary of 37,000.",
            ("base", "big", "one_layer"),
            PARTS,
        ),
        Requirement(
            "d_k",
            "h·d_k may be another number than d_model, as in Table 3 (B).",
            ("d_k", "wide_heads"),
            TABLE,
        ),
        Requirement(
            "tying",
            "with tied='output' the source's embedding is a matrix of its own, with 'none' the output is too.",
            ("output", "none"),
            TYING,
        ),
        Requirement(
            "norm_first",
            "a pre-norm model has a final norm behind either stack.",
            ("norm_first", "output_norm_first", "none_norm_first"),
            PARTS,
        ),
        Requirement(
            "sharing",
            "with share_layers each stack is one layer, used num_layers times.",
            ("shared", "together"),
            SHARED,
        ),
        Requirement(
            "refusals",
            "sizes below 1 and an unknown word for tied are refused with ValueError.",
            ("unknown", "empty_word", *(f"no_{name}" for name in SIZES), "negative", "two_negative"),
            PARTS,
        ),
    ),
    sizes=_sizes,
    small=({"vocab_size": 3, "d_model": 2, "d_ff": 5, "num_layers": 1, "num_heads": 1, "d_k": 1},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
