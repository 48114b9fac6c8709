"""Linear attention: its quadratic form in a plain loop, chunks, states carried on, masks, half precision."""

import math

import pytest
import torch
from compare import DTYPES, assert_same_function
from conftest import assert_close

from transformer_lessons.attention import linear, linear_attention, recurrent_linear_attention

D_K, D_V = 5, 13
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def qkv(queries: int, keys: int, *batch: int, dtype=torch.float64):
    sizes = (queries, D_K), (keys, D_K), (keys, D_V)
    return [torch.randn(*batch, *size, dtype=dtype) for size in sizes]


def feature(x: float) -> float:
    return x + 1 if x > 0 else math.exp(x)


def test_against_a_loop():
    query, key, value = qkv(7, 11)
    visible = [True] * 9 + [False, True]
    output = linear_attention(query, key, value, is_causal=True, key_mask=torch.tensor(visible))
    for i in range(7):
        weights = [
            sum(feature(query[i, d].item()) * feature(key[j, d].item()) for d in range(D_K))
            if visible[j] and j <= i + 4  # eleven keys, seven queries: the last see all
            else 0.0
            for j in range(11)
        ]
        expected = sum(weights[j] * value[j] for j in range(11)) / sum(weights)
        assert_close(output[i], expected)


def quadratic(query, key, value):
    weights = (query.square() @ key.square().mT).tril(key.size(-2) - query.size(-2))
    return weights @ value / weights.sum(-1, keepdim=True)


@DTYPE
@pytest.mark.parametrize(
    ("queries", "keys"), [(1, 1), (63, 63), (64, 64), (65, 65), (131, 131), (7, 131), (70, 73)]
)
def test_chunks_do_not_show(queries, keys, dtype):
    assert_same_function(
        lambda *x: linear_attention(*x, is_causal=True, feature_map=torch.square),
        quadratic,
        *qkv(queries, keys, 2, dtype=dtype),
    )


def test_chunks_are_of_positions_not_of_sentences():
    assert_same_function(
        lambda *x: linear_attention(*x, is_causal=True, feature_map=torch.square), quadratic, *qkv(3, 3, 67)
    )


def test_chunks_are_of_64():
    assert linear.CHUNK == 64  # the sizes above are chosen around it


@pytest.mark.parametrize("cut", [0, 1, 5, 11])
def test_a_state_carried_on_is_as_good_as_the_past(cut):
    query, key, value = qkv(11, 11, 2, 3)
    mask = torch.rand(2, 1, 11) < 0.7
    options = {"feature_map": torch.square}
    whole = linear_attention(query, key, value, is_causal=True, key_mask=mask, **options)
    first, state = recurrent_linear_attention(
        query[..., :cut, :], key[..., :cut, :], value[..., :cut, :], key_mask=mask[..., :cut], **options
    )
    second, last = recurrent_linear_attention(
        query[..., cut:, :],
        key[..., cut:, :],
        value[..., cut:, :],
        key_mask=mask[..., cut:],
        state=state,
        **options,
    )
    assert_close(torch.cat([first, second], dim=-2), whole)
    seen = mask[..., None] * key.square()
    assert_close(last[..., :D_V], seen.mT @ value)
    assert_close(last[..., D_V], seen.sum(-2))


@pytest.mark.parametrize("is_causal", [False, True])
def test_queries_that_see_no_key_give_zeros_and_finite_gradients(is_causal):
    inputs = [x.requires_grad_() for x in qkv(7, 7, 2)]
    mask = torch.tensor([[False] * 7, [False] * 3 + [True] * 4])
    output = linear_attention(*inputs, is_causal=is_causal, key_mask=mask)
    output.backward(torch.randn_like(output))
    assert (output[0] == 0).all()
    assert (output[1, :3] == 0).all() == is_causal
    assert (output[1, 3:] != 0).all()
    assert all(x.grad.isfinite().all() for x in inputs)
    assert (inputs[2].grad[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_half_precision_sums_in_float32(is_causal, dtype):
    # 4,000 keys of features near 20: in float16 their sum, and soon every product, would be infinite.
    query, key, value = (20 + torch.rand(4000, 3), 20 + torch.rand(4000, 3), torch.rand(4000, 2))
    inputs = [x.to(dtype) for x in (query, key, value)]
    output = linear_attention(*inputs, is_causal=is_causal)
    expected = linear_attention(*(x.double() for x in inputs), is_causal=is_causal)
    assert output.dtype == dtype
    assert_close(output.double(), expected, tolerance=torch.finfo(dtype).eps)
    state = recurrent_linear_attention(*(x[:3] for x in inputs))[1]
    assert state.dtype == torch.float32


@pytest.mark.parametrize("shape", [(11,), (1, 11), (2, 1, 11), (2, 3, 1), (2, 3, 11)])
def test_key_masks_broadcast(shape):
    query, key, value = qkv(7, 11, 2, 3)
    mask = torch.rand(shape) < 0.6
    weights = (
        torch.einsum("bhqd,bhkd->bhqk", query.square(), key.square()) * mask.expand(2, 3, 11)[:, :, None]
    )
    expected = weights @ value / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    assert_close(linear_attention(query, key, value, feature_map=torch.square, key_mask=mask), expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_nothing_to_attend(is_causal):
    assert linear_attention(*qkv(0, 0, 2), is_causal=is_causal).shape == (2, 0, D_V)
    assert linear_attention(*qkv(0, 3, 2), is_causal=is_causal).shape == (2, 0, D_V)
    output, state = recurrent_linear_attention(*qkv(0, 0, 2))
    assert output.shape == (2, 0, D_V)
    assert torch.equal(state, torch.zeros(2, D_K, D_V + 1, dtype=torch.float64))
    assert (linear_attention(*qkv(3, 0, 2)) == 0).all()


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda: linear_attention(*qkv(3, 2), is_causal=True),
            r"keys: expected at least as many .* \(3\), got 2",
        ),
        (
            lambda: recurrent_linear_attention(*qkv(3, 5)),
            "key: expected as many positions as query, 3, got 5",
        ),
        (
            lambda: linear_attention(*qkv(3, 5), key_mask=torch.ones(5)),
            "key_mask: expected booleans, True = may attend, got torch.float32",
        ),
        (
            lambda: linear_attention(*qkv(3, 5, 2), key_mask=torch.ones(2, 3) == 1),
            r"key_mask: expected to broadcast to \(2, 5\), got \(2, 3\)",
        ),
        (
            lambda: linear_attention(*qkv(3, 5, 2), key_mask=torch.ones(2, 1, 5) == 1),
            r"key_mask: expected to broadcast to \(2, 5\), got \(2, 1, 5\)",
        ),
        (lambda: linear_attention(*qkv(3, 5)[:2], torch.zeros(4, 2).double()), "value: expected shape"),
    ],
)
def test_complaints(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
