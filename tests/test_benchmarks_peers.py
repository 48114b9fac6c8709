"""The comparison with other implementations, at a tiny size and without those that are not installed."""

import json

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, measuring, peers
from benchmarks.contenders import PyTorch, Same, peer_steps, products_alone, real_tokens, step_flops
from benchmarks.measuring import OURS, beside_matrices, compared, in_turns, peak_bytes, share
from transformer_lessons import decoding_steps
from transformer_lessons.data.batches import Batch
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.loss import batch_loss

WIDTHS = {"d_model": 16, "num_heads": 2, "d_ff": 23, "max_length": 29}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
TINY = TransformerConfig(31, 31, **WIDTHS, **LAYERS, norm_first=True, shared_vocabulary=True)


def test_the_median_of_ratios_is_not_the_ratio_of_medians():
    speeds = {OURS: [6.0, 8.0, 9.0], "other": [2.0, 8.0, 3.0]}
    assert compared(speeds) == {
        "tokens_per_second": {OURS: 8, "other": 3},
        "ours_is_faster": {"other": 3.0},  # of 3, 1 and 3
    }


def test_contenders_take_turns_and_the_first_round_does_not_count(monkeypatch):
    clock, called = iter(range(100)), []
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: float(next(clock)))

    def step(name: str, tokens: int):
        def call() -> int:
            called.append(name)
            return tokens

        return call

    found = in_turns({"a": step("a", 5), "b": step("b", 7)}, rounds=2, steps=3)
    assert found == {"a": [15.0, 15.0], "b": [21.0, 21.0]}  # a second for each three steps
    assert called == (["a"] * 3 + ["b"] * 3) * 3


def test_of_matrices_the_best_of_each_round_counts(monkeypatch):
    clock, rates = iter(range(100)), iter([90.0, 80.0, 10.0, 20.0, 40.0, 30.0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: float(next(clock)))
    speeds, found = beside_matrices({"a": lambda: 5}, rounds=2, steps=2, rate=lambda: next(rates))
    assert speeds == {"a": [10.0, 10.0]}  # a second for each two steps
    assert found == [20.0, 40.0]
    assert share([10.0, 8.0, 30.0], 3.0, [60.0, 40.0, 100.0]) == 0.6  # of 0.5, 0.6 and 0.9


def test_padding_is_not_counted():
    src, tgt = torch.tensor([[5, 5, 0]]), torch.tensor([[5, 0]])
    assert real_tokens(Batch(src, tgt, tgt)) == 3


def test_the_operations_of_a_step_are_those_that_torch_counts():
    batch = Same(3, 11, 31).batch
    model = Transformer(TINY)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        batch_loss(model, batch, 0.1)[0].backward()
    assert step_flops(batch, TINY) == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        assert products_alone(batch, TINY)() == 2 * 3 * 11
    assert step_flops(batch, TINY) == counter.get_total_flops()


@pytest.mark.parametrize("length", [5, 13])
def test_all_are_given_the_same_sizes_and_tokens(length):
    batch = Same(3, length, 31).batch
    for model in (Transformer(TINY), PyTorch(TINY)):
        assert model(batch.src, batch.tgt_in).shape == (3, length, 31)
    parameters = [
        sum(p.numel() for name, p in model.named_parameters() if "norm" not in name)
        for model in (Transformer(TINY), PyTorch(TINY))
    ]
    assert parameters[0] == parameters[1]  # pre-norm has two norms more, and torch's has biases there too


def test_a_peers_step_learns():
    torch.manual_seed(0)
    model, batches = PyTorch(TINY), Same(3, 5, 31)
    step = peer_steps(model, batches)

    def loss() -> float:
        batch = batches.batch
        logits = model.eval()(batch.src, batch.tgt_in)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten()).item()

    before = loss()
    assert [step() for _ in range(20)] == [30] * 20
    assert loss() < before


def test_a_part_of_the_gpus_benchmark():
    names = ["torch.nn.Transformer"]
    found = gpu.training(TINY, 3, 5, names, "cpu", rounds=1)
    assert set(found["tokens_per_second"]) == {OURS, *names}
    assert found["settings"]["d_model"] == 16
    assert 0 <= found["share_of_matmul_rate"] < 1 < found["matmul_rate"]


def test_what_there_is_no_time_for_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "COSTS", {"short": 1, "long": 1000, "broken": 1})
    path, record = tmp_path / "gpu.json", {"made_with": {}}

    def broken() -> dict:
        assert json.loads(path.read_text())["short"]["speed"] == 3  # it is written already
        raise RuntimeError("out of memory")

    named = {"short": lambda: {"speed": 3}, "long": dict, "broken": broken}
    with pytest.raises(RuntimeError, match="out of memory"):
        gpu.measure_all(named, record, path, 100)
    written = json.loads(path.read_text())
    assert written == {
        "made_with": {},
        "short": {"speed": 3, "seconds": 0},
        "long": "not measured: no time was left",
    }


def test_every_part_has_an_estimate():
    assert set(gpu.parts("cpu", 1)) == set(gpu.COSTS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "expected a GPU with CUDA, found none" in capsys.readouterr().err


def test_every_matrix_of_the_decoder_is_met_in_each_step(monkeypatch):
    model, met = Transformer(TINY), []
    multiply = peers.decoding_products(model, rows=3, length=2)
    linear = torch.nn.functional.linear
    monkeypatch.setattr(peers.F, "linear", lambda x, weight: met.append(weight) or linear(x, weight))
    assert multiply() == 6
    layer = model.decoder_layers[0]
    own, cross = layer.self_attention, layer.cross_attention
    needed = [own.W_q, own.W_k, own.W_v, own.W_o, cross.W_q, cross.W_o, layer.feed_forward.W_1]
    needed = {id(module.weight) for module in [*needed, layer.feed_forward.W_2, model.output]}
    assert {id(weight) for weight in met} == needed
    assert len(met) == 2 * len(needed)


def test_translating_beside_marian(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # which takes its time
    decoding_steps._compiled.cache_clear()
    found = peers.translating(2, 5, 1, config=TINY)
    decoding_steps._compiled.cache_clear()
    products = {"its products alone", "its products alone, by columns"}
    others = {"Marian, cached", "ours, without a cache", *products}
    ways = {
        "ours_is_faster": "ours",
        "compiled_is_faster": peers.COMPILED,
        "by_columns_is_faster": peers.BY_COLUMNS,
        "compiled_by_columns_is_faster": peers.BOTH,
    }
    for key, way in ways.items():
        assert set(found[key]) == {*others, *ways.values()} - {way}


def test_the_peak_is_the_most_at_one_time():
    def work():
        a = torch.zeros(1000)
        del a
        b, c = torch.zeros(700), torch.zeros(700)
        return b, c

    work()  # what a first call sets up is none of its own
    assert peak_bytes(work) == 2 * 4 * 700


def test_fused_attention_needs_a_share_of_the_memory():
    found = peers.attention_memory(1024)
    for dropout in ("with dropout", "without dropout"):
        weights = peers.SMALL.num_heads * 1024**2 * 4
        assert found[dropout]["step_by_step"] > 2 * weights  # scores and weights, at least
        assert found[dropout]["fused"] < 0.35 * found[dropout]["step_by_step"]
