"""Our state dicts under other libraries' names: renamed, concatenated, reordered, never computed with."""

import torch
from torch import Tensor

LEAVES = "weight", "bias"


def renamed(state: dict, names: dict[str, str]) -> dict:
    """Every name's part before the last dot replaced. A pitfall: an entry without a new name is an error."""
    return {names[name.rpartition(".")[0]] + "." + name.rpartition(".")[2]: x for name, x in state.items()}


def attention_to_torch(state: dict, prefix: str = "", new_prefix: str = "") -> dict:
    """The four projections of `attention.MultiHeadAttention` as `torch.nn.MultiheadAttention` packs them."""
    new = {}
    for leaf in LEAVES:
        packed = [state[f"{prefix}W_{letter}.{leaf}"] for letter in "qkv"]
        new[f"{new_prefix}in_proj_{leaf}"] = torch.cat(packed)
        new[f"{new_prefix}out_proj.{leaf}"] = state[f"{prefix}W_o.{leaf}"]
    return new


def layer_to_torch(state: dict, prefix: str = "", new_prefix: str = "") -> dict:
    """`layers.EncoderLayer` or `DecoderLayer` as nn.Transformer{Encoder,Decoder}Layer names its parts.

    A pitfall: the feed-forward network's norm is norm2 in an encoder layer and norm3 in a decoder layer.
    """
    attentions, norms = {"self_attention": "self_attn"}, ["self", "feed_forward"]
    if f"{prefix}cross_attention.W_q.weight" in state:
        attentions["cross_attention"] = "multihead_attn"
        norms.insert(1, "cross")
    new = {}
    for ours, theirs in attentions.items():
        new |= attention_to_torch(state, f"{prefix}{ours}.", f"{new_prefix}{theirs}.")
    parts = {"feed_forward.W_1": "linear1", "feed_forward.W_2": "linear2"}
    parts |= {f"add_norm_{name}.norm": f"norm{number}" for number, name in enumerate(norms, start=1)}
    for ours, theirs in parts.items():
        new |= {f"{new_prefix}{theirs}.{leaf}": state[f"{prefix}{ours}.{leaf}"] for leaf in LEAVES}
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
        ours = f"{stack}_norm."
        new |= {f"{stack}.norm.{x.removeprefix(ours)}": state[x] for x in state if x.startswith(ours)}
    return new


def projections(ours: str, theirs: str, last: str) -> dict[str, str]:
    """The four of an attention."""
    names = {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": last}
    return {f"{ours}.{name}": f"{theirs}.{new}" for name, new in names.items()}


# A pitfall: what BART and Marian call the final norm of a layer is the feed-forward network's.
BART = {
    **projections("self_attention", "self_attn", "out_proj"),
    **projections("cross_attention", "encoder_attn", "out_proj"),
    "add_norm_self.norm": "self_attn_layer_norm",
    "add_norm_cross.norm": "encoder_attn_layer_norm",
    "feed_forward.W_1": "fc1",
    "feed_forward.W_2": "fc2",
    "add_norm_feed_forward.norm": "final_layer_norm",
}
LLAMA = {
    **projections("self_attention", "self_attn", "o_proj"),
    "add_norm_self.norm": "input_layernorm",
    "feed_forward.W_1": "mlp.gate_proj",
    "feed_forward.W_3": "mlp.up_proj",
    "feed_forward.W_2": "mlp.down_proj",
    "add_norm_feed_forward.norm": "post_attention_layernorm",
}


def model_to_marian(state: dict) -> dict:
    """A post-norm `model.Transformer` as `transformers.MarianMTModel`, whose embedding goes by four names."""
    new = dict.fromkeys(("model.shared.weight", "lm_head.weight"), state["output.weight"])
    for stack in ("encoder", "decoder"):
        new[f"model.{stack}.embed_tokens.weight"] = state["output.weight"]
        for name in (name for name in state if name.startswith(f"{stack}_layers.")):
            _, number, *part, leaf = name.split(".")
            new[f"model.{stack}.layers.{number}.{BART['.'.join(part)]}.{leaf}"] = state[name]
    return new


def halves(x: Tensor, d_k: int) -> Tensor:
    """Rows of every head reordered: `variants.rotate` turns entries (2i, 2i + 1), Llama (i, i + d_k / 2)."""
    return x.unflatten(0, (-1, d_k // 2, 2)).transpose(1, 2).flatten(0, 2)


def layer_to_llama(state: dict, d_k: int) -> dict:
    """A `layers.EncoderLayer` made `variants.modern` as a LlamaDecoderLayer."""
    turned = ("self_attention.W_q.", "self_attention.W_k.")
    state = {name: halves(x, d_k) if name.startswith(turned) else x for name, x in state.items()}
    return renamed(state, LLAMA)
