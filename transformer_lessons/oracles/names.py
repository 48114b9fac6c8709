"""Our state dicts under other libraries' names: renamed, concatenated and permuted, nothing else."""

import torch

from transformer_lessons.config import TransformerConfig

TORCH = {
    "encoder_layers": "encoder.layers",
    "decoder_layers": "decoder.layers",
    "encoder_norm": "encoder.norm",
    "decoder_norm": "decoder.norm",
    "self_attention": "self_attn",
    "cross_attention": "multihead_attn",
    "W_o": "out_proj",
    "add_norm_self.norm": "norm1",
    "add_norm_cross.norm": "norm2",
    "feed_forward.W_1": "linear1",
    "feed_forward.W_2": "linear2",
}
PROJECTIONS = {"W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj"}
# A pitfall: what Marian calls the final norm of a layer is the feed-forward network's.
MARIAN = {
    **PROJECTIONS,
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "W_o": "out_proj",
    "add_norm_self.norm": "self_attn_layer_norm",
    "add_norm_cross.norm": "encoder_attn_layer_norm",
    "add_norm_feed_forward.norm": "final_layer_norm",
    "feed_forward.W_1": "fc1",
    "feed_forward.W_2": "fc2",
    "source_embedding.token": "model.encoder.embed_tokens",
    "target_embedding.token": "model.decoder.embed_tokens",
    "encoder_layers": "model.encoder.layers",
    "decoder_layers": "model.decoder.layers",
    "encoder_norm": "model.encoder.layer_norm",
    "decoder_norm": "model.decoder.layer_norm",
    "output": "lm_head",
}
LLAMA = {
    **PROJECTIONS,
    "self_attention": "self_attn",
    "W_o": "o_proj",
    "add_norm_self.norm": "input_layernorm",
    "add_norm_feed_forward.norm": "post_attention_layernorm",
    "feed_forward.W_1": "mlp.gate_proj",
    "feed_forward.W_3": "mlp.up_proj",
    "feed_forward.W_2": "mlp.down_proj",
    "norm_q": "q_norm",
    "norm_k": "k_norm",
    "embedding.token": "model.embed_tokens",
    "layers.": "model.layers.",
    "output": "lm_head",
}


def marian_settings(c: TransformerConfig) -> dict:
    """Our config under the names that Marian and Pegasus use."""
    sides = {"attention_heads": c.num_heads, "ffn_dim": c.d_ff}
    return {
        "vocab_size": c.source_vocab_size,
        "decoder_vocab_size": c.target_vocab_size,
        "share_encoder_decoder_embeddings": c.shared_vocabulary,
        "tie_word_embeddings": c.tie_embeddings,
        "d_model": c.d_model,
        "encoder_layers": c.num_encoder_layers,
        "decoder_layers": c.num_decoder_layers,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()},
        "dropout": c.dropout,
        "activation_function": c.activation,
        "scale_embedding": True,
        "max_position_embeddings": c.max_length,
        "pad_token_id": c.pad_id,
        "bos_token_id": c.bos_id,
        "decoder_start_token_id": c.bos_id,
        "eos_token_id": c.eos_id,
        "forced_eos_token_id": None,
    }


def renamed(state: dict, names: dict[str, str]) -> dict:
    """A state dict with all parts of its names replaced, in order; parts without a new name stay."""
    new = {}
    for name, tensor in state.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        new[name] = tensor
    return new


def layer_to_torch(state: dict) -> dict:
    """The state of an attention, a layer or all layers of a model, under the names of `torch.nn.Transformer`.

    Two pitfalls: W_q, W_k, W_v are one matrix there; the last norm is an encoder's norm2, a decoder's norm3.
    """
    new = {}
    for name, tensor in state.items():
        if "W_k." in name or "W_v." in name:
            continue  # they are joined with W_q below
        if "W_q." in name:
            tensor = torch.cat([state[name.replace("W_q", f"W_{letter}")] for letter in "qkv"])
            name = name.replace("W_q.", "in_proj_")
        layer = name.partition("add_norm_")[0]
        last = "norm3" if f"{layer}cross_attention.W_q.weight" in state else "norm2"
        new |= renamed({name: tensor}, TORCH | {"add_norm_feed_forward.norm": last})
    return new


def layer_to_llama(state: dict, d_k: int) -> dict:
    """The state of a `variants.modern` layer for LlamaDecoderLayer, of a `LanguageModel` for Qwen3.

    Every head's rows are reordered: `variants.rotate` turns entries (2i, 2i + 1), Llama (i, i + d_k / 2).
    """
    new, turned = {}, ("W_q.", "W_k.", "norm_q.", "norm_k.")
    for name, x in state.items():
        if name.partition("self_attention.")[2].startswith(turned):
            x = x.unflatten(0, (-1, d_k // 2, 2)).transpose(1, 2).flatten(0, 2)
        new["model.norm.weight" if name == "norm.weight" else name] = x
    return renamed(new, LLAMA)
