"""Scaled dot-product attention (§3.2.1): step by step, by fused kernels, and its hard limit."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_lessons import expect
from transformer_lessons.attention.inputs import check_inputs, check_mask
from transformer_lessons.masks import Mask, causal_mask

# That exist at a time of each head, on the CPU and with dropout: 1 MiB in float32, the whole of 512 positions.
MOST_WEIGHTS = 2**18


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*batch queries d_v"], Float[Tensor, "*batch queries keys"]]:
    """Attention step by step, with the weights to look at (§3.2.1, equation 1).

    ``Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V``

    A query that may attend to nothing gets weights and output zero. Pitfalls: the divisor is √d_k, not d_k;
    the softmax runs over the keys, not the queries; the mask belongs before the softmax, or the visible
    weights no longer sum to one.

    Args:
        query, key, value: Q, K, V; usually ``*batch`` is ``batch heads``.
        mask: who may attend to whom, boolean or additive (`masks.boolean` says what is accepted).
        is_causal: also hide later positions, the last query aligned with the last key (`causal_mask`).
        dropout: probability of zeroing a weight; always active, so pass 0 when evaluating.

    Returns:
        The output, and the weights as they were before dropout.

    Raises:
        ValueError: for shapes, dtypes or devices that do not fit, a mask that could mean either thing, or, with
            `is_causal`, more queries than keys.
    """
    check_inputs(query, key, value)
    mask = check_mask(mask, query, key, is_causal)
    expect.probability(dropout=dropout)
    # Products of large float16 overflow: scores and softmax are taken in float32 at least, as fused kernels do.
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ key.to(wide).mT / math.sqrt(query.size(-1))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        # The smallest number, not −inf: a row without any key would be NaN, in the backward pass too.
        masked = scores.masked_fill(~mask, torch.finfo(wide).min)
        weights = masked.softmax(-1).masked_fill(~mask, 0.0)
    # The values wide as well: the gradient of the weights is a product with them.
    output = F.dropout(weights, dropout) @ value.to(wide)
    return output.to(value.dtype), weights.to(value.dtype)


def fused_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch queries d_v"]:
    """The output of `scaled_dot_product_attention` from PyTorch's fused kernels, which never hold all weights.

    ``Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V`` (§3.2.1, equation 1), with the same arguments; memory grows
    with the length, not its square. A pitfall: any mask rules out the fastest kernel, so causal attention
    between equally many queries and keys is passed on as a flag, and a mask is only built where the flag
    cannot say it.

    Raises:
        ValueError: as `scaled_dot_product_attention`.
    """
    check_inputs(query, key, value)
    expect.probability(dropout=dropout)
    # For one query, compiled on a CPU, the steps become two loops over the keys, and no kernel has to be called:
    # a fifth of what 64 sentences' next tokens take, a tenth of one sentence's.
    if query.size(-2) == 1 and torch.compiler.is_compiling() and query.device.type == "cpu":
        options = {"is_causal": is_causal, "dropout": dropout}
        return scaled_dot_product_attention(query, key, value, mask, **options)[0]
    # With dropout PyTorch has no kernel for the CPU: there it would hold all weights.
    if dropout and expect.readable(query) and query.size(-2) * key.size(-2) > MOST_WEIGHTS:
        return _by_blocks(query, key, value, check_mask(mask, query, key), is_causal, dropout)
    return _by_kernel(query, key, value, mask, is_causal, dropout)


def _by_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    if is_causal and mask is None and query.size(-2) == key.size(-2):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mask = check_mask(mask, query, key, is_causal)
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
    # Kernels disagree on a query without any key (zeros, NaN, an average): let it see all, then zero it.
    blind = ~mask.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(query, key, value, mask | blind, dropout_p=dropout)
    return output.masked_fill(blind, 0.0)


def _by_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, dropout: float
) -> Tensor:
    """As many queries at a time as have `MOST_WEIGHTS`, which are computed again on the way back.

    At 4,096 positions, forward and backward, that takes 2% of the memory of the step-by-step way (``python -m
    benchmarks.peers``). If it is causal, it takes less time too: the keys after the last of a block's queries are
    left out.
    """
    queries, keys = query.size(-2), key.size(-2)
    if is_causal:
        causal_mask(queries, keys, device="meta")  # refuses more queries than keys
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], queries, keys)
    outputs = []
    for start in range(0, queries, size := max(1, MOST_WEIGHTS // keys)):
        rows = slice(start, start + size)
        seen = min(start + size, queries) + keys - queries if is_causal else keys
        block = query[..., rows, :], key[..., :seen, :], value[..., :seen, :]
        visible = None if mask is None else mask[..., rows, :seen]
        outputs.append(checkpoint(_by_kernel, *block, visible, is_causal, dropout, use_reentrant=False))
    return torch.cat(outputs, dim=-2)


def hard_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
) -> tuple[Float[Tensor, "*batch queries d_v"], Float[Tensor, "*batch queries keys"]]:
    """Each query takes the value of its best key alone: attention as a look-up.

    ``output_i = value_j with j = argmax_j query_i · key_j``; the limit of §3.2.1's softmax as the scores grow

    Of equally good keys the first is taken; a query without any key gets zeros. A pitfall: the choice of j is
    a step function, so query and key get no gradient at all. That is why the Transformer's attention is soft.

    Returns:
        The output, and weights of one 1 for each query.

    Raises:
        ValueError: as `scaled_dot_product_attention`.
    """
    check_inputs(query, key, value)
    mask = check_mask(mask, query, key)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.detach().to(wide) @ key.detach().to(wide).mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = torch.zeros_like(scores)
    if scores.numel():  # without keys there is no best one
        weights = weights.scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)  # the choice of a query without any key
    weights = weights.to(value.dtype)
    return weights @ value, weights
