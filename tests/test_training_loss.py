"""The loss of a batch: equal to that of all logits at once, which it computes only where it must."""

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close
from torch import nn

from transformer_lessons import losses
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import Batch, make_batch
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import loss as training_loss
from transformer_lessons.trainer.loss import batch_loss

SIZES = {"d_model": 21, "num_heads": 3, "d_ff": 17, "num_encoder_layers": 1, "num_decoder_layers": 1}


def small_model() -> Transformer:
    torch.manual_seed(0)
    source, target = number_words.vocabularies()
    return Transformer(TransformerConfig(len(source), len(target), dropout=0.0, **SIZES))


def test_batch_loss_is_cross_entropy_over_real_tokens():
    model = small_model().double()
    batch = make_batch(number_words.pairs([7, 421, 987_654]))
    loss, count, right = batch_loss(model, batch, smoothing=0.0)
    logits = model(batch.src, batch.tgt_in)
    oracle = F.cross_entropy(logits.transpose(1, 2), batch.tgt_out, ignore_index=0, reduction="sum")
    assert count == (batch.tgt_out != 0).sum()
    assert right == ((logits.argmax(-1) == batch.tgt_out) & (batch.tgt_out != 0)).sum()
    assert_close(loss, oracle)


def plain_loss(model: Transformer, batch: Batch) -> torch.Tensor:
    """All logits at once, by `project`."""
    real = batch.tgt_out != 0
    logits = model.project(model.hidden(batch.src, batch.tgt_in)[real])
    return label_smoothed_loss(logits, batch.tgt_out[real], pad_id=0, smoothing=0.1)[0]


def gradients(model: Transformer, loss: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return [parameter.grad for parameter in model.parameters()]


class Capped(Transformer):
    """Whose logits are not just a product."""

    def project(self, hidden):
        return torch.tanh(super().project(hidden))


def adapted(model: Transformer) -> Transformer:
    """The projection is replaced by one that adds something."""
    model.output = nn.Sequential(model.output, nn.Tanh())
    model.output.weight = model.output[0].weight
    return model


def biased(model: Transformer) -> Transformer:
    own = model.output
    model.output = nn.Linear(own.in_features, own.out_features)
    return model


def hooked(model: Transformer) -> Transformer:
    model.output.register_forward_hook(lambda module, given, logits: torch.tanh(logits))
    return model


def patched(model: Transformer) -> Transformer:
    own = model.project
    model.project = lambda hidden: torch.tanh(own(hidden))
    return model


@pytest.mark.parametrize(
    ("change", "in_parts"),
    [
        (lambda model: model, True),
        (lambda model: Capped(model.config), False),
        (adapted, False),
        (biased, False),
        (hooked, False),
        (patched, False),
    ],
    ids=["as it is", "subclass", "adapter", "bias", "hook", "patch"],
)
def test_only_a_plain_projection_is_made_in_parts(monkeypatch, change, in_parts):
    torch.manual_seed(0)
    model, called = change(small_model()).double().eval(), []
    monkeypatch.setattr(losses, "PART", 7)
    monkeypatch.setattr(
        training_loss, "projected_loss", lambda *x, **y: called.append(1) or losses.projected_loss(*x, **y)
    )
    batch = make_batch(number_words.pairs([7, 421, 987_654]))
    loss = batch_loss(model, batch, 0.1)[0]
    expected = plain_loss(model, batch)
    assert_close(loss, expected)
    for ours, theirs in zip(gradients(model, loss), gradients(model, plain_loss(model, batch)), strict=True):
        assert_close(ours, theirs)
    assert called == [1] * in_parts


@pytest.mark.parametrize(("dtype", "in_parts"), [(torch.bfloat16, True), (torch.float16, False)])
def test_under_autocast_it_is_the_same_loss(monkeypatch, dtype, in_parts):
    """In float16 all logits at once: the gradient waits for the scaled loss, without which it would be zero."""
    called = []
    monkeypatch.setattr(
        training_loss, "projected_loss", lambda *x, **y: called.append(1) or losses.projected_loss(*x, **y)
    )
    model = small_model()
    batch = make_batch(number_words.pairs([7, 421, 987_654]))
    with torch.autocast("cpu", dtype):
        loss, expected = batch_loss(model, batch, 0.1)[0], plain_loss(model, batch)
    assert_close(loss, expected)
    assert called == [1] * in_parts
    for ours, theirs in zip(gradients(model, loss), gradients(model, expected), strict=True):
        assert ours.dtype == theirs.dtype == torch.float32
        assert (ours - theirs).norm() <= 0.01 * theirs.norm()
