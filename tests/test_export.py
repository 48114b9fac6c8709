"""Exported models, loaded by other programs, give the same values and tokens."""

import re
import sys
from pathlib import Path

import ctranslate2
import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transformer_lessons import decoding
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import Vocabulary, pad
from transformer_lessons.export import huggingface, save
from transformer_lessons.export.weights import import_weights
from transformer_lessons.masks import padding_mask
from transformer_lessons.model import Transformer
from transformer_lessons.oracles.measure import perturb
from transformer_lessons.tools import cli
from transformer_lessons.trainer.checkpoints import load_model, save_model

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
ROOT = Path(__file__).parents[1]
SIZES = {"d_model": 10, "num_heads": 2, "d_ff": 23, "num_encoder_layers": 2, "num_decoder_layers": 3}
SENTENCES = [[3, 4, 5, 6, 7], [7, 8], [16]]
SRC = pad(SENTENCES, 0)
POST, PRE = {"norm_first": False}, {"norm_first": True, "shared_vocabulary": True}
OTHER = {"tie_embeddings": False, "activation": "gelu"}


def model_of(**settings) -> Transformer:
    """A model far from its initial weights, so that sentences differ."""
    shared = settings.get("shared_vocabulary", False)
    config = TransformerConfig(19 if shared else 17, 19, max_length=11, **{**SIZES, **settings})
    model = perturb(perturb(Transformer(config))).eval()
    model.output.weight.data[:2] = 0.0  # padding and BOS are never written
    return model.requires_grad_(False)


def saved(directory: Path, model: Transformer) -> tuple[Path, list[str], list[str]]:
    """Save the model as a run; return the folder and the tokens of both sides."""
    tokens = [f"word{number}" for number in range(3, 19)]
    target = Vocabulary(tokens)
    source = target if model.config.shared_vocabulary else Vocabulary(tokens[:14])
    save_model(directory, model, source, target)
    return directory, source.tokens, target.tokens


def decoded(model: Transformer) -> list[list[int]]:
    """The tokens of the course's own decoding, without special ids."""
    return [[y for y in row if y > 2] for row in decoding.greedy(model, SRC, max_length=11).tolist()]


@pytest.mark.parametrize(
    "settings", [POST, PRE, POST | OTHER, PRE | OTHER, POST | {"shared_vocabulary": True}]
)
def test_transformers_computes_and_says_the_same(tmp_path, settings):
    model = model_of(**settings)
    run, *_ = saved(tmp_path / "run", model)
    save(run, tmp_path / "out", format="huggingface")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    real, target = SRC != 0, torch.randint(3, 19, (3, 7))
    logits = theirs(input_ids=SRC, attention_mask=real.long(), decoder_input_ids=target).logits
    torch.testing.assert_close(logits, model(SRC, target), atol=1e-5, rtol=1e-5)
    found = theirs.generate(SRC, attention_mask=real.long(), num_beams=1, do_sample=False)
    assert [[y for y in row if y > 2] for row in found.tolist()] == decoded(model)


TWO, LEARNED = PRE | {"shared_vocabulary": False}, {"position": "learned"}


@pytest.mark.parametrize("settings", [POST, PRE, TWO | OTHER, POST | LEARNED])
def test_ctranslate2_says_the_same(tmp_path, settings):
    model = model_of(**settings)
    run, source, target = saved(tmp_path / "run", model)
    save(run, tmp_path / "out", format="ctranslate2")
    words = [[source[x] for x in sentence] for sentence in SENTENCES]
    theirs = ctranslate2.Translator(str(tmp_path / "out"))
    found = theirs.translate_batch(words, beam_size=1, max_decoding_length=11)
    assert [one.hypotheses[0] for one in found] == [[target[y] for y in row] for row in decoded(model)]


# --- The page for users


@pytest.mark.usefixtures("no_shape_checks")  # while a graph is traced, a length is a symbol
def test_examples_on_the_page_print_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # no run of a developer's own may be picked up
    page = (ROOT / "book" / "other_programs.md").read_text(encoding="utf-8")
    for kind, block in re.findall(r"```(bash|python|text)\n(.*?)```", page, re.DOTALL):
        if kind == "bash":
            for command in re.findall(r"^lessons (.*)$", block, re.MULTILINE):
                assert cli.main(command.split()) == 0
                capsys.readouterr()
        elif kind == "python":
            exec(block, {})  # each in its own namespace, as a reader may copy one alone
        else:
            assert capsys.readouterr().out == block
    assert_any_lengths(Path("graphs"), load_model()[0])


@pytest.mark.full
@pytest.mark.usefixtures("no_shape_checks")
def test_graphs_of_pre_norm_with_learned_positions(tmp_path):
    model = model_of(**TWO, **OTHER, **LEARNED)
    save(saved(tmp_path / "run", model)[0], tmp_path / "out", format="onnx")
    assert_any_lengths(tmp_path / "out", model)


