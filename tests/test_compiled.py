"""A compiled model is one graph and a compiled training step few graphs, with the same numbers as uncompiled.

Run as a script, this file prints what it finds: ``eager`` traces, which takes seconds; ``inductor`` compiles,
which takes many minutes; ``decoding`` compiles two small decoding steps, or finds them in the cache.
"""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.models import new_model, side_by_side, talkative
from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import TokenBatches
from transformer_lessons.fast import accelerate
from transformer_lessons.fast.compiled import compile_decoding
from transformer_lessons.fast.decoding import fastest_steps
from transformer_lessons.fast.decoding_steps import Steps
from transformer_lessons.fast.recompute import recompute
from transformer_lessons.model import Transformer
from transformer_lessons.trainer import Trainer, TrainingConfig

SRC = torch.tensor([[3, 5, 7, 11, 4], [6, 7, 0, 0, 0], [0, 0, 0, 0, 0]])
INPUTS = SRC, torch.tensor([[1, 4, 5, 6], [1, 3, 0, 0], [1, 5, 0, 0]])
BACKENDS = {"eager": "aot_eager", "inductor": "inductor"}  # for a model; a step takes the kind itself
CHANGES = {
    "canon": lambda model: model,
    "accelerated": accelerate,
    "recomputing": lambda model: recompute(accelerate(model)),
}


def deviation(name: str, backend: str) -> float:
    """The largest difference between compiled and uncompiled values and gradients."""
    torch.compiler.reset()
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}  # more layers would only repeat these
    module, found = CHANGES[name](talkative(3, norm_first=True, **sizes)), []
    for call in (module, torch.compile(module, backend=backend, fullgraph=True)):
        module.zero_grad()
        output = call(*INPUTS)
        output.cos().sum().backward()
        found.append(torch.cat([output.detach().flatten(), *(p.grad.flatten() for p in module.parameters())]))
    return (found[0] - found[1]).abs().max().item()


def trained(backend: str, **settings) -> dict:
    """Losses of the `Trainer`'s steps, uncompiled and compiled, on batches of different shapes."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    source, target = number_words.vocabularies()
    pairs, losses, own = number_words.pairs(number_words.training_numbers(307, 0)), [], torch.compile
    torch.compile = partial(own, backend=backend)
    for is_compiled in (False, True):
        torch.manual_seed(0)
        config = TransformerConfig(len(source), len(target), 15, 3, 17, 2, 2, dropout=0.0)
        model = Transformer(config).double()
        how = TrainingConfig(steps=60, tokens=211, compile=is_compiled, **settings)
        trainer = Trainer(model, TokenBatches(pairs, 211, seed=0), how)
        losses.append([trainer.train_step()["loss"] for _ in range(12)])
    torch.compile = own
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {"losses": losses, "graphs": graphs, "name": next(iter(model.state_dict()))}


def decoding(sentences: int, copies: int, layers: int) -> float:
    """The largest difference between the logits of compiled and uncompiled steps, relative to the largest."""
    torch.manual_seed(0)
    options = {"norm_first": True, "position": "learned", "activation": "gelu", "max_length": 71}
    model = new_model(torch.float32, num_encoder_layers=1, num_decoder_layers=layers, **options)
    compile_decoding(accelerate(model)).eval()
    src = torch.randint(3, 17, (sentences, 7))
    src[-1, 4:] = 0
    both = Steps(model, src, copies), fastest_steps(model, src, copies)
    found = side_by_side(*both, 71, keep=[4], drop=[10])  # beyond the initial capacity of a cache
    return max(((ours - expected).abs().max() / expected.abs().max()).item() for expected, ours in found)


def main(kind: str) -> None:
    if kind == "decoding":
        with torch.no_grad():
            print(json.dumps({"one": decoding(1, 1, layers=1), "many": decoding(3, 2, layers=2)}))
        return
    found = {name: deviation(name, BACKENDS[kind]) for name in CHANGES}
    found |= {"training": trained(kind), "training, recomputing": trained(kind, recompute=True)}
    print(json.dumps(found))


# --- The tests run this file in another process, as the shape checks in this one cannot be compiled


def run(kind: str, **environment: str) -> tuple[dict, str]:
    """What this file finds as a script, and what it writes to standard error."""
    line, root = [sys.executable, "-m", "tests.test_compiled", kind], Path(__file__).parent.parent
    environment = os.environ | environment
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module", params=["eager", pytest.param("inductor", marks=pytest.mark.full)])
def compiled(request) -> dict:
    return run(request.param)[0]


@pytest.mark.parametrize("name", CHANGES)
def test_a_compiled_model_is_one_graph_and_the_same_function(compiled, name):
    assert compiled[name] <= 1e-10


@pytest.mark.parametrize("name", ["training", "training, recomputing"])
def test_a_compiled_step_is_the_same_step(compiled, name):
    found = compiled[name]
    plain, other = found["losses"]
    assert plain[-1] < plain[0]
    assert other == pytest.approx(plain, rel=0, abs=1e-10)
    assert 1 <= found["graphs"] <= 8  # the layers of each kind share theirs
    assert found["name"] == "source_embedding.token.weight"  # as without compilation


@pytest.mark.skipif(" " in torch.__file__, reason="needs PyTorch in a folder without spaces in its name")
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux")
def test_decoding_steps_are_compiled_once_and_give_the_same_logits(tmp_path):
    for times in (2, 0):  # one for a single row, one for any number; another process finds both
        found, errors = run("decoding", TORCH_HOME=str(tmp_path))
        assert errors.count("compiling a decoding step") == times, errors
        assert max(found.values()) <= 1e-5
    assert len(list(tmp_path.rglob("*"))) == 3  # a folder and two files


if __name__ == "__main__":
    main(sys.argv[1])
