"""Tries a learner's part, right or wrong, in the trained translator: one can read what it does."""

import copy
from collections.abc import Callable, Sequence
from functools import cache, partial
from html import escape
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from transformer_lessons import decoding
from transformer_lessons.attention import MultiHeadAttention
from transformer_lessons.checks.catalogue.greedy import greedy
from transformer_lessons.checks.definitions import Task
from transformer_lessons.checks.translator.own_parts import CLASSES, FUNCTIONS, TRAINING, cached, installed
from transformer_lessons.data import number_words
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.model import Transformer
from transformer_lessons.trainer.checkpoints import PRETRAINED, load_model

# Of several lengths, since padding matters; two of them reveal every common slip, even a lost √d_k.
NUMBERS = (7, 421, 94_790, 200_201, 777_777)
LENGTH = 24  # tokens
MOST_WORDS = 12  # the most words shown, as an answer may not end


class Comparison(NamedTuple):
    """What the translator says for one number with the learner's part, and `before` with the package's."""

    number: int
    own: list[str]
    before: list[str]


greedy_uncached = partial(greedy, max_length=LENGTH)  # calls the parts as training does


def sample(cut: Callable[[Tensor], Tensor], translator: Transformer, src: Tensor) -> Tensor:
    """Tokens sampled from the probabilities that the answer leaves."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return decoding.generate(translator, src, lambda x: cut(x).multinomial(1)[:, 0], LENGTH)


def greedy_cached(own: Callable, translator: Transformer, src: Tensor) -> Tensor:
    """Greedy decoding with a cache, with the answer in place of the decoder's self-attention."""
    for layer in translator.decoder_layers:
        layer.self_attention.attention = cached(own)
    return decoding.greedy(translator, src, max_length=LENGTH)


# Tasks about decoding, and how a translator decodes with an answer to each.
DECODERS: dict[str, Callable[[Any, Transformer, Tensor], Tensor]] = {
    "greedy": lambda own, *given: own(*given, max_length=LENGTH),
    "beam": lambda own, *given: own(*given, beam_size=4, length_penalty=0.6, max_length=LENGTH),
    "top_k": lambda own, *given: sample(partial(own, k=3), *given),
    "nucleus": lambda own, *given: sample(partial(own, p=0.9), *given),
    "cached_attention_step": greedy_cached,
}
FORWARD = (*CLASSES, *FUNCTIONS, "sinusoidal")
PARTS = [part for part in dict.fromkeys([*FORWARD, *DECODERS]) if part not in TRAINING]
# What an answer is compared with, if it is not greedy decoding.
REFERENCE_DECODERS = {"beam": partial(decoding.beam, max_length=LENGTH)}
# Tasks that change where attention looks, and which attention of the decoder's last layer is shown.
SELF, CROSS = -2, -1
SHOWN_ATTENTION = {"causal_mask": SELF, "combine_masks": CROSS, "padding_mask": CROSS}
SHOWN_ATTENTION |= {"scaled_dot_product_attention": CROSS}


@cache
def trained() -> tuple[Transformer, Vocabulary, Vocabulary]:
    """The committed model, and its source and target vocabularies."""
    translator, source, target = load_model(PRETRAINED)
    return translator.eval(), source, target


def ids_of(numbers: Sequence[int]) -> Tensor:
    """The ids of numbers in English words, padded."""
    source = trained()[1]
    words = [number_words.english_tokens(number_words.english(n)) for n in numbers]
    return pad([source.encode(one) for one in words], source.pad_id)


def words_of(ids: Tensor) -> list[list[str]]:
    """The German words of each row of ids."""
    return [trained()[2].decode(row) for row in ids.tolist()]


def require_part(task: Task) -> Task:
    """The task itself; ValueError if the translator has no such part."""
    if task.name not in PARTS:
        parts = sorted(PARTS)
        raise ValueError(f"task: expected a part of the translator, one of {parts}, got {task.name!r}")
    return task


def compare(task: Task, own: Any) -> list[Comparison]:
    """What the translator says for five numbers with a learner's part; raises the part's errors."""
    translator = copy.deepcopy(trained()[0])
    with installed(translator, task, own):
        words = decoded_words(task.name, own, translator)
    before = reference_words(REFERENCE_DECODERS.get(task.name, greedy_uncached))
    return [Comparison(*one) for one in zip(NUMBERS, words, before, strict=True)]


