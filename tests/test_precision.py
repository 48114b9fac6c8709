"""Half precision at extreme values, and what dtypes, devices, files and copies must not change."""

import copy
import inspect
import pickle
from importlib import import_module

import pytest
import torch
from compare import leaves, perturb
from conftest import assert_close
from torch import nn

from transformer_lessons.attention import (
    MultiHeadAttention,
    attention_backward,
    fused_attention,
    hard_attention,
    linear_attention,
    recurrent_linear_attention,
    scaled_dot_product_attention,
    tiled_attention,
)
from transformer_lessons.decoding import beam, greedy
from transformer_lessons.embeddings import TokenEmbedding, TransformerEmbedding
from transformer_lessons.encodings import LearnedEncoding, PositionTable, RotaryEncoding, SinusoidalEncoding
from transformer_lessons.fast.dropout import Dropout
from transformer_lessons.feed_forward import FeedForward, SwiGLU
from transformer_lessons.layers import AddAndNorm, DecoderLayer, EncoderLayer
from transformer_lessons.losses import label_smoothed_loss
from transformer_lessons.masks import additive, causal_mask
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.norms import BatchNorm, LayerNorm, RMSNorm

# The largest values tried: in float16, whose largest number is 65,504, and in bfloat16, which reaches 3e38.
LARGE = [(torch.float16, 300.0), (torch.float16, 6e4), (torch.bfloat16, 300.0), (torch.bfloat16, 6e4)]
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
EXTREME = pytest.mark.parametrize(("dtype", "large"), LARGE)


def assert_finite(*tensors):
    assert all(tensor is None or tensor.isfinite().all() for tensor in tensors)


def extreme(large: float, dtype, *shape: int) -> torch.Tensor:
    """Values up to ±large, a quarter of them just that."""
    return (1.5 * torch.randn(shape)).clamp(-1, 1).mul(large).to(dtype)


# --- Functions at extreme values

LATER = torch.ones(7, 7).tril() == 1  # True = may attend
FORMS = {
    "step by step": lambda *qkv: scaled_dot_product_attention(*qkv)[0],
    "step by step, masked": lambda *qkv: scaled_dot_product_attention(*qkv, LATER)[0],
    "fused": fused_attention,
    "fused, masked": lambda *qkv: fused_attention(*qkv, LATER),
    "fused, causal": lambda *qkv: fused_attention(*qkv, is_causal=True),
    "in tiles": lambda *qkv: tiled_attention(*qkv, LATER, tile=3),
    "hard": lambda *qkv: hard_attention(*qkv, LATER)[0],
    "linear": linear_attention,
    "linear, causal": lambda *qkv: linear_attention(*qkv, is_causal=True),
    "recurrent": lambda *qkv: recurrent_linear_attention(*qkv)[0],
}


@EXTREME
@pytest.mark.parametrize("name", FORMS)
def test_attention_at_extreme_values(name, dtype, large):
    # Scores reach 6e4² · 5 / √5 ≈ 8e9, and so do the products of values and cotangents in the backward pass.
    attend = FORMS[name]
    qkv = leaves(*(extreme(large, dtype, 2, 7, 5) for _ in range(3)))
    output = attend(*qkv)
    output.backward(torch.randn_like(output))
    assert output.dtype == dtype
    assert_finite(output, *(x.grad for x in qkv))
    if name in ("linear", "linear, causal", "recurrent"):
        # Features of −300 are 0 in float32, and with them all the order among such keys.
        qkv = [x.detach().abs() for x in qkv]
        output = attend(*qkv)
    expected = attend(*(x.detach().double() for x in qkv))
    assert_close(output.detach().double(), expected, tolerance=torch.finfo(dtype).eps)


