"""Greedy decoding against the plainest loop there is: one sentence, one token, the whole model again."""

from functools import cache

import pytest
import torch

from transformer_lessons.checkpoints import load_model
from transformer_lessons.data import number_words
from transformer_lessons.data.vocabulary import pad
from transformer_lessons.decoding import greedy
from transformer_lessons.model import Transformer, TransformerConfig

PAD, BOS, EOS = 0, 1, 2
SOURCE_LENGTHS = (11, 7, 5, 3, 2, 1, 11)


def random_model(seed: int) -> Transformer:
    """Untrained, but with weights so large, and a vocabulary so small, that sentences differ and end."""
    torch.manual_seed(seed)
    sizes = {"d_model": 15, "num_heads": 3, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 3}
    model = Transformer(
        TransformerConfig(17, 7, **sizes, max_length=13, tie_embeddings=False, norm_first=True)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    return model.double()


def sources() -> torch.Tensor:
    ids = torch.randint(3, 17, (len(SOURCE_LENGTHS), 11))
    return ids.masked_fill(torch.arange(11) >= torch.tensor(SOURCE_LENGTHS)[:, None], PAD)


def number_words_model():
    """The trained, post-norm model, and numbers of one to eleven words."""
    model, source, _ = load_model()
    numbers = [0, 7, 21, 100, 421, 1000, 987_654, 70_013, 300_300]
    sentences = [source.encode(number_words.english_tokens(number_words.english(n))) for n in numbers]
    return model.double(), pad(sentences, PAD)


@torch.no_grad()
def naive(model: Transformer, src: torch.Tensor, max_length: int) -> list[list[int]]:
    model.eval()
    sentences = []
    for row in src.tolist():
        real, tokens = [token for token in row if token != PAD], [BOS]
        while len(tokens) <= max_length and EOS not in tokens:
            logits = model(torch.tensor([real]), torch.tensor([tokens]))
            tokens.append(int(logits[0, -1].argmax()))
        sentences.append(tokens[1:])
    return sentences


@cache
def example(seed: int) -> tuple[Transformer, torch.Tensor, list[list[int]]]:
    model, src = random_model(seed), sources()
    return model, src, naive(model, src, 13)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_equal_to_one_sentence_at_a_time(seed, use_cache):
    model, src, expected = example(seed)
    assert greedy(model, src, max_length=13, use_cache=use_cache).tolist() == pad(expected, PAD).tolist()


def test_the_random_models_say_enough_to_prove_something():
    sentences = [example(seed)[2] for seed in (1, 2, 5)]
    assert all(len(set(map(tuple, of_one_model))) > 2 for of_one_model in sentences)
    assert len({len(sentence) for of_one_model in sentences for sentence in of_one_model}) > 3


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_trained_model_too(use_cache):
    model, src = number_words_model()
    expected = naive(model, src, 64)
    assert greedy(model, src, max_length=64, use_cache=use_cache).tolist() == pad(expected, PAD).tolist()
    assert {len(sentence) for sentence in expected} >= {2, 4, 6}
    assert all(sentence[-1] == EOS for sentence in expected)


class Scripted(Transformer):
    """Says token 5 until each row's time has come, then ends."""

    def __init__(self, times: list[int]):
        super().__init__(TransformerConfig(17, 7, d_model=15, num_heads=3, max_length=13))
        self.times, self.steps = torch.tensor(times), 0

    def project(self, hidden):
        self.steps += 1
        token = torch.where(self.times == self.steps, EOS, 5)
        return torch.nn.functional.one_hot(token, 7).to(hidden.dtype)


@pytest.mark.parametrize("use_cache", [True, False])
def test_each_sentence_stops_and_is_padded(use_cache):
    model, src = Scripted([3, 1, 4]), torch.full((3, 2), 5)
    expected = [[5, 5, EOS, PAD], [EOS, PAD, PAD, PAD], [5, 5, 5, EOS]]
    assert greedy(model, src, max_length=13, use_cache=use_cache).tolist() == expected
    assert model.steps == 4  # no step after the last sentence has ended


@pytest.mark.parametrize("use_cache", [True, False])
def test_max_length_cuts_off(use_cache):
    model = Scripted([2, 99])
    tokens = greedy(model, torch.full((2, 2), 5), max_length=3, use_cache=use_cache)
    assert tokens.tolist() == [[5, EOS, PAD], [5, 5, 5]]
    assert model.steps == 3


@pytest.mark.parametrize("was_training", [True, False])
def test_dropout_is_off_and_the_mode_restored(was_training):
    model, src = random_model(2), sources()  # dropout 0.1
    model.train(was_training)
    assert greedy(model, src, max_length=13).tolist() == greedy(model, src, max_length=13).tolist()
    assert model.training == was_training
    with pytest.raises(ValueError, match="ids: expected"):
        greedy(model, src + 100, max_length=13)
    assert model.training == was_training


def test_no_graph_is_kept():
    model, src, grad_modes = random_model(2), sources(), []
    model.encoder_layers[0].register_forward_hook(lambda *_: grad_modes.append(torch.is_grad_enabled()))
    greedy(model, src, max_length=3)
    assert grad_modes == [False]


def test_nothing_to_translate():
    empty = torch.zeros(0, 5, dtype=torch.long)
    assert greedy(random_model(0), empty, max_length=3).shape == (0, 0)


@pytest.mark.parametrize("max_length", [0, -1, 14])
def test_max_length_out_of_range(max_length):
    with pytest.raises(ValueError, match=f"max_length: expected 1 to 13, the model's, got {max_length}"):
        greedy(random_model(0), sources(), max_length=max_length)
