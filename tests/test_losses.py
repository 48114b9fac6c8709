"""Label smoothing against F.cross_entropy where the two should agree, and by hand where they should not."""

import math

import pytest
import torch
import torch.nn.functional as F
from compare import DTYPES, assert_same_function
from conftest import assert_close

from transformer_lessons.losses import label_smoothed_loss

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
@pytest.mark.parametrize("smoothing", [0.1, 0.7])
def test_without_the_class_of_padding_it_is_torchs_label_smoothing(smoothing, dtype):
    logits, targets = torch.randn(5, VOCAB - 1, dtype=dtype), torch.randint(VOCAB - 1, (5,))
    never = torch.full((5, 1), -1e3, dtype=dtype)  # PyTorch shares ε among all classes
    assert_same_function(
        lambda x: label_smoothed_loss(
            torch.cat([never, x], -1), targets + 1, pad_id=PAD, smoothing=smoothing
        )[0],
        lambda x: F.cross_entropy(x, targets, label_smoothing=smoothing, reduction="sum"),
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


def test_beside_padding_a_single_class_gets_everything():
    logits = torch.randn(5, 2, dtype=torch.float64)
    loss, tokens = label_smoothed_loss(logits, torch.ones(5, dtype=torch.int64), pad_id=0, smoothing=0.1)
    assert tokens == 5
    # q = 1 − ε + ε / (2 − 1) = 1 on the one class there is.
    assert_close(loss, -logits.log_softmax(-1)[:, 1].sum(), tolerance=1e-12)


@pytest.mark.parametrize("pad_id", [0, 2, 4])
def test_a_single_prediction_needs_no_batch(pad_id):
    torch.manual_seed(11)
    logits, target = torch.randn(5, dtype=torch.float64), torch.tensor(3)
    loss, count = label_smoothed_loss(logits, target, pad_id=pad_id, smoothing=0.3)
    assert_close(loss, label_smoothed_loss(logits[None], target[None], pad_id=pad_id, smoothing=0.3)[0])
    assert count == 1
