"""Linear attention (Katharopoulos et al. 2020): with a similarity other than exp, the sums factorise."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def elu_plus_one(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The usual feature map, ``φ(x) = elu(x) + 1``: positive, with a gradient everywhere.

    A pitfall: φ(0) = 1, so a hidden key must be set to zero after φ, not before.
    """
    return F.elu(x) + 1


def with_ones(value: Float[Tensor, "*batch keys d_v"]) -> Float[Tensor, "*batch keys columns"]:
    """The values with a last column of ones, whose weighted sums are the sums of the weights."""
    return torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)


def averages(sums: Float[Tensor, "*batch queries columns"]) -> Float[Tensor, "*batch queries d_v"]:
    """Weighted sums of values divided by the sums of the weights, the last column; 0 where nothing was summed."""
    numerator, divisor = sums[..., :-1], sums[..., -1:]
    return numerator / divisor.masked_fill(divisor == 0, 1.0)


def linear_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch queries d_v"]:
    """Attention whose cost grows with the length, not its square (equation 5).

    ``output_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / φ(q_i) Σ_j φ(k_j)ᵀ``, where §3.2.1 has exp(q_i k_jᵀ / √d_k) for
    φ(q_i) φ(k_j)ᵀ

    The sums over j do not depend on i: ``(φ(Q) φ(K)ᵀ) V = φ(Q) (φ(K)ᵀ V)``. With `is_causal`, they accumulate
    over chunks of 64 positions, the last query aligned with the last key. A pitfall: φ must not be negative.

    Args:
        key_mask: True = may be attended to; broadcasts to ``*batch keys``. All queries share it.
    """
    q, k, v = features_and_values(query, key, value, feature_map, key_mask)
    if not is_causal:
        return averages(q @ (k.mT @ v)).to(value.dtype)
    past = key.size(-2) - query.size(-2)
    if past < 0:
        raise ValueError(f"{-past} queries would come before every key")
    summary = k[..., :past, :].mT @ v[..., :past, :]
    k, v = k[..., past:, :], v[..., past:, :]
    outputs = []
    chunks = (x.split(64, dim=-2) for x in (q, k, v))
    for q_c, k_c, v_c in zip(*chunks, strict=True):
        inside = (q_c @ k_c.mT).tril() @ v_c
        outputs.append(q_c @ summary + inside)
        summary = summary + k_c.mT @ v_c
    return averages(torch.cat(outputs, dim=-2)).to(value.dtype)


def features_and_values(
    query: Tensor, key: Tensor, value: Tensor, feature_map: Callable, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """φ(Q), φ(K) with zeros for hidden keys, and values with ones; at least in float32, for the long sums."""
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k = feature_map(query.to(wide)), feature_map(key.to(wide))
    if key_mask is not None:
        k = k.masked_fill(~key_mask[..., None], 0.0)
    return q, k, with_ones(value.to(wide))


def recurrent_linear_attention(
    query: Float[Tensor, "*batch length d_k"],
    key: Float[Tensor, "*batch length d_k"],
    value: Float[Tensor, "*batch length d_v"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    key_mask: Bool[Tensor, "..."] | None = None,
    state: Float[Tensor, "*batch features columns"] | None = None,
) -> tuple[Float[Tensor, "*batch length d_v"], Float[Tensor, "*batch features columns"]]:
    """Causal linear attention as a recurrent network (equations 16 to 20); returns the output and the last state.

    ``S_t = S_{t−1} + φ(k_t)ᵀ [v_t, 1],  [a, b] = φ(q_t) S_t,  output_t = a / b``

    `state` is that of an earlier call; its size is fixed, however long the text. A pitfall: it cannot forget.
    """
    q, k, v = features_and_values(query, key, value, feature_map, key_mask)
    if state is None:
        state = q.new_zeros(*q.shape[:-2], q.size(-1), v.size(-1))
    outputs = [q[..., :0, :] @ state]  # empty, in case there are no positions
    steps = (x.split(1, dim=-2) for x in (q, k, v))
    for q_t, k_t, v_t in zip(*steps, strict=True):
        state = state + k_t.mT @ v_t
        outputs.append(q_t @ state)
    return averages(torch.cat(outputs, dim=-2)).to(value.dtype), state
