"""The whole model; `test_oracles` compares it with PyTorch's, `test_properties` tests what it may see."""

import pytest
import torch
from conftest import assert_close

from tests.models import config, new_model, sentences
from transformer_lessons.fast import accelerate, plain
from transformer_lessons.model import Transformer
from transformer_lessons.tools.attention_maps import attention_maps


@pytest.fixture
def src():
    return sentences((7, 3, 5))


@pytest.fixture
def tgt():
    return sentences((4, 11, 1), 19)


def test_dropout_on_both_embeddings(src, tgt):
    model = new_model(dropout=0.3)
    for embedding, ids in ((model.source_embedding, src), (model.target_embedding, tgt)):
        assert (embedding.train()(ids) == 0).any()
        assert not (embedding.eval()(ids) == 0).any()


@pytest.mark.parametrize("changes", [{}, {"position": "learned", "norm_first": True}])
def test_nothing_is_left_on_another_device(changes):
    """`meta` is a device without numbers: an intermediate tensor made on the CPU would raise an error."""
    model = Transformer(config(**changes)).to("meta")
    src, tgt = (torch.ones(2, length, dtype=torch.int64, device="meta") for length in (7, 11))
    logits = model(src, tgt)
    logits.sum().backward()
    assert (logits.device.type, logits.shape) == ("meta", (2, 11, 19))
    assert {parameter.grad.device.type for parameter in model.parameters()} == {"meta"}


# --- attention_maps


def test_attention_maps_of_every_attention(src, tgt):
    """Names and shapes; `test_attention` tests values."""
    encoder = {f"encoder_layers.{n}.self_attention": (3, 3, 7, 7) for n in range(2)}
    both = {"self": (3, 3, 11, 11), "cross": (3, 3, 11, 7)}
    decoder = {f"decoder_layers.{n}.{kind}_attention": both[kind] for n in range(3) for kind in both}
    maps = attention_maps(new_model(), src, tgt)
    assert {name: weights.shape for name, weights in maps.items()} == encoder | decoder


def test_attention_maps_leave_the_model_as_it_was(src, tgt):
    model = accelerate(new_model())
    before = model(src, tgt)
    maps = attention_maps(model, src, tgt)
    assert torch.equal(model(src, tgt), before)
    assert not any("attention" in vars(module) for module in model.modules())
    for name, weights in attention_maps(plain(model), src, tgt).items():
        assert_close(maps[name], weights)
    with pytest.raises(IndexError):
        attention_maps(model, src, tgt + 100)
    assert not any("attention" in vars(module) for module in model.modules())
