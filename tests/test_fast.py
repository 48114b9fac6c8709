"""The fast parts compute what the canon does: values, gradients, tokens; only dropout draws other numbers."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close, assert_same_function
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from tests import models
from tests.models import new_model, sentences, side_by_side
from transformer_lessons import decoding
from transformer_lessons.attention import MultiHeadAttention, scaled_dot_product_attention
from transformer_lessons.data.batches import Batch, make_batch
from transformer_lessons.fast import accelerate, kernels, losses, plain, products
from transformer_lessons.fast.compiled import compile_decoding, step_path
from transformer_lessons.fast.cpu_steps import CPUSteps
from transformer_lessons.fast.decoding import beam, fastest_steps, greedy
from transformer_lessons.fast.decoding_steps import Steps
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.fast.int8 import Int8Linear, quantize
from transformer_lessons.fast.kernels import FusedMultiHeadAttention, fused_attention
from transformer_lessons.fast.losses import batch_loss, projected_loss
from transformer_lessons.fast.recompute import recompute
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.variants import rotary_attention

CHOICES = [{}, {"norm_first": True, "position": "learned", "activation": "gelu"}]
CHANGES = pytest.mark.parametrize("changes", CHOICES, ids=["post-norm", "pre-norm"])
# Lengths of the two sides, the target's with its BOS or EOS.
SIZES = [(7, 5), (3, 11), (5, 2), (13, 3), (2, 13), (11, 7), (1, 1), (4, 9)]


def some_pairs() -> list[tuple[list[int], list[int]]]:
    return [(torch.randint(3, 17, (s,)).tolist(), torch.randint(3, 19, (t - 1,)).tolist()) for s, t in SIZES]


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [parameter.grad for parameter in model.parameters()]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float | None = None):
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, tolerance=tolerance)


# --- Kernels


@CHANGES
def test_an_accelerated_model_is_the_same_function(changes):
    model, batch = new_model(**changes), make_batch(some_pairs())
    faster = accelerate(copy.deepcopy(model))
    assert {type(m) for m in faster.modules()} & {MultiHeadAttention, nn.Dropout} == set()
    assert faster.state_dict().keys() == model.state_dict().keys()
    expected = model(batch.src, batch.tgt_in)
    logits = faster(batch.src, batch.tgt_in)
    assert_close(logits, expected)
    cotangent = torch.randn_like(logits)
    assert_same(gradients(faster, (logits * cotangent).sum()), gradients(model, (expected * cotangent).sum()))


def test_accelerate_and_plain_undo_each_other():
    model = new_model(dropout=0.1)
    classes = [type(m) for m in model.modules()]
    assert accelerate(accelerate(model)) is model
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # it makes a new plan for every shape
    assert [type(m) for m in plain(plain(model)).modules()] == classes


def test_a_copy_is_as_fast_and_independent():
    model, batch = recompute(accelerate(new_model())), make_batch(some_pairs())
    other = pickle.loads(pickle.dumps(model))
    assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
    before = batch_loss(other, batch, 0.1)[0]
    assert_close(before, batch_loss(model, batch, 0.1)[0])
    with torch.no_grad():
        model.encoder_layers[0].feed_forward.W_1.weight.zero_()
    assert torch.equal(batch_loss(other, batch, 0.1)[0], before)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(11,), (7, 11), (2, 3, 7, 1)], ids=str)
def test_fused_attention_takes_every_mask_that_broadcasts(shape, is_causal):
    q, k, v = (torch.randn(2, 3, length, 5, dtype=torch.float64) for length in (7, 11, 11))
    options = {"mask": torch.rand(shape) < 0.5, "is_causal": is_causal}
    assert_same_function(
        lambda *x: fused_attention(*x, **options)[0],
        lambda *x: scaled_dot_product_attention(*x, **options)[0],
        *(q, k, v),
    )


def test_causal_attention_is_the_same_with_a_mask_as_by_the_flag(monkeypatch):
    monkeypatch.setattr(kernels, "SHORT", {"cpu": 7})
    assert_same_function(
        lambda *x: fused_attention(*x, is_causal=True)[0],
        lambda *x: scaled_dot_product_attention(*x, is_causal=True)[0],
        *(torch.randn(2, 3, 7, 5, dtype=torch.float64) for _ in range(3)),
    )


def test_values_that_are_given_without_keys_are_used():
    attention, (x, v) = MultiHeadAttention(15, 3).double(), torch.randn(2, 2, 11, 15, dtype=torch.float64)
    expected = attention(x, value=v)
    assert_close(accelerate(attention)(x, value=v), expected)


@pytest.fixture
def by_onednn(monkeypatch):
    """Compute every product that can be by oneDNN, as large ones on some processors; return the calls."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    calls, multiply = [], products.by_onednn
    monkeypatch.setattr(products, "MKL_IS_SLOW", True)
    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(products, "by_onednn", lambda *x: calls.append(x) or multiply(*x))
    return calls


