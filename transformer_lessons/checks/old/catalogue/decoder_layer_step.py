"""The check of `decoder_layer_step`: new tokens through a decoder layer, with keys and values kept."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_lessons.checks.old.catalogue.layer_parts import example, layer_sizes
from transformer_lessons.checks.old.core import Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import DecoderLayer, causal_mask, scaled_dot_product_attention

__all__ = ["TASK"]

CACHE, WIRING, BY_HAND, WRONG = "#ch12-cache", "#ch12-wiring", "#ch12-functions", "#ch12-wrong"
BATCHES = ("batch", "batch_first", "batch_one", "batch_one_kept")
Weights = dict[str, Tensor]


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, m, h, d_k = s["batch"], s["source"], s["heads"], s["d_k"]
    d, kept, new = h * d_k, s["target"] + 1, 2 + s["target"] % 2
    settings = {"d_model": d, "num_heads": h, "d_ff": s["d_ff"], "dropout": 0.0, "norm_first": False}
    weights = example(DecoderLayer, settings, draw)
    memory = [draw.normal(b, h, m, d_k), draw.normal(b, h, m, d_k)]
    past = [draw.normal(b, h, kept, d_k), draw.normal(b, h, kept, d_k)]
    none = [tensor[:, :, :0] for tensor in past]
    x, several = draw.normal(b, 1, d), draw.normal(b, new, d)
    mask = draw.mask(b, 1, 1, m)
    mask[-1] = mask[0].roll(1, -1)  # not the same for all sentences
    sizes = [(b, 1, d), (b, h, kept + 1, d_k), (b, h, kept + 1, d_k)]
    halves = {name: tensor.float() for name, tensor in weights.items()}
    return {
        "later": Probe([weights, h, x, *past, *memory], cotangents=[draw.normal(*shape) for shape in sizes]),
        "first": Probe([weights, h, x, *none, *memory]),
        "mask": Probe([weights, h, x, *past, *memory, mask]),
        "several": Probe([weights, h, several, *past, *memory, mask]),
        "prompt": Probe([weights, h, several, *none, *memory]),
        "float32": Probe([halves, h, *(tensor.float() for tensor in (x, *past, *memory))]),
        "batch": Probe(
            [weights, h, draw.normal(b + 1, 1, d), *past, *memory],
            refused=f"{b + 1} tokens for the keys of {b} sentences",
        ),
        "batch_first": Probe(
            [weights, h, x, *(torch.zeros(b + 1, h, 0, d_k, dtype=x.dtype) for _ in past), *memory],
            refused=f"{b} tokens for the keys, none as yet, of {b + 1} sentences",
        ),
        # A batch of one would broadcast, either way round.
        "batch_one": Probe(
            [weights, h, x[:1], *map(_twice, past), *map(_twice, memory)],
            refused=f"1 token for the keys of {2 * b} sentences",
        ),
        "batch_one_kept": Probe(
            [weights, h, _twice(x), *(tensor[:1] for tensor in past), *map(_twice, memory)],
            refused=f"{2 * b} tokens for the keys of 1 sentence",
        ),
    }


def _twice(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor])


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].mT + weights[f"{name}.bias"]


def _norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    name = f"add_norm_{name}.norm"
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])


def _split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _append(past: Tensor, new: Tensor) -> Tensor:
    return torch.cat([past, new], dim=2)


def _accept(x: Tensor, keys: Tensor) -> None:
    if len(x) != len(keys):
        raise ValueError("x: expected as many sentences as keys")


def _append_if_any(past: Tensor, new: Tensor) -> Tensor:
    return _append(past, new) if past.size(2) else new


def _once_kept(x: Tensor, keys: Tensor) -> None:
    if keys.size(2):
        _accept(x, keys)


def _unless_one(x: bool, keys: bool) -> dict[str, Callable]:
    """A batch of one is let through as x or as keys, and broadcast."""

    def accept(given: Tensor, past: Tensor) -> None:
        if not ((x and len(given) == 1) or (keys and len(past) == 1)):
            _accept(given, past)

    def append(past: Tensor, new: Tensor) -> Tensor:
        return _append(*(part.expand(max(len(past), len(new)), *part.shape[1:]) for part in (past, new)))

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return _attend(q.expand(len(k), *q.shape[1:]), k, v, mask)

    return {"accept": accept, "append": append, "attend": attend}


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(q, k, v, mask)[0]


@dataclass(frozen=True)
class Steps:
    """What a mistake may replace; together, the right answer."""

    accept: Callable = _accept
    linear: Callable = _linear
    norm: Callable = _norm
    split: Callable = _split
    merge: Callable = lambda heads: heads.transpose(1, 2).flatten(2)
    append: Callable = _append
    keep: Callable = lambda past, all_: all_  # what is returned of keys and values
    see: Callable = lambda queries, keys: causal_mask(queries, keys)
    look_back: Callable = lambda past, all_: all_  # what of them is attended to
    attend: Callable = _attend
    across: Callable = lambda q, own, memory, mask: (*memory, mask)
    queries: Callable = lambda x, y: y  # what cross-attention asks with
    shortcut: Callable = lambda x: x
    activation: Callable = torch.relu
    result: Callable = lambda output, x: output


def assemble(steps: Steps) -> Callable:
    """The step in these steps."""

    def decoder_layer_step(weights, num_heads, x, keys, values, memory_keys, memory_values, src_mask=None):
        steps.accept(x, keys)

        def project(part, letter, y):
            return steps.split(steps.linear(weights, f"{part}.W_{letter}", y), num_heads)

        def packed(part, y, given):
            return steps.norm(weights, part, steps.shortcut(y) + given)

        q, k, v = (project("self_attention", letter, x) for letter in "qkv")
        k, v = steps.append(keys, k), steps.append(values, v)
        seen = steps.look_back(keys, k), steps.look_back(values, v)
        mask = steps.see(q.size(2), seen[0].size(2))
        heads = steps.attend(q, *seen, mask)
        y = packed("self", x, steps.linear(weights, "self_attention.W_o", steps.merge(heads)))
        q = project("cross_attention", "q", steps.queries(x, y))
        heads = steps.attend(q, *steps.across(q, (k, v), (memory_keys, memory_values), src_mask))
        z = packed("cross", y, steps.linear(weights, "cross_attention.W_o", steps.merge(heads)))
        hidden = steps.activation(steps.linear(weights, "feed_forward.W_1", z))
        output = packed("feed_forward", z, steps.linear(weights, "feed_forward.W_2", hidden))
        return steps.result(output, x), steps.keep(keys, k), steps.keep(values, v)

    return decoder_layer_step


def _no_bias(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].mT


def _not_turned(weights: Weights, name: str, x: Tensor) -> Tensor:
    weight = weights[f"{name}.weight"]
    turned = weight if weight.size(0) == weight.size(1) else weight.mT
    return x @ turned + weights[f"{name}.bias"]


def _bare_norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _norms_exchanged(weights: Weights, name: str, x: Tensor) -> Tensor:
    return _norm(weights, {"cross": "feed_forward", "feed_forward": "cross"}.get(name, name), x)


def _scaled_by(power: Callable) -> Callable:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        factor = q.size(-1) ** 0.5 / power(q)
        return _attend(q * factor, k, v, mask)

    return attend


def _first_to_first(queries: int, keys: int) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def _past_and_itself(queries: int, keys: int) -> Tensor:
    past = torch.ones(queries, keys - queries, dtype=torch.bool)
    return torch.cat([past, torch.eye(queries, dtype=torch.bool)], dim=1)


def _reshaped(x: Tensor, num_heads: int) -> Tensor:
    return x.reshape(len(x), num_heads, x.size(1), -1)


MISTAKES = (
    Mistake(
        "past_forgotten",
        "you attend to the new tokens alone; the keys and values that were kept count as well",
        "The step looks like a whole layer for a text of one token.",
        "Every token believes that it is the first.",
        CACHE,
        ({"look_back": lambda past, all_: all_[:, :, past.size(2) :]},),
    ),
    Mistake(
        "not_kept",
        "you return other keys and values than the next step needs: those kept so far, then the new ones",
        "The output is right, so the step seems done.",
        "The next step does not find what this one has seen.",
        CACHE,
        (
            {"keep": lambda past, all_: past},
            {"keep": lambda past, all_: all_[:, :, past.size(2) :]},
        ),
    ),
    Mistake(
        "put_in_front",
        "you put the new keys and values in front of the old ones; they come after them",
        "For a single token the order does not matter to attention.",
        "With several tokens at once causality hides the wrong ones.",
        CACHE,
        ({"append": lambda past, new: torch.cat([new, past], dim=2)},),
    ),
    Mistake(
        "does_not_see_itself",
        "a new token does not see itself: you attend first and append afterwards",
        "The two lines look as if their order did not matter.",
        "The very first token sees nothing at all.",
        CACHE,
        ({"look_back": lambda past, all_: past},),
    ),
    Mistake(
        "several_not_causal",
        "of several new tokens each sees the later ones",
        "With one token at a time there is nothing to hide, so the mask was left out.",
        "A prompt that is read in one go gives other outputs than one read token by token.",
        CACHE,
        (
            {"see": lambda queries, keys: None},
            {"see": lambda queries, keys: causal_mask(queries, keys) if queries == keys else None},
        ),
    ),
    Mistake(
        "several_alone",
        "of several new tokens none sees the others; each sees those before it",
        "A mask of only the diagonal is what “a token sees itself” suggests.",
        "A prompt that is read in one go gives other outputs than one read token by token.",
        CACHE,
        ({"see": _past_and_itself},),
    ),
    Mistake(
        "causal_from_the_first_key",
        "your causal mask aligns the first new token with the first key; the last one belongs to the last key",
        "PyTorch's is_causal does so, and tril() without an argument.",
        "A new token sees the oldest keys only.",
        CACHE,
        ({"see": _first_to_first},),
    ),
    Mistake(
        "cross_is_self_attention",
        "your second sub-layer attends to the target's keys; its keys and values are the memory's",
        "Diagrams draw both with the same box.",
        "The source has no way in at all.",
        WRONG,
        ({"across": lambda q, own, memory, mask: (*own, None)},),
    ),
    Mistake(
        "causal_on_memory",
        "you put a causal mask on the memory; every target position may see the whole source",
        "The arguments of the self-attention were copied.",
        "The first of several tokens sees one source token.",
        WRONG,
        (
            {
                "across": lambda q, own, memory, mask: (
                    *memory,
                    (True if mask is None else mask) & _first_to_first(q.size(2), memory[0].size(2)),
                )
            },
        ),
    ),
    Mistake(
        "source_mask_ignored",
        "you never use src_mask",
        "Single sentences have no padding.",
        "A translation depends on the other sentences of the batch.",
        WRONG,
        ({"across": lambda q, own, memory, mask: (*memory, None)},),
    ),
    Mistake(
        "source_mask_inverted",
        "you invert src_mask; True means “may attend”",
        "PyTorch's layers take it the other way round.",
        "The padding is all that is seen.",
        "#ch12-proof",
        ({"across": lambda q, own, memory, mask: (*memory, None if mask is None else ~mask)},),
    ),
    Mistake(
        "queries_from_input",
        "your cross-attention asks with the step's input; its queries are what self-attention gave",
        "The variable x was kept beside the new one.",
        "What has been said so far does not choose what is read.",
        WRONG,
        ({"queries": lambda x, y: x},),
    ),
    Mistake(
        "no_scaling",
        "you left out the division by √d_k",
        "The names of the weights say nothing of it.",
        "Scores are too large and weights too sharp.",
        "#ch05-wrong",
        ({"attend": _scaled_by(lambda q: 1.0)},),
    ),
    Mistake(
        "scaled_by_d_model",
        "you divided by √d_model; a head's keys are d_k wide",
        "d_model is the last axis before heads are split.",
        "Weights are too close to each other.",
        "#ch05-wrong",
        ({"attend": _scaled_by(lambda q: (q.size(1) * q.size(-1)) ** 0.5)},),
    ),
    Mistake(
        "heads_reshaped",
        "you split heads by a reshape alone; with more than one token it mixes positions and heads",
        "For a single token the result is right.",
        "Several tokens at once give other outputs than one after the other.",
        "#ch07-reshape",
        ({"split": _reshaped},),
    ),
    Mistake(
        "merged_without_transpose",
        "you merge heads by a reshape alone; with more than one token it mixes positions and heads",
        "For a single token the result is right.",
        "Several tokens at once give other outputs than one after the other.",
        "#ch07-reshape",
        (
            {"merge": lambda heads: heads.reshape(len(heads), heads.size(2), -1)},
            {"merge": lambda heads: heads.reshape(len(heads), heads.size(2), -1), "split": _reshaped},
        ),
    ),
    Mistake(
        "biases_left_out",
        "you left out the biases of the linear maps",
        "The paper's formula of attention shows none.",
        "Everything is slightly off.",
        BY_HAND,
        ({"linear": _no_bias},),
    ),
    Mistake(
        "weights_not_transposed",
        "you multiply with W as nn.Linear keeps it; it computes x Wᵀ",
        "Square matrices fit either way.",
        "No error, other numbers.",
        BY_HAND,
        ({"linear": _not_turned},),
    ),
    Mistake(
        "norm_without_parameters",
        "you normalise, but use neither scale nor shift of the norms",
        "F.layer_norm takes them as optional arguments.",
        "With fresh weights it is right, with trained ones not.",
        BY_HAND,
        ({"norm": _bare_norm},),
    ),
    Mistake(
        "norms_exchanged",
        "the norms of cross-attention and feed-forward network are exchanged",
        "They were counted instead of read.",
        "With fresh weights it is right, with trained ones not.",
        WIRING,
        ({"norm": _norms_exchanged},),
    ),
    Mistake(
        "no_residual",
        "you left out the sums: each sub-layer's input is added to what it gives",
        "Layers that follow one another are what one knows from other networks.",
        "The token forgets what it was.",
        "#ch11-without",
        ({"shortcut": torch.zeros_like},),
    ),
    Mistake(
        "no_activation",
        "you left out the ReLU between the feed-forward network's two maps",
        "Two linear maps in a row look like a network.",
        "They collapse into one.",
        BY_HAND,
        ({"activation": lambda hidden: hidden},),
    ),
    Mistake(
        "kept_detached",
        "you detach what is kept; gradients must reach the earlier keys and values",
        "Keeping is for decoding, where nobody needs gradients.",
        "Whoever trains through the steps, as for scheduled sampling, gets wrong gradients.",
        CACHE,
        (
            {"append": lambda past, new: torch.cat([past, new], dim=2).detach()},
            {"append": lambda past, new: torch.cat([past.detach(), new], dim=2)},
            {"keep": lambda past, all_: all_.detach()},
        ),
    ),
    Mistake(
        "batch_unchecked",
        "you do not check that x and the keys kept are of one batch",
        "torch.cat complains by itself.",
        "What it says is about sizes of tensors in a list, not about x.",
        CACHE,
        ({"accept": lambda x, keys: None},),
    ),
    Mistake(
        "batch_checked_in_part",
        "you compare the batches of x and keys in some cases alone: not while nothing is kept, not for one "
        "sentence, or one way only",
        "While there are no keys, or with one sentence, there seems to be nothing to compare; and > is as easily "
        "written as !=.",
        "A step that does not fit is accepted, or torch complains about sizes of tensors in a list.",
        CACHE,
        (
            {"accept": _once_kept},
            {"accept": _once_kept, "append": _append_if_any},
            {"accept": lambda x, keys: _accept(x, keys) if len(x) > len(keys) else None},
            {"accept": lambda x, keys: _accept(x, keys) if len(x) < len(keys) else None},
            *(_unless_one(*which) for which in ((True, True), (True, False), (False, True))),
        ),
    ),
)

TASK = Task(
    name="decoder_layer_step",
    signature="decoder_layer_step(weights, num_heads, x, keys, values, memory_keys, memory_values, "
    "src_mask=None)",
    arguments=("weights", "num_heads", "x", "keys", "values", "memory_keys", "memory_values", "src_mask"),
    returns=("output", "keys", "values"),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns",
            "it returns (output, keys, values), the latter two one position longer.",
            ("later",),
            CACHE,
            ("structure",),
        ),
        Requirement(
            "values",
            "the output is that of the post-norm layer for this token, after those whose keys were kept.",
            ("later",),
            CACHE,
        ),
        Requirement("first", "nothing may have been kept so far.", ("first",), CACHE),
        Requirement("mask", "src_mask hides source positions.", ("mask",), WRONG),
        Requirement(
            "several",
            "several tokens may come at once; each sees those before it and itself.",
            ("several", "prompt"),
            CACHE,
        ),
        Requirement(
            "gradients", "gradients reach all tensors given.", ("later",), "#ch12-proof", ("gradients",)
        ),
        Requirement("dtype", "results have the dtype of x.", ("later", "float32"), CACHE, ("dtype",)),
        Requirement("inputs", "what was kept is left unchanged.", ("later", "several"), CACHE, ("inputs",)),
        Requirement("refusals", "another batch size than that of keys is refused.", BATCHES, CACHE),
    ),
    sizes=layer_sizes,
    small=({"batch": 1, "source": 2, "target": 1, "heads": 1, "d_k": 2, "d_ff": 1},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=MISTAKES,
)
