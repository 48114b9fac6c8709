"""The weights of every attention in a model."""

from contextlib import ExitStack
from unittest.mock import patch

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention


@torch.no_grad()
def attention_maps(model: nn.Module, *inputs) -> dict[str, Float[Tensor, "batch heads queries keys"]]:
    """Run ``model(*inputs)`` and return every `MultiHeadAttention`'s weights by its name in the model.

    A pitfall: weights stored on a module keep the whole graph of its last call alive; none are stored here.
    """
    modules = {name: part for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
    maps = {}

    def recording(name, attend):
        def attention(*given, **options):
            output, weights = attend(*given, **options)
            if weights is None:  # a fused kernel never computes them
                output, weights = scaled_dot_product_attention(*given, **options)
            maps[name] = weights
            return output, weights

        return attention

    with ExitStack() as replaced:
        for name, module in modules.items():
            replaced.enter_context(patch.object(module, "attention", recording(name, module.attention)))
        model(*inputs)
    return maps
