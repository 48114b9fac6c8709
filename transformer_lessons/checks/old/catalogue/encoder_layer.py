"""The check of `EncoderLayer`: its requirements, the calls that probe them, and its known wrong wirings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.layer_parts import (
    PACKING,
    RATE,
    STREAM,
    Packing,
    PackingSteps,
    example,
    layer_sizes,
    training,
)
from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import EncoderLayer, FeedForward, MultiHeadAttention

__all__ = ["INNER", "TASK"]

WIRING, SHAPES, WRONG = "#ch12-wiring", "#ch12-shapes", "#ch12-wrong"


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, d = s["batch"], s["source"], s["heads"] * s["d_k"]
    settings = {"d_model": d, "num_heads": s["heads"], "d_ff": s["d_ff"], "dropout": 0.0, "norm_first": False}
    state = example(EncoderLayer, settings, draw)
    halves = {name: tensor.float() for name, tensor in state.items()}
    after, before = (
        Build([settings | {"norm_first": first}], dtype="float64", state=state) for first in (False, True)
    )
    busy, wrong = settings | {"dropout": RATE}, settings | {"num_heads": d + 1}
    busy_before = busy | {"norm_first": True}
    x, cotangents = draw.normal(b, t, d), [draw.normal(b, t, d)]
    first = ("", [draw.normal(b, t, d), draw.mask(b, 1, 1, t)], {})  # a call of which nothing may be kept
    return {
        "after": Probe([x], build=after, cotangents=cotangents),
        "before": Probe([x], build=before, cotangents=cotangents),
        "mask": Probe([x, draw.mask(b, 1, 1, t)], build=after),
        "full_mask": Probe([x, draw.mask(b, s["heads"], t, t)], build=before),
        **training(EncoderLayer, settings, state, [x], [draw.normal(30, t, d)]),
        "float32": Probe([x.float()], build=Build([busy], state=halves, training=False)),
        "evaluation_before": Probe([x], build=Build([busy_before], {}, "float64", state, False)),
        "again": Probe([x], build=replace(before, earlier=(first,)), note="the second call"),
        # In float32, as the layer is: nothing else is to be refused.
        "heads": Probe([x.float()], build=Build([wrong]), refused="heads that do not divide d_model"),
    }


@dataclass(frozen=True)
class Steps(PackingSteps):
    """What a mistake may replace; together, the right answer."""

    heads: Callable = lambda settings: settings["num_heads"]
    inner: Callable = lambda settings: {
        "attention": 0.0,
        "feed_forward": 0.0,
    }  # dropout within the sub-layers
    attend: Callable = lambda attention, y, mask: attention(y, mask=mask)
    # In pre-norm, y is x normalised.
    ask: Callable = lambda attend, attention, y, x, mask: attend(attention, y, mask)
    transform: Callable = lambda feed_forward, y: feed_forward(y)
    second: Callable = lambda layer: layer.add_norm_feed_forward
    order: Callable = lambda x, one, two: two(one(x))
    end: Callable = lambda layer, x, y: y


def assemble(steps: Steps) -> type[nn.Module]:
    """The encoder layer in these steps."""

    class Layer(nn.Module):
        def __init__(self, settings):
            super().__init__()
            d_model, inner = settings["d_model"], steps.inner(settings)
            heads = steps.heads(settings)
            self.norm_first = settings["norm_first"]
            self.self_attention = MultiHeadAttention(d_model, heads, dropout=inner["attention"])
            self.feed_forward = FeedForward(d_model, settings["d_ff"], dropout=inner["feed_forward"])
            self.add_norm_self = Packing(d_model, settings["dropout"])
            self.add_norm_feed_forward = Packing(d_model, settings["dropout"])

        def forward(self, x, mask=None):
            def attend(y):
                return steps.ask(steps.attend, self.self_attention, y, x, mask)

            def transform(y):
                return steps.transform(self.feed_forward, y)

            def one(x):
                return steps.around(self.add_norm_self, x, attend, self.norm_first)

            def two(x):
                return steps.around(steps.second(self), x, transform, self.norm_first)

            return steps.end(self, x, steps.order(x, one, two))

    return Layer


def _no_activation(feed_forward: nn.Module, y: Tensor) -> Tensor:
    return feed_forward.W_2(feed_forward.W_1(y))


def _inverted(attention: nn.Module, y: Tensor, mask: Tensor | None) -> Tensor:
    return attention(y, mask=None if mask is None else ~mask)


def _kept(attention: nn.Module, y: Tensor, mask: Tensor | None) -> Tensor:
    attention.kept = mask if mask is not None else getattr(attention, "kept", None)
    return attention(y, mask=attention.kept)


def _inner(attention: bool, feed_forward: bool) -> Callable:
    return lambda settings: {
        "attention": attention * settings["dropout"],
        "feed_forward": feed_forward * settings["dropout"],
    }


INNER = Mistake(
    "inner_dropout",
    "you drop within a sub-layer, or what it reads, as well; dropout falls on what it gives, and only there",
    "nn.TransformerEncoderLayer hands its dropout to all of them.",
    "Nothing shows in evaluation; in training there is more noise than the setting says.",
    "#ch12-proof",
    ({"inner": _inner(True, True)}, {"inner": _inner(True, False)}, {"inner": _inner(False, True)}),
)

WIRINGS = (
    Mistake(
        "mask_ignored",
        "you never use mask",
        "The first tests have no padding, and nothing fails without it.",
        "Real tokens average in padding, so a sentence's output depends on its batch-mates.",
        WIRING,
        ({"attend": lambda attention, y, mask: attention(y)},),
    ),
    Mistake(
        "mask_inverted",
        "you invert the mask; here and in the package True means “may attend”",
        "nn.MultiheadAttention and nn.TransformerEncoderLayer take masks the other way round.",
        "Tokens see the padding and nothing else.",
        "#ch12-proof",
        ({"attend": _inverted},),
    ),
    Mistake(
        "mask_kept",
        "without a mask you use that of an earlier call; a call without one hides nothing",
        "The mask was made an attribute of the module.",
        "What a sentence gives depends on which batch came before.",
        WIRING,
        ({"attend": _kept},),
    ),
    Mistake(
        "causal_encoder",
        "you made the encoder's self-attention causal; in an encoder every position sees all others",
        "The line was copied from the decoder.",
        "Source tokens know nothing of what follows them, and no number of layers repairs that.",
        WRONG,
        ({"attend": lambda attention, y, mask: attention(y, mask=mask, is_causal=True)},),
    ),
    Mistake(
        "tuple_as_tensor",
        "you use attention's pair (output, weights) as if it were a tensor",
        "Attention returned its weights as well, and nobody unpacked them.",
        "Python complains where the pair is first used, inside dropout or the sum.",
        WIRING,
        (
            {"attend": lambda attention, y, mask: attention(y, mask=mask, need_weights=True)},
            {
                "attend": lambda attention, y, mask: attention(y, mask=mask, need_weights=True),
                "drop": lambda dropout, y, norm_first: y,
            },
        ),
    ),
    Mistake(
        "num_heads_ignored",
        "your attention has another number of heads than num_heads says",
        "A default or a constant was left where the setting belongs, and all shapes are right.",
        "Weights of another model load without complaint and give other outputs.",
        SHAPES,
        ({"heads": lambda settings: 1}, {"heads": lambda settings: settings["d_model"]}),
    ),
    Mistake(
        "partly_normalised",
        "with norm_first, attention's queries, keys and values are not all of the normalised vectors",
        "The lambda's own argument is used once, and x, from outside, for the other two.",
        "Post-norm is right; in pre-norm queries are compared with keys of another size.",
        WRONG,
        (
            {"ask": lambda attend, attention, y, x, mask: attention(y, x, x, mask=mask)},
            {"ask": lambda attend, attention, y, x, mask: attention(x, y, y, mask=mask)},
            {"ask": lambda attend, attention, y, x, mask: attention(y, y, x, mask=mask)},
        ),
    ),
    Mistake(
        "feed_forward_missing",
        "you never call the feed-forward network",
        "Attention looks like the whole layer.",
        "Half of the parameters get no gradient.",
        WIRING,
        ({"order": lambda x, one, two: one(x)},),
    ),
    Mistake(
        "attention_missing",
        "you overwrite what attention gave: the second sub-layer reads the layer's input again",
        "y = first(x), then second(x): the wrong variable is passed on.",
        "Positions never meet, and attention's parameters get no gradient.",
        WRONG,
        ({"order": lambda x, one, two: two(x)},),
    ),
    Mistake(
        "order_exchanged",
        "you call the feed-forward network first; attention comes first",
        "The sum of the two looks symmetric.",
        "Shapes, names and parameter counts are right, and all numbers differ.",
        WIRING,
        ({"order": lambda x, one, two: one(two(x))},),
    ),
    Mistake(
        "in_parallel",
        "both sub-layers read the layer's input and are added up; here the second reads what the first gave",
        "Some models since do it so, for speed.",
        "The feed-forward network never sees what attention found.",
        WIRING,
        ({"order": lambda x, one, two: one(x) + two(x) - x}, {"order": lambda x, one, two: one(x) + two(x)}),
    ),
    Mistake(
        "norm_shared",
        "both sub-layers use one norm; each has its own",
        "One object was made where two belong, or one name was copied.",
        "The second norm's parameters get no gradient.",
        WIRING,
        ({"second": lambda layer: layer.add_norm_self},),
    ),
    Mistake(
        "input_added_at_the_end",
        "you add the layer's input once more at the end; each sub-layer has its own sum and that is all",
        "A residual connection around the whole layer sounds like more of a good thing.",
        "The output is the input too large.",
        WIRING,
        ({"end": lambda layer, x, y: x + y},),
    ),
    Mistake(
        "no_activation",
        "your feed-forward network has no ReLU",
        "Two linear maps in a row look like a network.",
        "They collapse into one linear map.",
        "#ch12-by-hand",
        ({"transform": _no_activation},),
    ),
    INNER,
)

TASK = Task(
    name="encoder_layer",
    signature="EncoderLayer(settings)(x, mask=None)",
    arguments=("x", "mask"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement(
            "returns", "it returns one tensor, of the input's shape.", ("after",), SHAPES, ("structure",)
        ),
        Requirement(
            "post_norm",
            "y = AddNorm(x, SelfAttention), output = AddNorm(y, FFN), post-norm.",
            ("after",),
            WIRING,
        ),
        Requirement("pre_norm", "the same with norm_first, pre-norm.", ("before",), WIRING),
        Requirement(
            "mask", "mask hides positions from every other one.", ("mask", "full_mask", "again"), WIRING
        ),
        Requirement(
            "gradients",
            "gradients reach the input and all parameters.",
            ("after", "before"),
            WRONG,
            ("gradients", "parameters"),
        ),
        STREAM,
        Requirement(
            "dropout",
            "in training, what each sub-layer gives is dropped with probability p or divided by 1 − p.",
            ("training_self_attention", "training_feed_forward", "training_after"),
            "#ch11-add-and-norm",
        ),
        Requirement(
            "evaluation",
            "in evaluation nothing is dropped.",
            ("float32", "evaluation_before"),
            "#ch11-add-and-norm",
        ),
        Requirement(
            "dtype", "the output has the dtype of the input.", ("after", "float32"), SHAPES, ("dtype",)
        ),
        Requirement(
            "inputs", "the input is left unchanged.", ("after", "before"), "#ch11-wrong", ("inputs",)
        ),
        Requirement("refusals", "heads that do not divide d_model are refused.", ("heads",), SHAPES),
    ),
    sizes=layer_sizes,
    small=({"batch": 1, "source": 2, "target": 1, "heads": 1, "d_k": 2, "d_ff": 1},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=(*PACKING, *WIRINGS),
)
