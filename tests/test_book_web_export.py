"""A model as a script for a web page: every parameter once, matrices in 8 bits. In a browser: tests/site."""

import base64
import json
import math
import struct

import pytest
import torch

from book import web_export
from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.checkpoints import PRETRAINED, load_model


def small(**changes) -> tuple[Transformer, Vocabulary, Vocabulary]:
    torch.manual_seed(5)
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 17, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = TransformerConfig(11, 13, **{**sizes, **changes})
    return Transformer(config), Vocabulary([*"abcdefgh"]), Vocabulary([*"abcdefghij"])


def values(content: dict, name: str) -> torch.Tensor:
    """A tensor of an export, read with `struct` alone."""
    about, data = content["tensors"][name], base64.b64decode(content["data"])
    number, letter = math.prod(about["shape"]), {"int8": "b", "float32": "f"}[about["dtype"]]
    read = struct.unpack_from(f"<{number}{letter}", data, about["offset"])
    return torch.tensor(read).reshape(about["shape"])


def test_a_matrix_comes_back_to_half_a_step():
    rows = torch.logspace(-3, 3, 5, dtype=torch.float64)[:, None]
    weight = torch.randn(5, 7, dtype=torch.float64) * rows
    weight[3] = 0
    steps, scale = web_export.quantise(weight)
    assert steps.dtype == torch.int8
    assert steps.abs().amax(1).tolist() == [127, 127, 127, 0, 127]
    assert scale.tolist() == pytest.approx((weight.abs().amax(1) / 127).tolist())
    assert ((weight - steps * scale[:, None]).abs() <= scale[:, None] / 2 * (1 + 1e-12)).all()


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}, {"norm_first": True}])
def test_every_parameter_is_there_under_its_name(dtype, changes):
    model, source, target = small(**changes)
    content = web_export.export(model, source, target, dtype)
    assert json.loads(json.dumps(content)) == content
    assert (content["source_tokens"], content["target_tokens"]) == (source.tokens, target.tokens)
    for name, expected in model.state_dict().items():
        name = content["tied"].get(name, name)
        found = values(content, name)
        if dtype == "int8" and expected.dim() == 2:
            scale = values(content, f"{name}.scale")[:, None]
            assert ((found * scale - expected).abs() <= 0.501 * scale).all()
        else:
            assert torch.equal(found, expected)
    assert bool(content["tied"]) == model.config.tie_embeddings


def test_the_trained_models_file_is_small_and_holds_nothing_twice(tmp_path):
    trained = load_model()
    content = web_export.export(*trained)
    numbers = {
        n: math.prod(one["shape"]) for n, one in content["tensors"].items() if not n.endswith(".scale")
    }
    assert sum(numbers.values()) == sum(parameter.numel() for parameter in trained[0].parameters())
    web_export.write(tmp_path / "new" / "model.js", "model", content)
    assert (tmp_path / "new" / "model.js").stat().st_size <= 1_600_000


def test_what_the_page_has_no_code_for_is_refused():
    for name, value in {"activation": "gelu", "position": "learned"}.items():
        with pytest.raises(
            ValueError, match=f"{name}: expected .*, which the page has code for, got '{value}'"
        ):
            web_export.export(*small(**{name: value}))
    joint = Subwords.train(["a text"], 260)
    with pytest.raises(ValueError, match="model: expected one of number words, got one of texts"):
        web_export.export(small()[0], joint, joint)


def test_the_command_names_the_model_after_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["web_export", str(PRETRAINED), str(tmp_path / "mine.js")])
    web_export.main()
    name, _, rest = (tmp_path / "mine.js").read_text(encoding="utf-8").partition(", ")
    assert name == 'lessons.addModel("mine"'
    assert json.loads(rest.removesuffix(");\n")) == web_export.export(*load_model())