@pytest.mark.parametrize("width", [5, 13])
@pytest.mark.parametrize("shape", [(7, 11), (2, 3, 11)], ids=str)
def test_products_by_onednn(by_onednn, shape, width):
    x, weight, bias = torch.randn(shape[::-1]).mT.reshape(shape), torch.randn(width, 11), torch.randn(width)
    assert_same_function(products.linear, F.linear, x, weight, bias)
    assert len(by_onednn) == 3, "one product forwards, one for each of two gradients"
    vector, wide = torch.randn(11), torch.randn(7, 11, dtype=torch.float64)
    for one in (vector, wide):
        assert_close(products.linear(one, weight.to(one.dtype)), F.linear(one, weight.to(one.dtype)))
    with torch.autocast("cpu", torch.bfloat16):
        assert products.linear(x, weight).dtype == torch.bfloat16
    with FakeTensorMode() as mode:  # the page about costs counts PyTorch's bytes, on every machine
        products.linear(mode.from_tensor(x), mode.from_tensor(weight))
    torch.compile(products.linear, backend="eager")(x, weight)  # inductor would fail
    assert len(by_onednn) == 3, "vectors, other dtypes, autocast, fake tensors and compilers: left to PyTorch"


@CHANGES
def test_a_training_step_by_onednn(by_onednn, changes):
    model, batch = new_model(torch.float32, **changes), make_batch(some_pairs())
    exact = copy.deepcopy(model).double()
    loss, *_ = batch_loss(accelerate(model), batch, 0.1)
    expected, _ = label_smoothed_loss(exact(batch.src, batch.tgt_in), batch.tgt_out, pad_id=0)
    assert by_onednn
    assert_close(loss.double(), expected, tolerance=1e-5)
    theirs = gradients(exact, expected)
    assert_same([one.double() for one in gradients(model, loss)], theirs, tolerance=1e-5)


class Adapter(nn.Linear):
    """Like adapters: it has the weight of the layer that it replaces, and adds something."""

    def forward(self, x):
        return super().forward(x) + x.cos()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: setattr(a, "W_v", Adapter(15, 15).double()),
        lambda a: setattr(a, "W_v", nn.Linear(15, 15, bias=False).double()),
        lambda a: a.W_v.register_forward_hook(lambda module, given, output: output.cos()),
        lambda a: setattr(a, "attention", lambda q, k, v, mask, *, is_causal: (q + k + v.cos(), None)),
    ],
    ids=["adapter", "no bias", "hook", "attention"],
)
def test_replaced_layers_hooks_and_attention_functions_are_used(change):
    attention, x = FusedMultiHeadAttention(15, 3).double(), torch.randn(2, 11, 15, dtype=torch.float64)
    before = attention(x)
    change(attention)
    after = attention(x)
    assert not torch.allclose(after, before)
    assert_close(after, plain(attention)(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_accelerated_model_is_as_precise_under_autocast(dtype):
    """Within twice the canon's own distance from float64."""
    model, batch = new_model(torch.float32), make_batch(some_pairs())
    exact = copy.deepcopy(model).double()(batch.src, batch.tgt_in)
    with torch.autocast("cpu", dtype):
        canon = model(batch.src, batch.tgt_in)
        faster = accelerate(model)(batch.src, batch.tgt_in)
    assert canon.dtype == faster.dtype == dtype
    assert (faster - exact).norm() <= 2 * (canon - exact).norm()


# --- Dropout

COUNT = 4 * 104_729  # a prime number of draws


def within(rate: float, count: int) -> float:
    """Five standard deviations of an event's frequency, exceeded once in two million times."""
    return 5 * math.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.999])
