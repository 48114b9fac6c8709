"""Tokens to ids and back."""

import pytest
import torch

from transformer_lessons.data.vocabulary import BOS, EOS, PAD, Vocabulary, pad
from transformer_lessons.model import TransformerConfig

FRUIT = ["apple", "pear", "fig"]


def test_round_trip():
    vocabulary = Vocabulary(FRUIT)
    ids = vocabulary.encode(["fig", "apple", "fig"])
    assert ids == [5, 3, 5]
    assert vocabulary.decode(ids) == ["fig", "apple", "fig"]
    assert len(vocabulary) == 6
    assert Vocabulary(vocabulary.tokens[3:]).tokens == vocabulary.tokens


def test_the_special_three_come_first():
    vocabulary = Vocabulary(iter(FRUIT))
    assert vocabulary.tokens == [PAD, BOS, EOS, *FRUIT]
    special = vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id
    assert special == tuple(vocabulary.encode([PAD, BOS, EOS])) == (0, 1, 2)
    defaults = TransformerConfig(6, 6)
    assert special == (defaults.pad_id, defaults.bos_id, defaults.eos_id)


def test_decode_stops_at_the_end_mark_and_shows_no_marks():
    assert Vocabulary(FRUIT).decode([1, 3, 0, 4, 2, 5, 2]) == ["apple", "pear"]
    assert Vocabulary(FRUIT).decode([]) == []


def test_unknown_token():
    with pytest.raises(ValueError, match="tokens: expected tokens of the vocabulary, got 'plum'"):
        Vocabulary(FRUIT).encode(["fig", "plum"])


@pytest.mark.parametrize("again", ["pear", PAD])
def test_token_given_twice(again):
    with pytest.raises(ValueError, match=f"tokens: expected each once, got '{again}' twice"):
        Vocabulary([*FRUIT, again])


def test_pad_fills_up_on_the_right():
    ids = pad([[3, 4], [], [5, 6, 7]], pad_id=9)
    assert ids.tolist() == [[3, 4, 9], [9, 9, 9], [5, 6, 7]]
    assert ids.dtype == torch.long


@pytest.mark.parametrize(("sequences", "shape"), [([], (0, 0)), ([[]], (1, 0)), ([[], []], (2, 0))])
def test_pad_nothing(sequences, shape):
    assert pad(sequences, 0).shape == shape


def test_pad_leaves_its_argument_alone():
    sequences = [[3], [4, 5]]
    pad(sequences, 0)
    assert sequences == [[3], [4, 5]]
