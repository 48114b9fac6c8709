"""Right answers pass, however they are written; wrong ones fail, and get no name that is not their own."""

import copy
import functools
import importlib
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lessons import checks
from transformer_lessons.checks import compare
from transformer_lessons.checks.old.catalogue.attention import low_scores
from transformer_lessons.checks.old.core import Draw
from transformer_lessons.checks.old.guarded import MultiHeadAttention, linear_attention

ATTENTION = "scaled_dot_product_attention"


def right(task: str):
    return checks.task(task).reference


def alternates():
    for task in checks.tasks():
        for candidate in importlib.import_module(f"alternates.{task}").ALTERNATES:
            yield pytest.param(task, candidate, id=f"{task}-{candidate.__name__}")


ALTERNATES = list(alternates())


@pytest.fixture(autouse=True)
def as_users_run_it(no_shape_checks):
    """Learners do not run under the import hook, which would answer in place of the checks."""


def test_the_tasks_are_named_in_the_order_of_the_chapters():
    anchors = [checks.task(name).requirements[0].anchor for name in checks.tasks()]
    assert [anchor[:5] for anchor in anchors] == sorted(anchor[:5] for anchor in anchors)
    assert all(checks.task(name).name == name for name in checks.tasks())


@pytest.mark.parametrize("task", checks.tasks())
def test_the_package_passes(task):
    report = checks.check(task, right(task))
    assert report.passed
    assert report.requirement is report.misconception is report.counterexample is None
    assert all(report.requirements.values())
    assert str(report) == report.message == f"{task}: all requirements are met."
    checks.require(task, right(task))


@pytest.mark.parametrize(("task", "candidate"), ALTERNATES)
def test_a_right_answer_in_other_words_passes(task, candidate):
    for seed in (0, 1):
        report = checks.check(task, candidate, seed=seed)
        assert report.passed, report


@pytest.mark.full
@pytest.mark.parametrize(("task", "candidate"), ALTERNATES)
def test_a_right_answer_in_other_words_passes_on_every_seed(task, candidate):
    for seed in range(2, 100):
        report = checks.check(task, candidate, seed=seed)
        assert report.passed, f"seed {seed}: {report}"


@pytest.mark.parametrize(("task", "seed"), [("tiled_attention", 28), ("transformer", 14)])
def test_no_draw_fails_a_right_answer(task, seed):
    """On these seeds the gradient of a key would be 300 times what its scores are rounded by, and two numbers of
    an embedded token are opposite, so that a norm makes zeros that dropout did not.
    """
    for candidate in importlib.import_module(f"alternates.{task}").ALTERNATES:
        report = checks.check(task, candidate, seed=seed)
        assert report.passed, report


@pytest.mark.full
@pytest.mark.parametrize(("task", "candidate"), ALTERNATES)
def test_rounding_leaves_right_answers_far_from_the_tolerance(task, candidate, monkeypatch):
    """They pass with a third of it, too: of a thousand students with a seed each, none fails by rounding."""
    for dtype, tolerance in compare.TOLERANCE.items():
        monkeypatch.setitem(compare.TOLERANCE, dtype, tolerance / 3)
    for seed in range(100, 120):
        report = checks.check(task, candidate, seed=seed)
        assert report.passed, f"seed {seed}: {report}"


def test_rounding_decides_nothing_at_a_relu():
    """Numbers of two decimals add up to exactly 0 now and then; one right answer's gradient is then another's."""
    for seed in range(200):
        draw = Draw(seed)
        x, W, b = draw.normal(205, 3), draw.normal(101, 3), draw.bias(101)
        for dtype in (torch.float64, torch.float32):
            assert (x.to(dtype) @ W.to(dtype).T + b.to(dtype)).abs().min() > 1e-5


def test_rounding_decides_nothing_between_low_scores():
    """Two scores of some millions are rounded by as much as weights may deviate; if they are equal, it shows."""
    for seed in range(100):
        draw = Draw(seed)
        query, key, _ = low_scores(draw.normal(5, 11, 3), draw.normal(5, 7, 3), draw.normal(5, 7, 2))
        scores = query @ key.mT / 3**0.5
        assert scores.max() < -1e5
        assert scores.sort().values.diff().min() > 1e4


