"""Small models for tests; every size is a different prime, or a product of primes."""

from collections.abc import Iterator

import torch

from transformer_lessons.config import TransformerConfig
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import perturb


def config(**changes) -> TransformerConfig:
    vocabularies = {"source_vocab_size": 17, "target_vocab_size": 19}
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 3}
    return TransformerConfig(**{**vocabularies, **sizes, "dropout": 0.0, "max_length": 13, **changes})


def new_model(dtype=torch.float64, **changes) -> Transformer:
    return perturb(Transformer(config(**changes))).to(dtype)


def talkative(seed: int, **changes) -> Transformer:
    """An untrained model with weights so large, and vocabulary so small, that sentences differ and end."""
    torch.manual_seed(seed)
    changes = {"target_vocab_size": 7, "tie_embeddings": False, **changes}
    model = Transformer(config(**changes)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    return model


def sentences(lengths, vocab: int = 17) -> torch.Tensor:
    """Random ids, padded on the right with 0."""
    ids = torch.randint(3, vocab, (len(lengths), max(lengths)))
    return ids * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def side_by_side(one, other, steps: int, *, keep=(), drop=()) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The logits of two decodings of the same tokens; after some steps hypotheses or sentences are dropped."""
    for step in range(steps):
        rows, left = one.copies * len(one.src_mask), torch.arange(0, len(one.src_mask), 2)
        token, kept = torch.randint(3, 19, (rows, 1)), torch.arange(rows).flip(0) // 2  # as in beam search
        yield one.next_logits(token), other.next_logits(token)
        for decoding in (one, other):
            if step in keep:
                decoding.keep(kept)
            if step in drop:
                decoding.keep_sentences(left)