@HALF
@pytest.mark.parametrize("name", FORMS)
def test_attention_in_half_precision_is_close_to_double(name, dtype):
    qkv = leaves(*(torch.randn(2, 7, 5).to(dtype) for _ in range(3)))
    wide = leaves(*(x.double() for x in qkv))
    output, expected = FORMS[name](*qkv), FORMS[name](*wide)
    cotangent = torch.randn_like(output)
    output.backward(cotangent)
    expected.backward(cotangent.double())
    eps = torch.finfo(dtype).eps
    assert_close(output.double(), expected, tolerance=2 * eps)
    for x, y in zip(qkv, wide, strict=True):
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            assert_close(x.grad.double(), y.grad, tolerance=8 * eps)


@EXTREME
def test_the_backward_pass_by_hand_at_extreme_values(dtype, large):
    inputs = [extreme(large, dtype, 2, 7, 5) for _ in range(3)] + [torch.randn(2, 7, 5, dtype=dtype)]
    gradients, expected = attention_backward(*inputs, LATER), attention_backward(*leaves(*inputs), LATER)
    assert_finite(*gradients)
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))
    query, key, value = leaves(*inputs[:3])
    scaled_dot_product_attention(query, key, value, LATER)[0].backward(inputs[3])
    for a, b in zip(gradients, (query, key, value), strict=True):
        assert_close(a.double(), b.grad.double(), tolerance=4 * torch.finfo(dtype).eps)


@EXTREME
@pytest.mark.parametrize("form", [scaled_dot_product_attention, hard_attention])
def test_weights_at_extreme_values_sum_to_one(form, dtype, large):
    weights = form(*(extreme(large, dtype, 2, 7, 5) for _ in range(3)), LATER)[1]
    assert weights.dtype == dtype
    assert (weights[:, ~LATER] == 0).all()
    assert_close(weights.double().sum(-1), torch.ones(2, 7).double(), tolerance=4 * torch.finfo(dtype).eps)


@HALF
@pytest.mark.parametrize("name", ["step by step, masked", "fused, masked", "in tiles", "hard"])
def test_additive_masks_in_half_precision(name, dtype):
    mask = additive(causal_mask(7)[0, 0], dtype).clamp(min=-1e4)  # which float16 can hold
    forms = {
        "step by step, masked": lambda *args: scaled_dot_product_attention(*args)[0],
        "fused, masked": fused_attention,
        "in tiles": lambda *args: tiled_attention(*args, tile=3),
        "hard": lambda *args: hard_attention(*args)[0],
    }
    qkv = [torch.randn(2, 7, 5).to(dtype) for _ in range(3)]
    assert torch.equal(forms[name](*qkv, mask), FORMS[name](*qkv))


@EXTREME
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_at_extreme_logits(smoothing, dtype, large):
    (logits,) = leaves(extreme(large, dtype, 101, 19))
    targets = torch.randint(0, 19, (101,))
    loss, _ = label_smoothed_loss(logits, targets, pad_id=0, smoothing=smoothing)
    expected, _ = label_smoothed_loss(logits.detach().double(), targets, pad_id=0, smoothing=smoothing)
    loss.backward()
    assert loss.dtype == torch.float32  # a sum of hundreds of such terms is beyond float16
    assert_close(loss.detach().double(), expected, tolerance=1e-5)
    assert_finite(loss, logits.grad)


# --- Modules: one table of them all

SMALL = TransformerConfig(
    17,
    19,
    d_model=12,
    num_heads=3,
    d_ff=23,
    num_encoder_layers=2,
    num_decoder_layers=2,
    dropout=0.0,
    max_length=13,
)
MODERN = {"norm_first": True, "norm": "rms", "activation": "swiglu", "position": "rotary"}
LATEST = TransformerConfig(
    **{**vars(SMALL), **MODERN, "num_heads": 6, "num_key_value_heads": 2, "tie_embeddings": False}
)


def vectors(dtype, scale: float = 1.0):
    return (extreme(scale, dtype, 2, 7, 12),)


def ids(dtype, scale: float = 1.0):
    return (torch.tensor([[3, 5, 16, 7], [11, 4, 0, 0]]),)


