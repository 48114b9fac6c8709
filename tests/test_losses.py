"""Label smoothing by hand; `test_oracles` compares it with F.cross_entropy."""

import math

import pytest
import torch

from transformer_lessons.losses import label_smoothed_loss

VOCAB, PAD = 11, 0


@pytest.mark.parametrize("batch", [(), (1,), (1, 1)], ids=str)
def test_by_hand(batch):
    # Four classes, the first is padding; logits (0, 0, ln 2, ln 4) give p = (1, 1, 2, 4) / 8.
    # With ε = 0.3 and the right class 2: q = (0, 0.1, 0.7 + 0.1, 0.1), which sums to 1.
    # −Σ q log p = 0.1 ln 8 + 0.8 ln 4 + 0.1 ln 2 = (0.3 + 1.6 + 0.1) ln 2 = 2 ln 2.
    logits = torch.tensor([0, 0, math.log(2), math.log(4)], dtype=torch.float64).expand(*batch, 4)
    loss, count = label_smoothed_loss(logits, torch.full(batch, 2), pad_id=0, smoothing=0.3)
    assert loss.item() == pytest.approx(2 * math.log(2), rel=1e-12)
    assert count == 1


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_but_padding(count):
    logits = torch.randn(count, VOCAB, requires_grad=True)
    loss, real = label_smoothed_loss(logits, torch.full((count,), PAD), pad_id=PAD)
    loss.backward()
    assert (loss.item(), real.item()) == (0.0, 0)
    assert (logits.grad == 0).all()
