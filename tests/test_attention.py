"""Attention against a plain loop, F.scaled_dot_product_attention and nn.MultiheadAttention."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_function, assert_same_module, attention_to_torch, leaves, perturb
from conftest import assert_close
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_lessons.attention import (
    KeyValueCache,
    MultiHeadAttention,
    dot_product,
    fused_attention,
    inputs,
    scaled_dot_product_attention,
)
from transformer_lessons.masks import causal_mask, padding_mask

D_K, D_V, QUERIES, KEYS = 5, 13, 7, 11
ROWS = torch.tensor([7, 11])  # real tokens in each of two padded sequences


def output_only(*arguments, **options):
    return scaled_dot_product_attention(*arguments, **options)[0]


BOTH = pytest.mark.parametrize("attend", [output_only, fused_attention], ids=["step by step", "fused"])
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def qkv(*batch: int, dtype=torch.float64, queries=QUERIES, keys=KEYS):
    sizes = (queries, D_K), (keys, D_K), (keys, D_V)
    return [torch.randn(*batch, *size, dtype=dtype) for size in sizes]


def some_mask(*shape: int) -> torch.Tensor:
    """Random, but every query sees at least the first key."""
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    return mask


# --- scaled_dot_product_attention and fused_attention


def test_against_a_loop():
    query, key, value = qkv()
    mask = some_mask(QUERIES, KEYS)
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    for i in range(QUERIES):
        exponentials = [
            math.exp(sum(query[i, d] * key[j, d] for d in range(D_K)) / math.sqrt(D_K)) if mask[i, j] else 0.0
            for j in range(KEYS)
        ]
        expected = torch.tensor(exponentials, dtype=torch.float64) / sum(exponentials)
        assert_close(weights[i], expected)
        assert_close(output[i], sum(expected[j] * value[j] for j in range(KEYS)))


@DTYPE
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("is_masked", [False, True])
@BOTH
def test_equal_to_torch(attend, is_masked, batch, dtype):
    mask = some_mask(*batch, QUERIES, KEYS) if is_masked else None
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        *qkv(*batch, dtype=dtype),
    )


@pytest.mark.parametrize("shape", [(2, 1, 1, KEYS), (3, QUERIES, 1), (QUERIES, KEYS), (KEYS,), (1,)])
@BOTH
def test_masks_broadcast(attend, shape):
    mask = some_mask(*shape)
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask.expand(2, 3, QUERIES, KEYS)),
        *qkv(2, 3),
    )


@DTYPE
@BOTH
def test_causal_between_equal_lengths_is_torch_is_causal(attend, dtype):
    assert_same_function(
        lambda q, k, v: attend(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *qkv(2, 3, keys=QUERIES, dtype=dtype),
    )


@DTYPE
@pytest.mark.parametrize("queries", [1, QUERIES])
@BOTH
def test_causal_with_more_keys_aligns_the_last_with_the_last(attend, queries, dtype):
    mask = torch.tensor([[j <= i + KEYS - queries for j in range(KEYS)] for i in range(queries)])
    assert torch.equal(mask, causal_mask(queries, KEYS)[0, 0])
    assert_same_function(
        lambda q, k, v: attend(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask),
        *qkv(2, 3, queries=queries, dtype=dtype),
    )


@BOTH
def test_causal_and_a_mask(attend):
    mask = some_mask(2, 1, 1, QUERIES)
    assert_same_function(
        lambda q, k, v: attend(q, k, v, mask, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask & causal_mask(QUERIES)),
        *qkv(2, 3, keys=QUERIES),
    )


@DTYPE
def test_gradients_through_the_weights(dtype):
    mask = some_mask(2, 3, QUERIES, KEYS)
    query, key, value = qkv(2, 3, dtype=dtype)
    assert_same_function(
        lambda q, k: scaled_dot_product_attention(q, k, value, mask)[1],
        lambda q, k: (q @ k.mT * D_K**-0.5).masked_fill(~mask, -torch.inf).softmax(-1),
        query,
        key,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@BOTH
def test_a_query_without_any_key_gives_zeros_and_finite_gradients(attend, dtype):
    mask = some_mask(2, 1, QUERIES, KEYS)
    mask[0, 0, 3] = False
    query, key, value = leaves(*qkv(2, 3, dtype=dtype))
    with torch.autograd.set_detect_anomaly(True):
        output = attend(query, key, value, mask)
        output.backward(torch.randn_like(output))
    assert (output[0, :, 3] == 0).all()
    assert (query.grad[0, :, 3] == 0).all()
    assert all(tensor.grad.isfinite().all() for tensor in (query, key, value))
    others = torch.arange(QUERIES) != 3
    seen = mask[..., others, :]
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 5e-2}.get(dtype)
    expected = F.scaled_dot_product_attention(query[..., others, :], key, value, seen)
    assert_close(output[..., others, :], expected, tolerance=tolerance)


def test_no_kernel_meets_a_query_without_any_key(monkeypatch):
    # Some kernels, on some devices, would make NaN of it, and NaN times zero in the backward pass.
    seen = []

    def kernel(query, key, value, mask, **options):
        seen.append(mask)
        return query @ key.mT @ value

    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    mask = some_mask(2, 1, QUERIES, KEYS)
    mask[0, 0, 3] = False
    assert (fused_attention(*qkv(2, 3), mask)[0, :, 3] == 0).all()
    assert seen[0].any(-1).all()


def test_the_weights_of_a_query_without_any_key_are_zero():
    mask = some_mask(QUERIES, KEYS)
    mask[3] = False
    weights = scaled_dot_product_attention(*qkv(), mask)[1]
    assert_close(weights.sum(-1), mask.any(-1).double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
@BOTH
def test_extreme_logits_in_half_precision(attend, is_causal, dtype):
    # 300² · 5 / √5 ≈ 201,000 is beyond float16. Rows of −300 see the smallest scores among visible keys.
    query = 300 * torch.ones(2, QUERIES, D_K) * torch.tensor([1.0, -1.0])[:, None, None]
    key = 300 * torch.ones(2, QUERIES, D_K) + torch.arange(QUERIES)[:, None]
    value = torch.randn(2, QUERIES, D_V)
    q, k, v = leaves(query.to(dtype), key.to(dtype), value.to(dtype))
    output = attend(q, k, v, is_causal=is_causal)
    output.backward(torch.randn_like(output))
    assert all(tensor.grad.isfinite().all() for tensor in (q, k, v))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=is_causal)
    assert_close(output.double(), expected, tolerance=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("hidden_by", ["nothing", "flag", "mask"])
@BOTH
def test_dropout_drops_weights_and_scales_the_rest(attend, hidden_by):
    # With the identity as values the output is the weights after dropout; before, all visible ones are equal.
    query, value = torch.zeros(97, D_K), torch.eye(97)
    visible = causal_mask(97)[0, 0] if hidden_by != "nothing" else torch.ones(97, 97) == 1
    options = {"flag": {"is_causal": True}, "mask": {"mask": visible}}.get(hidden_by, {})
    weights = visible / visible.sum(-1, keepdim=True)
    output = attend(query, query, value, **options, dropout=0.3)
    kept = output != 0
    assert kept[visible].float().mean().item() == pytest.approx(0.7, abs=0.04)  # six standard deviations
    assert_close(output[kept], weights[kept] / 0.7)


@BOTH
def test_the_causal_mask_is_made_where_the_scores_are(attend, monkeypatch):
    made = []

    def on(*sizes, device):
        made.append(device)
        return causal_mask(*sizes, device=device)

    monkeypatch.setattr(inputs, "causal_mask", on)
    attend(*(x.to("meta") for x in qkv(2)), is_causal=True)
    assert made == [torch.device("meta")]


def test_weights_come_back_as_they_were_before_dropout():
    inputs = qkv(2, 3)
    _, weights = scaled_dot_product_attention(*inputs)
    output, returned = scaled_dot_product_attention(*inputs, dropout=0.3)
    assert torch.equal(returned, weights)
    assert not torch.allclose(output, weights @ inputs[2])


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
@BOTH
def test_nothing_to_attend(attend, sizes):
    batch, queries, keys = sizes
    output = attend(*qkv(batch, queries=queries, keys=keys))
    assert torch.equal(output, torch.zeros(batch, queries, D_V, dtype=torch.float64))


ERRORS = [
    ({"key": (2, 11, 3)}, r"key: expected shape \(2, '…', 5\), got \(2, 11, 3\)"),
    ({"key": (1, 11, 5)}, r"key: expected shape \(2, '…', 5\), got \(1, 11, 5\)"),
    ({"key": (11, 5)}, r"key: expected shape \(2, '…', 5\), got \(11, 5\)"),
    ({"value": (2, 7, 13)}, r"value: expected shape \(2, 11, '…'\), as the keys, got \(2, 7, 13\)"),
    ({"value": (1, 11, 13)}, r"value: expected shape \(2, 11, '…'\), as the keys, got \(1, 11, 13\)"),
    ({"mask": torch.ones(7, 1)}, "mask: expected booleans, .*, got torch.float32 with 1 in it"),
    ({"mask": torch.ones(7, 1).int()}, "mask: expected booleans, True = may attend, .*, got torch.int32"),
    ({"mask": torch.ones(11, 7) == 1}, r"mask: expected to broadcast to \(2, 7, 11\), got \(11, 7\)"),
    ({"mask": torch.ones(3, 7, 11) == 1}, r"mask: expected to broadcast to \(2, 7, 11\), got \(3, 7, 11\)"),
    ({"mask": torch.ones(1, 1, 7, 11) == 1}, r"mask: .* \(2, 7, 11\), got \(1, 1, 7, 11\)"),
    ({"query": (2, 13, 5), "is_causal": True}, r"keys: expected at least as many as queries \(13\), got 11"),
]


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("changes", "complaint"), ERRORS)
@BOTH
def test_complaints(attend, changes, complaint):
    arguments = {"query": (2, 7, 5), "key": (2, 11, 5), "value": (2, 11, 13), **changes}
    tensors = {
        name: torch.zeros(shape, dtype=torch.float64) if isinstance(shape, tuple) else shape
        for name, shape in arguments.items()
    }
    with pytest.raises(ValueError, match=complaint):
        attend(**tensors)


@pytest.mark.usefixtures("no_shape_checks")
@BOTH
def test_the_causal_flag_does_not_hide_a_mistake(attend):
    query, _, _ = qkv(2)
    with pytest.raises(ValueError, match="value: expected shape"):
        attend(query, query, query[:, 1:], is_causal=True)


# --- Many weights, with dropout, on a CPU: some queries at a time

ALMOST_NONE = 1e-12  # so that next to nothing is dropped, and the path is taken all the same


@pytest.fixture
def few_weights_at_once(monkeypatch):
    """Blocks of two queries of eleven keys."""
    monkeypatch.setattr(dot_product, "MOST_WEIGHTS", 23)


def mask_of(kind: str) -> torch.Tensor | None:
    blind = some_mask(2, 3, QUERIES, KEYS)
    blind[0, 1, 4] = False  # a query without any key
    return {"none": None, "keys": padding()[:, None, None], "queries": blind[0, 0, :, :1], "all": blind}[kind]


@DTYPE
@pytest.mark.usefixtures("few_weights_at_once")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "keys", "queries", "all"])
def test_blocks_of_queries_give_what_all_give(kind, is_causal, dtype):
    mask = mask_of(kind)
    options = {"mask": mask, "is_causal": is_causal}
    assert_same_function(
        lambda q, k, v: fused_attention(q, k, v, dropout=ALMOST_NONE, **options),
        lambda q, k, v: output_only(q, k, v, **options),
        *qkv(2, 3, dtype=dtype),
    )


@pytest.mark.usefixtures("few_weights_at_once")
@pytest.mark.parametrize("is_causal", [False, True])
def test_what_a_block_drops_it_drops_again_on_the_way_back(is_causal):
    query, key, _ = (x.requires_grad_() for x in qkv(2, 3, queries=KEYS))
    value = torch.eye(KEYS, dtype=torch.float64).expand(2, 3, -1, -1).clone().requires_grad_()
    weights = fused_attention(query, key, value, is_causal=is_causal, dropout=0.5)  # each is 0 or doubled
    _, before = scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    kept = weights != 0
    assert_close(weights, torch.where(kept, 2 * before, 0.0))
    visible = before != 0
    assert kept[visible].float().mean().item() == pytest.approx(0.5, abs=0.2)  # four standard deviations
    cotangent = torch.randn_like(weights)
    torch.rand(101)  # the random state has gone on
    actual = torch.autograd.grad(weights, (query, key, value), cotangent)
    dropped = torch.where(kept, 2 * before, 0.0) @ value
    by_hand = torch.autograd.grad(dropped, (query, key, value), cotangent)
    for gradient, expected in zip(actual, by_hand, strict=True):
        assert_close(gradient, expected)


class LargestTensor(TorchDispatchMode):
    """How many numbers the largest tensor has that is made in this context."""

    numbers = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


@pytest.mark.parametrize("is_causal", [False, True])
def test_with_dropout_the_weights_never_exist_all_at_once(is_causal):
    heads, length = 2, 1021
    query, key, value = (torch.randn(1, heads, length, 5, requires_grad=True) for _ in range(3))
    with LargestTensor() as largest:
        fused_attention(query, key, value, is_causal=is_causal, dropout=0.3).sum().backward()
    assert length * 5 < largest.numbers <= heads * dot_product.MOST_WEIGHTS < heads * length**2 / 3
    with LargestTensor() as largest:
        output_only(query, key, value, is_causal=is_causal, dropout=0.3).sum().backward()
    assert largest.numbers >= heads * length**2  # so the count can tell


@pytest.mark.usefixtures("few_weights_at_once")
def test_blocks_refuse_more_queries_than_keys_as_all_do():
    query, key, value = qkv(queries=KEYS + 1)
    with pytest.raises(ValueError, match="keys: expected") as by_all:
        output_only(query, key, value, is_causal=True)
    with pytest.raises(ValueError, match="keys: expected") as by_blocks:
        fused_attention(query, key, value, is_causal=True, dropout=0.3)
    assert str(by_blocks.value) == str(by_all.value)  # with the numbers given, not those of a block
    assert fused_attention(query, key, value, dropout=0.3).size(-2) == KEYS + 1


# --- MultiHeadAttention

HEADS, D_MODEL = 3, 15


def theirs_of(*, dtype, **options) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=dtype, **options)


def padding():
    """Where each of two sequences has real tokens, `batch keys`."""
    return torch.arange(KEYS) < ROWS[:, None]


@DTYPE
@pytest.mark.parametrize("bias", [True, False])
def test_self_attention_equals_torch(bias, dtype):
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS, bias=bias).to(dtype),
        theirs_of(bias=bias, dtype=dtype),
        attention_to_torch,
        lambda ours, x: ours(x),
        lambda theirs, x: theirs(x, x, x, need_weights=False)[0],
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
    )


@DTYPE
@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_of_other_widths_equals_torch(bias, dtype):
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS, key_width=17, value_width=19, bias=bias).to(dtype),
        theirs_of(kdim=17, vdim=19, bias=bias, dtype=dtype),
        attention_to_torch,
        lambda ours, q, k, v: ours(q, k, v),
        lambda theirs, q, k, v: theirs(q, k, v, need_weights=False)[0],
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, 17, dtype=dtype),
        torch.randn(2, KEYS, 19, dtype=dtype),
    )


@DTYPE
def test_the_value_is_the_key_unless_given(dtype):
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS).to(dtype),
        theirs_of(dtype=dtype),
        attention_to_torch,
        lambda ours, q, k: ours(q, k),
        lambda theirs, q, k: theirs(q, k, k, need_weights=False)[0],
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
    )


MANY = 4 * D_MODEL + 1  # tokens, for which the projections are worth putting side by side


@DTYPE
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("is_self", [True, False])
def test_one_product_for_all_projections_equals_torch(is_self, bias, dtype):
    keys = () if is_self else (torch.randn(2, MANY, D_MODEL, dtype=dtype),)
    assert_same_module(
        MultiHeadAttention(D_MODEL, HEADS, bias=bias).to(dtype),
        theirs_of(bias=bias, dtype=dtype),
        attention_to_torch,
        lambda ours, *x: ours(*x),
        lambda theirs, *x: theirs(x[0], x[-1], x[-1], need_weights=False)[0],
        torch.randn(2, QUERIES if keys else MANY, D_MODEL, dtype=dtype),
        *keys,
    )


@pytest.mark.parametrize(("tokens", "products"), [(3 * D_MODEL - 1, 4), (3 * D_MODEL, 2)])
def test_projections_are_put_side_by_side_for_many_tokens(tokens, products, monkeypatch):
    """Three of them in one product and W_o's, or each in its own."""
    called, linear = [], F.linear
    monkeypatch.setattr(F, "linear", lambda *arguments: called.append(arguments) or linear(*arguments))
    MultiHeadAttention(D_MODEL, HEADS)(torch.randn(1, tokens, D_MODEL))
    assert len(called) == products