@cache
def reference_words(decode: Callable[[Transformer, Tensor], Tensor]) -> list[list[str]]:
    """What the translator says for the five numbers with the package's parts."""
    return words_of(decode(trained()[0], ids_of(NUMBERS)))


def decoded_words(name: str, own: Any, translator: nn.Module) -> list[list[str]]:
    """What a translator says for the five numbers, decoded by the answer if the task is about decoding."""
    decode = DECODERS.get(name, lambda own, *given: greedy_uncached(*given))
    return words_of(decode(own, translator, ids_of(NUMBERS)))


def as_text(task: Task, comparisons: Sequence[Comparison]) -> str:
    """The lines to print: what is said and, below it, what was said before if that differs."""
    lines = [f"The trained translator, with your {task.public_name}:", ""]
    for number, own, before in comparisons:
        lines.append(f"{number:>9,}  {join_words(own)}")
        if own != before:
            lines.append(f"{'before':>9}  {join_words(before)}")
    same = sum(one.own == one.before for one in comparisons)
    return "\n".join([*lines, "", f"{same} of {len(comparisons)} are the same as before."])


def join_words(words: Sequence[str]) -> str:
    """The first words, joined."""
    return " ".join(words[:MOST_WORDS]) + " …" * (len(words) > MOST_WORDS) or "(nothing)"


@torch.no_grad()
def attention_weights(translator: nn.Module, src: Tensor, tgt: Tensor, which: int) -> Tensor | None:
    """The weights (queries, keys) of one attention, a mean over heads; None if they are not returned."""
    attention, kept_weights = MultiHeadAttention.attention, []

    def keeping(*given, **options):
        output, weights = attention(*given, **options)
        kept_weights.append(weights)
        return output, weights

    with patch.object(MultiHeadAttention, "attention", staticmethod(keeping)):
        translator(src, tgt)
    weights = kept_weights[which]
    return None if weights is None else weights[0].mean(dim=0)


def attention_html(task: Task, own: Any) -> str:
    """HTML maps: where the decoder looks as it says 421, beside a longer number, with the part and before."""
    which, (_, source, target) = SHOWN_ATTENTION[task.name], trained()
    src = ids_of((421, 777_777))
    output = ["<bos>", *number_words.german_tokens(421)]
    words = [source.tokens[i] for i in src[0].tolist()] if which == CROSS else output
    tgt = torch.tensor([[target.tokens.index(word) for word in output]]).expand(2, -1)
    translator = copy.deepcopy(trained()[0])
    before = attention_weights(translator, src, tgt, which)
    with installed(translator, task, own):
        now = attention_weights(translator, src, tgt, which)
    maps = {f"your {task.public_name}": now, "before": before}
    tables = [table(title, output, words, one) for title, one in maps.items() if one is not None]
    where = "the source" if which == CROSS else "what it has said"
    gap = '<div style="display:flex;flex-wrap:wrap;gap:1.5em">'
    return f"<p>Where the decoder's last layer looks in {where}:</p>{gap}{''.join(tables)}</div>"


def table(title: str, rows: Sequence[str], columns: Sequence[str], weights: Tensor) -> str:
    """A map of weights as HTML: the larger a weight, the darker its cell."""
    upright = "writing-mode:vertical-rl;transform:rotate(180deg);font-weight:normal;padding:2px"
    head = "".join(f'<th style="{upright}">{escape(word)}</th>' for word in columns)
    body = ""
    for word, row in zip(rows, weights.tolist(), strict=True):
        cells = "".join(
            f'<td title="{w:.2f}" style="padding:0;width:1.4em;height:1.4em;border:1px solid #8884;'
            f'background:rgba(100,144,232,{w:.2f})"></td>'
            for w in row
        )
        body += f'<tr><th style="font-weight:normal;text-align:right">{escape(word)}</th>{cells}</tr>'
    return f"<table><caption>{escape(title)}</caption><tr><th></th>{head}</tr>{body}</table>"
