"""The whole model and its loss beside PyTorch's."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lessons import encodings, losses
from transformer_lessons.config import TransformerConfig
from transformer_lessons.masks import causal_mask
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import Deviation, same_function, same_module
from transformer_lessons.oracles.names import stack_to_torch
from transformer_lessons.oracles.shapes import BATCH, IDS, KEYS, SIZES, each


class TorchTransformer(nn.Module):
    """nn.Transformer between nn.Embedding and nn.Linear.

    A pitfall: nn.Transformer always adds final norms; the paper's post-norm model has none.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.source = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target = nn.Embedding(config.target_vocab_size, config.d_model)
        if config.shared_vocabulary:
            self.source = self.target
        d_model, *sizes = config.d_model, config.num_heads, config.d_ff, 0.0
        options = {"activation": config.activation, "norm_first": config.norm_first, "batch_first": True}
        encoder_layer = nn.TransformerEncoderLayer(d_model, *sizes, **options)
        decoder_layer = nn.TransformerDecoderLayer(d_model, *sizes, **options)
        final = [nn.LayerNorm(d_model) if config.norm_first else None for _ in range(2)]
        number = config.num_encoder_layers, config.num_decoder_layers
        encoder = nn.TransformerEncoder(encoder_layer, number[0], final[0], enable_nested_tensor=False)
        decoder = nn.TransformerDecoder(decoder_layer, number[1], final[1])
        self.core = nn.Transformer(
            d_model, config.num_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        )
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        if config.tie_embeddings:
            self.output.weight = self.target.weight

    def embed(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        """Token and position."""
        x = embedding(ids) * math.sqrt(embedding.embedding_dim)
        return x + encodings.sinusoidal(*x.shape[1:], dtype=x.dtype)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits, with every padding hidden and the target causal."""
        hidden = self.core(
            self.embed(self.source, src),
            self.embed(self.target, tgt),
            tgt_mask=~causal_mask(tgt.size(1))[0, 0],
            src_key_padding_mask=src == 0,
            memory_key_padding_mask=src == 0,
            tgt_key_padding_mask=tgt == 0,
        )
        return self.output(hidden)


def model_to_torch(state: dict) -> dict:
    """Our model's state dict for `TorchTransformer`. A pitfall: tied matrices go by several names."""
    new = {f"core.{name}": tensor for name, tensor in stack_to_torch(state).items()}
    for theirs, ours in (("source", "source_embedding.token"), ("target", "target_embedding.token")):
        new[f"{theirs}.weight"] = state[f"{ours}.weight"]
    return new | {"output.weight": state["output.weight"]}


def sentences(vocab: int, lengths: tuple[int, ...]) -> Tensor:
    """Random ids from 3 on, padded with 0."""
    ids = torch.randint(3, vocab, (len(lengths), max(lengths)))
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)


def whole_model(dtype: torch.dtype, norm_first: bool, tying: str) -> Deviation:
    """The whole model; logits are compared where there is a token."""
    config = TransformerConfig(
        19 if tying == "three-way" else 17,
        19,
        **SIZES,
        num_encoder_layers=2,
        num_decoder_layers=3,
        norm_first=norm_first,
        tie_embeddings=tying != "none",
        shared_vocabulary=tying == "three-way",
        max_length=13,
    )
    src, tgt = sentences(config.source_vocab_size, (7, 3, 5)), sentences(19, (4, 11, 1))
    return same_module(
        Transformer(config).to(dtype),
        TorchTransformer(config).to(dtype),
        model_to_torch,
        lambda ours: ours(src, tgt)[tgt != 0],
        lambda theirs: theirs(src, tgt)[tgt != 0],
    )


def smoothed_loss(dtype: torch.dtype, padding: bool) -> Deviation:
    """Without padding PyTorch's own smoothing; with padding its loss against the distribution, written out."""
    targets = torch.randint(1, 17, (BATCH, KEYS)) * IDS if padding else torch.randint(17, (BATCH, KEYS))
    logits = 3 * torch.randn(BATCH, KEYS, 17, dtype=dtype)

    def theirs(x: Tensor) -> Tensor:
        if not padding:
            return F.cross_entropy(x.mT, targets, label_smoothing=0.3, reduction="sum")
        # ε goes to the 17 − 1 classes that are not padding, evenly; a position of padding has no target at all.
        q = torch.full_like(x, 0.3 / 16).scatter_add(-1, targets[..., None], torch.full_like(x, 0.7))
        q = q * (torch.arange(17) != 0) * IDS[..., None]
        return F.cross_entropy(x.flatten(0, 1), q.flatten(0, 1), reduction="sum")

    pad_id = 0 if padding else None
    return same_function(
        lambda x: losses.label_smoothed_loss(x, targets, pad_id=pad_id, smoothing=0.3)[0], theirs, logits
    )


CASES = [
    *each(
        "model.Transformer",
        "nn.Transformer",
        whole_model,
        *(
            {"norm_first": first, "tying": tying}
            for first in (False, True)
            for tying in ("none", "target", "three-way")
        ),
    ),
    *each(
        "losses.label_smoothed_loss",
        "F.cross_entropy(label_smoothing)",
        partial(smoothed_loss, padding=False),
    ),
    *each(
        "losses.label_smoothed_loss",
        "F.cross_entropy of the distribution",
        partial(smoothed_loss, padding=True),
    ),
]