def test_the_four_numbers_of_a_draw_are_independent(p):
    dropped = Dropout(p)(torch.ones(COUNT)).eq(0).double().view(-1, 4)
    tolerance = within(p, len(dropped))
    assert dropped.mean(0).tolist() == pytest.approx([p] * 4, abs=tolerance)
    together = dropped.T @ dropped / len(dropped)  # how often two of them are dropped at once
    expected = torch.full((4, 4), p * p, dtype=torch.float64).fill_diagonal_(p)
    assert (together - expected).abs().max() <= tolerance
    assert (dropped[1:, 0] * dropped[:-1, 3]).mean().item() == pytest.approx(p * p, abs=tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_left_and_its_gradient_are_scaled_as_by_torch(dtype):
    x = torch.randn(7, 101, dtype=dtype, requires_grad=True)
    ours, theirs = Dropout(0.25)(x), F.dropout(x, 0.25)
    both = (ours != 0) & (theirs != 0)
    assert torch.equal(ours[both], theirs[both])
    (gradient,) = torch.autograd.grad(ours.sum(), x)
    assert torch.equal(gradient, (ours != 0) * torch.tensor(1 / 0.75, dtype=dtype))


def test_dropout_acts_only_in_training_and_works_on_other_devices():
    x = torch.randn(7, 101)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), 0 * x)
    assert Dropout(0.5)(torch.ones(7, 101, device="meta")).device.type == "meta"


# --- The loss in parts


def canonical_loss(model: Transformer, batch: Batch) -> tuple[Tensor, int, int]:
    logits, real = model(batch.src, batch.tgt_in), batch.tgt_out != 0
    loss, tokens = label_smoothed_loss(logits, batch.tgt_out, pad_id=0)
    return loss, tokens, ((logits.argmax(-1) == batch.tgt_out) & real).sum()


def adapted(model: Transformer):
    model.output = nn.Sequential(model.output, nn.Tanh())


@pytest.fixture
def parts(monkeypatch) -> list[int]:
    """The number of tokens projected in parts, for each call."""
    seen = []
    monkeypatch.setattr(losses, "CPU_ROWS", 7)  # 51 tokens are no multiple of it
    monkeypatch.setattr(
        losses, "projected_loss", lambda x, *y, **z: seen.append(len(x)) or projected_loss(x, *y, **z)
    )
    return seen


@pytest.mark.parametrize(
    ("change", "in_parts"),
    [
        (lambda model: None, True),
        (adapted, False),
        (lambda model: setattr(model, "output", nn.Linear(15, 19).double()), False),
        (lambda model: model.output.register_forward_hook(lambda module, given, y: y.tanh()) and None, False),
    ],
    ids=["as it is", "adapter", "bias", "hook"],
)
def test_batch_loss_is_the_canons(change, in_parts, parts):
    model, batch = new_model(), make_batch(some_pairs())
    change(model)
    ours, theirs = batch_loss(model, batch, 0.1), canonical_loss(model, batch)
    assert_close(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]
    assert_same(gradients(model, ours[0]), gradients(model, theirs[0]))
    assert parts == [51] * in_parts


@pytest.mark.parametrize(("dtype", "in_parts"), [(torch.bfloat16, True), (torch.float16, False)])
def test_batch_loss_under_autocast(dtype, in_parts, parts):
    """In float16 all logits at once: the gradient waits for the scaled loss, without which it would be zero."""
    model, batch = new_model(torch.float32), make_batch(some_pairs())
    with torch.autocast("cpu", dtype):
        ours, theirs = batch_loss(model, batch, 0.1)[0], canonical_loss(model, batch)[0]
    assert parts == [51] * in_parts
    assert ours.item() == pytest.approx(theirs.item(), rel=0.01)
    one, other = (torch.cat([g.flatten() for g in gradients(model, loss)]) for loss in (ours, theirs))
    assert (one - other).norm() <= 0.02 * other.norm()


