"""A step of decoding is compiled once for each number of rows, and says what the plain step says.

Run as a script this file decodes, its steps traced ("eager") or compiled, and prints a line for each way to
decode. The tests run it as one: in their own process the import hook that checks shapes is on, and cannot be
compiled.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from transformer_lessons import decoding_steps
from transformer_lessons.decoding import beam, greedy
from transformer_lessons.model import Transformer, TransformerConfig


def greedy_by_steps(*arguments, **options):
    """As on a GPU, and before torch 2.13."""
    loops, decoding_steps._loops = decoding_steps._loops, lambda device: False
    try:
        return greedy(*arguments, **options)
    finally:
        decoding_steps._loops = loops


DECODE = {
    "greedy": greedy,
    "greedy, step by step": greedy_by_steps,
    "beam": lambda *arguments, **options: beam(*arguments, beam_size=3, **options),
}


def random_model() -> Transformer:
    """Untrained, with weights so large and a vocabulary so small that sentences end at different times."""
    torch.manual_seed(1)
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "norm_first": True}
    config = TransformerConfig(17, 7, d_model=15, num_heads=3, d_ff=23, max_length=13, **layers)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=2 / parameter.size(1) ** 0.5)
    return model.double()


def measure(name: str) -> dict:
    """Whether the tokens are the same, what was compiled, and the numbers of rows that were asked for."""
    torch.compiler.reset()
    counters.clear()
    rows, called, compiled = set(), [], decoding_steps._compiled

    def watched(function, device: str):
        def step(*given):
            rows.add(next(len(one) for one in given if isinstance(one, torch.Tensor) and one.dim() == 2))
            called.append(function.__name__)
            return compiled(function, device)(*given)

        return step

    decoding_steps._compiled = watched
    model, same = random_model(), []
    src = torch.randint(3, 17, (11, 5))
    for other in (src, src.roll(3, 0).flip(1)):  # the second time nothing new has to be compiled
        expected = DECODE[name](model, other, max_length=13)
        actual = DECODE[name](model, other, max_length=13, compiled=True)
        same.append(expected.tolist() == actual.tolist())
    decoding_steps._compiled = compiled
    graphs = {"graphs": counters["stats"]["unique_graphs"], "breaks": list(counters["graph_break"])}
    calls = {one: called.count(one) for one in called}
    return {"same": same, **graphs, "rows": sorted(rows), "length": expected.size(1), "calls": calls}


def main(backend: str) -> None:
    if backend == "eager":  # traced, and compiled no further: seconds instead of minutes
        traced = partial(torch.compile, backend="eager")
        torch.compile = lambda function, options, **others: traced(function, **others)
    for name in DECODE:
        print(json.dumps([name, measure(name)]))


@pytest.fixture(scope="module", params=["eager", pytest.param("compiled", marks=pytest.mark.full)])
def measured(request):
    run = subprocess.run(
        [sys.executable, Path(__file__), request.param],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(line) for line in run.stdout.splitlines())


@pytest.mark.parametrize("name", DECODE)
def test_compiled_once_for_each_number_of_rows(measured, name):
    found = measured[name]
    assert found["same"] == [True, True]
    assert found["graphs"] == len(found["rows"]) >= 2
    assert found["breaks"] == []
    assert found["length"] > 5  # more steps than graphs: a step's length is no shape


@pytest.mark.skipif(torch.__version__ < "2.13", reason="loops that write to caches cannot be compiled")
def test_greedy_calls_a_loop_and_no_step(measured):
    found = measured["greedy"]
    assert set(found["calls"]) == {"_likeliest"}
    assert 2 <= found["calls"]["_likeliest"] <= 2 * len(found["rows"])  # in two batches
    assert measured["greedy, step by step"]["calls"]["_next_logits"] >= 2 * found["length"] - 1


if __name__ == "__main__":
    main(sys.argv[1])
