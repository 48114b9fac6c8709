"""The whole model. Sources without padding hide the masks; one layer each is enough."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from transformer_lessons.checks.definitions import Call, Draw, Given, Requirement, Task
from transformer_lessons.config import TransformerConfig
from transformer_lessons.model import Transformer

SET = "for p in layer.parameters(): p.data = torch.arange(1.0 * p.numel()).cos().view_as(p)"


def settings(**changes) -> dict:
    """One layer each, and seven tokens on either side."""
    sizes = {"d_model": 6, "num_heads": 2, "d_ff": 5, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return {
        "source_vocab_size": 7,
        "target_vocab_size": 7,
        **sizes,
        "dropout": 0.0,
        "max_length": 8,
        **changes,
    }


@cache
def shapes(**changes) -> dict[str, torch.Size]:
    """The parameters of a model, by name."""
    return {
        name: p.shape for name, p in Transformer(TransformerConfig(**settings(**changes))).named_parameters()
    }


def config(**changes) -> Given:
    """A configuration, and how the message writes it."""
    said = ", ".join(f"{name}={value}" for name, value in settings(**changes).items())
    return Given("config", [settings(**changes)], f"TransformerConfig({said})")


def call(draw: Draw, src: Tensor | None = None, **changes) -> Call:
    """A model with weights of its own, tied as it should be."""
    src = draw.integers(1, 7, 2, 4) if src is None else src
    state = {name: draw.normal(*size) / size[-1] ** 0.5 for name, size in shapes(**changes).items()}
    state["output.weight"] = state["target_embedding.token.weight"]
    return Call((src, draw.integers(1, 7, 2, 3)), init=(config(**changes),), state=state)


def padded(draw: Draw) -> list[Call]:
    """Sources of different lengths; and with another id for padding."""
    src = draw.integers(1, 7, 2, 4)
    src[0, 2:] = 0
    other = draw.integers(0, 6, 2, 4)
    other[1, 3:] = 6
    return [call(draw, src), call(draw, other, pad_id=6)]


def is_tied(state: dict[str, Tensor]) -> bool:
    """Whether the output projection is the target's embedding."""
    return torch.equal(state["output.weight"], state["target_embedding.token.weight"])


def small(src: list[list[int]], **changes) -> Iterator[Call]:
    """Weights that everybody can make again."""
    sizes = shapes(**changes)
    state = {name: torch.arange(1.0 * size.numel()).cos().view(size) for name, size in sizes.items()}
    state["output.weight"] = state["target_embedding.token.weight"]
    yield Call((torch.tensor(src), torch.tensor([[1]])), init=(config(**changes),), state=state, setting=SET)


TASK = Task(
    name="transformer",
    right=[Transformer],
    arguments=("src", "tgt_in"),
    requirements=(
        Requirement(
            "logits",
            "both sides are embedded, encoder and decoder layers follow, and the output projection",
            points=2,
            calls=lambda draw: [call(draw), call(draw, num_encoder_layers=2, num_decoder_layers=2)],
            small=lambda: small([[3, 4]]),
            anchor="model-hundred-lines",
        ),
        Requirement(
            "pre_norm",
            "with norm_first, encoder and decoder each end with a norm",
            points=0.5,
            calls=lambda draw: [call(draw, norm_first=True)],
            small=lambda: small([[3, 4]], norm_first=True),
            anchor="model-hundred-lines",
        ),
        Requirement(
            "padding",
            "no position of either side sees the source's padding",
            points=1,
            calls=padded,
            small=lambda: small([[3, 0]]),
            anchor="model-properties",
        ),
        Requirement(
            "tied",
            "the output projection's matrix is the target's embedding",
            points=0.5,
            calls=lambda draw: [Call((), init=(config(),), method="state", view=is_tied)],
            small=lambda: iter([Call((), init=(config(),), method="state", view=is_tied)]),
            anchor="tying",
            needs="logits",
        ),
    ),
)