def pairs(dtype, scale: float = 1.0):
    return extreme(scale, dtype, 2, 7, 12), extreme(scale, dtype, 2, 5, 12)


# How it is built, what it is called with, and the largest input that float16 stands: for most, all there are.
MODULES = {
    "SinusoidalEncoding": (lambda: SinusoidalEncoding(12, 7), vectors, 6e4),
    "LearnedEncoding": (lambda: LearnedEncoding(12, 7), vectors, 6e4),
    "RotaryEncoding": (
        lambda: RotaryEncoding(12, 7),
        lambda dtype, scale=1.0: (extreme(scale, dtype, 2, 3, 5, 12), torch.tensor([0, 1, 2, 4, 6])),
        4e4,  # turned by 45°, (4e4, 4e4) is (0, 5.7e4)
    ),
    "TokenEmbedding": (lambda: TokenEmbedding(17, 12), ids, 1.0),
    "TransformerEmbedding": (
        lambda: TransformerEmbedding(17, 12, position=SinusoidalEncoding(12, 7)),
        ids,
        1.0,
    ),
    "TransformerEmbedding, learned": (
        lambda: TransformerEmbedding(17, 12, position=LearnedEncoding(12, 7)),
        ids,
        1.0,
    ),
    "TransformerEmbedding, no positions": (lambda: TransformerEmbedding(17, 12), ids, 1.0),
    "Dropout": (lambda: Dropout(0.0), vectors, 6e4),  # with more, see test_dropout.py
    "LayerNorm": (lambda: LayerNorm(12), vectors, 6e4),
    "RMSNorm": (lambda: RMSNorm(12), vectors, 6e4),
    "BatchNorm": (lambda: BatchNorm(12), vectors, 6e4),
    # Sums of products with weights of size 1/√d_model, and for SwiGLU their squares, must fit.
    "FeedForward": (lambda: FeedForward(12, 23), vectors, 5e3),
    "FeedForward, gelu": (lambda: FeedForward(12, 23, activation="gelu"), vectors, 5e3),
    "SwiGLU": (lambda: SwiGLU(12, 23), vectors, 50.0),
    "SwiGLU, biases": (lambda: SwiGLU(12, 23, bias=True), vectors, 50.0),
    # A score's gradient is a product of cotangent and value; those of W_q and W_k multiply it by key and query.
    "MultiHeadAttention": (lambda: MultiHeadAttention(12, 3), pairs, 50.0),
    "MultiHeadAttention, grouped": (
        lambda: MultiHeadAttention(12, 6, num_key_value_heads=2, d_k=5, d_v=7, bias=False),
        pairs,
        50.0,
    ),
    "AddAndNorm": (
        lambda: AddAndNorm(SMALL),
        lambda dtype, scale=1.0: (*vectors(dtype, scale / 2), torch.sin),
        6e4,
    ),
    "EncoderLayer": (lambda: EncoderLayer(SMALL), vectors, 5e3),
    "EncoderLayer, the latest": (lambda: EncoderLayer(LATEST), vectors, 5e4),
    "DecoderLayer": (lambda: DecoderLayer(SMALL), pairs, 5e3),
    # Pre-norm, nothing normalises what comes back to the memory.
    "DecoderLayer, the latest": (lambda: DecoderLayer(LATEST), pairs, 100.0),
    "Transformer": (lambda: Transformer(SMALL), lambda dtype, scale=1.0: ids(dtype) * 2, 1.0),
    "Transformer, the latest": (lambda: Transformer(LATEST), lambda dtype, scale=1.0: ids(dtype) * 2, 1.0),
}
EACH = pytest.mark.parametrize("name", MODULES)


def build(name: str, dtype=torch.float64) -> nn.Module:
    return perturb(MODULES[name][0]()).to(dtype)


def inputs_of(name: str, dtype=torch.float64, scale: float = 1.0) -> tuple:
    return MODULES[name][1](dtype, scale)


