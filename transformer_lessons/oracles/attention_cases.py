"""Attention beside PyTorch's kernel and its nn.MultiheadAttention."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons import attention
from transformer_lessons.masks import additive, causal_mask, padding_mask
from transformer_lessons.oracles.measure import Deviation, distance, same_function, same_module
from transformer_lessons.oracles.names import attention_to_torch
from transformer_lessons.oracles.shapes import BATCH, D_K, D_MODEL, D_V, HEADS, IDS, KEYS, QUERIES, each


def qkv(dtype: torch.dtype, queries: int = QUERIES) -> list[Tensor]:
    """Q, K and V of random numbers."""
    sizes = (queries, D_K), (KEYS, D_K), (KEYS, D_V)
    return [torch.randn(BATCH, HEADS, *size, dtype=dtype) for size in sizes]


def some_mask() -> Tensor:
    """A random mask in which every query sees at least the first key."""
    mask = torch.rand(BATCH, HEADS, QUERIES, KEYS) < 0.6
    mask[..., 0] = True
    return mask


def step_by_step(*arguments, **options) -> Tensor:
    """`attention.scaled_dot_product_attention`, without the weights."""
    return attention.scaled_dot_product_attention(*arguments, **options)[0]


ATTENTIONS = {
    "scaled_dot_product_attention": step_by_step,
    "fused_attention": attention.fused_attention,
    "tiled_attention": partial(attention.tiled_attention, tile=3),
}


def attention_values(dtype: torch.dtype, form: str, mask: str) -> Deviation:
    """One form of attention, under one kind of mask."""
    attend, oracle = ATTENTIONS[form], F.scaled_dot_product_attention
    if mask == "causal":
        inputs = qkv(dtype, queries=KEYS)
        return same_function(partial(attend, is_causal=True), partial(oracle, is_causal=True), *inputs)
    visible = some_mask() if mask != "none" else None
    ours = additive(visible, dtype) if mask == "additive" else visible
    return same_function(lambda *x: attend(*x, ours), lambda *x: oracle(*x, visible), *qkv(dtype))


def attention_gradients(dtype: torch.dtype) -> Deviation:
    """The hand-written backward pass beside autograd through PyTorch's kernel; only gradients are compared."""
    inputs, mask = [x.requires_grad_() for x in qkv(dtype)], some_mask()
    output = F.scaled_dot_product_attention(*inputs, mask)
    cotangent = torch.randn_like(output)
    expected = torch.autograd.grad(output, inputs, cotangent)
    actual = attention.attention_backward(*inputs, cotangent, mask)
    worst = max(distance(a, b) for a, b in zip(actual, expected, strict=True))
    return Deviation(worst, worst)


def hard(dtype: torch.dtype) -> Deviation:
    """Argmax attention is softmax attention with scores 10¹² times as large."""
    mask = some_mask()
    return same_function(
        lambda *x: attention.hard_attention(*x, mask)[0],
        lambda q, k, v: F.scaled_dot_product_attention(1e12 * q.detach(), k.detach(), v, mask),
        *qkv(dtype),
    )


def linear(dtype: torch.dtype, is_causal: bool, recurrent: bool = False) -> Deviation:
    """Linear attention beside its quadratic form: the weights φ(q)·φ(k), made whole and divided by their sums."""
    hidden = ~IDS.bool()[:, None, None]

    def quadratic(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = (F.elu(query) + 1) @ (F.elu(key) + 1).mT
        weights = weights.masked_fill(hidden, 0.0)
        weights = weights.tril(KEYS - weights.size(-2)) if is_causal else weights
        return F.normalize(weights, p=1, dim=-1) @ value

    def ours(*x: Tensor) -> Tensor:
        options = {"key_mask": ~hidden[..., 0, :]}
        if recurrent:
            return attention.recurrent_linear_attention(*x, **options)[0]
        return attention.linear_attention(*x, is_causal=is_causal, **options)

    return same_function(ours, quadratic, *qkv(dtype, KEYS if recurrent else QUERIES))


def multi_head(dtype: torch.dtype, inputs: str) -> Deviation:
    """Multi-head attention as self-attention under a mask, whose polarity is the other one there, or cross."""
    widths, their_widths = {}, {}
    if inputs == "cross, other widths":
        widths, their_widths = {"key_width": 17, "value_width": 19}, {"kdim": 17, "vdim": 19}
    ours = attention.MultiHeadAttention(D_MODEL, HEADS, **widths).to(dtype)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=dtype, **their_widths)
    compare = partial(same_module, ours, theirs, attention_to_torch)
    if inputs == "cross, other widths":
        sizes = (QUERIES, D_MODEL), (KEYS, 17), (KEYS, 19)
        return compare(
            lambda module, *x: module(*x),
            lambda module, *x: module(*x, need_weights=False)[0],
            *(torch.randn(BATCH, *size, dtype=dtype) for size in sizes),
        )
    visible = padding_mask(IDS, 0) & causal_mask(KEYS)
    hidden = {
        "boolean mask": ~visible.expand(-1, HEADS, -1, -1).flatten(0, 1),
        "additive mask": additive(visible.expand(-1, HEADS, -1, -1), dtype).flatten(0, 1),
    }[inputs]
    return compare(
        lambda module, x: module(x, mask=additive(visible, dtype) if "additive" in inputs else visible),
        lambda module, x: module(x, x, x, attn_mask=hidden, need_weights=False)[0],
        torch.randn(BATCH, KEYS, D_MODEL, dtype=dtype),
    )


def grouped(dtype: torch.dtype) -> Deviation:
    """Grouped queries beside the kernel's own grouping, with the same projections."""
    ours = attention.MultiHeadAttention(30, 6, num_key_value_heads=2).to(dtype)
    theirs = attention.MultiHeadAttention(30, 6, num_key_value_heads=2).to(dtype)

    def by_kernel(module: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (
            projection(x).unflatten(-1, (heads, D_K)).transpose(1, 2)
            for projection, heads in ((module.W_q, 6), (module.W_k, 2), (module.W_v, 2))
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return module.W_o(heads.transpose(1, 2).flatten(-2))

    x = torch.randn(BATCH, KEYS, 30, dtype=dtype)
    return same_module(ours, theirs, dict, lambda module, x: module(x, is_causal=True), by_kernel, x)


CASES = [
    *(
        case
        for form in ATTENTIONS
        for case in each(
            f"attention.{form}",
            "F.scaled_dot_product_attention",
            partial(attention_values, form=form),
            *({"mask": mask} for mask in ("none", "boolean", "additive", "causal")),
        )
    ),
    *each("attention.attention_backward", "autograd of F.scaled_dot_product_attention", attention_gradients),
    *each("attention.hard_attention", "F.scaled_dot_product_attention of large scores", hard),
    *each(
        "attention.linear_attention", "its quadratic form", linear, {"is_causal": False}, {"is_causal": True}
    ),
    *each(
        "attention.recurrent_linear_attention",
        "its quadratic form",
        partial(linear, is_causal=True, recurrent=True),
    ),
    *each(
        "attention.MultiHeadAttention",
        "nn.MultiheadAttention",
        multi_head,
        *({"inputs": inputs} for inputs in ("boolean mask", "additive mask", "cross, other widths")),
    ),
    *each("attention.MultiHeadAttention, grouped", "F.scaled_dot_product_attention(enable_gqa)", grouped),
]
