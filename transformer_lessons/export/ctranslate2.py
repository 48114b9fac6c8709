"""Export to CTranslate2, a C++ engine that translates on CPUs and GPUs, also with 8-bit weights."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.layers import DecoderLayer, EncoderLayer
from transformer_lessons.model import Transformer
from transformer_lessons.norms import LayerNorm
from transformer_lessons.trainer.checkpoints import TOKENISER, Tokeniser


def save(directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser) -> None:
    """Write a model for ``ctranslate2.Translator``, from tokens to tokens, and any byte-pair encoding.

    A pitfall: an unknown token counts as padding.
    """
    spec = specification(model)
    spec.register_source_vocabulary(tokens(source))
    spec.register_target_vocabulary(tokens(target))
    spec.config.decoder_start_token = BOS
    spec.config.eos_token, spec.config.unk_token = EOS, PAD
    spec.validate()
    spec.optimize()  # tied weights are written once
    spec.save(str(directory))
    if isinstance(source, Subwords):
        source.save(directory / TOKENISER)


def tokens(tokeniser: Tokeniser) -> list[str]:
    """The tokens in the order of their ids."""
    if isinstance(tokeniser, Subwords):
        return [tokeniser.tokenizer.id_to_token(number) for number in range(len(tokeniser))]
    return tokeniser.tokens


def specification(model: Transformer) -> Any:
    """A ``TransformerSpec`` with our weights; CTranslate2 supports every option of our model."""
    specs, c = library("ctranslate2", extra="ctranslate2").specs, model.config
    spec = specs.TransformerSpec.from_config(
        (c.num_encoder_layers, c.num_decoder_layers),
        c.num_heads,
        pre_norm=c.norm_first,
        activation={"relu": specs.Activation.RELU, "gelu": specs.Activation.GELU}[c.activation],
    )
    encoder, decoder = spec.encoder, spec.decoder
    embedding(encoder, encoder.embeddings[0], model.source_embedding)
    embedding(decoder, decoder.embeddings, model.target_embedding)
    for side, layers in ((encoder, model.encoder_layers), (decoder, model.decoder_layers)):
        for theirs, ours in zip(side.layer, layers, strict=True):
            layer(theirs, ours)
    if c.norm_first:
        norm(encoder.layer_norm, model.encoder_norm)
        norm(decoder.layer_norm, model.decoder_norm)
    linear(decoder.projection, model.output)
    return spec


def embedding(side: Any, theirs: Any, ours: TransformerEmbedding) -> None:
    """Copy the tokens' and positions' tables; both sides scale by √d_model."""
    theirs.weight = ours.token.weight.detach()
    side.position_encodings.encodings = ours.position.table.detach()


def layer(theirs: Any, ours: EncoderLayer | DecoderLayer) -> None:
    """Copy each part of a layer with its norm."""
    attention(theirs.self_attention, ours.self_attention, self_attention=True)
    norm(theirs.self_attention.layer_norm, ours.add_norm_self.norm)
    if isinstance(ours, DecoderLayer):
        attention(theirs.attention, ours.cross_attention, self_attention=False)
        norm(theirs.attention.layer_norm, ours.add_norm_cross.norm)
    linear(theirs.ffn.linear_0, ours.feed_forward.W_1)
    linear(theirs.ffn.linear_1, ours.feed_forward.W_2)
    norm(theirs.ffn.layer_norm, ours.add_norm_feed_forward.norm)


def attention(theirs: Any, ours: MultiHeadAttention, *, self_attention: bool) -> None:
    """Copy an attention; matrices that multiply the same vectors are joined into one."""
    q, k, v = ours.W_q, ours.W_k, ours.W_v
    joined = [(q, k, v)] if self_attention else [(q,), (k, v)]
    for one, matrices in zip(theirs.linear, [*joined, (ours.W_o,)], strict=True):
        linear(one, *matrices)


def linear(theirs: Any, *ours: nn.Linear) -> None:
    """Copy matrices, concatenated along their rows, and their biases."""
    theirs.weight = torch.cat([one.weight for one in ours]).detach()
    if ours[0].bias is not None:
        theirs.bias = torch.cat([one.bias for one in ours]).detach()


def norm(theirs: Any, ours: LayerNorm) -> None:
    """Copy scale and shift; ε is the same."""
    theirs.gamma, theirs.beta = ours.weight.detach(), ours.bias.detach()