def vectors(tokens: int = 17, dtype=torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors to project, a projection, and targets."""
    hidden, weight = torch.randn(tokens, 7, dtype=dtype), torch.randn(11, 7, dtype=dtype)
    return hidden, weight, torch.randint(1, 11, (tokens,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("pad_id", [0, 4])
@pytest.mark.parametrize("part", [5, 17, 256])  # four parts, one, and less than one
def test_projected_in_parts_it_is_the_same_loss(dtype, smoothing, pad_id, part, monkeypatch):
    monkeypatch.setattr(losses, "CPU_ROWS", part)
    hidden, weight, targets = vectors(dtype=dtype)
    targets[targets == pad_id] = 3
    options = {"pad_id": pad_id, "smoothing": smoothing}
    assert_same_function(
        lambda x, w: projected_loss(x, w, targets, **options)[0],
        lambda x, w: label_smoothed_loss(x @ w.T, targets, **options)[0],
        *(hidden, weight),
    )


def test_gradients_are_computed_only_if_one_is_needed():
    hidden, weight, targets = vectors()
    products = []
    for asks in ((False, False), (True, False), (False, True), (True, True), None):
        for x, is_asked in zip((hidden, weight), asks or (True, True), strict=True):
            x.requires_grad_(is_asked)
        with torch.set_grad_enabled(asks is not None), FlopCounterMode(display=False) as counter:
            loss = projected_loss(hidden, weight, targets, pad_id=0)[0]
        products.append(counter.get_total_flops() / (2 * 17 * 7 * 11))
        assert loss.requires_grad == any(asks or ())
    assert products == [1, 3, 3, 3, 1]


def test_in_bfloat16_parts_are_summed_in_float32(monkeypatch):
    monkeypatch.setattr(losses, "CPU_ROWS", 2)
    hidden, weight, targets = vectors(1031, torch.bfloat16)
    loss, _ = projected_loss(hidden.requires_grad_(), weight.requires_grad_(), targets, pad_id=0)
    loss.backward()
    wide = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    expected, _ = label_smoothed_loss(wide[0] @ wide[1].T, targets, pad_id=0)
    expected.backward()
    assert (loss.dtype, hidden.grad.dtype, weight.grad.dtype) == (torch.float32, *[torch.bfloat16] * 2)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-3)  # summed in bfloat16: off by a tenth
    for ours, theirs in ((hidden, wide[0]), (weight, wide[1])):
        assert (ours.grad - theirs.grad).norm() <= 2**-7 * theirs.grad.norm()


# --- Recomputing


@pytest.mark.parametrize("is_autocast", [False, True])
def test_recomputed_gradients_are_the_same_bits(is_autocast):
    """Also with dropout: the same entries are dropped again, or gradients would be of another function."""
    model, batch, found = accelerate(new_model(torch.float32, dropout=0.3)), make_batch(some_pairs()), []
    for change in (lambda model: model, recompute, recompute):
        change(model)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            loss = batch_loss(model, batch, 0.1)[0]
        found.append([loss.detach(), *(g.clone() for g in gradients(model, loss))])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


# --- Decoding


def talkative(seed: int) -> tuple[Transformer, Tensor]:
    """A model whose sentences differ and end, and sources to translate."""
    return models.talkative(seed, norm_first=True), sentences([11, 7, 5, 3, 2, 1, 11, 4, 4, 8, 6])


@pytest.mark.parametrize("seed", [7, 11])
def test_fast_decoding_gives_the_canons_tokens(seed):
    model, src = talkative(seed)
    settings = [
        {"beam_size": beams, "length_penalty": alpha, "max_length": 13}
        for beams, alpha in ((1, 0.6), (2, 0.0), (5, 1.3))
    ]
    expected = decoding.greedy(model, src, max_length=13)
    assert len({(row != 0).sum().item() for row in expected}) > 2
    beams = [decoding.beam(model, src, **options) for options in settings]
    for change in (lambda model: model, accelerate, recompute):
        model = change(talkative(seed)[0])
        assert torch.equal(greedy(model, src, max_length=13), expected)
        for options, found in zip(settings, beams, strict=True):
            assert torch.equal(beam(model, src, **options), found)
        assert model.training


def test_nothing_to_translate():
    model, src = talkative(0)
    assert greedy(model, src[:0], max_length=3).shape == beam(model, src[:0], max_length=3).shape == (0, 0)


def test_finished_sentences_are_removed_when_they_are_half_of_all(monkeypatch):
    seen, next_logits = [], Steps.next_logits
    watched = lambda self, token: seen.append(len(token)) or next_logits(self, token)  # noqa: E731
    monkeypatch.setattr(Steps, "next_logits", watched)
    model, src = talkative(7)
    is_end = (greedy(model, src, max_length=13) == 2).tolist()
    rows, expected = range(11), []
    for step in range(len(is_end[0])):
        expected.append(len(rows))
        alive = [row for row in rows if not any(is_end[row][: step + 1])]
        rows = alive if 2 * len(alive) <= len(rows) else rows
    assert seen == expected
    assert len(set(seen)) > 1


@CHANGES
@pytest.mark.parametrize(("sentences", "copies"), [(1, 1), (1, 2), (3, 2), (11, 1), (11, 2)])
@pytest.mark.parametrize("weights", [accelerate, quantize], ids=["float32", "int8"])
def test_steps_on_a_cpu_give_the_same_logits(sentences, copies, changes, weights):
    model = accelerate(new_model(**changes, max_length=19)).float().eval()
    model.output = nn.Linear(model.config.d_model, 21, bias=False)  # an odd number of rows
    weights(model)
    src = talkative(7)[1][:sentences]
    with torch.no_grad():
        both = Steps(model, src, copies), fastest_steps(model, src, copies)
        assert type(both[1]) is CPUSteps
        for expected, ours in side_by_side(*both, 18, keep=(3, 4), drop=[5]):  # beyond a cache's capacity
            assert_close(ours, expected, tolerance=1e-5)


def test_a_sentence_alone_has_its_own_compiled_step_unless_that_for_several_is_there():
    model, src = compile_decoding(new_model(torch.float32)), torch.tensor([[3, 4]])
    assert [fastest_steps(model, given).is_one for given in (src, src.expand(2, -1))] == [True, False]
    model.compiled_steps[False] = None
    assert not fastest_steps(model, src).is_one


def test_a_compiled_step_is_found_by_all_that_it_depends_on(monkeypatch):
    first, again, other = (new_model(torch.float32, activation=name) for name in ("gelu", "gelu", "relu"))
    for model in (again, other):
        model.load_state_dict(first.state_dict())
    found = [step_path(first, True), step_path(first, False), step_path(other, True)]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 97)  # their number is part of the code
    found.append(step_path(first, True))
    monkeypatch.undo()
    assert step_path(again, True) == found[0]
    again.output.weight.data[1, 1] += 1
    assert len({*found, step_path(again, True)}) == 5


@pytest.mark.parametrize("bias", [True, False])
def test_int8_rounds_each_row_of_weights_and_each_vector_by_itself(bias):
    linear, x = nn.Linear(13, 5, bias=bias), torch.randn(2, 3, 13) * torch.tensor([1e-3, 1.0, 1e3])[:, None]
    x[1, 1] = 0.0
    expected = linear(x)

    def levels(vectors: Tensor) -> Tensor:
        size = vectors.detach().double().abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
        return (vectors.double() / size).round() * size

    by_hand = levels(x) @ levels(linear.weight).T + (linear.bias.double() if bias else 0.0)
    rounded = quantize(nn.Sequential(linear))
    assert type(rounded[0]) is Int8Linear
    assert rounded[0].weight.dtype == torch.int8
    assert_close(rounded(x), by_hand.float(), tolerance=1e-6)
    error = (rounded(x) - expected).norm(dim=-1) / x.norm(dim=-1).clamp_min(1e-30)
    assert 0 < error.max() <= 0.02
    assert torch.equal(rounded(x[:, :1]), rounded(x)[:, :1])  # whatever else is in the batch


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.decoder_layers[1].cross_attention, "W_o", Adapter(15, 15)),
        lambda model: model.decoder_layers[0].add_norm_self.register_forward_hook(lambda *_: None),
        lambda model: model.output.register_full_backward_hook(lambda *_: None),
        lambda model: setattr(model.decoder_layers[1].self_attention, "attention", rotary_attention),
        lambda model: model.double(),
        lambda model: torch.set_autocast_enabled("cpu", True),
    ],
    ids=["adapter", "hook", "backward hook", "attention", "float64", "autocast"],
)
def test_only_known_models_take_steps_on_a_cpu(change):
    model, src = new_model().float().eval(), torch.tensor([[3, 4], [5, 0]])
    assert type(fastest_steps(model, src)) is CPUSteps
    assert type(fastest_steps(model, torch.tensor([[3], [0]]))) is Steps  # a row of padding alone
    try:
        change(model)
        assert type(fastest_steps(model, src)) is Steps
    finally:
        torch.set_autocast_enabled("cpu", False)
