"""Our state dicts under other libraries' names: renamed, concatenated, reordered, never computed with."""

import torch
from torch import Tensor


def renamed(state: dict, names: dict[str, str]) -> dict:
    """Every name's part before the last dot replaced. A pitfall: an entry without a new name is an error."""
    return {names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2]: x for name, x in state.items()}


def attention_to_torch(state: dict, prefix: str = "", new_prefix: str = "") -> dict:
    """The four projections of `attention.MultiHeadAttention` as `torch.nn.MultiheadAttention` packs them.

    A pitfall: it packs W_q, W_k and W_v into one matrix only if their inputs are equally wide.
    """
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
    """`layers.EncoderLayer` or `DecoderLayer` as nn.Transformer{Encoder,Decoder}Layer names its parts.

    A pitfall: the feed-forward network's norm is norm2 in an encoder layer and norm3 in a decoder layer.
    """
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


def stack_to_torch(state: dict) -> dict:
    """The layers and final norms of `model.Transformer` as `torch.nn.Transformer` names them.

    A pitfall: a post-norm model has no final norms, so the oracle must be told to have none.
    """
    new = {}
    for stack in ("encoder", "decoder"):
        numbers = {name.split(".")[1] for name in state if name.startswith(f"{stack}_layers.")}
        for number in numbers:
            new |= layer_to_torch(state, f"{stack}_layers.{number}.", f"{stack}.layers.{number}.")
        for leaf in ("weight", "bias"):
            if f"{stack}_norm.{leaf}" in state:
                new[f"{stack}.norm.{leaf}"] = state[f"{stack}_norm.{leaf}"]
    return new


BART = {
    "self_attention.W_q": "self_attn.q_proj",
    "self_attention.W_k": "self_attn.k_proj",
    "self_attention.W_v": "self_attn.v_proj",
    "self_attention.W_o": "self_attn.out_proj",
    "add_norm_self.norm": "self_attn_layer_norm",
    "cross_attention.W_q": "encoder_attn.q_proj",
    "cross_attention.W_k": "encoder_attn.k_proj",
    "cross_attention.W_v": "encoder_attn.v_proj",
    "cross_attention.W_o": "encoder_attn.out_proj",
    "add_norm_cross.norm": "encoder_attn_layer_norm",
    "feed_forward.W_1": "fc1",
    "feed_forward.W_2": "fc2",
    "add_norm_feed_forward.norm": "final_layer_norm",
}


def layer_to_bart(state: dict) -> dict:
    """`layers.EncoderLayer` or `DecoderLayer` as BART and Marian name their parts.

    A pitfall: what they call the final norm is the feed-forward network's.
    """
    return renamed(state, BART)


def model_to_marian(state: dict) -> dict:
    """A post-norm `model.Transformer` as `transformers.MarianMTModel`, less its positions, a fixed table.

    A pitfall: Marian has one embedding under four names, and a bias on the logits, which is 0 here.
    """
    new = {}
    for stack in ("encoder", "decoder"):
        prefix = f"{stack}_layers."
        layers = {name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
        for name, tensor in layers.items():
            number, _, rest = name.partition(".")
            part, _, leaf = rest.rpartition(".")
            new[f"model.{stack}.layers.{number}.{BART[part]}.{leaf}"] = tensor
        new[f"model.{stack}.embed_tokens.weight"] = state["output.weight"]
    return new | dict.fromkeys(("model.shared.weight", "lm_head.weight"), state["output.weight"])


LLAMA = {
    "self_attention.W_q": "self_attn.q_proj",
    "self_attention.W_k": "self_attn.k_proj",
    "self_attention.W_v": "self_attn.v_proj",
    "self_attention.W_o": "self_attn.o_proj",
    "add_norm_self.norm": "input_layernorm",
    "feed_forward.W_1": "mlp.gate_proj",
    "feed_forward.W_3": "mlp.up_proj",
    "feed_forward.W_2": "mlp.down_proj",
    "add_norm_feed_forward.norm": "post_attention_layernorm",
}


def halves(x: Tensor, d_k: int) -> Tensor:
    """Rows of every head reordered from (0, 1, 2, 3, …) to (0, 2, …, 1, 3, …).

    `encodings.RotaryEncoding` turns neighbours (2i, 2i + 1), Llama turns (i, i + d_k / 2). A pitfall: the values
    are not turned, and stay in order.
    """
    return x.unflatten(0, (-1, d_k // 2, 2)).transpose(1, 2).flatten(0, 2)


def layer_to_llama(state: dict, d_k: int) -> dict:
    """A pre-norm `layers.EncoderLayer` with RMSNorm, SwiGLU and rotary positions as a LlamaDecoderLayer.

    A pitfall: without `halves` the scores are of other pairs, and only those at distance 0 are right.
    """
    turned = ("self_attention.W_q.", "self_attention.W_k.")
    state = {name: halves(x, d_k) if name.startswith(turned) else x for name, x in state.items()}
    return renamed(state, LLAMA)
