"""The package beside the `transformers` library: layers of BART and Llama with our weights, and its schedule.

Every function imports the library itself, since the package does not require it.
"""

import torch
from torch import Tensor, nn

from transformer_lessons.config import TransformerConfig
from transformer_lessons.feed_forward import SwiGLU
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.masks import additive, causal_mask, padding_mask
from transformer_lessons.oracles.measure import Deviation, distance, same_module
from transformer_lessons.oracles.names import layer_to_bart, layer_to_llama, renamed
from transformer_lessons.oracles.shapes import (
    BART_SIZES,
    BATCH,
    D_FF,
    IDS,
    KEYS,
    QUERIES,
    SIZES,
    VOCAB,
    each_of_transformers,
    random_vectors,
)
from transformer_lessons.schedule import warmup_inverse_sqrt


def bart_layer(dtype: torch.dtype, activation: str, decoder: bool) -> Deviation:
    """A post-norm layer under an additive mask; in the decoder causal, with a padded source."""
    from transformers import BartConfig
    from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer

    config = BartConfig(**BART_SIZES, activation_function=activation, attn_implementation="eager")
    source = additive(padding_mask(IDS, 0), dtype)
    ours, theirs = (DecoderLayer, BartDecoderLayer) if decoder else (EncoderLayer, BartEncoderLayer)
    pair = (
        ours(TransformerConfig(17, VOCAB, **SIZES, activation=activation)).to(dtype),
        theirs(config, layer_idx=0).to(dtype) if decoder else theirs(config).to(dtype),
    )
    if not decoder:
        x = random_vectors(dtype)
        return same_module(*pair, layer_to_bart, lambda m, x: m(x, source), lambda m, x: m(x, source), x)
    earlier = additive(causal_mask(QUERIES), dtype)
    return same_module(
        *pair,
        layer_to_bart,
        lambda ours, x, memory: ours(x, memory, source),
        lambda theirs, x, memory: theirs(x, earlier, memory, source),
        random_vectors(dtype, QUERIES),
        random_vectors(dtype),
    )


def llama_layer(dtype: torch.dtype) -> Deviation:
    """A pre-norm layer with RMSNorm, SwiGLU, rotary positions and grouped queries, causal.

    Some of Llama's parts compute in float32 whatever the dtype: its angles, which are made here, its norms, for
    which nn.RMSNorm stands in, and its own softmax, for which it takes PyTorch's kernel.
    """
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    d_model, heads, groups, d_k = 84, 6, 2, 14
    sizes = {"num_attention_heads": heads, "num_key_value_heads": groups, "intermediate_size": D_FF}
    config = LlamaConfig(hidden_size=d_model, **sizes, attention_bias=True, attn_implementation="sdpa")
    theirs = LlamaDecoderLayer(config, layer_idx=0)
    theirs.input_layernorm, theirs.post_attention_layernorm = (nn.RMSNorm(d_model, 1e-6) for _ in range(2))
    earlier, rotation = causal_mask(KEYS), llama_rotation(dtype, d_k)
    return same_module(
        llama_like(d_model=d_model, num_heads=heads, num_key_value_heads=groups).to(dtype),
        theirs.to(dtype),
        lambda state: layer_to_llama(state, d_k),
        lambda module, x: module(x, earlier),
        lambda module, x: module(x, additive(earlier, dtype), position_embeddings=rotation),
        torch.randn(BATCH, KEYS, d_model, dtype=dtype),
    )


def llama_like(**sizes: int) -> EncoderLayer:
    """Our layer with Llama's choices; under a causal mask it is a decoder-only layer."""
    choices = {"norm_first": True, "norm": "rms", "activation": "swiglu", "position": "rotary"}
    config = TransformerConfig(17, VOCAB, d_ff=D_FF, dropout=0.0, max_length=13, **sizes, **choices)
    return EncoderLayer(config)


def llama_rotation(dtype: torch.dtype, d_k: int) -> tuple[Tensor, Tensor]:
    """The cosines and sines of KEYS positions, each twice, as Llama's attention takes them."""
    frequency = 10_000.0 ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
    angle = torch.arange(KEYS)[:, None] * frequency
    angles = torch.cat([angle, angle], dim=-1)[None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def llama_feed_forward(dtype: torch.dtype) -> Deviation:
    """The gated feed-forward network."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    names = {"W_1": "gate_proj", "W_3": "up_proj", "W_2": "down_proj"}
    config = LlamaConfig(hidden_size=14, intermediate_size=D_FF, num_attention_heads=7)
    return same_module(
        SwiGLU(14, D_FF).to(dtype),
        LlamaMLP(config).to(dtype),
        lambda state: renamed(state, names),
        lambda module, x: module(x),
        lambda module, x: module(x),
        torch.randn(BATCH, KEYS, 14, dtype=dtype),
    )


def paper_schedule(dtype: torch.dtype) -> Deviation:
    """Adam with our learning rate beside Adam under the library's inverse-square-root schedule, for 60 steps."""
    from transformers import get_inverse_sqrt_schedule

    warmup, d_model, start = 11, 512, torch.randn(7, dtype=dtype)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    options = {"betas": (0.9, 0.98), "eps": 1e-9}
    mine = torch.optim.Adam([ours], lr=0.0, **options)
    other = torch.optim.Adam([theirs], lr=(d_model * warmup) ** -0.5, **options)
    schedule = get_inverse_sqrt_schedule(other, num_warmup_steps=warmup, timescale=warmup)
    other.step()  # without gradients, nothing: a schedule insists on it
    schedule.step()  # it begins with a rate of 0, the paper with step 1
    rates = []
    for step in range(1, 61):
        mine.param_groups[0]["lr"] = warmup_inverse_sqrt(step, d_model, warmup)
        rates.append(abs(mine.param_groups[0]["lr"] - other.param_groups[0]["lr"]))
        for parameter, optimizer in ((ours, mine), (theirs, other)):
            optimizer.zero_grad()
            parameter.pow(2).sum().backward()
            optimizer.step()
        schedule.step()
    return Deviation(max(distance(ours.detach(), theirs.detach()), *rates))


ACTIVATIONS = [{"activation": activation} for activation in ("relu", "gelu")]

CASES = [
    *each_of_transformers("feed_forward.SwiGLU", "LlamaMLP", llama_feed_forward),
    *each_of_transformers(
        "layers.EncoderLayer", "BartEncoderLayer", bart_layer, *({**a, "decoder": False} for a in ACTIVATIONS)
    ),
    *each_of_transformers(
        "layers.DecoderLayer", "BartDecoderLayer", bart_layer, *({**a, "decoder": True} for a in ACTIVATIONS)
    ),
    *each_of_transformers("layers.EncoderLayer, rotary, grouped", "LlamaDecoderLayer", llama_layer),
    *each_of_transformers("schedule.warmup_inverse_sqrt", "get_inverse_sqrt_schedule", paper_schedule),
]
