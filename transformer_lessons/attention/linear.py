"""Kernelised linear attention: another similarity than the exponential, so that the sums come apart."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from transformer_lessons import expect
from transformer_lessons.attention.inputs import check_inputs

CHUNK = 64


def elu_plus_one(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The usual feature map: ``φ(x) = elu(x) + 1``, which is positive (Katharopoulos et al. 2020).

    A pitfall: below about −17 it is 0 in float32, and a key of such features is not seen at all.

    Raises:
        ValueError: for what is no tensor of floats.
    """
    expect.floats(x=x)
    return F.elu(x) + 1


def linear_attention(
    query: Float[Tensor, "*batch queries d_k"],
    key: Float[Tensor, "*batch keys d_k"],
    value: Float[Tensor, "*batch keys d_v"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    is_causal: bool = False,
    key_mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch queries d_v"]:
    """Attention whose cost grows with the length, not its square (Katharopoulos et al. 2020, equation 5).

    ``output_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / φ(q_i) Σ_j φ(k_j)ᵀ``, where §3.2.1 has exp(q_i k_jᵀ / √d_k) for
    φ(q_i) φ(k_j)ᵀ

    The sums over j do not depend on i: they are made once, ``(φ(Q) φ(K)ᵀ) V = φ(Q) (φ(K)ᵀ V)``. Causal, they
    grow from query to query; that happens in chunks, inside of which the quadratic form is used. A pitfall:
    this is another function than softmax attention, and φ must not be negative, or the divisor may be 0.

    Args:
        query, key, value: as for `scaled_dot_product_attention`.
        feature_map: φ, applied to queries and keys.
        is_causal: hide later positions, the last query aligned with the last key.
        key_mask: which keys may be attended to; broadcasts to ``*batch keys``. No query has a mask of its own.

    Returns:
        The output; zeros for a query that sees no key.

    Raises:
        ValueError: for shapes, dtypes or devices that do not fit, a feature_map that is no function or mixes
            vectors, a mask that is not boolean, or, with `is_causal`, more queries than keys.
    """
    q, k, v = _features(query, key, value, feature_map, key_mask)
    if not is_causal:
        return _normalised(q @ (k.mT @ v)).to(value.dtype)
    past = key.size(-2) - query.size(-2)
    if past < 0:
        raise ValueError(f"keys: expected at least as many as queries ({query.size(-2)}), got {key.size(-2)}")
    state = k[..., :past, :].mT @ v[..., :past, :]
    k, v, outputs = k[..., past:, :], v[..., past:, :], []
    for q_c, k_c, v_c in zip(*(x.split(CHUNK, dim=-2) for x in (q, k, v)), strict=True):
        outputs.append(q_c @ state + (q_c @ k_c.mT).tril() @ v_c)
        state = state + k_c.mT @ v_c
    return _normalised(torch.cat(outputs, dim=-2)).to(value.dtype)


def recurrent_linear_attention(
    query: Float[Tensor, "*batch length d_k"],
    key: Float[Tensor, "*batch length d_k"],
    value: Float[Tensor, "*batch length d_v"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    key_mask: Bool[Tensor, "..."] | None = None,
    state: Float[Tensor, "*batch features columns"] | None = None,
) -> tuple[Float[Tensor, "*batch length d_v"], Float[Tensor, "*batch features columns"]]:
    """Causal linear attention as a recurrent network (Katharopoulos et al. 2020, equations 16 to 20).

    ``S_t = S_{t−1} + φ(k_t)ᵀ [v_t, 1],  [a, b] = φ(q_t) S_t,  output_t = a / b``

    The state has one size however long the sequence gets: that is all the cache there is. Equal to
    `linear_attention` with `is_causal`. A pitfall: the state is a sum, so nothing that was read can be taken
    out again, and in half precision it stops growing; it is kept in float32 at least.

    Args:
        query, key, value, feature_map, key_mask: as for `linear_attention`; as many keys as queries.
        state: what an earlier call returned, to go on from there.

    Returns:
        The output, and the state after the last position, of ``d_v + 1`` columns.

    Raises:
        ValueError: as `linear_attention`, for numbers of queries and keys that differ, or a state that does not
            fit.
    """
    q, k, v = _features(query, key, value, feature_map, key_mask)
    if q.size(-2) != k.size(-2):
        raise ValueError(f"key: expected as many positions as query, {q.size(-2)}, got {k.size(-2)}")
    expected = (*q.shape[:-2], q.size(-1), v.size(-1))
    if state is None:
        state = q.new_zeros(expected)
    expect.floats(state=state)
    expect.same_device(query, "query", state=state)
    if state.shape != expected:
        raise ValueError(f"state: expected shape {tuple(expected)}, got {tuple(state.shape)}")
    outputs = [q[..., :0, :] @ state]
    for q_t, k_t, v_t in zip(*(x.split(1, dim=-2) for x in (q, k, v)), strict=True):
        state = state + k_t.mT @ v_t
        outputs.append(q_t @ state)
    return _normalised(torch.cat(outputs, dim=-2)).to(value.dtype), state


def _features(
    query: Tensor, key: Tensor, value: Tensor, feature_map: Callable, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """φ(Q), φ(K) without the hidden keys, and V with a column of ones, whose sums are the divisors."""
    check_inputs(query, key, value)
    expect.function(feature_map=feature_map)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = feature_map(query.to(wide)), feature_map(key.to(wide)), value.to(wide)
    for x, features in ((query, q), (key, k)):
        expect.floats(feature_map=features)
        if features.shape[:-1] != x.shape[:-1]:
            expected = (*x.shape[:-1], "…")
            raise ValueError(f"feature_map: expected shape {expected} of it, got {tuple(features.shape)}")
    if key_mask is not None:
        expect.kind(Tensor, key_mask=key_mask)
        if key_mask.dtype is not torch.bool:
            raise ValueError(f"key_mask: expected booleans, True = may attend, got {key_mask.dtype}")
        expect.broadcasts(key_mask, key.shape[:-1], "key_mask")
        expect.same_device(key, "key", key_mask=key_mask)
        k = k.masked_fill(~key_mask[..., None], 0.0)
    return q, k, torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


def _normalised(sums: Float[Tensor, "*batch queries columns"]) -> Float[Tensor, "*batch queries d_v"]:
    """The sums of the values over the sums of the ones; zero where nothing was summed."""
    numerator, divisor = sums[..., :-1], sums[..., -1:]
    return numerator / divisor.masked_fill(divisor == 0, 1.0)
