"""From a trained model to text: choosing the next token, again and again."""

import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer


@torch.no_grad()
def greedy(
    model: Transformer, src: Int[Tensor, "batch source"], *, max_length: int, use_cache: bool = True
) -> Int[Tensor, "batch length"]:
    """Always take the likeliest next token; a sentence ends at `eos_id`.

    ``y_t = argmax_c p(c | y_1 … y_{t−1}, src)``

    The model is put into evaluation mode and back. A pitfall: what is likeliest step by step need not be the
    likeliest sentence (`beam` looks further).

    Args:
        model: a trained model.
        src: source ids, padded on the right.
        max_length: most tokens to generate for a sentence, `eos_id` included.
        use_cache: keep the keys and values of earlier steps; the same tokens, much less work.

    Returns:
        Generated ids without `bos_id`, with `eos_id`, then `pad_id`; as long as the longest sentence.

    Raises:
        ValueError: for a max_length below 1 or beyond the model's.
    """
    config, was_training = model.config, model.training
    if not 1 <= max_length <= config.max_length:
        raise ValueError(f"max_length: expected 1 to {config.max_length}, the model's, got {max_length}")
    model.eval()
    try:
        return _greedy(model, src, max_length, use_cache)
    finally:
        model.train(was_training)


def _greedy(model: Transformer, src: Tensor, max_length: int, use_cache: bool) -> Tensor:
    config = model.config
    memory, src_mask = model.encode(src), padding_mask(src, config.pad_id)
    caches = model.new_caches(src.size(0), max_length) if use_cache else None
    tokens = src.new_full((src.size(0), 1), config.bos_id)
    is_done = torch.zeros(src.size(0), dtype=torch.bool, device=src.device)
    for _ in range(max_length):
        if is_done.all():
            break
        last = tokens[:, -1:] if use_cache else tokens
        logits = model.project(model.decode(last, memory, src_mask, caches)[:, -1])
        token = logits.argmax(-1).masked_fill(is_done, config.pad_id)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        is_done = is_done | (token == config.eos_id)
    return tokens[:, 1:]