def test_the_table_has_every_public_module():
    names = "encodings embeddings dropout norms feed_forward attention layers model".split()
    public = {
        name
        for module in names
        for name, thing in vars(import_module(f"transformer_lessons.{module}")).items()
        if inspect.isclass(thing) and issubclass(thing, nn.Module) and name[0] != "_"
    }
    assert public - {PositionTable.__name__} == {name.partition(",")[0] for name in MODULES}


def gradients(module: nn.Module, inputs: tuple) -> list:
    return [x.grad for x in (*inputs, *module.parameters()) if isinstance(x, torch.Tensor)]


def run(module: nn.Module, inputs: tuple) -> torch.Tensor:
    """The output, after a backward pass."""
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            x.requires_grad_()
    output = module(*inputs)
    if output.requires_grad:
        output.backward(torch.randn_like(output))
    return output.detach()


# --- Half precision, modules


@HALF
@EACH
def test_at_the_largest_inputs_outputs_and_gradients_are_finite(name, dtype):
    module, inputs = build(name, dtype), inputs_of(name, dtype, MODULES[name][2])
    output = run(module, inputs)
    assert output.dtype == dtype
    assert_finite(output, *gradients(module, inputs), *module.buffers())


@HALF
@EACH
def test_half_precision_is_close_to_double(name, dtype):
    module, inputs = build(name, dtype), inputs_of(name, dtype)
    wide = copy.deepcopy(module).double()
    expected = wide(*(as_double(x) for x in inputs)).detach()
    # The parameters are the same; each of up to about twenty roundings may add an eps of the largest value.
    assert_close(module(*inputs).detach().double(), expected, tolerance=20 * torch.finfo(dtype).eps)


