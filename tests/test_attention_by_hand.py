"""The backward pass written out, and attention in tiles, beyond what the oracles compare."""

import pytest
import torch
from compare import leaves
from conftest import assert_close

from transformer_lessons.attention import (
    attention_backward,
    hard_attention,
    scaled_dot_product_attention,
    tiled_attention,
)

D_K, D_V, QUERIES, KEYS = 5, 13, 7, 11


def qkv(*batch: int, dtype=torch.float64, keys: int = KEYS):
    sizes = (QUERIES, D_K), (keys, D_K), (keys, D_V)
    return [torch.randn(*batch, *size, dtype=dtype) for size in sizes]


def masks():
    """None, a row without any key, a broadcast one, an additive one."""
    blind = torch.rand(QUERIES, KEYS) < 0.5
    blind[3] = False
    keys = torch.rand(2, 1, KEYS) < 0.5
    bias = torch.zeros(2, QUERIES, KEYS).masked_fill(torch.rand(2, QUERIES, KEYS) < 0.5, -torch.inf)
    return [None, blind, keys, bias]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_backward_equals_autograd_under_every_kind_of_mask(number, is_causal):
    mask, inputs = masks()[number], leaves(*qkv(2))
    output = scaled_dot_product_attention(*inputs, mask, is_causal=is_causal)[0]
    cotangent = torch.randn_like(output)
    expected = torch.autograd.grad(output, inputs, cotangent)
    actual = attention_backward(*inputs, cotangent, mask, is_causal=is_causal)
    for a, b in zip(actual, expected, strict=True):
        assert not a.requires_grad
        assert_close(a, b)


