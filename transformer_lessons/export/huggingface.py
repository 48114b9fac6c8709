"""As a model of Hugging Face's transformers: Marian if our norms come last, Pegasus if they come first.

Both have all sines of a position before all cosines, where ours take turns. So everything that reads or writes
the residual stream is put into that order.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_lessons.data.libraries import library
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.names import MARIAN, renamed
from transformer_lessons.oracles.names import marian_settings as settings
from transformer_lessons.trainer.checkpoints import Tokeniser


def save(directory: Path, model: Transformer, source: Tokeniser, target: Tokeniser) -> None:
    """For ``from_pretrained``: the model, and the tokeniser; another one of the target's words in ``target/``."""
    to_huggingface(model).save_pretrained(directory)
    tokeniser(source).save_pretrained(directory)
    if target is not source:
        tokeniser(target).save_pretrained(directory / "target")


def to_huggingface(model: Transformer) -> nn.Module:
    """A MarianMTModel, or for pre-norm a PegasusForConditionalGeneration, that gives the same logits.

    Raises:
        ValueError: for learned positions, and for pre-norm with two vocabularies, which neither has.
    """
    transformers, c = library("transformers", extra="huggingface"), model.config
    if c.position != "sinusoidal":
        raise ValueError(f"huggingface: expected sinusoidal positions, got {c.position} ones")
    if c.norm_first and not c.shared_vocabulary:
        raise ValueError("huggingface: expected one vocabulary of both languages for pre-norm, got two")
    if c.norm_first:
        kinds = transformers.PegasusConfig, transformers.PegasusForConditionalGeneration
    else:
        kinds = transformers.MarianConfig, transformers.MarianMTModel
    theirs = kinds[1](kinds[0](**settings(c))).eval()
    theirs.load_state_dict(to_marian(model.state_dict()), strict=False)  # positions and a bias of 0 are there
    theirs.generation_config.max_length = 1 + c.max_length  # with the start mark
    return theirs


def to_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict under Marian's names, in the order of its positions."""
    return renamed({name: sines_first(name, x) for name, x in state.items()}, MARIAN)


def sines_first(name: str, x: Tensor) -> Tensor:
    """Rows in the new order if they write the residual stream, columns if they read it."""
    writes = any(part in name for part in ("W_o.", "W_2.", "norm."))
    width = x.size(0 if writes else -1)
    order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    if writes:
        return x[order]
    return x[:, order] if x.dim() == 2 else x


def tokeniser(ours: Tokeniser):
    """A PreTrainedTokenizerFast of the same ids."""
    transformers = library("transformers", extra="huggingface")
    special = {"pad_token": PAD, "bos_token": BOS, "eos_token": EOS, "split_special_tokens": True}
    it = ours.tokenizer if isinstance(ours, Subwords) else number_words_tokeniser(ours)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=it, **special)


def number_words_tokeniser(vocabulary: Vocabulary):
    """Words and commas of a text; a German number is written as one word."""
    tokenizers = library("tokenizers", extra="huggingface")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary.ids, unk_token=PAD))
    words = tokenizers.Regex("[a-z]+|,")  # as `number_words.english_tokens` has them
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(words, "removed", invert=True)
    tokenizer.decoder = tokenizers.decoders.Fuse()
    return tokenizer
