"""Small sizes, different primes where they can be, so that a swapped axis cannot hide."""

import torch
from torch import Tensor

from transformer_lessons.oracles import Case

BATCH, HEADS, QUERIES, KEYS, D_K, D_V = 2, 3, 7, 11, 5, 13
D_MODEL, D_FF = HEADS * D_K, 23
REAL = torch.tensor([11, 7])  # tokens in each of two padded sequences
IDS = (torch.arange(KEYS) < REAL[:, None]).long()  # 1 for a token, 0 for padding

SIZES = {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF, "dropout": 0.0}
VOCAB = 19
BART_SIZES = {
    "d_model": D_MODEL,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": D_FF,
    "decoder_ffn_dim": D_FF,
    "dropout": 0.0,
}


def random_vectors(dtype: torch.dtype, length: int = KEYS) -> Tensor:
    """A batch of vectors, ``(BATCH, length, D_MODEL)``, as every layer takes them."""
    return torch.randn(BATCH, length, D_MODEL, dtype=dtype)


def each(component: str, oracle: str, compare, *options: dict, needs: str = "torch") -> list[Case]:
    """One case for every set of options."""
    return [Case(component, oracle, compare, chosen, needs) for chosen in options or ({},)]


def each_of_transformers(component: str, oracle: str, compare, *options: dict) -> list[Case]:
    """As `each`, for oracles of the `transformers` library."""
    return each(component, f"transformers {oracle}", compare, *options, needs="transformers")
