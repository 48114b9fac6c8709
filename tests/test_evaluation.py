"""What a model gets right, and the names of its mistakes."""

import inspect

import pytest
import torch

from transformer_lessons import decoding
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import evaluation
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.evaluation import (
    error_kind,
    evaluate_bleu,
    evaluate_number_words,
    in_chunks,
    translate,
)


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        ("zwanzig und ein", "order"),
        ("ein und", "missing part"),
        ("", "missing part"),
        ("ein und ein und zwanzig", "added part"),
        ("zwei und zwanzig", "wrong part"),
        ("vier", "wrong part"),
    ],
)
def test_error_kinds(got, kind):
    assert error_kind(got.split(), "ein und zwanzig".split()) == kind


def test_in_chunks():
    assert list(in_chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(in_chunks([], 2)) == []


def test_the_packaged_model_translates_what_it_never_saw():
    result = evaluate_number_words(*load_model(), number_words.held_out())
    assert result["exact_match"] >= 0.99
    assert result["n"] == 1000
    assert sum(result["errors"].values()) == round(1000 * (1 - result["exact_match"]))


def test_every_wrong_answer_is_counted_once(monkeypatch):
    model, source, target = load_model()
    answers = {
        7: ["sieben"],
        21: ["zwanzig", "und", "ein"],  # turned round
        22: ["drei", "und", "zwanzig"],  # as long as the right one
        300: ["drei"],
        1001: ["ein", "tausend", "eins", "eins"],
    }
    monkeypatch.setattr(evaluation, "translate", lambda *_, **options: list(answers.values()))
    result = evaluate_number_words(model, source, target, list(answers))
    assert result["exact_match"] == 1 / 5
    assert result["n"] == 5
    assert result["errors"] == {"order": 1, "wrong part": 1, "missing part": 1, "added part": 1}
    assert result["examples"][0] == {"number": 21, "expected": "einundzwanzig", "got": "zwanzigundein"}
    assert len(result["examples"]) == 4


def test_a_broken_model_is_counted_as_such():
    model, source, target = load_model()
    with torch.no_grad():
        model.output.weight[target.eos_id] += 100 * model.output.weight[target.eos_id]
    result = evaluate_number_words(model, source, target, number_words.held_out()[:50])
    assert result["exact_match"] < 0.5
    assert len(result["examples"]) == 5


def test_batch_mates_do_not_change_a_translation():
    model, source, target = load_model()
    sentences = [number_words.english_tokens(number_words.english(n)) for n in (7, 421, 987_654)]
    together = translate(model, source, target, sentences)
    assert together == [translate(model, source, target, [sentence])[0] for sentence in sentences]
    assert together[1] == number_words.german_tokens(421)


def test_a_beam_by_choice(monkeypatch):
    model, source, target = load_model()
    asked = []

    def beam(*arguments, **options):
        asked.append(options)
        return decoding.beam(*arguments, **options)

    monkeypatch.setattr(evaluation, "beam", beam)
    numbers = number_words.held_out()[:20]
    result = evaluate_number_words(model, source, target, numbers, beam_size=3)
    assert asked == [{"beam_size": 3, "max_length": 64}]
    assert result["exact_match"] >= 0.9
    evaluate_number_words(model, source, target, numbers)
    assert len(asked) == 1


def test_a_sentence_too_long():
    model, source, target = load_model()
    message = "sentences: expected at most 64 tokens each, got 1 longer: number 1 with 65"
    with pytest.raises(ValueError, match=message):
        translate(model, source, target, [["one"] * 64, ["one"] * 65])


def test_greedy_unless_a_beam_is_asked_for():
    def defaults(function) -> dict:
        parameters = inspect.signature(function).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    assert defaults(evaluate_number_words) == {"beam_size": 1}
    assert defaults(translate) == {"beam_size": 1, "extra_tokens": None}
    assert defaults(evaluate_bleu) == {"beam_size": 1, "batch_size": 100, "extra_tokens": None}


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_translation_ends_so_many_tokens_after_its_source(monkeypatch, beam_size):
    """The paper allows 50 more than the input has (§6.1); a batch is as wide as its longest sentence."""
    _, source, target = load_model()
    endless = Transformer(TransformerConfig(len(source), len(target), 6, 3, 7, 1, 1, max_length=13))
    with torch.no_grad():
        endless.output.weight.zero_()
    endless.output.register_forward_hook(lambda _, __, logits: logits + torch.eye(len(target))[5])
    sentences = [["one"], ["one"] * 3]
    for extra_tokens, length in ((0, 3), (5, 8), (None, 13), (50, 13)):
        options = {"beam_size": beam_size, "extra_tokens": extra_tokens}
        found = translate(endless, source, target, sentences, **options)
        assert [len(tokens) for tokens in found] == [length] * 2
    with pytest.raises(ValueError, match=r"^extra_tokens: expected an integer, 0 or more, got -1$"):
        translate(endless, source, target, sentences, extra_tokens=-1)


def test_texts_of_like_lengths_share_a_batch(monkeypatch, no_shape_checks):
    """Lengths of the sources 7, 1, 5, 3, 6, 2, 4, of the targets the other way round."""
    pytest.importorskip("sacrebleu")
    model, source, target = load_model()
    words = number_words.english_tokens(number_words.english(777_777))
    pairs = [(" ".join(words[:n]), " ".join(["sieben"] * (8 - n))) for n in (7, 1, 5, 3, 6, 2, 4)]
    monkeypatch.setattr(type(source), "encode", lambda self, text: [3] * len(text.split()))
    asked = []

    def translate(model, source, target, texts, *, beam_size, extra_tokens):
        asked.append([len(text.split()) for text in texts])
        return [text.upper() for text in texts]

    monkeypatch.setattr(evaluation, "translate", translate)
    result = evaluate_bleu(model, source, target, pairs, batch_size=3)
    assert asked == [[1, 2, 3], [4, 5, 6], [7]]
    assert [(e["source"], e["got"]) for e in result["examples"]] == [(e, e.upper()) for e, _ in pairs[:5]]
    with pytest.raises(ValueError, match=r"^target: expected "):
        evaluate_bleu(model, source, None, pairs)
