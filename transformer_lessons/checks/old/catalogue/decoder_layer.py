"""The check of `DecoderLayer`: its requirements, the calls that probe them, and its known wrong wirings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_lessons.checks.old.catalogue.encoder_layer import INNER
from transformer_lessons.checks.old.catalogue.layer_parts import (
    PACKING,
    PARTS,
    RATE,
    STREAM,
    Packing,
    PackingSteps,
    example,
    layer_sizes,
    training,
)
from transformer_lessons.checks.old.core import Build, Draw, Mistake, Probe, Requirement, Task
from transformer_lessons.checks.old.guarded import DecoderLayer, FeedForward, MultiHeadAttention, causal_mask

__all__ = ["TASK"]

WIRING, SHAPES, WRONG, FLOW = "#ch12-wiring", "#ch12-shapes", "#ch12-wrong", "#ch12-flow"


def _probes(s: dict[str, int], draw: Draw) -> dict[str, Probe]:
    b, t, m, h, d = s["batch"], s["target"], s["source"], s["heads"], s["heads"] * s["d_k"]
    settings = {"d_model": d, "num_heads": h, "d_ff": s["d_ff"], "dropout": 0.0, "norm_first": False}
    state = example(DecoderLayer, settings, draw)
    halves = {name: tensor.float() for name, tensor in state.items()}
    after, before = (
        Build([settings | {"norm_first": first}], dtype="float64", state=state) for first in (False, True)
    )
    busy, wrong = settings | {"dropout": RATE}, settings | {"num_heads": d + 1}
    x, memory, cotangents = draw.normal(b, t, d), draw.normal(b, m, d), [draw.normal(b, t, d)]
    busy_before = busy | {"norm_first": True}
    many = [draw.normal(30, t, d), draw.normal(30, m, d)]
    src_mask, tgt_mask = draw.mask(b, 1, 1, m), draw.mask(b, 1, t, t) | torch.eye(t, dtype=torch.bool)
    tgt_mask[..., -1, 0] = False  # something must be hidden that causality shows
    full = draw.mask(b, h, t, m), draw.mask(b, h, t, t) | torch.eye(t, dtype=torch.bool)
    padding = tgt_mask[:, :, -1:].clone()  # for all queries; the first shows one key at least
    padding[..., 0], padding[1:, ..., -1] = True, False
    # Another call, with a longer target and another source, of which nothing may be kept.
    first = ("", [draw.normal(b, t + 1, d), draw.normal(b, m, d), src_mask], {})
    return {
        "after": Probe([x, memory], build=after, cotangents=cotangents),
        "before": Probe([x, memory], build=before, cotangents=cotangents),
        "source_mask": Probe([x, memory, src_mask], build=after),
        "target_mask": Probe([x, memory, None, tgt_mask], build=after),
        "padding_mask": Probe([x, memory, None, padding], build=after),
        "both_masks": Probe([x, memory, *full], build=before),
        **training(DecoderLayer, settings, state, [x, memory], many),
        "float32": Probe([x.float(), memory.float()], build=Build([busy], state=halves, training=False)),
        "evaluation_before": Probe([x, memory], build=Build([busy_before], {}, "float64", state, False)),
        "again": Probe([x, memory], build=replace(before, earlier=(first,)), note="the second call"),
        # In float32, as the layer is: nothing else is to be refused.
        "heads": Probe(
            [x.float(), memory.float()], build=Build([wrong]), refused="heads that do not divide d_model"
        ),
    }


@dataclass(frozen=True)
class Steps(PackingSteps):
    """What a mistake may replace; together, the right answer."""

    heads: Callable = lambda settings: settings["num_heads"]
    inner: Callable = lambda settings: {
        "attention": 0.0,
        "feed_forward": 0.0,
    }  # dropout within the sub-layers
    look_back: Callable = lambda layer, y, tgt_mask: layer.self_attention(y, mask=tgt_mask, is_causal=True)
    look_across: Callable = lambda layer, y, x, memory, mask: layer.cross_attention(y, memory, mask=mask)
    memory: Callable = lambda layer, memory: memory
    masks: Callable = lambda src_mask, tgt_mask: (src_mask, tgt_mask)
    second: Callable = lambda layer: layer.add_norm_cross
    third: Callable = lambda layer: layer.add_norm_feed_forward
    order: Callable = lambda x, own, cross, transform: transform(cross(own(x)))


def assemble(steps: Steps) -> type[nn.Module]:
    """The decoder layer in these steps."""

    class Layer(nn.Module):
        def __init__(self, settings):
            super().__init__()
            d_model, inner, heads = settings["d_model"], steps.inner(settings), steps.heads(settings)
            self.norm_first = settings["norm_first"]
            self.self_attention = MultiHeadAttention(d_model, heads, dropout=inner["attention"])
            self.cross_attention = MultiHeadAttention(d_model, heads, dropout=inner["attention"])
            self.feed_forward = FeedForward(d_model, settings["d_ff"], dropout=inner["feed_forward"])
            self.add_norm_self = Packing(d_model, settings["dropout"])
            self.add_norm_cross = Packing(d_model, settings["dropout"])
            self.add_norm_feed_forward = Packing(d_model, settings["dropout"])

        def forward(self, x, memory, src_mask=None, tgt_mask=None):
            src_mask, tgt_mask = steps.masks(src_mask, tgt_mask)
            source = steps.memory(self, memory)

            def packed(packing, f):
                return lambda z: steps.around(packing, z, f, self.norm_first)

            own = packed(self.add_norm_self, lambda y: steps.look_back(self, y, tgt_mask))
            cross = packed(steps.second(self), lambda y: steps.look_across(self, y, x, source, src_mask))
            return steps.order(x, own, cross, packed(steps.third(self), self.feed_forward))

    return Layer


def _causal_on_memory(layer: nn.Module, y: Tensor, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    seen = torch.ones(y.size(1), memory.size(1), dtype=torch.bool).tril()
    return layer.cross_attention(y, memory, mask=seen if mask is None else mask & seen)


def _either(layer: nn.Module, y: Tensor, tgt_mask: Tensor | None) -> Tensor:
    return layer.self_attention(y, mask=tgt_mask, is_causal=tgt_mask is None)


def _cut(layer: nn.Module, y: Tensor, tgt_mask: Tensor | None) -> Tensor:
    if tgt_mask is None:
        return layer.self_attention(y, is_causal=True)
    return layer.self_attention(y, mask=tgt_mask.tril())


def _combined_in_place(layer: nn.Module, y: Tensor, tgt_mask: Tensor | None) -> Tensor:
    seen = causal_mask(y.size(1))
    if tgt_mask is None or tgt_mask.size(-2) < len(seen):  # as causality cannot be written into one row
        return layer.self_attention(y, mask=tgt_mask, is_causal=True)
    return layer.self_attention(y, mask=tgt_mask.logical_and_(seen))


def _causal_kept(layer: nn.Module, y: Tensor, tgt_mask: Tensor | None) -> Tensor:
    if not hasattr(layer, "seen"):
        layer.seen = causal_mask(y.size(1))
    return layer.self_attention(y, mask=layer.seen if tgt_mask is None else layer.seen & tgt_mask)


def _memory_kept(layer: nn.Module, memory: Tensor) -> Tensor:
    if not hasattr(layer, "kept"):
        layer.kept = memory
    return layer.kept


def _of_one_head(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, :1]


def _of_one_query(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, :1, :1]


def _turned(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else ~mask


WIRINGS = (
    Mistake(
        "cross_is_self_attention",
        "your second sub-layer attends to the target again; its keys and values come from memory",
        "Diagrams draw both with the same box, and three equal arrows into it.",
        "The source has no way in at all: whatever is to be translated, the output is the same.",
        WRONG,
        (
            {"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(y)},
            {"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(y, is_causal=True)},
        ),
    ),
    Mistake(
        "not_causal",
        "your self-attention is not causal: positions see later ones",
        "The encoder's line was copied.",
        "In training the decoder reads off what it should predict; the loss gets suspiciously small.",
        FLOW,
        ({"look_back": lambda layer, y, tgt_mask: layer.self_attention(y, mask=tgt_mask)},),
    ),
    Mistake(
        "causal_unless_masked",
        "with a tgt_mask you leave out causality; the mask comes on top of it",
        "One mask argument, so either the one or the other.",
        "As soon as there is padding in the target, the future is open.",
        FLOW,
        ({"look_back": _either},),
    ),
    Mistake(
        "target_mask_ignored",
        "you never use tgt_mask; it comes on top of causality",
        "The causal mask was put into the same variable, or is all that the first tests need.",
        "Padding on the left of a target is attended to.",
        FLOW,
        ({"look_back": lambda layer, y, tgt_mask: layer.self_attention(y, is_causal=True)},),
    ),
    Mistake(
        "mask_cut_by_tril",
        "you cut tgt_mask with tril; a mask with one row for all queries then shows the first position alone",
        "For a mask of shape (length, length) it is the same as laying the causal mask over it.",
        "With a padding mask of shape (batch, 1, 1, length), the decoder forgets all but the first token.",
        FLOW,
        ({"look_back": _cut},),
    ),
    Mistake(
        "mask_overwritten",
        "you combine the masks in place, which writes causality into your caller's tgt_mask",
        "&= saves a line.",
        "The caller's padding mask hides the future as well, wherever else it is used.",
        FLOW,
        ({"look_back": _combined_in_place},),
    ),
    Mistake(
        "source_mask_ignored",
        "you never use src_mask; cross-attention must not see the source's padding",
        "The encoder has seen to the padding already, one thinks.",
        "A translation depends on how long the other sentences of the batch are.",
        WRONG,
        ({"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(y, memory)},),
    ),
    Mistake(
        "masks_inverted",
        "you invert the masks; here and in the package True means “may attend”",
        "PyTorch's layers take them the other way round.",
        "Positions see the padding and nothing else.",
        "#ch12-proof",
        ({"masks": lambda src_mask, tgt_mask: (_turned(src_mask), _turned(tgt_mask))},),
    ),
    Mistake(
        "masks_exchanged",
        "you use src_mask for the target and tgt_mask for the source",
        "Two arguments of the same type are easily exchanged.",
        "With other lengths it crashes, with equal ones it runs.",
        WRONG,
        ({"masks": lambda src_mask, tgt_mask: (tgt_mask, src_mask)},),
    ),
    Mistake(
        "mask_of_the_first",
        "you use only what a mask says of the first head, or of its first query, for all others",
        "Padding masks are alike for all heads and queries.",
        "A mask that tells heads or queries apart hides the wrong positions.",
        WRONG,
        (
            {"masks": lambda src_mask, tgt_mask: (src_mask, _of_one_head(tgt_mask))},
            {"masks": lambda src_mask, tgt_mask: (_of_one_head(src_mask), tgt_mask)},
            {"masks": lambda src_mask, tgt_mask: (_of_one_head(src_mask), _of_one_head(tgt_mask))},
            {"masks": lambda src_mask, tgt_mask: (_of_one_query(src_mask), tgt_mask)},
        ),
    ),
    Mistake(
        "causal_mask_kept",
        "you keep the causal mask of the first call; the next target may have another length",
        "The mask looks like a constant of the layer.",
        "The second batch fails, unless its targets are as long as those of the first.",
        FLOW,
        ({"look_back": _causal_kept},),
    ),
    Mistake(
        "memory_kept",
        "you keep the memory of the first call; each call brings its own",
        "In decoding, the source stays the same from token to token.",
        "The second sentence is translated as if it were the first.",
        FLOW,
        ({"memory": _memory_kept},),
    ),
    Mistake(
        "causal_on_memory",
        "you put a causal mask on the memory; every target position may see the whole source",
        "is_causal was copied along with the arguments of the self-attention.",
        "The first target token sees one source token, the second two.",
        WRONG,
        ({"look_across": _causal_on_memory},),
    ),
    Mistake(
        "keys_from_target",
        "your cross-attention takes keys and values from different sequences; both come from memory",
        "Three arguments, of which two look the same.",
        "With other lengths it crashes; with equal ones later targets choose what earlier ones read.",
        WRONG,
        (
            {"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(y, y, memory, mask=mask)},
            {"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(y, memory, y, mask=mask)},
        ),
    ),
    Mistake(
        "roles_exchanged",
        "in your cross-attention memory asks and the target answers; it is the other way round",
        "“Encoder first” is the order of the picture.",
        "The output has the source's length.",
        WRONG,
        ({"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(memory, y)},),
    ),
    Mistake(
        "cross_first",
        "you look across before you look back; self-attention comes first",
        "The sub-layers commute in no respect but their shapes.",
        "All numbers differ, and nothing crashes.",
        WIRING,
        ({"order": lambda x, own, cross, transform: transform(own(cross(x)))},),
    ),
    Mistake(
        "queries_from_input",
        "your cross-attention asks with the layer's input; its queries are what self-attention gave",
        "The variable x was kept beside the new one.",
        "What the decoder has said so far does not choose what it reads.",
        WRONG,
        ({"look_across": lambda layer, y, x, memory, mask: layer.cross_attention(x, memory, mask=mask)},),
    ),
    Mistake(
        "memory_normalised",
        "you normalise the memory in every layer; the encoder's own last norm has done that",
        "“Pre-norm: normalise what goes in” is taken for every input.",
        "Memory loses its scale, and one norm's parameters serve two streams.",
        WIRING,
        ({"memory": lambda layer, memory: layer.add_norm_cross.norm(memory)},),
    ),
    Mistake(
        "memory_detached",
        "you detached the memory, so the encoder gets no gradient",
        "Memory looks like a constant of the decoder.",
        "The encoder never learns.",
        WRONG,
        ({"memory": lambda layer, memory: memory.detach()},),
    ),
    Mistake(
        "attention_shared",
        "both attentions use the same weights; a decoder layer owns two",
        "One name was copied from the line above.",
        "The parameters of the other one get no gradient.",
        WIRING,
        (
            {"look_across": lambda layer, y, x, memory, mask: layer.self_attention(y, memory, mask=mask)},
            {"look_back": lambda layer, y, mask: layer.cross_attention(y, mask=mask, is_causal=True)},
        ),
    ),
    Mistake(
        "norms_shared",
        "two sub-layers use one norm; each of the three has its own",
        "One name was copied from the line above.",
        "The other norm's parameters get no gradient.",
        WIRING,
        (
            {"second": lambda layer: layer.add_norm_self},
            {"third": lambda layer: layer.add_norm_cross},
            {"third": lambda layer: layer.add_norm_self},
            {"second": lambda layer: layer.add_norm_self, "third": lambda layer: layer.add_norm_self},
        ),
    ),
    Mistake(
        "norms_exchanged",
        "the norms of cross-attention and feed-forward network are exchanged",
        "They are numbered in some models, and by name in others.",
        "With fresh weights nothing shows; loaded ones give other outputs.",
        WIRING,
        (
            {
                "second": lambda layer: layer.add_norm_feed_forward,
                "third": lambda layer: layer.add_norm_cross,
            },
        ),
    ),
    Mistake(
        "sublayer_missing",
        "you never call one of the three sub-layers, or overwrite what it gave",
        "One variable was not passed on.",
        "Its parameters get no gradient.",
        WRONG,
        (
            {"order": lambda x, own, cross, transform: transform(cross(x))},
            {"order": lambda x, own, cross, transform: transform(own(x))},
            {"order": lambda x, own, cross, transform: cross(own(x))},
        ),
    ),
    Mistake(
        "tuple_as_tensor",
        "you use attention's pair (output, weights) as if it were a tensor",
        "Attention returned its weights as well, and nobody unpacked them.",
        "Python complains where the pair is first used, inside dropout or the sum.",
        WIRING,
        (
            {
                "look_back": lambda layer, y, m: layer.self_attention(
                    y, mask=m, is_causal=True, need_weights=True
                )
            },
            {
                "look_back": lambda layer, y, m: layer.self_attention(
                    y, mask=m, is_causal=True, need_weights=True
                ),
                "drop": lambda dropout, y, norm_first: y,
            },
        ),
    ),
    Mistake(
        "num_heads_ignored",
        "your attentions have another number of heads than num_heads says",
        "A default or a constant was left where the setting belongs, and all shapes are right.",
        "Weights of another model load without complaint and give other outputs.",
        SHAPES,
        ({"heads": lambda settings: 1}, {"heads": lambda settings: settings["d_model"]}),
    ),
    INNER,
)

TASK = Task(
    name="decoder_layer",
    signature="DecoderLayer(settings)(x, memory, src_mask=None, tgt_mask=None)",
    arguments=("x", "memory", "src_mask", "tgt_mask"),
    returns=("output",),
    reference=assemble(Steps()),
    requirements=(
        Requirement("returns", "it returns one tensor, of x's shape.", ("after",), SHAPES, ("structure",)),
        Requirement(
            "post_norm",
            "y = AddNorm(x, causal SelfAttention), z = AddNorm(y, CrossAttention to memory), "
            "output = AddNorm(z, FFN), post-norm.",
            ("after",),
            WIRING,
        ),
        Requirement("pre_norm", "the same with norm_first, pre-norm.", ("before", "again"), WIRING),
        Requirement("source_mask", "src_mask hides source positions.", ("source_mask", "both_masks"), WRONG),
        Requirement(
            "target_mask",
            "tgt_mask hides target positions, on top of causality.",
            ("target_mask", "padding_mask", "both_masks"),
            FLOW,
        ),
        Requirement(
            "gradients",
            "gradients reach x, memory and all parameters.",
            ("after", "before"),
            WRONG,
            ("gradients", "parameters"),
        ),
        STREAM,
        Requirement(
            "dropout",
            "in training, what each of the three sub-layers gives is dropped with probability p or divided "
            "by 1 − p.",
            (*(f"training_{part}" for part in PARTS), "training_after"),
            "#ch11-add-and-norm",
        ),
        Requirement(
            "evaluation",
            "in evaluation nothing is dropped.",
            ("float32", "evaluation_before"),
            "#ch11-add-and-norm",
        ),
        Requirement("dtype", "the output has the dtype of x.", ("after", "float32"), SHAPES, ("dtype",)),
        Requirement(
            "inputs",
            "x, memory and masks are left unchanged.",
            ("after", "before", "target_mask"),
            "#ch11-wrong",
            ("inputs",),
        ),
        Requirement("refusals", "heads that do not divide d_model are refused.", ("heads",), SHAPES),
    ),
    sizes=layer_sizes,
    small=({"batch": 1, "source": 3, "target": 2, "heads": 1, "d_k": 2, "d_ff": 1},),
    probes=_probes,
    steps=Steps(),
    assemble=assemble,
    mistakes=(*PACKING, *WIRINGS),
)
