"""Export to Hugging Face's transformers: as Marian for post-norm, as Pegasus for pre-norm.

Both have all sines of a position before all cosines, where ours alternate. So every weight that reads or
writes the residual stream is permuted into that order.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.names import MARIAN, marian_settings, renamed
from transformer_lessons.trainer.checkpoints import Tokeniser


def save(directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser) -> None:
    """Write model and tokeniser for ``from_pretrained``; a separate target tokeniser goes to ``target/``."""
    to_huggingface(model).save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)  # which only its owner could read
    tokeniser(source, model.config.max_length).save_pretrained(directory)
    if target is not source:
        tokeniser(target, model.config.max_length).save_pretrained(directory / "target")


def to_huggingface(model: Transformer) -> nn.Module:
    """A MarianMTModel, or for pre-norm a PegasusForConditionalGeneration, that gives the same logits.

    ValueError for learned positions, and for pre-norm with two vocabularies, which neither supports.
    """
    transformers, c = library("transformers", extra="huggingface"), model.config
    if c.position != "sinusoidal":
        raise ValueError(f"huggingface: expected sinusoidal positions, got {c.position} ones")
    if c.norm_first and not c.shared_vocabulary:
        raise ValueError("huggingface: expected one vocabulary for both languages with pre-norm, got two")
    kind = transformers.PegasusForConditionalGeneration if c.norm_first else transformers.MarianMTModel
    theirs = kind(kind.config_class(**marian_settings(c))).eval()
    theirs.load_state_dict(to_marian(model.state_dict()), strict=False)  # positions and a bias of 0 are there
    theirs.generation_config.max_length = 1 + c.max_length  # with the start mark
    return theirs


def to_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under Marian's names, with sines first.

    A weight's rows are permuted if it writes the residual stream, its columns if it reads it.
    """
    new = {}
    for name, x in state.items():
        writes = any(part in name for part in ("W_o.", "W_2.", "norm."))
        width = x.size(0 if writes else -1)
        order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
        new[name] = x[order] if writes else x[:, order] if x.dim() == 2 else x
    return renamed(new, MARIAN)


def tokeniser(ours: Tokeniser, most: int):
    """A PreTrainedTokenizerFast with the same ids, which truncates to `most` on request."""
    transformers = library("transformers", extra="huggingface")
    special = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS, "split_special_tokens": True}
    it = ours.tokenizer if isinstance(ours, Subwords) else number_words_tokeniser(ours)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=it, model_max_length=most, **special)


def number_words_tokeniser(vocabulary: Vocabulary):
    """A tokeniser that splits a text into words and commas and joins a German number into one word."""
    tokenizers = library("tokenizers", extra="huggingface")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary.ids, unk_token=PAD))
    words = tokenizers.Regex("[a-z]+|,")  # as in `number_words.english_tokens`
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(words, "removed", invert=True)
    tokenizer.decoder = tokenizers.decoders.Fuse()
    return tokenizer