def as_double(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


@HALF
def test_a_batch_norm_in_half_precision_keeps_its_statistics_in_float32(dtype):
    # The variance of numbers near 1,000 is beyond float16.
    norm, plain = BatchNorm(12).to(dtype), BatchNorm(12)
    for _ in range(3):
        x = extreme(6e4, dtype, 5, 12)
        norm(x), plain(x.float())
    assert norm.running_mean.dtype == norm.running_var.dtype == torch.float32
    assert torch.equal(norm.running_mean, plain.running_mean)
    assert torch.equal(norm.running_var, plain.running_var)
    assert torch.equal(norm.eval()(x), plain.eval()(x.float()).to(dtype))
    assert torch.equal(norm.float().running_var, plain.running_var)


MODELS = pytest.mark.parametrize("config", [SMALL, LATEST], ids=["the paper's", "the latest"])


@HALF
@MODELS
@pytest.mark.parametrize("scale", [1.0, 30.0, 100.0])
def test_a_model_with_extreme_logits(config, scale, dtype):
    model = perturb(Transformer(config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("W_q.weight", "W_k.weight", "output.weight")):
                parameter *= scale**0.5 if config.norm_first else 1.0
            if "token" in name:
                parameter *= scale
    src, tgt = ids(dtype)[0], ids(dtype)[0].flip(0)
    logits = model.to(dtype)(src, tgt)
    loss, _ = label_smoothed_loss(logits, tgt, pad_id=0)
    loss.backward()
    assert_finite(logits, loss, *(parameter.grad for parameter in model.parameters()))


@HALF
@MODELS
def test_a_model_in_half_precision_generates(config, dtype):
    model, (src,) = perturb(Transformer(config)).to(dtype), ids(dtype)
    for tokens in (greedy(model, src, max_length=5), beam(model, src, beam_size=3, max_length=5)):
        assert tokens.dtype == torch.long
        assert ((tokens >= 0) & (tokens < 19)).all()


# --- dtypes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@EACH
def test_to_another_dtype(name, dtype):
    module = build(name, torch.float32).to(dtype)
    assert {parameter.dtype for parameter in module.parameters()} <= {dtype}
    wide = torch.promote_types(dtype, torch.float32)  # of what is not learned, some stays in float32 at least
    assert {buffer.dtype for buffer in module.buffers() if buffer.is_floating_point()} <= {dtype, wide}
    assert module(*inputs_of(name, dtype)).dtype == dtype


@EACH
def test_there_and_back_again_changes_nothing(name):
    module = build(name, torch.float32).eval()
    expected = module(*(inputs := inputs_of(name, torch.float32)))
    assert torch.equal(module.double().float()(*inputs), expected)


# --- Devices


def device(name: str, is_there: bool):
    return pytest.param(name, marks=pytest.mark.skipif(not is_there, reason=f"no {name} here"))


@EACH
def test_on_the_meta_device(name):
    module, inputs = build(name), inputs_of(name)
    expected = module(*inputs)
    output = module.to("meta")(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in inputs))
    assert (output.shape, output.dtype, output.device.type) == (expected.shape, expected.dtype, "meta")


@EACH
def test_built_without_memory_and_filled_later(name):
    module = build(name).eval()
    with torch.device("meta"):
        other = MODULES[name][0]()
    other = other.double().to_empty(device="cpu").eval()
    other.load_state_dict(module.state_dict())
    inputs = inputs_of(name)
    assert torch.equal(other(*inputs), module(*inputs))


@pytest.mark.parametrize(
    "place", [device("cuda", torch.cuda.is_available()), device("mps", torch.backends.mps.is_available())]
)
@EACH
def test_on_another_device(name, place):
    module, inputs = build(name, torch.float32), inputs_of(name, torch.float32)
    expected = run(module, inputs)
    of_cpu = [None if x is None else x.clone() for x in gradients(module, inputs)]
    module.zero_grad()
    moved = tuple(x.detach().to(place) if isinstance(x, torch.Tensor) else x for x in inputs)
    torch.manual_seed(0)
    output = module.to(place)(*moved)
    assert output.device.type == place
    assert_close(output.detach().cpu(), expected, tolerance=1e-4)
    assert len(of_cpu) >= len(list(module.parameters()))


# --- Copies


def by_state_dict(module: nn.Module, name: str) -> nn.Module:
    other = MODULES[name][0]().double()
    other.load_state_dict(module.state_dict())
    return other.train(module.training)


COPIES = {
    "state_dict": by_state_dict,
    "deepcopy": lambda module, name: copy.deepcopy(module),
    "pickle": lambda module, name: pickle.loads(pickle.dumps(module)),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES.keys())
@EACH
def test_a_copy_is_equal_and_shares_nothing(name, copied):
    module, inputs = build(name), inputs_of(name)
    module(*inputs)  # batch norm has statistics to copy
    other = copied(module.eval(), name)
    assert type(other) is type(module)
    assert not other.training
    expected = module(*inputs)
    assert torch.equal(other(*inputs), expected)
    storages = [{t.data_ptr() for t in (*m.parameters(), *m.buffers())} for m in (module, other)]
    assert not storages[0] & storages[1]
    assert len(storages[0]) == len(storages[1])  # what is tied stays tied


STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}


@EACH
def test_a_state_dict_holds_what_is_learned_and_nothing_else(name):
    module = build(name)
    learned = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    assert set(module.state_dict()) == learned | (STATISTICS if name == "BatchNorm" else set())


@EACH
def test_everything_learned_is_used(name):
    module, inputs = build(name), inputs_of(name)
    run(module, inputs)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_under_autocast_dtypes_may_meet():
    """A layer may hand on bfloat16 to one whose weights are float32; autocast sees to it."""
    attention, x = MultiHeadAttention(6, 3), torch.randn(2, 5, 6).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(x).dtype == torch.bfloat16
    with pytest.raises(
        ValueError, match=r"query: expected torch\.float32, as the weights, got torch\.bfloat16"
    ):
        attention(x)