def test_whoever_watches_a_projection_or_puts_another_in_its_place_is_heard():
    attention, x = (
        perturb(MultiHeadAttention(D_MODEL, HEADS)).double(),
        torch.randn(2, MANY, D_MODEL).double(),
    )
    plain, seen = attention(x), []
    handle = attention.W_k.register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert_close(attention(x), plain)
    assert_close(seen[0], F.linear(x, attention.W_k.weight, attention.W_k.bias))
    handle.remove()

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    doubled = Doubled(D_MODEL, D_MODEL).double()
    doubled.load_state_dict(attention.W_v.state_dict())
    attention.W_v = doubled
    # Twice the values are twice the output, but for the last bias.
    assert_close(attention(x) - attention.W_o.bias, 2 * (plain - attention.W_o.bias))


@DTYPE
@pytest.mark.parametrize("need_weights", [False, True])
def test_padding_and_causality_are_torchs_with_the_polarity_turned(need_weights, dtype):
    ids = torch.where(padding(), 5, 0)
    mask = padding_mask(ids, 0)

    def ours_of(ours, x):
        output = ours(x, mask=mask, is_causal=True, need_weights=need_weights)
        return output[0] if need_weights else output

    def expected_of(theirs, x):
        hidden = {"key_padding_mask": ids == 0, "attn_mask": ~causal_mask(KEYS)[0, 0]}
        return theirs(x, x, x, **hidden, need_weights=need_weights)[0]

    x = torch.randn(2, KEYS, D_MODEL, dtype=dtype)
    ours = MultiHeadAttention(D_MODEL, HEADS).to(dtype)
    assert_same_module(ours, theirs_of(dtype=dtype), attention_to_torch, ours_of, expected_of, x)