def assert_any_lengths(directory: Path, model: Transformer):
    """The same logits at each step, for other numbers of rows, source tokens and steps than when traced."""
    c = model.config
    paths = (directory / "encoder.onnx", directory / "decoder_step.onnx")
    encoder, step = map(onnxruntime.InferenceSession, paths)
    for src in (SRC, SRC[2:, :1], SRC.repeat(2, 2)):
        written = torch.cat([torch.ones(len(src), 1, dtype=int), torch.randint(3, 19, (len(src), 5))], dim=1)
        source_k, source_v = encoder.run(None, {"src": src.numpy()})
        given = {"src": src.numpy(), "source_k": source_k, "source_v": source_v}
        sizes = c.num_decoder_layers, len(src), c.num_heads, 0, c.d_model // c.num_heads
        past = [np.zeros(sizes, np.float32)] * 2
        found = []
        for token in written.split(1, dim=1):
            inputs = {**given, "token": token.numpy(), "past_k": past[0], "past_v": past[1]}
            logits, *past = step.run(None, inputs)
            found.append(torch.from_numpy(logits))
        torch.testing.assert_close(torch.stack(found, 1), model(src, written), atol=1e-5, rtol=1e-4)


def test_a_byte_pair_encoding_goes_with_its_model(tmp_path):
    joint = Subwords.train(["ein Hund, ä ein Hund"], 270)
    config = TransformerConfig(len(joint), len(joint), **SIZES, **PRE)
    save_model(tmp_path / "run", Transformer(config), joint, joint)
    for name in ("huggingface", "ctranslate2"):
        save(tmp_path / "run", tmp_path / name, format=name)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    for text in ("ein Hund", "Ähm <eos>?"):
        assert theirs(text).input_ids == joint.encode(text)
        assert theirs.decode(joint.encode(text)) == text
    words = joint.tokenizer.encode("ein Hund").tokens
    assert ctranslate2.Translator(str(tmp_path / "ctranslate2")).translate_batch([words])


def test_what_a_format_does_not_support_is_refused_and_leaves_no_files(tmp_path, monkeypatch):
    for settings, complaint in (
        (POST | LEARNED, "sinusoidal positions, got learned"),
        (TWO, "one vocabulary"),
    ):
        run, *_ = saved(tmp_path / "run", model_of(**settings))
        with pytest.raises(ValueError, match=f"huggingface: expected {complaint}"):
            save(run, tmp_path / "out", format="huggingface")
    with pytest.raises(ValueError, match=r"directory: expected a new folder, got .*run"):
        save(run, run, format="ctranslate2")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ImportError, match=r'pip install "transformer-lessons\[ctranslate2\]"'):
        save(run, tmp_path / "out", format="ctranslate2")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# --- Importing weights


@pytest.mark.parametrize("settings", [POST, PRE | OTHER])
def test_weights_of_transformers_come_back(settings):
    ours, other = model_of(**settings), model_of(**settings)
    import_weights(other, huggingface.to_huggingface(ours))
    assert all(map(torch.equal, ours.state_dict().values(), other.state_dict().values()))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_weights_of_torch_come_in():
    theirs = perturb(nn.Transformer(10, 2, 2, 3, 23, 0.0, batch_first=True, norm_first=True)).eval()
    ours = model_of(**PRE)
    import_weights(ours, theirs)
    x, y = ours.source_embedding(SRC), ours.target_embedding(SRC)
    later = theirs.generate_square_subsequent_mask(SRC.size(1))
    hidden = {"src_key_padding_mask": SRC == 0, "memory_key_padding_mask": SRC == 0}
    mask = padding_mask(SRC, 0)
    found = ours.decode(SRC, ours.encode(SRC, mask), mask)
    torch.testing.assert_close(found, theirs(x, y, tgt_mask=later, **hidden))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda it: it.final_logits_bias.add_(1.0), "final_logits_bias: expected 0.0"),
        (lambda it: setattr(it.config, "activation_function", "swish"), "activation_function: expected relu"),
        (lambda it: setattr(it.config, "d_model", 12), "d_model: expected 10, as in our model, got 12"),
    ],
)
def test_other_models_of_transformers_are_refused(change, complaint):
    ours = model_of(**POST)
    theirs = huggingface.to_huggingface(ours)
    change(theirs)
    with pytest.raises(ValueError, match=complaint):
        import_weights(ours, theirs)


def test_weights_of_other_kinds_of_models_are_refused():
    with pytest.raises(ValueError, match=r"theirs: expected a torch.nn.Transformer, .*, got 'Linear'"):
        import_weights(model_of(**POST), nn.Linear(10, 2))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("ours", "settings", "complaint"),
    [
        (PRE, {"nhead": 5}, "num_heads: expected 2, as in our model, got 5"),
        (PRE, {"activation": nn.GELU()}, "activation: expected relu, as in our model, got GELU"),
        (PRE, {"layer_norm_eps": 1e-6}, "layer_norm_eps: expected 1e-05, as in our model, got 1e-06"),
        (PRE, {"norm_first": False}, "norm_first: expected True"),
        (POST, {"norm_first": False}, r"got .*'decoder.norm.bias', .10,"),  # a norm that ours lacks
    ],
)
def test_other_settings_of_torch_are_refused(ours, settings, complaint):
    """Every weight would fit, except in the last case."""
    same = {"d_model": 10, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 3, "norm_first": True}
    theirs = nn.Transformer(dim_feedforward=23, batch_first=True, **{**same, **settings})
    with pytest.raises(ValueError, match=complaint):
        import_weights(model_of(**ours), theirs)