def test_backward_by_hand():
    # One query, two keys, d_k = 4 so that √d_k = 2; scores (ln 3, 0) make weights (3/4, 1/4). With values 8 and 0
    # and dO = 1: dW = (8, 0), W · dW = 6, dS = W ∘ (dW − 6) = (3/2, −3/2); dQ = dS K / 2; dK = dSᵀ Q / 2.
    query = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    key = torch.zeros(2, 4, dtype=torch.float64)
    key[0, 0] = 2 * torch.tensor(3.0, dtype=torch.float64).log()
    value, cotangent = (
        torch.tensor([[8.0], [0.0]], dtype=torch.float64),
        torch.ones(1, 1, dtype=torch.float64),
    )
    d_query, d_key, d_value = attention_backward(query, key, value, cotangent)
    assert_close(d_query, 0.75 * key[:1])
    assert_close(d_key, torch.tensor([[0.75], [-0.75]], dtype=torch.float64) * query)
    assert_close(d_value, torch.tensor([[0.75], [0.25]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_backward_in_half_precision_computes_in_float32(dtype):
    inputs = [x.to(dtype) for x in qkv(2)]
    cotangent = torch.randn(2, QUERIES, D_V).to(dtype)
    actual = attention_backward(*inputs, cotangent)
    expected = attention_backward(*(x.double() for x in (*inputs, cotangent)))
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        assert_close(a.double(), b, tolerance=torch.finfo(dtype).eps)


@pytest.mark.parametrize("tile", [1, 2, 5, 10, 11, 12, 64])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_tiles_of_any_size_give_the_same(number, is_causal, tile):
    mask, mine, other = masks()[number], *(leaves(*x) for x in [qkv(2)] * 2)
    actual = tiled_attention(*mine, mask, is_causal=is_causal, tile=tile)
    expected = scaled_dot_product_attention(*other, mask, is_causal=is_causal)[0]
    assert_close(actual, expected)
    cotangent = torch.randn_like(expected)
    actual.backward(cotangent)
    expected.backward(cotangent)
    for a, b in zip(mine, other, strict=True):
        assert_close(a.grad, b.grad)


def test_tiles_are_of_64_keys_unless_said(monkeypatch):
    widths = []
    matmul = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: widths.append(b.size(-1)) or matmul(a, b))
    tiled_attention(*qkv(keys=150))
    assert widths[0::2] == [64, 64, 22]


def test_tiles_survive_scores_that_exp_would_not():
    query, key, value = qkv(2)
    for scale in (1e3, -1e3):
        inputs = leaves(scale * query, key, value)
        output = tiled_attention(*inputs, tile=3)
        output.backward(torch.ones_like(output))
        assert_close(output, scaled_dot_product_attention(scale * query, key, value)[0])
        assert all(x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tiles_in_half_precision_are_summed_in_float32(dtype):
    inputs = [x.to(dtype) for x in qkv(2)]
    output = tiled_attention(*inputs, tile=2)
    assert output.dtype == dtype
    expected = tiled_attention(*(x.double() for x in inputs))
    assert_close(output.double(), expected, tolerance=torch.finfo(dtype).eps)


def test_tiles_of_nothing():
    assert (tiled_attention(*qkv(2, keys=0)) == 0).all()


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: tiled_attention(*qkv(), tile=0), "tile: expected an integer, 1 or more, got 0"),
        (lambda: tiled_attention(*qkv()[:2], torch.zeros(3, 2).double()), "value: expected shape"),
        (lambda: tiled_attention(*qkv(), torch.ones(2, 2) == 1), r"mask: expected to broadcast to \(7, 11\)"),
        (
            lambda: attention_backward(*qkv(2), torch.zeros(2, 7, 5).double()),
            r"cotangent: expected shape \(2, 7, 13\), as the output, got \(2, 7, 5\)",
        ),
        (
            lambda: attention_backward(*qkv()[:2], torch.zeros(3, 2).double(), torch.zeros(7, 2)),
            "value: expected",
        ),
    ],
)
def test_complaints(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


# --- hard_attention


def test_hard_attention_looks_up():
    # Three one-hot keys are a dictionary; the queries name its entries.
    key, value = torch.eye(3), torch.tensor([[10.0, 1.0], [20.0, 2.0], [30.0, 3.0]])
    output, weights = hard_attention(torch.eye(3)[[2, 0, 2, 1]], key, value)
    assert output.tolist() == [[30, 3], [10, 1], [30, 3], [20, 2]]
    assert weights.tolist() == torch.eye(3)[[2, 0, 2, 1]].tolist()


def test_of_equally_good_keys_the_first_is_taken():
    output, weights = hard_attention(torch.ones(2, 3), torch.ones(5, 3), torch.arange(5.0)[:, None])
    assert output.flatten().tolist() == [0, 0]
    assert weights.tolist() == [[1, 0, 0, 0, 0]] * 2


def test_hidden_keys_are_never_the_best():
    query, key, value = qkv(2, 3)
    for mask in masks()[1:]:
        output, weights = hard_attention(
            query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), mask
        )
        visible = (mask if mask.dtype == torch.bool else mask == 0).expand(3, 2, QUERIES, KEYS)
        scores = (query @ key.mT).transpose(0, 1)
        for place in torch.cartesian_prod(*map(torch.arange, (3, 2, QUERIES))).tolist():
            allowed = visible[tuple(place)].nonzero().flatten().tolist()
            best = max(allowed, key=lambda j: scores[tuple(place)][j].item(), default=None)
            chosen = weights[tuple(place)].nonzero().flatten().tolist()
            assert chosen == ([] if best is None else [best])
            expected = (
                torch.zeros(D_V).double() if best is None else value.transpose(0, 1)[place[0], place[1], best]
            )
            assert torch.equal(output[tuple(place)], expected)


def test_only_the_values_learn():
    inputs = leaves(*qkv(2))
    output, weights = hard_attention(*inputs)
    output.backward(torch.ones_like(output))
    assert inputs[0].grad is None
    assert inputs[1].grad is None
    assert_close(inputs[2].grad, weights.sum(-2)[..., None].expand(-1, -1, D_V))


def test_hard_attention_in_half_precision():
    # Scores 90,000 and 100,000 are both infinite in float16; the second key is the better one.
    query, key = torch.full((1, 1), 1000.0).half(), torch.tensor([[90.0], [100.0]]).half()
    output, weights = hard_attention(query, key, torch.tensor([[1.0], [2.0]]).half())
    assert output.item() == 2
    assert output.dtype == weights.dtype == torch.float16


def test_hard_attention_without_keys():
    output, weights = hard_attention(*qkv(2, keys=0))
    assert output.shape == (2, QUERIES, D_V)
    assert weights.shape == (2, QUERIES, 0)
    assert (output == 0).all()