@DTYPE
def test_a_mask_for_each_head_and_the_weights_of_each_head(dtype):
    mask = some_mask(2, HEADS, QUERIES, KEYS)

    def expected_of(theirs, q, k):
        attn_mask = ~mask.flatten(0, 1)
        return theirs(q, k, k, attn_mask=attn_mask, average_attn_weights=False)[1]

    ours, theirs = MultiHeadAttention(D_MODEL, HEADS).to(dtype), theirs_of(dtype=dtype)
    theirs.load_state_dict(attention_to_torch(perturb(ours).state_dict()))
    assert_same_function(
        lambda q, k: ours(q, k, mask=mask, need_weights=True)[1],
        lambda q, k: expected_of(theirs, q, k),
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
    )


def by_hand(attention, x, *, heads, groups, **options):
    """Grouped-query attention with the kernel's own grouping, for the weights of `attention`."""
    q = attention.W_q(x).unflatten(-1, (heads, -1)).transpose(1, 2)
    k = attention.W_k(x).unflatten(-1, (groups, -1)).transpose(1, 2)
    v = attention.W_v(x).unflatten(-1, (groups, -1)).transpose(1, 2)
    output = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    return attention.W_o(output.transpose(1, 2).flatten(-2))


@DTYPE
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_grouped_queries_equal_torch(groups, dtype):
    ours = perturb(MultiHeadAttention(30, 6, num_key_value_heads=groups, d_k=5, d_v=13)).to(dtype)
    x = torch.randn(2, QUERIES, 30, dtype=dtype)
    parameters, cotangent = list(ours.parameters()), torch.randn_like(x)

    def with_gradients(output):
        return [output, *torch.autograd.grad(output, parameters, cotangent)]

    actual = with_gradients(ours(x, is_causal=True))
    expected = with_gradients(by_hand(ours, x, heads=6, groups=groups, is_causal=True))
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b)


