"""Layers that are computed again on the way back: the same bits, for less memory."""

from dataclasses import replace

import pytest
import torch
from conftest import assert_close
from test_model import TGT_VOCAB, config, new_model
from test_training import SMALL, assert_goes_on, small_batches, small_model
from torch.autograd.graph import saved_tensors_hooks

from transformer_lessons.data.batches import make_batch
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import Trainer, batch_loss

D_MODEL, D_FF = config().d_model, config().d_ff
BATCH = make_batch([([3, 5, 7, 11, 4], [3, 4, 5]), ([6, 7], [8, 9, 10, 11, 12, 13, 14]), ([9], [2])])
CHOICES = [
    {},
    {"norm_first": True, "position": "learned"},
    {"norm": "rms", "position": "rotary", "d_model": 24, "num_heads": 6, "num_key_value_heads": 2},
]


def loss_and_gradients(model: Transformer) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model.zero_grad()
    loss, _, _ = batch_loss(model, BATCH, 0.1)
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("changes", CHOICES)
def test_loss_and_gradients_are_the_same_bits(changes, dropout):
    """With dropout too: what was dropped is dropped again, or the gradients would be of another function."""
    model = new_model(dropout=dropout, **changes)
    plain = loss_and_gradients(model)
    model.recompute = True
    again = loss_and_gradients(model)
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


@pytest.mark.parametrize("is_autocast", [False, True])
def test_the_precision_of_the_way_there_is_that_of_the_way_back(is_autocast):
    model = new_model(dtype=torch.float32, dropout=0.3)
    gradients = []
    for model.recompute in (False, True):
        torch.manual_seed(0)
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            loss, _, _ = batch_loss(model, BATCH, 0.1)
        loss.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert torch.equal(*gradients)


def kept(model: Transformer) -> int:
    """Bytes that the way there keeps for the way back, without the weights; what is kept twice counts once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    alive = []  # or the next tensor would get the same address
    with saved_tensors_hooks(lambda x: alive.append(x) or x, lambda x: x):
        loss, _, _ = batch_loss(model, BATCH, 0.1)
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in alive}
    assert loss.requires_grad
    return sum(size for address, size in storages.items() if address not in weights)


def further_layer(side: str, recompute: bool, dropout: float = 0.3) -> float:
    """What one more layer keeps, in numbers of float64 a token."""
    ids, sizes = (BATCH.src if side == "encoder" else BATCH.tgt_in), []
    for layers in (2, 3):
        model = new_model(dropout=dropout, **{f"num_{side}_layers": layers})
        model.recompute = recompute
        sizes.append(kept(model))
    return (sizes[1] - sizes[0]) / 8 / ids.numel()


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_layer_keeps_its_input_and_nothing_else(side):
    # Memory and masks are the same for all layers, and kept once.
    assert further_layer(side, recompute=True) == D_MODEL
    # Otherwise every product keeps what it multiplied: the input of W_q, W_k and W_v, the queries, keys and
    # values, the heads, the feed-forward network's input and inner vector; then what each norm divided.
    vectors = 8 if side == "encoder" else 15
    assert further_layer(side, recompute=False) >= vectors * D_MODEL + D_FF


def test_of_many_layers_a_small_part_is_kept():
    """Of 7 + 7 layers, one vector a token each. Without, an encoder layer keeps 9.5 and a decoder layer 16.5 at
    least (above, with D_FF = 1.5 D_MODEL): 13 times as much in the mean. Embedding, projection and loss keep
    theirs either way, as much as two or three vectors; 13 · 14 + 3 to 14 + 3 is more than ten.
    """
    model = new_model(num_encoder_layers=7, num_decoder_layers=7)
    plain = kept(model)
    model.recompute = True
    assert 10 * kept(model) < plain


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The layers that are computed, one after another."""
    seen = []
    for kind in (EncoderLayer, DecoderLayer):
        plain = kind.forward

        def forward(self, *given, plain=plain, **options):
            seen.append(type(self).__name__[:7])
            return plain(self, *given, **options)

        monkeypatch.setattr(kind, "forward", forward)
    return seen


def test_each_layer_is_computed_twice_and_only_where_something_goes_back(calls):
    model = new_model()
    model.recompute = True
    there = ["Encoder"] * 2 + ["Decoder"] * 3
    with torch.no_grad():
        batch_loss(model, BATCH, 0.1)
    assert calls == there
    loss_and_gradients(model)
    assert calls == there * 2 + there[::-1]


def test_a_cache_is_filled_once():
    model, src = new_model(), BATCH.src
    hidden = []
    for model.recompute in (False, True):
        caches = model.new_caches(len(src), 5)
        mask = torch.ones(len(src), 1, 1, src.size(1), dtype=torch.bool)
        hidden.append(model.decode(BATCH.tgt_in[:, :3], model.encode(src), mask, caches))
        hidden[-1].sum().backward()
        assert int(caches[0].self_attention.position) == 3
    assert torch.equal(*hidden)


def test_it_is_no_part_of_a_model():
    plain, again = Transformer(config()), Transformer(config())
    again.recompute = True
    assert plain.state_dict().keys() == again.state_dict().keys()
    assert plain.config == again.config
    assert not plain.recompute
    assert plain.output.weight.shape == (TGT_VOCAB, D_MODEL)


def test_a_run_goes_on_with_it_from_a_checkpoint_without(tmp_path):
    settings = (SMALL, replace(SMALL, recompute=True))
    plain, again = (Trainer(small_model(dropout=0.3), small_batches(), each, tmp_path) for each in settings)
    assert (plain.model.recompute, again.model.recompute) == (False, True)
    assert_goes_on(again, plain)


def test_a_trainer_without_it_switches_it_off():
    model = small_model()
    for is_on in (True, False):
        Trainer(model, small_batches(), replace(SMALL, recompute=is_on))
        assert model.recompute == is_on


def test_in_parts_too():
    whole = Trainer(small_model().double(), small_batches(), SMALL)
    again = Trainer(small_model().double(), small_batches(), replace(SMALL, accumulate=3, recompute=True))
    whole.train_step()
    again.train_step()
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert_close(a.grad, b.grad, tolerance=1e-12)
