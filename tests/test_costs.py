"""The cost model against PyTorch's counts: operations, saved bytes, peaks."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.batches import Batch
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.losses import batch_loss
from transformer_lessons.fast.recompute import recompute
from transformer_lessons.model import Transformer
from transformer_lessons.tools import costs
from transformer_lessons.tools.costs import BatchShape

pytestmark = pytest.mark.usefixtures("no_shape_checks")

SHAPE = BatchShape(5, 11, 7)
# Heads and their width are primes, d_ff and the vocabularies too; 2 and 3 layers.
SIZES = {"d_model": 39, "num_heads": 3, "d_ff": 53, "num_encoder_layers": 2, "num_decoder_layers": 3}
CONFIGS = {
    "paper": {},
    "pre-norm, gelu": {"norm_first": True, "activation": "gelu"},
    "learned": {"position": "learned"},
    "not tied": {"tie_embeddings": False},
    "shared": {"source_vocab_size": 19, "shared_vocabulary": True},
    "dropout": {"dropout": 0.3},
}


def config_of(name: str) -> TransformerConfig:
    given = {"source_vocab_size": 17, "target_vocab_size": 19, "dropout": 0.0, "max_length": 23}
    return TransformerConfig(**{**given, **SIZES, **CONFIGS[name]})


def counted(function) -> int:
    """Operations in matrix products, with the unfused attention: the CPU's fused kernel has no formula."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("name", CONFIGS)
def test_operations_are_those_that_pytorch_counts(name):
    config = config_of(name)
    with torch.device("meta"):
        model = Transformer(config)
        src, tgt = (torch.zeros(5, length, dtype=torch.long) for length in (11, 7))
        assert costs.forward_operations(config, SHAPE).total == counted(lambda: model(src, tgt))
        step = counted(lambda: model(src, tgt).sum().backward())
        assert costs.training_operations(config, SHAPE) == step
        if not config.norm_first:  # post-norm: a layer's last product is recomputed too
            again = counted(lambda: recompute(model)(src, tgt).sum().backward())
            assert costs.training_operations(config, SHAPE, recompute=True) == again


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_saved_bytes_are_those_that_a_real_step_keeps(name, precision):
    config, found = config_of(name), {}
    model = accelerate(Transformer(config))
    known = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    src, tgt = torch.randint(3, 17, (5, 11)), torch.randint(3, 17, (5, 7))

    def keep(tensor):
        if tensor.is_floating_point() or tensor.dtype == torch.int8:  # ids and Booleans are left out
            found[tensor.untyped_storage().data_ptr()] = tensor  # kept alive, so that no address is reused
        return tensor

    half = torch.autocast("cpu", getattr(torch, precision), enabled=precision != "float32")
    with saved_tensors_hooks(keep, lambda tensor: tensor), half:
        loss = batch_loss(model, Batch(src, tgt, tgt), 0.1)[0]
    assert loss.requires_grad
    kept = sum(x.untyped_storage().nbytes() for address, x in found.items() if address not in known)
    assert costs.training_memory(config, SHAPE, precision).saved == kept


@pytest.mark.parametrize("shape", [SHAPE, BatchShape(1, 2, 3)])  # most activations; most gradients
def test_the_peak_is_that_of_a_real_step(shape):
    config, held = config_of("paper"), costs.Held()
    said = costs.training_memory(config, shape)
    with held:
        model = accelerate(Transformer(config))
        src, tgt = (torch.randint(3, 17, (shape.sentences, n)) for n in (shape.source, shape.target))
        batch_loss(model, Batch(src, tgt, tgt), 0.1)[0].backward()
    moments = 8 * costs.parameters(config)
    assert said.peak == pytest.approx(held.peak + moments, rel=0.02)
    assert said.peak >= said.saved + said.parameters * 3 / 4  # all but gradients, when backward begins