def test_grouped_queries_are_heads_with_repeated_keys_and_values():
    ours = perturb(MultiHeadAttention(30, 6, num_key_value_heads=2)).double()
    repeated = MultiHeadAttention(30, 6).double()
    state = ours.state_dict()
    for name in ("W_k.weight", "W_k.bias", "W_v.weight", "W_v.bias"):
        state[name] = state[name].unflatten(0, (2, 5)).repeat_interleave(3, dim=0).flatten(0, 1)
    repeated.load_state_dict(state)
    x = torch.randn(2, QUERIES, 30, dtype=torch.float64)
    (output, weights), (expected, of_each_head) = ours(x, need_weights=True), repeated(x, need_weights=True)
    assert_close(output, expected)
    assert_close(weights, of_each_head)


@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_sentences_equal_separate_ones(is_causal):
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).double()
    first, second = (torch.randn(2, length, D_MODEL, dtype=torch.float64) for length in (4, 7))
    packed = attention(
        torch.cat([first, second], dim=1),
        segment_ids=torch.tensor([[0] * 4 + [1] * 7] * 2),
        is_causal=is_causal,
    )
    separate = [attention(x, is_causal=is_causal) for x in (first, second)]
    assert_close(packed, torch.cat(separate, dim=1))


def test_segments_come_on_top_of_a_mask():
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).double()
    x, segments = torch.randn(2, KEYS, D_MODEL, dtype=torch.float64), torch.tensor([[0] * 4 + [1] * 7] * 2)
    mask = some_mask(2, 1, KEYS, KEYS)
    expected = attention(x, mask=mask & (segments[:, None, :, None] == segments[:, None, None, :]))
    assert_close(attention(x, mask=mask, segment_ids=segments), expected)


