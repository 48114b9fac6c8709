"""The training loop against the same steps written out."""

from dataclasses import replace

import pytest
import torch
from conftest import assert_close

from transformer_lessons.config import TransformerConfig
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import perturb
from transformer_lessons.training import train

VOCAB, PAD = 11, 0
CONFIG = TransformerConfig(
    VOCAB, VOCAB, d_model=15, num_heads=3, d_ff=23, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Sentences and their reversals, of unequal lengths."""
    made = []
    for _ in range(count):
        src = torch.randint(3, VOCAB, (13, 5))
        tgt = src.flip(1)
        src[3, 2:] = PAD
        tgt[3] = torch.cat([src[3, :2].flip(0), torch.zeros(3, dtype=torch.long)])
        start, end = torch.full((13, 1), 1), torch.full((13, 1), 2)
        made.append((src, torch.cat([start, tgt], 1), torch.cat([tgt, end], 1)))
    return made


def rate(step: int) -> float:
    return 0.003 * step  # different at each step


PAPERS = {"smoothing": 0.1, "weight_decay": 0.01, "clip_norm": 1.0}


@pytest.mark.parametrize("options", [{}, {"smoothing": 0.0, "weight_decay": 0.1, "clip_norm": 0.5}], ids=str)
def test_three_steps_by_hand(options):
    ours, theirs = perturb(Transformer(CONFIG)).double(), Transformer(CONFIG).double()
    data, seen = batches(3), []

    def progress(steps):
        return (seen.append(step) or step for step in steps)

    theirs.load_state_dict(ours.state_dict())
    losses = train(ours, data, rate, 3, progress=progress, **options)
    assert seen == [1, 2, 3]

    smoothing, weight_decay, clip_norm = {**PAPERS, **options}.values()
    optimizer = torch.optim.AdamW(theirs.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay)
    for step, (src, tgt_in, tgt_out) in enumerate(data, start=1):
        total, _ = label_smoothed_loss(theirs(src, tgt_in), tgt_out, pad_id=PAD, smoothing=smoothing)
        loss = total / (tgt_out != PAD).sum()
        theirs.zero_grad()
        loss.backward()
        norm = torch.stack([parameter.grad.norm() for parameter in theirs.parameters()]).norm()
        assert norm > clip_norm, "otherwise clipping would not be tested"
        for parameter in theirs.parameters():
            parameter.grad *= clip_norm / (norm + 1e-6)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        assert losses[step - 1] == pytest.approx(loss.item(), rel=1e-10)
    for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(parameter.detach(), expected.detach())


def test_dropout_is_on_while_it_trains():
    model = Transformer(replace(CONFIG, dropout=0.5)).eval()
    first, second = train(model, batches(1) * 2, lambda step: 0.0, 2)
    assert first != second


@pytest.mark.parametrize("precision", [torch.float32, torch.float16])
def test_products_are_computed_in_the_precision_asked_for(precision):
    model, dtypes = Transformer(CONFIG), []
    model.output.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    losses = train(model, batches(2), rate, 2, precision=precision)
    assert dtypes == [precision] * 2
    assert all(loss > 0 for loss in losses)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