def test_a_lambda_and_a_callable_object_pass():
    class Attention:
        def __call__(self, *args, **kwargs):
            return right(ATTENTION)(*args, **kwargs)

    checks.require(ATTENTION, Attention())
    checks.require(ATTENTION, lambda *args, **kwargs: right(ATTENTION)(*args, **kwargs))


def test_an_unknown_task_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"task: expected one of \[.*'padding_mask'"):
        checks.check("padding", right("padding_mask"))


# --- Wrong in ways that are in no catalogue


def scaled(query, key):
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))


def finish(scores, value, mask, is_causal, dropout):
    if is_causal:
        below = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(scores.size(-1) - scores.size(-2))
        mask = below if mask is None else mask & below
    if mask is not None:
        if mask.dtype is not torch.bool:
            raise ValueError("mask")
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def zeros(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return torch.zeros(*q.shape[:-1], v.size(-1), dtype=q.dtype), torch.zeros_like(q @ k.mT)


def random_numbers(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    weights = torch.rand_like(q @ k.mT).softmax(-1)
    return weights @ v, weights


def cosine(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT, v, mask, is_causal, dropout)


def distance(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(-(q[..., None, :] - k[..., None, :, :]).square().sum(-1), v, mask, is_causal, dropout)


def negative_scores(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(-scaled(q, k), v, mask, is_causal, dropout)


def base_two(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(scaled(q, k) * math.log(2), v, mask, is_causal, dropout)


def clamped_scores(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(scaled(q, k).clamp(-0.5, 0.5), v, mask, is_causal, dropout)


def cube_root(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(q @ k.mT / q.size(-1) ** (1 / 3), v, mask, is_causal, dropout)


def values_reversed(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    return finish(scaled(q, k), v.flip(-2), mask, is_causal, dropout)


def output_doubled(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    output, weights = finish(scaled(q, k), v, mask, is_causal, dropout)
    return 2 * output, weights


def weights_squared(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    output, weights = finish(scaled(q, k), v, mask, is_causal, dropout)
    return output, weights.square()


def positions_added(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    positions = torch.arange(k.size(-2), dtype=k.dtype)
    return finish(scaled(q, k) + positions, v, mask, is_causal, dropout)


def first_key_always_seen(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    if mask is not None:
        mask = mask.clone()
        mask[..., 0] = True
    return finish(scaled(q, k), v, mask, is_causal, dropout)


def sharpened_gradient(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
    """Right values, wrong gradients."""
    q = q + (q - q.detach())
    return finish(scaled(q, k), v, mask, is_causal, dropout)


UNRELATED = [
    zeros,
    random_numbers,
    cosine,
    distance,
    negative_scores,
    base_two,
    clamped_scores,
    cube_root,
    values_reversed,
    output_doubled,
    weights_squared,
    positions_added,
    first_key_always_seen,
    sharpened_gradient,
]


def test_the_scaffold_of_the_wrong_answers_is_right():
    checks.require(
        ATTENTION,
        lambda q, k, v, mask=None, *, is_causal=False, dropout=0.0: finish(
            scaled(q, k), v, mask, is_causal, dropout
        ),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("candidate", UNRELATED)
def test_an_unrelated_wrong_answer_fails_without_a_name(candidate):
    report = checks.check(ATTENTION, candidate)
    assert not report.passed
    assert report.misconception is None
    assert report.also == ()
    assert "Known mistake" not in report.message
    assert report.deviation > 1e-6
    assert report.where in report.message


class Normalised(checks.task("token_embedding").reference):
    """All vectors are equally long."""

    def forward(self, ids):
        return F.normalize(super().forward(ids), dim=-1) * self.weight.size(1) ** 0.5


class Noisy(checks.task("token_embedding").reference):
    """Dropout where none was asked for."""

    def forward(self, ids):
        return F.dropout(super().forward(ids), 0.1)


def refuse(is_wrong):
    if is_wrong:
        raise ValueError


def halved(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2) / 2


class HalvedQueries(MultiHeadAttention):
    def forward(self, query, *others, **options):
        return super().forward(query / 2, *others, **options)


class SummedWeights(MultiHeadAttention):
    def forward(self, *inputs, need_weights=False):
        result = super().forward(*inputs, need_weights=need_weights)
        return (result[0], result[1].sum(-1)) if need_weights else result


def packed(rule):
    """An Add & Norm that follows this rule, whatever is asked of it."""

    class Wrong(torch.nn.Module):
        def __init__(self, d_model, dropout=0.0, norm_first=False):
            super().__init__()
            self.norm = torch.nn.LayerNorm(d_model)

        def forward(self, x, sublayer):
            return rule(x, sublayer, self.norm)

    return Wrong


def rewired(task, forward):
    """The right class with another `forward`."""

    class Wrong(right(task)):
        def __init__(self, settings):
            super().__init__(settings)
            self.size = settings.get("vocab_size")

    Wrong.forward = forward
    return Wrong


def layer(forward):
    """A feed-forward layer that does something else."""

    class Layer(nn.Module):
        def __init__(self, d_model, d_ff, *, activation="relu", dropout=0.0):
            super().__init__()
            self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

        def forward(self, x):
            return forward(x, self.W_1, self.W_2)

    return Layer


def gated(gate):
    """A gated layer with another gate."""

    class Layer(nn.Module):
        def __init__(self, d_model, d_ff, *, dropout=0.0, bias=False):
            super().__init__()
            self.W_1, self.W_3 = (nn.Linear(d_model, d_ff, bias=bias) for _ in range(2))
            self.W_2 = nn.Linear(d_ff, d_model, bias=bias)

        def forward(self, x):
            return self.W_2(gate(self.W_1(x), self.W_3(x)))

    return Layer


def norm(forward, *, bias=True, running=False):
    """A norm that does something else, with the parameters and buffers of the right one."""

    class Norm(nn.Module):
        def __init__(self, d_model, eps=1e-5, momentum=0.1):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d_model))
            self.bias = nn.Parameter(torch.zeros(d_model)) if bias else 0.0
            if running:
                self.register_buffer("running_mean", torch.zeros(d_model))
                self.register_buffer("running_var", torch.ones(d_model))
                self.register_buffer("num_batches_tracked", torch.tensor(0))

        def forward(self, x, *mask):
            return forward(x, *mask) * self.weight + self.bias

    return Norm


def rows_sum_to_one(attention):
    try:
        weights = attention(*torch.ones(3, 2, 5, 3))[1]
        return torch.allclose(weights.sum(-1), weights.new_ones(2, 5))
    except Exception:
        return False


@pytest.mark.sampled(1, by="task")
@pytest.mark.parametrize(
    ("task", "candidate"),
    [
        ("token_embedding", Normalised),
        ("token_embedding", Noisy),
        ("sinusoidal", lambda length, d_model: right("sinusoidal")(length, d_model) / d_model**0.5),
        ("sinusoidal", lambda length, d_model: right("sinusoidal")(length, d_model).tan()),
        ("shift_matrix", lambda k, d_model: torch.eye(d_model)),
        ("shift_matrix", lambda k, d_model: right("shift_matrix")(k + 1, d_model)),
        ("rotary", lambda x, positions: right("rotary")(right("rotary")(x, positions), positions)),
        ("rotary", lambda x, positions: right("rotary")(x, positions.flip(-1))),
        ("rotary", lambda x, positions: torch.cat([right("rotary")(x[..., :2], positions), x[..., 2:]], -1)),
        ("relative_bias", lambda table, q, k=None: right("relative_bias")(table, q, k).softmax(-1)),
        ("relative_bias", lambda table, q, k=None: right("relative_bias")(table.roll(1, 1), q, k)),
        ("relative_bias", lambda table, q, k=None: right("relative_bias")(table.flip(0), q, k)),
        ("padding_mask", lambda ids, pad_id: (ids % 2 == 0)[:, None, None, :]),
        ("padding_mask", lambda ids, pad_id: torch.ones(ids.size(0), 1, 1, ids.size(1), dtype=torch.bool)),
        (
            "padding_mask",
            lambda ids, pad_id: (ids != pad_id)[:1, None, None, :].expand(ids.size(0), 1, 1, -1),
        ),
        ("causal_mask", lambda q, k=None, device=None: torch.ones(1, 1, q, k or q, device=device) > 2),
        ("causal_mask", lambda q, k=None, device=None: torch.rand(1, 1, q, k or q, device=device) > 0.5),
        ("additive_mask", lambda mask, like: torch.where(mask, 1.0, -math.inf).to(like.dtype)),
        ("additive_mask", lambda mask, like: torch.where(mask, 0.0, -100.0).to(like.dtype)),
        ("additive_mask", lambda mask, like: right("additive_mask")(mask, like).softmax(-1)),
        ("combine_masks", lambda *masks: functools.reduce(torch.bitwise_xor, masks)),
        ("combine_masks", lambda *masks: sum(m.long() for m in masks if m is not None) * 2 > len(masks)),
        ("combine_masks", lambda first, second: first & second),
        ("masked_self_attention", lambda x, ids, pad_id: 2 * right("masked_self_attention")(x, ids, pad_id)),
        (
            "masked_self_attention",
            lambda x, ids, pad_id: x.cumsum(2) / torch.arange(1, x.size(2) + 1)[:, None],
        ),
        ("local_window_mask", lambda q, k, w, device=None: torch.zeros(1, 1, q, k, dtype=torch.bool)),
        (
            "local_window_mask",
            lambda q, k, w, device=None: right("causal_mask")(q, k) ^ (torch.arange(k) == w),
        ),
        ("segment_mask", lambda q, k: (q[:, :, None] % 2 == k[:, None] % 2)[:, None]),
        ("segment_mask", lambda q, k: torch.ones(q.size(0), 1, q.size(1), k.size(1), dtype=torch.bool)),
        ("limit_lengths", lambda sentences, m, too_long="refuse": ([ids[::2] for ids in sentences], [])),
        ("limit_lengths", lambda sentences, m, too_long="refuse": (sentences, [])),
        (
            "soft_capped_attention",
            lambda q, k, v, cap, mask=None: finish(scaled(q, k).sin(), v, mask, False, 0.0),
        ),
        ("split_heads", lambda x, h: refuse(x.dim() != 3 or h < 1 or x.size(-1) % h) or halved(x, h)),
        ("split_heads", lambda x, h: refuse(x.dim() != 3 or h < 1 or x.size(-1) % h) or x.chunk(h, -1)),
        ("merge_heads", lambda x: refuse(x.dim() != 4) or x.transpose(1, 2).flatten(-2).roll(1, -1)),
        ("merge_heads", lambda x: refuse(x.dim() != 4) or x.amax(1)),
        ("multi_head", HalvedQueries),
        ("multi_head", SummedWeights),
        ("grouped_query", lambda q, k, v, mask=None: right("grouped_query")(q.roll(1, 1), k, v, mask)),
        ("grouped_query", lambda q, k, v, mask=None: right("grouped_query")(q, k, v.abs(), mask)),
        ("linear_attention", lambda q, k, v, **options: 2 * right("linear_attention")(q, k, v, **options)),
        ("linear_attention", lambda q, k, v, **options: right("linear_attention")(q**2, k, v, **options)),
        (
            "linear_attention_step",
            lambda q, k, v, S=None, z=None, decay=1.0: right("linear_attention_step")(
                q, k, v.abs(), S, z, decay=decay
            ),
        ),
        (
            "linear_attention_step",
            lambda q, k, v, S=None, z=None, decay=1.0: right("linear_attention_step")(
                q, k, v, S, z, decay=refuse(not 0 < decay <= 1) or decay**0.5
            ),
        ),
        ("residual", packed(lambda x, f, norm: norm(x - f(x)))),
        ("residual", packed(lambda x, f, norm: norm(x + f(x)) / 2)),
        ("residual", packed(lambda x, f, norm: norm(norm(x) + f(x)))),
        ("encoder_layer", rewired("encoder_layer", lambda layer, x, *_: layer.self_attention(x))),
        (
            "encoder_layer",
            rewired("encoder_layer", lambda layer, x, *_: layer.feed_forward(x + layer.self_attention(x))),
        ),
        (
            "decoder_layer",
            rewired("decoder_layer", lambda layer, x, memory, *_: x + memory.mean(1, keepdim=True)),
        ),
        (
            "decoder_layer",
            rewired("decoder_layer", lambda layer, x, memory, *_: layer.cross_attention(x, memory) / 2),
        ),
        ("decoder_layer_step", lambda w, h, x, k, v, *_: (x, torch.cat([k, k[:, :, :1]], 2), v)),
        (
            "decoder_layer_step",
            lambda w, h, x, k, v, *_: (x * 2, *(F.pad(t, (0, 0, 0, x.size(1))) for t in (k, v))),
        ),
        ("parameter_count", lambda V, d, d_ff, N, h, d_k, **_: V * d + N * (12 * d * d + d_ff)),
        ("parameter_count", lambda *sizes, **_: sum(sizes)),
        ("parameter_count", lambda V, d, d_ff, N, h, d_k, **_: float(V * d)),
        (
            "transformer",
            rewired(
                "transformer", lambda model, src, tgt: model.embedding(tgt[:, :-1]) @ model.embedding.weight.T
            ),
        ),
        (
            "transformer",
            rewired(
                "transformer", lambda model, src, tgt: torch.zeros(len(tgt), tgt.size(1) - 1, model.size)
            ),
        ),
        ("feed_forward", layer(lambda x, W_1, W_2, *_: W_2(F.leaky_relu(W_1(x))))),
        ("feed_forward", layer(lambda x, W_1, W_2, *_: W_2(W_1(x).softmax(-1)))),
        ("swiglu", gated(lambda score, gate: score.tanh() * gate)),
        ("swiglu", gated(lambda score, gate: F.silu(score) * (1 - gate))),
        ("layer_norm", norm(lambda x, *_: x / x.abs().amax(-1, keepdim=True))),
        ("rms_norm", norm(lambda x, *_: x / x.abs().amax(-1, keepdim=True), bias=False)),
        ("rms_norm", norm(lambda x, *_: x.softmax(-1), bias=False)),
        ("batch_norm", norm(lambda x, *_: (x - x.mean()) / x.std(), running=True)),
        ("batch_norm", norm(lambda x, *_: x - x.flatten(0, -2).median(0).values, running=True)),
        ("masked_batch_norm", norm(lambda x, mask: x * mask[..., None], running=True)),
        ("masked_batch_norm", norm(lambda x, mask: (x - x[mask].mean()) / x[mask].std(), running=True)),
        ("teacher_forcing", lambda y, *ids: [t.T for t in right("teacher_forcing")(y, *ids)]),
        ("teacher_forcing", lambda y, *ids: right("teacher_forcing")([row[::-1] for row in y], *ids)),
        ("teacher_forcing", lambda y, bos, eos, pad: right("teacher_forcing")(y, bos, eos, pad)[0]),
        ("warmup", lambda step, d, w: right("warmup")(step, d, w) / 2),
        ("warmup", lambda step, d, w: round(right("warmup")(step, d, w), 4)),
        ("warmup", lambda step, d, w: (d * w) ** -0.5 * math.cos(step / w)),
        ("label_smoothing", lambda x, y, **o: (right("label_smoothing")(x, y, **o)[0], y.size(0))),
        ("label_smoothing", lambda x, y, **o: right("label_smoothing")(x / 2, y, **o)),
        ("label_smoothing", lambda x, y, **o: (x.softmax(-1).square().sum(), (y != o["pad_id"]).sum())),
        (
            "accumulated_gradients",
            lambda m, b, n, **o: right("accumulated_gradients")(copy.deepcopy(m), b, n, **o),
        ),
        ("accumulated_gradients", lambda m, b, n, **o: right("accumulated_gradients")(m, b[::-1], n, **o)),
        ("accumulated_gradients", lambda m, b, n, **o: right("accumulated_gradients")(m, b, n, **o) and None),
        ("adam_step", lambda p, g, m, v, step, *, rate, **_: (p - rate * g, m, v)),
        ("adam_step", lambda p, g, m, v, *args, **o: right("adam_step")(p * 0.99, g, m, v, *args, **o)),
        ("adam_step", lambda p, g, m, v, *args, **o: right("adam_step")(p, g.tanh(), m, v, *args, **o)),
        ("average_checkpoints", lambda states: right("average_checkpoints")([*states, states[-1]])),
        ("average_checkpoints", lambda states: list(right("average_checkpoints")(states).values())),
        ("average_checkpoints", lambda states: {n: t.abs() for n, t in states[-1].items()}),
        ("greedy", lambda model, src, *, max_length: src[:, :max_length]),
        ("greedy", lambda model, src, *, max_length: right("greedy")(model, src, max_length=1)),
        (
            "greedy",
            lambda model, src, *, max_length: right("greedy")(model, src.flip(0), max_length=max_length),
        ),
        (
            "cached_attention_step",
            lambda q, k, v, *past: (v, *(torch.cat(p, -2) for p in zip(past, (k, v), strict=False))),
        ),
        (
            "cached_attention_step",
            lambda q, k, v, keys, values, window=None: right("cached_attention_step")(
                q.abs(), k, v, keys, values, window
            ),
        ),
        ("length_penalty", lambda log_p, length, alpha: log_p / (1 + alpha * torch.as_tensor(length))),
        ("length_penalty", lambda log_p, length, alpha: log_p * torch.as_tensor(length) ** 0.5),
        ("beam", lambda model, src, **options: src[:, :4]),
        ("beam", lambda model, src, **options: right("beam")(model, src, **{**options, "beam_size": 5})),
        ("top_k", lambda logits, k: logits.softmax(-1)),
        ("top_k", lambda logits, k: right("top_k")(logits / 2, k)),
        ("nucleus", lambda logits, p: right("nucleus")(logits, p**2)),
        ("nucleus", lambda logits, p: right("top_k")(logits, 2)),
        ("scaled_step", lambda w, g, *rest: right("scaled_step")(w, [x.sign() for x in g], *rest)),
        ("scaled_step", lambda w, g, s, n, rate, *rest: right("scaled_step")(w, g, s, n, 2 * rate, *rest)),
        ("scaled_step", lambda w, g, *rest: right("scaled_step")(w, g, *rest)[0]),
        ("fused_attention", lambda q, k, v, mask=None, **o: right("fused_attention")(-q, k, v, mask, **o)),
        (
            "fused_attention",
            lambda q, k, v, mask=None, **o: (
                right("fused_attention")(q, k, v, mask, **o) + 0 * (q @ k.mT).sum()
            ),
        ),
        ("accumulated_step", lambda m, x, y, parts, r: right("accumulated_step")(m, x, y, parts, r * parts)),
        ("accumulated_step", lambda m, x, y, parts, r: 2 * right("accumulated_step")(m, x, y, parts, r)),
        ("tiled_attention", lambda q, k, v, block: right("tiled_attention")(q, k, v.flip(-2), block)),
        ("tiled_attention", lambda q, k, v, block: right("tiled_attention")(2 * q - q.detach(), k, v, block)),
        (
            "checkpointed_feed_forward",
            lambda x, *rest: x + right("checkpointed_feed_forward")(x, *rest),
        ),
        (
            "checkpointed_feed_forward",
            lambda x, *rest: right("checkpointed_feed_forward")(x.flip(-2), *rest),
        ),
        ("chunked_cross_entropy", lambda x, w, *rest: right("chunked_cross_entropy")(x / 2, w, *rest)),
        (
            "chunked_cross_entropy",
            lambda x, w, *rest: right("chunked_cross_entropy")(x, w, *rest) / math.log(2),
        ),
        ("influence", lambda model, x: torch.ones(len(x), len(x)).tril().bool()),
        ("influence", lambda model, x: right("influence")(model, x).any(dim=0).expand(len(x), -1)),
        ("attention_test", lambda attention: torch.tensor(True)),
        ("attention_test", rows_sum_to_one),
        ("bleu", lambda candidates, references: 50.0),
        ("bleu", lambda candidates, references: right("bleu")(candidates, references) ** 0.9),
        ("bleu", lambda candidates, references: right("bleu")([c[1:] for c in candidates], references)),
    ],
)
def test_unrelated_wrong_answers_to_other_tasks_fail_without_a_name(task, candidate):
    report = checks.check(task, candidate)
    assert not report.passed
    assert report.misconception is None


def test_a_mistake_after_all_that_is_essential_has_no_name():
    def tripled_with_dropout(q, k, v, mask=None, *, is_causal=False, dropout=0.0):
        output, weights = right(ATTENTION)(q, k, v, mask, is_causal=is_causal)
        return (3 * output if dropout else output), weights

    report = checks.check(ATTENTION, tripled_with_dropout)
    assert (report.requirement, report.misconception) == ("dropout", None)


def test_zeros_earn_nothing():
    assert not any(
        met for name, met in checks.check(ATTENTION, zeros).requirements.items() if name != "returns"
    )


# --- Answers that do not behave


def raises(q, k, v, mask=None, **_):
    raise KeyError("scores")


def not_yet(q, k, v, mask=None, **_):
    raise NotImplementedError


def nested(x, layout=torch.strided):
    return torch.nested.nested_tensor([row.detach() for row in x], layout=layout)


def quantized(x):
    return torch.quantize_per_tensor(x.detach().float(), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        (raises, "it raised KeyError: 'scores' in the line `raise KeyError(\"scores\")`."),
        (not_yet, "there is no answer yet: `scaled_dot_product_attention` raises NotImplementedError."),
        (None, "`scaled_dot_product_attention` should be a function, but is None."),
        (3, "`scaled_dot_product_attention` should be a function, but is of type int."),
        (lambda *_, **__: None, "returned None (is a `return` missing?)."),
        (lambda *_, **__: (1, 2, 3), "returned 3 values."),
        (lambda *_, **__: "abc", "returned a single str."),
        (lambda q, k, v, *_, **__: q @ k.mT, "returned a single Tensor."),
        (lambda *a, **k: list(right(ATTENTION)(*a, **k)), "returned a list of 2 values."),
        (lambda *a, **k: (*right(ATTENTION)(*a, **k), 1), "returned 3 values."),
        (lambda q, k, v, *_, **__: (q, 0.5), "output should have shape"),
        (lambda q, k, v, *_, **__: (np.zeros(3), q), "but is a numpy.ndarray."),
        (lambda q, k, v, *_, **__: (q.to("meta"), q), "on meta."),
        (lambda q, k, v, *_, **__: (q.to_sparse(), q), "but is a sparse_coo float64 tensor"),
        (lambda q, k, v, *_, **__: (nested(q), q), "but is a nested float64 tensor on cpu."),
        (lambda q, k, v, *_, **__: (nested(q, torch.jagged), q), "but is a nested float64 tensor on cpu."),
        (lambda q, k, v, *_, **__: (quantized(q), q), "but is a quantized qint8 tensor"),
        (lambda q, k, v, *_, **__: (v.new_zeros(1, dtype=torch.complex64), q), "complex"),
        (lambda q, k: (q, k), "it raised TypeError"),
        (lambda: None, "It is called as scaled_dot_product_attention(query, key, value, mask=None,"),
        (lambda *_, **__: sys.exit(1), "it raised SystemExit"),
        (lambda *_, **__: raises(*[1] * 3, **{"x": 1 / 0}), "it raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_was_expected_is_said_in_a_sentence(candidate, sentence):
    report = checks.check(ATTENTION, candidate)
    assert not report.passed
    assert sentence in " ".join(report.message.split())
    assert "Traceback" not in report.message
    assert report.requirement == "returns"


def test_a_function_without_mask_is_told_how_it_is_called():
    def three_arguments(query, key, value):
        weights = scaled(query, key).softmax(-1)
        return weights @ value, weights

    report = checks.check(ATTENTION, three_arguments)
    assert report.requirement == "mask"
    assert "takes 3 positional arguments but 4 were given" in " ".join(report.message.split())


def test_missing_keywords_are_found_after_the_core_call():
    def plain(query, key, value, mask=None):
        return finish(scaled(query, key), value, mask, False, 0.0)

    report = checks.check(ATTENTION, plain)
    assert report.requirement == "causal"
    assert (report.misconception, *report.also) == ("causal_keyword_missing", "dropout_keyword_missing")
    assert "your function does not take is_causal" in report.message


def test_both_missing_keywords_of_the_fused_call_are_found_too():
    def plain(query, key, value, mask=None):
        return right("fused_attention")(query, key, value, mask)

    report = checks.check("fused_attention", plain)
    assert (report.misconception, *report.also) == ("causal_keyword_missing", "dropout_keyword_missing")


def test_one_mistake_made_in_two_ways_is_named_once():
    def scaled_on_both_sides(query, key, value, **options):
        width = query.size(-1) ** 0.5
        return linear_attention(query / width, key / width, value, **options)

    report = checks.check("linear_attention", scaled_on_both_sides)
    assert (report.misconception, report.also) == ("scaled", ())


def test_a_recursive_result_is_described():
    endless = []
    endless.append(endless)
    assert not checks.check(ATTENTION, lambda *_, **__: endless).passed


def test_a_sparse_gradient_is_a_gradient():
    class Sparse(checks.task("token_embedding").reference):
        def forward(self, ids):
            dense = super().forward(ids).detach()  # it refuses what is to be refused
            found = torch.nn.functional.embedding(ids, self.weight, sparse=True) * self.weight.size(1) ** 0.5
            assert torch.equal(found, dense)
            return found

    assert checks.check("token_embedding", Sparse).passed


def test_a_refusal_by_assert_has_its_own_name():
    def asserting(ids, pad_id):
        try:
            return right("padding_mask")(ids, pad_id)
        except ValueError as error:
            raise AssertionError(error) from None

    report = checks.check("padding_mask", asserting)
    assert (report.misconception, report.also) == ("refused_by_assert", ())
    assert [name for name, met in report.requirements.items() if not met] == ["refusals"]


def test_a_notebooks_default_dtype_does_not_matter():
    before = torch.get_default_dtype()

    def setting(length, d_model):
        table = right("sinusoidal")(length, d_model)
        torch.set_default_dtype(torch.float16)
        return table

    try:
        torch.set_default_dtype(torch.float64)
        assert checks.check("sinusoidal", setting).passed
        assert checks.check("multi_head", checks.task("multi_head").reference).passed
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_the_order_of_arguments_is_not_blamed_where_it_does_not_matter():
    def not_of_one(*masks):
        return right("combine_masks")(*masks) if len(masks) > 1 else None

    report = checks.check("combine_masks", not_of_one)
    assert not report.passed
    assert report.misconception != "argument_order"


def test_a_tensor_on_the_wrong_device_is_said_to_be_there():
    message = checks.check(
        "causal_mask", lambda q, k=None, *, device=None: right("causal_mask")(q, k)
    ).message
    assert "on meta, but is a bool tensor" in " ".join(message.split())


def test_a_refusal_may_be_of_a_class_of_its_own():
    class IdsError(ValueError):
        pass

    def refusing(ids, pad_id):
        try:
            return right("padding_mask")(ids, pad_id)
        except ValueError as error:
            raise IdsError(str(error)) from None

    assert checks.check("padding_mask", refusing).passed


def test_an_unreadable_exception_is_survived():
    class UnreadableError(Exception):
        def __str__(self):
            raise RuntimeError

    def candidate(*_, **__):
        raise UnreadableError

    assert "UnreadableError" in checks.check(ATTENTION, candidate).message


def test_the_learners_code_leaves_no_trace(capfd):
    state = torch.get_rng_state()

    def noisy(*args, **kwargs):
        print("hello")
        print("hello", file=sys.stderr)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        return right(ATTENTION)(*args, **kwargs)

    report = checks.check(ATTENTION, noisy)
    assert not report.passed
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")


def test_a_check_takes_one_thread_and_gives_the_others_back():
    seen, before = [], torch.get_num_threads()

    def candidate(ids, pad_id):
        seen.append(torch.get_num_threads())
        return right("padding_mask")(ids, pad_id)

    torch.set_num_threads(2)
    try:
        checks.require("padding_mask", candidate)
        with pytest.raises(ValueError, match="task: expected"):
            checks.check("nothing", candidate)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_importing_the_checks_stays_light():
    code = (
        "import sys, transformer_lessons.checks as c;"
        f"c.check({ATTENTION!r}, lambda q, k, v: (q, k));"
        f"c.check('{ATTENTION}', lambda q, k, v: (q, k));"
        "print([m for m in ('matplotlib', 'sympy', 'IPython', 'nbgrader') if m in sys.modules],"
        "*sorted({m.split('.')[1] for m in sys.modules if m.startswith('transformer_lessons.')}), sep='|')"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]|checks"