def test_packed_cross_attention_takes_a_pair():
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).double()
    queries = [torch.randn(2, length, D_MODEL, dtype=torch.float64) for length in (2, 5)]
    memories = [torch.randn(2, length, D_MODEL, dtype=torch.float64) for length in (4, 7)]
    segments = torch.tensor([[0] * 2 + [1] * 5] * 2), torch.tensor([[0] * 4 + [1] * 7] * 2)
    packed = attention(torch.cat(queries, dim=1), torch.cat(memories, dim=1), segment_ids=segments)
    separate = [attention(query, memory) for query, memory in zip(queries, memories, strict=True)]
    assert_close(packed, torch.cat(separate, dim=1))


@DTYPE
def test_looking_at_the_weights_changes_nothing(dtype):
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).to(dtype)
    mask = some_mask(2, 1, QUERIES, KEYS)
    mask[0, 0, 3] = False
    assert_same_function(
        lambda q, k: attention(q, k, mask=mask, need_weights=True)[0],
        lambda q, k: attention(q, k, mask=mask),
        torch.randn(2, QUERIES, D_MODEL, dtype=dtype),
        torch.randn(2, KEYS, D_MODEL, dtype=dtype),
    )


def test_rotate_meets_queries_and_keys_but_not_values():
    attention = perturb(MultiHeadAttention(D_MODEL, HEADS)).double()
    x = torch.randn(2, QUERIES, D_MODEL, dtype=torch.float64)

    def rotate(heads, positions):
        return heads * (1 + positions[:, None])

    q, k, v = (
        W(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for W in (attention.W_q, attention.W_k, attention.W_v)
    )
    factor = torch.arange(1, QUERIES + 1, dtype=torch.float64)[:, None]
    expected = F.scaled_dot_product_attention(q * factor, k * factor, v)
    assert_close(attention(x, rotate=rotate), attention.W_o(expected.transpose(1, 2).flatten(-2)))


def test_rotate_is_told_the_positions():
    attention, told = MultiHeadAttention(D_MODEL, HEADS), []

    def rotate(heads, positions):
        told.append((heads.shape[1:], positions.tolist()))
        return heads

    cache = KeyValueCache(2, KEYS, HEADS, 5)
    attention(torch.randn(2, 3, D_MODEL), rotate=rotate)
    attention(torch.randn(2, 3, D_MODEL), rotate=rotate, cache=cache)
    attention(torch.randn(2, 2, D_MODEL), rotate=rotate, cache=cache)
    attention(torch.randn(2, 1, D_MODEL), torch.randn(2, 2, D_MODEL), rotate=rotate)
    first, later = ((3, 3, 5), [0, 1, 2]), ((3, 2, 5), [3, 4])
    cross = [((3, 1, 5), [0]), ((3, 2, 5), [0, 1])]
    assert told == [first, first, first, first, later, later, *cross]


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_only_in_training(need_weights):
    plain = perturb(MultiHeadAttention(D_MODEL, HEADS))
    dropping = MultiHeadAttention(D_MODEL, HEADS, dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    x = torch.randn(2, QUERIES, D_MODEL)

    def of(attention):
        output = attention(x, need_weights=need_weights)
        return output[0] if need_weights else output

    assert not torch.allclose(of(dropping.train()), of(plain))
    assert torch.equal(of(dropping.eval()), of(plain))


@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_names(bias):
    attention = MultiHeadAttention(D_MODEL, HEADS, d_k=7, d_v=13, key_width=17, value_width=19, bias=bias)
    leaves_of = ("weight", "bias") if bias else ("weight",)
    state = attention.state_dict()
    assert set(state) == {f"W_{letter}.{leaf}" for letter in "qkvo" for leaf in leaves_of}
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if name.endswith("weight")}
    assert shapes == {
        "W_q.weight": (21, 15),
        "W_k.weight": (21, 17),
        "W_v.weight": (39, 19),
        "W_o.weight": (15, 39),
    }


def test_projections_start_xavier_uniform_and_biases_at_zero():
    for name, parameter in MultiHeadAttention(101, 1, d_k=307).named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            bound = math.sqrt(6 / (101 + 307))
            assert 0.99 * bound < parameter.abs().max() <= bound


@pytest.mark.usefixtures("no_shape_checks")
def test_another_width_is_called_by_its_name():
    with pytest.raises(ValueError, match=r"^key: expected a last axis of width = 17, got \(2, 3, 15\)$"):
        MultiHeadAttention(D_MODEL, HEADS, key_width=17)(*torch.zeros(2, 2, 3, D_MODEL))


def test_heads_of_a_given_width_need_not_divide_the_model():
    assert MultiHeadAttention(15, 2, d_k=7)(torch.randn(2, 3, 15)).shape == (2, 3, 15)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_heads": 4}, "num_heads: expected a divisor of d_model = 15, got 4"),
        ({"num_heads": 0}, "num_heads: expected an integer, 1 or more, got 0"),
        ({"num_heads": -3, "d_k": 5}, "num_heads: expected an integer, 1 or more, got -3"),
        ({"num_key_value_heads": 2}, "num_key_value_heads: expected a divisor of num_heads = 3, got 2"),
        ({"num_key_value_heads": 0}, "num_key_value_heads: expected an integer, 1 or more, got 0"),
    ],
)
def test_sizes_that_do_not_fit(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        MultiHeadAttention(D_MODEL, **{"num_heads": HEADS, **options})
