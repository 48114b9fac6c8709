"""Our modules beside independent ones: the same weights, the same inputs, so the same values and gradients."""

import torch
from conftest import assert_close
from torch import nn

DTYPES = [torch.float64, torch.float32]


def perturb(module: nn.Module) -> nn.Module:
    """Moves every parameter off its initial value: a bias of 0 or a scale of 1 would hide a mistake."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return module


def leaves(*tensors):
    """Fresh leaves with the values of `tensors`, so that two implementations share no graph."""
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def assert_same_function(ours, theirs, *inputs):
    """Equal values, and for a random cotangent equal gradients of every input."""
    mine, other = leaves(*inputs), leaves(*inputs)
    actual, expected = ours(*mine), theirs(*other)
    assert_close(actual, expected)
    cotangent = torch.randn_like(expected)
    actual_gradients = torch.autograd.grad(actual, mine, cotangent)
    expected_gradients = torch.autograd.grad(expected, other, cotangent)
    for a, b in zip(actual_gradients, expected_gradients, strict=True):
        assert_close(a, b)


def assert_same_module(ours, theirs, translate, call_ours, call_theirs, *inputs):
    """As `assert_same_function`, and the gradient of every parameter.

    `translate` takes our state dict to theirs. It only renames and concatenates, so it takes gradients along too.
    """
    perturb(ours)
    theirs.load_state_dict(translate(ours.state_dict()))
    mine, other = leaves(*inputs), leaves(*inputs)
    actual, expected = call_ours(ours, *mine), call_theirs(theirs, *other)
    assert_close(actual, expected)
    cotangent = torch.randn_like(expected)
    actual.backward(cotangent)
    expected.backward(cotangent)
    for a, b in zip(mine, other, strict=True):
        assert_close(a.grad, b.grad)
    # A tied parameter goes by all its names.
    ours_by_name = dict(ours.named_parameters(remove_duplicate=False))
    gradients = translate({name: parameter.grad for name, parameter in ours_by_name.items()})
    for name, parameter in theirs.named_parameters(remove_duplicate=False):
        assert_close(gradients[name], parameter.grad)


def renamed(state: dict, names: dict[str, str]) -> dict:
    """A state dict with the first parts of its names replaced; every entry must have a new name."""
    return {names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2]: x for name, x in state.items()}


def attention_to_torch(state: dict, prefix: str = "", new_prefix: str = "") -> dict:
    """The four projections of `MultiHeadAttention` as `nn.MultiheadAttention` packs them."""
    projections = [f"{prefix}W_{letter}." for letter in "qkv"]
    weights = [state[f"{name}weight"] for name in projections]
    if len({weight.size(1) for weight in weights}) == 1:
        new = {"in_proj_weight": torch.cat(weights)}
    else:
        new = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights, strict=True))
    if f"{prefix}W_o.bias" in state:
        new["in_proj_bias"] = torch.cat([state[f"{name}bias"] for name in projections])
        new["out_proj.bias"] = state[f"{prefix}W_o.bias"]
    new["out_proj.weight"] = state[f"{prefix}W_o.weight"]
    return {new_prefix + name: tensor for name, tensor in new.items()}


def layer_to_torch(state: dict, prefix: str = "", new_prefix: str = "") -> dict:
    """`EncoderLayer` or `DecoderLayer` as nn.Transformer{Encoder,Decoder}Layer names its parts."""
    is_decoder = f"{prefix}cross_attention.W_q.weight" in state
    new = attention_to_torch(state, f"{prefix}self_attention.", f"{new_prefix}self_attn.")
    if is_decoder:
        new |= attention_to_torch(state, f"{prefix}cross_attention.", f"{new_prefix}multihead_attn.")
    parts = {"feed_forward.W_1": "linear1", "feed_forward.W_2": "linear2", "add_norm_self.norm": "norm1"}
    if is_decoder:
        parts |= {"add_norm_cross.norm": "norm2", "add_norm_feed_forward.norm": "norm3"}
    else:
        parts |= {"add_norm_feed_forward.norm": "norm2"}
    for part, new_part in parts.items():
        for leaf in ("weight", "bias"):
            new[f"{new_prefix}{new_part}.{leaf}"] = state[f"{prefix}{part}.{leaf}"]
    return new
