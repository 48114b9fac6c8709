"""Faster modules in place of the canon's: the same numbers, with the same weights under the same names.

`accelerate` puts PyTorch's kernels into a model, `plain` takes them out again. `products` uses oneDNN where
it is faster, `losses` computes the loss in parts, `recompute` trades time for memory, `decoding` drops
finished sentences, `compiled` compiles its steps, `graphs` captures CUDA graphs and replays them.
"""

import torch
from torch import nn

from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.fast.kernels import FusedLayerNorm, FusedMultiHeadAttention, fused_attention
from transformer_lessons.fast.products import Linear, has_hooks
from transformer_lessons.norms import LayerNorm

FASTER = {MultiHeadAttention: FusedMultiHeadAttention, LayerNorm: FusedLayerNorm}
FASTER |= {nn.Linear: Linear, nn.Dropout: Dropout}
PLAIN = {fast: canonical for canonical, fast in FASTER.items()}
TORCH_CLASSES = nn.Linear, nn.Dropout, nn.Identity, nn.ModuleList


def accelerate(model: nn.Module) -> nn.Module:
    """Return the model itself, now faster: same state dict, same numbers but for rounding and dropout.

    A pitfall: modules of other classes, such as a learner's own, stay as they are.
    """
    # From Hopper GPUs on, PyTorch prefers cuDNN's attention, which is planned for each new shape. Batches of
    # sentences have hundreds: with torch 2.11 on an H200 most steps took 300 ms, those with known shapes 25.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return _replace_classes(model, FASTER)


def plain(model: nn.Module) -> nn.Module:
    """Return the model itself, again as the chapters build it; cuDNN's attention stays off."""
    return _replace_classes(model, PLAIN)


def is_known(*modules: nn.Module) -> bool:
    """Whether all modules are the canon's, torch's or these, with their own attention and without hooks."""
    for module in modules:
        home, _, name = type(module).__module__.partition(".")
        is_ours = home == __package__.partition(".")[0] and not name.startswith(("variants", "checks"))
        attend = getattr(module, "attention", fused_attention)
        has_own = attend not in (scaled_dot_product_attention, fused_attention)
        if not (is_ours or type(module) in TORCH_CLASSES) or has_own or has_hooks(module):
            return False
    return True


def _replace_classes(model: nn.Module, classes: dict[type, type]) -> nn.Module:
    for module in model.modules():
        module.__class__ = classes.get(type(module), type(module))
    return model
