"""The model on packed rows (`data.packing`): each pair gets what it would get in a row of its own."""

from jaxtyping import Float, Int
from torch import Tensor

from transformer_lessons.data.packing import PackedBatch
from transformer_lessons.embeddings import TransformerEmbedding
from transformer_lessons.masks import segment_mask
from transformer_lessons.model import Transformer


def packed_hidden(model: Transformer, batch: PackedBatch) -> Float[Tensor, "rows target d_model"]:
    """The decoder's output: attention stays within a segment, and positions start anew with each."""
    source, target = batch.src_segments, batch.tgt_segments
    memory = embedded(model.source_embedding, batch.src, batch.src_positions)
    for layer in model.encoder_layers:
        memory = layer(memory, segment_mask(source, source))
    memory = model.encoder_norm(memory)
    x = embedded(model.target_embedding, batch.tgt_in, batch.tgt_positions)
    for layer in model.decoder_layers:
        x = layer(x, memory, segment_mask(target, source), segment_mask(target, target))
    return model.decoder_norm(x)


def embedded(
    embedding: TransformerEmbedding, ids: Int[Tensor, "rows length"], positions: Int[Tensor, "*row length"]
) -> Float[Tensor, "rows length d_model"]:
    """`embeddings.TransformerEmbedding` with these positions, where it would count its own."""
    x = embedding.token(ids)
    if embedding.position is not None:
        x = x + embedding.position.table[positions]
    return embedding.dropout(x)
