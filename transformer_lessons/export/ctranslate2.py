"""Export to CTranslate2, a C++ engine that translates on CPUs and GPUs, also with 8-bit weights."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD
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
    encoder.embeddings[0].weight = model.source_embedding.token.weight.detach()
    decoder.embeddings.weight = model.target_embedding.token.weight.detach()
    encoder.position_encodings.encodings = model.source_embedding.position.table.detach()
    decoder.position_encodings.encodings = model.target_embedding.position.table.detach()
    for side, layers in ((encoder, model.encoder_layers), (decoder, model.decoder_layers)):
        for theirs, ours in zip(side.layer, layers, strict=True):
            layer(theirs, ours)
    if c.norm_first:
        norm(encoder.layer_norm, model.encoder_norm)
        norm(decoder.layer_norm, model.decoder_norm)
    linear(decoder.projection, model.output)
    return spec


def layer(theirs: Any, ours: EncoderLayer | DecoderLayer) -> None:
    """Copy each part of a layer with its norm; matrices that multiply the same vectors are joined into one."""
    own = ours.self_attention
    linear(theirs.self_attention.linear[0], own.W_q, own.W_k, own.W_v)
    linear(theirs.self_attention.linear[1], own.W_o)
    norm(theirs.self_attention.layer_norm, ours.add_norm_self.norm)
    if isinstance(ours, DecoderLayer):
        cross = ours.cross_attention
        linear(theirs.attention.linear[0], cross.W_q)
        linear(theirs.attention.linear[1], cross.W_k, cross.W_v)
        linear(theirs.attention.linear[2], cross.W_o)
        norm(theirs.attention.layer_norm, ours.add_norm_cross.norm)
    linear(theirs.ffn.linear_0, ours.feed_forward.W_1)
    linear(theirs.ffn.linear_1, ours.feed_forward.W_2)
    norm(theirs.ffn.layer_norm, ours.add_norm_feed_forward.norm)


def linear(theirs: Any, *ours: nn.Linear) -> None:
    """Copy matrices, concatenated along their rows, and their biases."""
    theirs.weight = torch.cat([one.weight for one in ours]).detach()
    if ours[0].bias is not None:
        theirs.bias = torch.cat([one.bias for one in ours]).detach()


def norm(theirs: Any, ours: LayerNorm) -> None:
    """Copy scale and shift; ε is the same."""
    theirs.gamma, theirs.beta = ours.weight.detach(), ours.bias.detach()
