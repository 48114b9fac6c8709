"""A model as a script for the live translator: every parameter once, in 8 bits; `tests/site` runs it."""

import base64
import json
import math
import struct

import pytest
import torch

from transformer_lessons.data.subwords import Subwords
from transformer_lessons.data.vocabulary import Vocabulary
from transformer_lessons.export import save, web
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.checkpoints import load_model


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


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}])
def test_every_parameter_is_exported_to_half_a_quantisation_step(dtype, changes):
    model, source, target = small(**changes)
    with torch.no_grad():
        model.encoder_layers[0].feed_forward.W_1.weight[3] = 0
    content = web.exported(model, source, target, dtype)
    assert json.loads(json.dumps(content)) == content
    assert (content["source_tokens"], content["target_tokens"]) == (source.tokens, target.tokens)
    for name, expected in model.state_dict().items():
        name = content["tied"].get(name, name)
        found = values(content, name)
        if dtype == "int8" and expected.dim() == 2:
            scale = values(content, f"{name}.scale")
            torch.testing.assert_close(scale, expected.abs().amax(1) / 127)
            assert ((found * scale[:, None] - expected).abs() <= 0.501 * scale[:, None]).all()
        else:
            assert torch.equal(found, expected)
    assert bool(content["tied"]) == model.config.tie_embeddings


def test_what_the_page_does_not_support_is_refused():
    for name, value in {"activation": "gelu", "position": "learned"}.items():
        with pytest.raises(ValueError, match=f"web: expected {name} .*that it supports, got '{value}'"):
            web.exported(*small(**{name: value}))
    joint = Subwords.train(["a text"], 260)
    with pytest.raises(ValueError, match="web: expected a model of number words, no text, got "):
        web.exported(small()[0], joint, joint)


def test_the_script_is_small(tmp_path):
    save(None, tmp_path / "new", format="web")
    text = (tmp_path / "new" / "model.js").read_text(encoding="utf-8")
    name, _, rest = text.partition(", ")
    assert name == 'lessons.addModel("model"'
    assert json.loads(rest.removesuffix(");\n")) == web.exported(*load_model())
    assert len(text) <= 1_600_000
