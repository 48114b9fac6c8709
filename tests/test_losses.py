"""Label smoothing against F.cross_entropy where the two should agree, and by hand where they should not."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_function
from conftest import assert_close
from torch.utils.flop_counter import FlopCounterMode

from transformer_lessons import losses
from transformer_lessons.losses import label_smoothed_loss, projected_loss

VOCAB, PAD = 11, 0
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


def example(dtype=torch.float64):
    """Logits, and targets of which some are padding."""
    targets = torch.randint(1, VOCAB, (5, 7))
    targets[1, 4:] = PAD
    targets[3, 2:] = PAD
    return 3 * torch.randn(5, 7, VOCAB, dtype=dtype), targets


@DTYPE
def test_without_smoothing_it_is_cross_entropy(dtype):
    logits, targets = example(dtype)
    assert_same_function(
        lambda x: label_smoothed_loss(x, targets, pad_id=PAD, smoothing=0.0)[0],
        lambda x: F.cross_entropy(x.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"),
        logits,
    )


@DTYPE
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_without_padding_it_is_torchs_label_smoothing(smoothing, dtype):
    logits, targets = example(dtype)
    assert_same_function(
        lambda x: label_smoothed_loss(x, targets, pad_id=None, smoothing=smoothing)[0],
        lambda x: F.cross_entropy(
            x.flatten(0, 1), targets.flatten(), label_smoothing=smoothing, reduction="sum"
        ),
        logits,
    )


def test_by_hand():
    # Four classes, the first is padding; logits (0, 0, ln 2, ln 4) give p = (1, 1, 2, 4) / 8.
    # With ε = 0.3 and the right class 2: q = (0, 0.1, 0.7 + 0.1, 0.1), which sums to 1.
    # −Σ q log p = 0.1 ln 8 + 0.8 ln 4 + 0.1 ln 2 = (0.3 + 1.6 + 0.1) ln 2 = 2 ln 2.
    logits = torch.tensor([[0, 0, math.log(2), math.log(4)]], dtype=torch.float64)
    loss, count = label_smoothed_loss(logits, torch.tensor([2]), pad_id=0, smoothing=0.3)
    assert loss.item() == pytest.approx(2 * math.log(2), rel=1e-12)
    assert count == 1


@DTYPE
@pytest.mark.parametrize("pad_id", [0, 4])
def test_gradient_is_p_minus_q_without_mass_on_padding(pad_id, dtype):
    smoothing, targets = 0.1, torch.tensor([3, 7, pad_id, 1])
    logits = torch.randn(4, VOCAB, dtype=dtype, requires_grad=True)
    loss, count = label_smoothed_loss(logits, targets, pad_id=pad_id, smoothing=smoothing)
    loss.backward()
    p = logits.detach().softmax(-1)
    q = torch.zeros_like(p)
    for row, target in enumerate(targets.tolist()):
        for c in range(VOCAB):
            q[row, c] = (1 - smoothing) * (c == target) + smoothing / (VOCAB - 1) * (c != pad_id)
    expected = p - q
    expected[2] = 0.0  # the padded position
    assert_close(logits.grad, expected)
    real = targets != pad_id
    assert_close(logits.grad[real, pad_id], p[real, pad_id])
    assert count == 3


def test_uneven_parts_add_up_to_the_whole():
    logits, targets = example()
    whole, count = label_smoothed_loss(logits, targets, pad_id=PAD)
    parts = [
        label_smoothed_loss(x, y, pad_id=PAD)
        for x, y in zip(logits.split([1, 3, 1]), targets.split([1, 3, 1]), strict=True)
    ]
    assert_close(sum(loss for loss, _ in parts), whole)
    assert sum(number for _, number in parts) == count == (targets != PAD).sum()
    assert len({int(number) for _, number in parts}) > 1  # uneven, or the next line would prove nothing
    mean_of_means = sum(loss / number for loss, number in parts) / 3
    assert (mean_of_means - whole / count).abs() > 1e-3


def test_padding_counts_for_nothing_and_has_no_gradient():
    logits, targets = example()
    logits.requires_grad_()
    loss, _ = label_smoothed_loss(logits, targets, pad_id=PAD)
    other = logits.detach().clone()
    other[targets == PAD] = 1e6
    assert torch.equal(label_smoothed_loss(other, targets, pad_id=PAD)[0], loss)
    loss.backward()
    assert (logits.grad[targets == PAD] == 0).all()


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_but_padding(count):
    logits = torch.randn(count, VOCAB, requires_grad=True)
    loss, real = label_smoothed_loss(logits, torch.full((count,), PAD), pad_id=PAD)
    loss.backward()
    assert (loss.item(), real.item()) == (0.0, 0)
    assert (logits.grad == 0).all()


def test_the_papers_smoothing_unless_told():
    logits, targets = example()
    default, _ = label_smoothed_loss(logits, targets, pad_id=PAD)
    assert torch.equal(default, label_smoothed_loss(logits, targets, pad_id=PAD, smoothing=0.1)[0])


def test_count_without_padding():
    logits, targets = example()
    assert label_smoothed_loss(logits, targets, pad_id=None)[1] == 35


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype):
    logits = torch.tensor([[60_000.0, -60_000.0, 0.0]]).to(dtype).repeat(101, 1)
    loss, _ = label_smoothed_loss(logits, torch.ones(101, dtype=torch.long), pad_id=None, smoothing=0.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(101 * 120_000, rel=0.01)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("smoothing", [-0.1, 1, 1.5, float("nan")])
def test_smoothing_out_of_range(smoothing):
    with pytest.raises(ValueError, match="smoothing: expected 0 or more and below 1, got"):
        label_smoothed_loss(torch.randn(3, VOCAB), torch.ones(3).long(), pad_id=PAD, smoothing=smoothing)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 7, 11), (7, 5)])
def test_targets_that_do_not_fit(shape):
    with pytest.raises(ValueError, match=r"targets: expected shape \(5, 7\), got"):
        label_smoothed_loss(torch.randn(5, 7, VOCAB), torch.ones(shape).long(), pad_id=PAD)


def test_beside_padding_a_single_class_gets_everything():
    logits = torch.randn(5, 2, dtype=torch.float64)
    loss, tokens = label_smoothed_loss(logits, torch.ones(5, dtype=torch.int64), pad_id=0, smoothing=0.1)
    assert tokens == 5
    # q = 1 − ε + ε / (2 − 1) = 1 on the one class there is.
    assert_close(loss, -logits.log_softmax(-1)[:, 1].sum(), tolerance=1e-12)


def test_classes_that_are_ruled_out_do_not_spoil_the_loss():
    logits, targets = example()
    # Padding that cannot come out: what is left is the loss without that class.
    logits[..., PAD] = float("-inf")
    real = targets != PAD
    loss, _ = label_smoothed_loss(logits, targets, pad_id=PAD, smoothing=0.1)
    expected, _ = label_smoothed_loss(logits[real][:, 1:], targets[real] - 1, pad_id=None, smoothing=0.1)
    assert_close(loss, expected)
    # Without smoothing, another class may be impossible too, as long as it is not the answer.
    logits[..., 1] = float("-inf")
    targets[targets == 1] = 2
    loss, _ = label_smoothed_loss(logits, targets, pad_id=PAD, smoothing=0.0)
    assert_close(
        loss, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    )


@pytest.mark.parametrize("pad_id", [0, 2, 4])
def test_a_single_prediction_needs_no_batch(pad_id):
    torch.manual_seed(11)
    logits, target = torch.randn(5, dtype=torch.float64), torch.tensor(3)
    loss, count = label_smoothed_loss(logits, target, pad_id=pad_id, smoothing=0.3)
    assert_close(loss, label_smoothed_loss(logits[None], target[None], pad_id=pad_id, smoothing=0.3)[0])
    assert count == 1


# ---- With the projection, in parts


def vectors(tokens: int = 17, dtype=torch.float64):
    """Vectors to project, a projection, and targets of which some are padding; 17 is no multiple of a part."""
    targets = torch.randint(1, VOCAB, (tokens,))
    targets[3:7] = PAD
    return torch.randn(tokens, 7, dtype=dtype), torch.randn(VOCAB, 7, dtype=dtype), targets


@pytest.fixture(params=[5, 17, 256])
def part(monkeypatch, request):
    """Rows that are projected at a time: in four parts, in one, and in less than one."""
    monkeypatch.setattr(losses, "PART", request.param)


@DTYPE
@pytest.mark.parametrize("pad_id", [PAD, None])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("part")
def test_projected_in_parts_it_is_the_same_loss(dtype, pad_id, smoothing):
    hidden, weight, targets = vectors(dtype=dtype)
    options = {"pad_id": pad_id, "smoothing": smoothing}
    assert_same_function(
        lambda x, w: projected_loss(x, w, targets, **options)[0],
        lambda x, w: label_smoothed_loss(x @ w.T, targets, **options)[0],
        hidden,
        weight,
    )


@DTYPE
@pytest.mark.usefixtures("part")
def test_projected_in_parts_it_is_torchs_cross_entropy(dtype):
    hidden, weight, targets = vectors(dtype=dtype)
    assert_same_function(
        lambda x, w: projected_loss(x, w, targets, pad_id=PAD, smoothing=0.0)[0],
        lambda x, w: F.cross_entropy(x @ w.T, targets, ignore_index=PAD, reduction="sum"),
        hidden,
        weight,
    )


@pytest.mark.usefixtures("part")
def test_tokens_and_right_ones_are_counted():
    hidden, weight, targets = vectors()
    weight[PAD] = 0.0
    hidden[3] = 0.0  # of which the first class is the best, and what the target says, but does not count
    best = (hidden @ weight.T).argmax(-1)
    targets[7:12] = best[7:12]
    _, count, right = projected_loss(hidden, weight, targets, pad_id=PAD)
    real = targets != PAD
    assert (count, right) == (real.sum(), (best == targets)[real].sum())
    assert 5 <= right < count == 13


def test_a_second_backward_pass_adds_the_same_again():
    hidden, weight, targets = vectors()
    hidden.requires_grad_()
    loss, _, _ = projected_loss(hidden, weight, targets, pad_id=PAD)
    (3 * loss).backward(retain_graph=True)
    once = hidden.grad.clone()
    (3 * loss).backward()
    assert_close(hidden.grad, 2 * once)
    assert weight.grad is None  # frozen


def test_frozen_vectors_leave_the_projections_gradient():
    hidden, weight, targets = vectors()
    weight.requires_grad_()
    projected_loss(hidden, weight, targets, pad_id=PAD)[0].backward()
    same = weight.detach().clone().requires_grad_()
    label_smoothed_loss(hidden @ same.T, targets, pad_id=PAD)[0].backward()
    assert_close(weight.grad, same.grad)


def test_a_padded_vector_may_hold_anything():
    hidden, weight, targets = vectors()
    weight.requires_grad_()
    expected = projected_loss(hidden, weight, targets, pad_id=PAD)[0]
    hidden[targets == PAD] = 1e200
    loss = projected_loss(hidden.requires_grad_(), weight, targets, pad_id=PAD)[0]
    assert torch.equal(loss, expected)
    loss.backward()
    assert (hidden.grad[targets == PAD] == 0).all()
    assert weight.grad.isfinite().all()


def test_without_gradients_none_are_computed():
    hidden, weight, targets = vectors()
    hidden, weight = hidden.requires_grad_(), weight.requires_grad_()
    products = {}
    for is_on in (True, False):
        with torch.set_grad_enabled(is_on), FlopCounterMode(display=False) as counter:
            loss, _, _ = projected_loss(hidden, weight, targets, pad_id=PAD)
        assert loss.requires_grad == is_on
        products[is_on] = counter.get_total_flops()
    assert products == {True: 3 * 2 * 17 * 7 * VOCAB, False: 2 * 17 * 7 * VOCAB}


def test_in_bfloat16_parts_are_summed_in_float32(monkeypatch):
    monkeypatch.setattr(losses, "PART", 2)
    hidden, weight, targets = vectors(1031, torch.bfloat16)
    loss, _, _ = projected_loss(hidden.requires_grad_(), weight.requires_grad_(), targets, pad_id=PAD)
    loss.backward()
    wide = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    expected, _ = label_smoothed_loss(wide[0] @ wide[1].T, targets, pad_id=PAD)
    expected.backward()
    assert (loss.dtype, hidden.grad.dtype, weight.grad.dtype) == (torch.float32, *[torch.bfloat16] * 2)
    assert loss.item() == pytest.approx(
        expected.item(), rel=1e-3
    )  # sums in bfloat16: off by a tenth and more
    # Eight bits: a logit, p − q, and the sum at last are rounded to one in 256, and the errors of rows cancel.
    for ours, theirs in ((hidden, wide[0]), (weight, wide[1])):
        assert (ours.grad - theirs.grad).norm() <= 2**-7 * theirs.grad.norm()


@pytest.mark.parametrize("tokens", [0, 3])
def test_nothing_but_padding_to_project(tokens):
    hidden, weight, _ = vectors(tokens)
    targets = torch.full((tokens,), PAD)
    loss, count, right = projected_loss(hidden.requires_grad_(), weight, targets, pad_id=PAD)
    loss.backward()
    assert (loss.item(), count.item(), right.item()) == (0.0, 0, 0)
    assert (hidden.grad == 0).all()


def test_the_papers_smoothing_of_what_is_projected():
    hidden, weight, targets = vectors()
    default = projected_loss(hidden, weight, targets, pad_id=PAD)[0]
    assert torch.equal(default, projected_loss(hidden, weight, targets, pad_id=PAD, smoothing=0.1)[0])
