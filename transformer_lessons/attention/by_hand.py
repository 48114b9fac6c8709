"""What autograd and the fused kernels do, written out: attention's backward pass, and attention in tiles."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from transformer_lessons import expect
from transformer_lessons.attention.dot_product import scaled_dot_product_attention
from transformer_lessons.attention.inputs import check_inputs, check_mask
from transformer_lessons.masks import Mask


@torch.no_grad()
def attention_backward(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    cotangent: Float[Tensor, "*batch queries d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
) -> tuple[
    Float[Tensor, "*batch queries d_k"], Float[Tensor, "*batch keys d_k"], Float[Tensor, "*batch keys d_v"]
]:
    """The gradients of `scaled_dot_product_attention` (§3.2.1, equation 1), by the chain rule.

    With W = softmax(S), S = Q Kᵀ / √d_k, and dO = `cotangent`, the gradient of the loss by the output::

        dV = Wᵀ dO
        dW = dO Vᵀ
        dS = W ∘ (dW − rowsum(W ∘ dW))
        dQ = dS K / √d_k
        dK = dSᵀ Q / √d_k

    The row sum is the softmax's: raising one score lowers all other weights of its row. Hidden scores need no
    case of their own, since their W is 0. A pitfall: saturated rows, with one weight near 1, have dS near 0,
    and nothing is learned from them.

    Returns:
        dQ, dK and dV.

    Raises:
        ValueError: as `scaled_dot_product_attention`, or for a cotangent that is not like the output.
    """
    check_inputs(query, key, value)
    expect.floats(cotangent=cotangent)
    expect.same_device(query, "query", cotangent=cotangent)
    if cotangent.shape != (*query.shape[:-1], value.size(-1)):
        expected = (*query.shape[:-1], value.size(-1))
        raise ValueError(f"cotangent: expected shape {expected}, as the output, got {tuple(cotangent.shape)}")
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v, d_output = (x.to(wide) for x in (query, key, value, cotangent))
    weights = scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)[1]
    d_value = weights.mT @ d_output
    d_weights = d_output @ v.mT
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))
    d_scores = d_scores / math.sqrt(query.size(-1))
    return tuple(gradient.to(query.dtype) for gradient in (d_scores @ k, d_scores.mT @ q, d_value))


def tiled_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    mask: Mask | None = None,
    *,
    is_causal: bool = False,
    tile: int = 64,
) -> Float[Tensor, "*batch queries d_v"]:
    """`scaled_dot_product_attention`'s output, with `tile` keys at a time (§3.2.1; Dao et al. 2022, Algorithm 1).

    No more than ``queries × tile`` scores exist at once, because a softmax can be made in passing (Milakov and
    Gimelshein 2018). Of the keys so far it keeps the largest score m, the sum of exponentials l and the
    weighted sum of values O; a tile with scores S changes them to::

        m' = max(m, max S)
        l' = l · exp(m − m') + Σ exp(S − m')
        O' = O · exp(m − m') + exp(S − m') V

    and the output is O / l. A pitfall: without the correction exp(m − m'), tiles that came before a larger
    score weigh too much. This loop shows the algorithm; `fused_attention` runs it inside one kernel.

    Raises:
        ValueError: as `scaled_dot_product_attention`, or for a tile below 1.
    """
    check_inputs(query, key, value)
    mask = check_mask(mask, query, key, is_causal)
    expect.sizes(tile=tile)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], key.size(-2))
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = query.to(wide) / math.sqrt(query.size(-1)), key.to(wide), value.to(wide)
    output, total = q.new_zeros(*q.shape[:-1], v.size(-1)), q.new_zeros(*q.shape[:-1], 1)
    largest = torch.full_like(total, -torch.inf)
    for start in range(0, key.size(-2), tile):
        columns = slice(start, start + tile)
        scores = q @ k[..., columns, :].mT
        if mask is not None:
            scores = scores.masked_fill(~mask[..., columns], -torch.inf)
        # The result does not depend on m, which only keeps exp from overflowing: no gradient flows through it.
        larger = torch.maximum(largest, scores.detach().amax(-1, keepdim=True))
        reference = larger.masked_fill(larger == -torch.inf, 0.0)  # nothing visible so far
        exponentials, correction = (scores - reference).exp(), (largest - reference).exp()
        total = total * correction + exponentials.sum(-1, keepdim=True)
        output = output * correction + exponentials @ v[..., columns, :]
        largest = larger
    return (output / total.masked_fill(total == 0, 1.0)).to(value.dtype)
