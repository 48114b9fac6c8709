"""The whole model and its decoding beside the `transformers` library's Marian, which is the paper's, post-norm.

Functions import the library themselves, since the package does not require it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_lessons import decoding
from transformer_lessons.config import TransformerConfig
from transformer_lessons.encodings import sinusoidal
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import Deviation, same_module
from transformer_lessons.oracles.model_cases import sentences
from transformer_lessons.oracles.names import model_to_marian
from transformer_lessons.oracles.shapes import BART_SIZES, D_MODEL, SIZES, VOCAB, each_of_transformers


def marian_pair(dtype: torch.dtype) -> tuple[Transformer, nn.Module]:
    """Our post-norm model, and a Marian of its size that is still without our weights."""
    from transformers import MarianConfig, MarianMTModel

    stacks = {"num_encoder_layers": 2, "num_decoder_layers": 3}
    config = TransformerConfig.base(VOCAB, **SIZES, **stacks, max_length=13)
    special = {"pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=VOCAB,
            **BART_SIZES,
            encoder_layers=2,
            decoder_layers=3,
            max_position_embeddings=13,
            activation_function="relu",
            scale_embedding=True,
            attn_implementation="eager",
            **special,
        )
    )
    return Transformer(config).to(dtype), theirs.to(dtype)


def to_marian(dtype: torch.dtype) -> Callable[[dict], dict]:
    """From our state dict to Marian's, with a bias of 0 and our positions (it would have all sines first)."""
    fixed = {"final_logits_bias": torch.zeros(1, VOCAB, dtype=dtype)}
    for stack in ("encoder", "decoder"):
        fixed[f"model.{stack}.embed_positions.weight"] = sinusoidal(13, D_MODEL, dtype=dtype)
    return lambda state: model_to_marian(state) | fixed


def marian(dtype: torch.dtype) -> Deviation:
    """The whole model, three-way tied; logits are compared where there is a token."""
    ours, theirs = marian_pair(dtype)
    src, tgt = sentences(VOCAB, (7, 3, 5)), sentences(VOCAB, (4, 11, 1))
    options = {"attention_mask": (src != 0).long(), "use_cache": False}
    return same_module(
        ours,
        theirs,
        to_marian(dtype),
        lambda ours: ours(src, tgt)[tgt != 0],
        lambda theirs: theirs(src, decoder_input_ids=tgt, **options).logits[tgt != 0],
    )


@torch.no_grad()
def generated(dtype: torch.dtype, beams: int) -> Deviation:
    """Tokens that differ from `generate`'s, of a model with large random weights, so that sentences differ.

    A length penalty of 0 is the one on which both agree; ``early_stopping="never"`` is our rule for the end.
    """
    ours, theirs = marian_pair(dtype)
    for parameter in ours.parameters():
        if parameter.dim() == 2:
            parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    theirs.load_state_dict(to_marian(dtype)(ours.state_dict()))
    src = sentences(VOCAB, (7, 3, 5, 1, 2, 7, 6))
    options = {"num_beams": beams, "do_sample": False, "max_new_tokens": 12, "length_penalty": 0.0}
    if beams > 1:
        options["early_stopping"] = "never"
        mine = decoding.beam(ours, src, beam_size=beams, length_penalty=0.0, max_length=12)
    else:
        options.pop("length_penalty")
        mine = decoding.greedy(ours, src, max_length=12)
    expected = theirs.eval().generate(src, attention_mask=(src != 0).long(), **options)[:, 1:]
    return Deviation(float((until_end(mine) != until_end(expected)).sum()))


def until_end(ids: Tensor, eos_id: int = 2) -> Tensor:
    """Twelve columns, with zeros after a sentence's end: `generate` may fill up with another id."""
    ids = nn.functional.pad(ids, (0, 12 - ids.size(1)))
    is_end = ids == eos_id
    return ids.masked_fill(is_end.cumsum(1) > is_end.long(), 0)


CASES = [
    *each_of_transformers("model.Transformer", "MarianMTModel", marian),
    *each_of_transformers("decoding.greedy", "MarianMTModel.generate", generated, {"beams": 1}),
    *each_of_transformers("decoding.beam", "MarianMTModel.generate", generated, {"beams": 2}, {"beams": 5}),
]
