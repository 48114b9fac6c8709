"""The variants, by hand and against independent forms; `test_oracles` has the gradients."""

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close

from transformer_lessons.attention import scaled_dot_product_attention
from transformer_lessons.config import TransformerConfig
from transformer_lessons.decoding import Steps
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import leaves, perturb
from transformer_lessons.variants import (
    GroupedQueryAttention,
    LanguageModel,
    RMSNorm,
    attention_backward,
    extend,
    hard_attention,
    linear_attention,
    modern,
    recurrent_linear_attention,
    rotate,
    speculate,
    tiled_attention,
)
from transformer_lessons.variants.language_model import accepted

F64, HALVES = torch.float64, [torch.float16, torch.bfloat16]


def qkv(queries: int = 7, keys: int = 11, *batch: int, dtype=F64) -> list[torch.Tensor]:
    return [torch.randn(*batch, *size, dtype=dtype) for size in ((queries, 5), (keys, 5), (keys, 13))]


# --- attention_backward


def test_the_gradient_of_a_query_without_any_key_is_zero():
    mask = torch.rand(7, 11) < 0.5
    mask[3] = False
    inputs = leaves(*qkv(7, 11, 2))
    output = scaled_dot_product_attention(*inputs, mask)[0]
    cotangent = torch.randn_like(output)
    found = attention_backward(*inputs, cotangent, mask)
    for ours, theirs in zip(found, torch.autograd.grad(output, inputs, cotangent), strict=True):
        assert_close(ours, theirs)
    assert (found[0][:, 3] == 0).all()


# --- hard_attention


def test_hard_attention_looks_up():
    # Three one-hot keys are a dictionary; the queries name its entries. The first of equal keys is taken;
    # of the last two queries, one may not see it and the other may see nothing.
    value = torch.tensor([[10.0, 1.0], [20.0, 2.0], [30.0, 3.0]])
    asked = torch.cat([torch.eye(3)[[2, 0, 1]], torch.ones(3, 3)])
    mask = torch.tensor([[True] * 3] * 4 + [[False, True, True], [False] * 3])
    output, weights = hard_attention(asked, torch.eye(3), value, mask)
    assert output.tolist() == [[30, 3], [10, 1], [20, 2], [10, 1], [20, 2], [0, 0]]
    assert weights.tolist() == [*torch.eye(3)[[2, 0, 1, 0, 1]].tolist(), [0, 0, 0]]


# --- tiled_attention


def test_tiles_do_not_overflow_with_large_scores():
    query, key, value = qkv(7, 11, 2)
    for scale in (1e3, -1e3):
        inputs = leaves(scale * query, key, value)
        output = tiled_attention(*inputs, tile=3)
        output.sum().backward()
        assert_close(output, F.scaled_dot_product_attention(scale * query, key, value))
        assert all(x.grad.isfinite().all() for x in inputs)


# --- Linear attention


def test_queries_that_would_come_before_every_key_are_refused():
    with pytest.raises(ValueError, match=r"^2 queries would come before every key$"):
        linear_attention(*qkv(5, 3), is_causal=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_long_sums_are_kept_in_float32(dtype):
    # 4,000 keys of features near 20: in float16 their sum would be infinite.
    query, key = (20 + torch.rand(2, 4000, 3)).to(dtype)
    value = torch.rand(4000, 2).to(dtype)
    for is_causal in (False, True):
        output = linear_attention(query, key, value, is_causal=is_causal)
        expected = linear_attention(query.double(), key.double(), value.double(), is_causal=is_causal)
        assert output.dtype == dtype
        assert_close(output.double(), expected, tolerance=torch.finfo(dtype).eps)
    assert recurrent_linear_attention(query[:3], key[:3], value[:3])[1].dtype == torch.float32


# --- Rotary positions


def test_far_positions_keep_their_digits():
    x = torch.randn(1, 14)
    near, far = rotate(x, torch.tensor([3])), rotate(x.double(), torch.tensor([1_000_003]))
    assert_close(rotate(x, torch.tensor([1_000_003])).double(), far, tolerance=1e-6)
    assert not torch.allclose(near.double(), far, atol=0.1)


# --- The modern layer


def test_root_mean_square_in_half_precision_does_not_overflow():
    assert RMSNorm(2)(torch.tensor([1000.0, 1000.0]).half()).tolist() == [1, 1]


def test_heads_of_keys_that_do_not_divide_the_heads():
    with pytest.raises(ValueError, match="4 heads of keys do not divide 6"):
        GroupedQueryAttention(42, 6, 4)


def test_a_modern_model_has_no_old_layers_and_caches_only_shared_heads():
    config = TransformerConfig(17, 19, d_model=24, num_heads=6, d_ff=29)
    model = modern(Transformer(config), num_key_value_heads=2)
    names = {type(part).__name__ for part in model.modules()}
    assert not names & {"MultiHeadAttention", "FeedForward", "LayerNorm", "SinusoidalEncoding"}
    steps = Steps(model, torch.randint(3, 17, (3, 5)))
    steps.next_logits(torch.ones(3, 1, dtype=torch.long))
    assert steps.past[0].k.shape == (3, 2, 1, 4)


# --- The language model


def language_model(seed=0, **changes) -> LanguageModel:
    torch.manual_seed(seed)
    sizes = {"d_model": 24, "num_heads": 4, "d_ff": 20, "num_decoder_layers": 2, "norm_first": True}
    config = TransformerConfig(13, 13, **(sizes | changes))
    return perturb(LanguageModel(config, num_key_value_heads=2)).double()


def greedy_distribution(logits: torch.Tensor) -> torch.Tensor:
    return F.one_hot(logits.argmax(dim=-1), logits.size(-1)).double()


def test_extend_writes_what_the_whole_model_would_choose():
    model, ids = language_model(dropout=0.5), torch.randint(13, (3, 4))
    found = extend(model, ids, lambda logits: logits.argmax(dim=-1), 12)
    assert model.training
    assert torch.equal(found[:, :4], ids)
    assert torch.equal(found[:, 4:], model.eval()(found).argmax(dim=-1)[:, 3:-1])


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_speculation_writes_the_models_own_text_with_any_draft(ahead):
    model, ids = language_model(), torch.randint(13, (1, 3))
    expected = extend(model, ids, lambda logits: logits.argmax(dim=-1), 17)
    for draft in (language_model(seed=1, num_decoder_layers=1), model):
        found = speculate(model, draft, ids, 17, ahead=ahead, distribution=greedy_distribution)
        assert torch.equal(found, expected)


def test_a_draft_that_is_the_model_is_never_corrected():
    model, passes = language_model(), []
    hook = model.layers[0].feed_forward.register_forward_hook(lambda *_: passes.append(1))
    speculate(model, model, torch.randint(13, (1, 3)), 18, ahead=4)
    hook.remove()
    assert len(passes) == 3 * 5  # three rounds: four guesses and one judgement


def test_guesses_are_accepted_so_that_tokens_are_distributed_as_the_model_says():
    torch.manual_seed(0)
    p, q = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]]), torch.tensor([[0.7, 0.2, 0.1]])
    runs = 20_000
    first, second = torch.zeros(3), torch.zeros(3)
    for guess in q[0].multinomial(runs, replacement=True):
        kept, token = accepted(guess[None], p, q)
        first[guess if kept else token] += 1
        if kept:
            second[token] += 1
    assert_close(first / runs, p[0], tolerance=0.02)
    assert abs(second.sum() / runs - torch.minimum(p[0], q[0]).sum()) < 0.02
    assert_close(second / second.sum(), p[1], tolerance=0.02)
