"""The benchmarks at tiny sizes: fair comparisons, right counts, and measuring one part again."""

import importlib
import inspect
import json
import re

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import contenders, experiments, gpu, measuring, peers, table3, throughput
from benchmarks.contenders import OneBatch, PyTorch, peer_steps
from benchmarks.measuring import OURS
from exercises import release
from transformer_lessons import records
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.fast.decoding import greedy
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.tools.costs import BatchShape, training_operations

WIDTHS = {"d_model": 16, "num_heads": 2, "d_ff": 23, "max_length": 29}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}
TINY = TransformerConfig(31, 31, **WIDTHS, **LAYERS, norm_first=True, shared_vocabulary=True)


@pytest.mark.parametrize("name", ["busy", "language_model"])
def test_slow_benchmarks_can_be_imported(name):
    assert importlib.import_module(f"benchmarks.{name}").__doc__


def test_speeds_are_per_second_and_leave_out_the_first_round(monkeypatch):
    clock, called = iter(range(100)), []
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: float(next(clock)))
    steps = {name: lambda name=name: called.append(name) or ord(name) for name in "ab"}
    assert measuring.interleave(steps, rounds=2, steps=3) == {"a": [291.0] * 2, "b": [294.0] * 2}
    assert called == (["a"] * 3 + ["b"] * 3) * 3
    found = measuring.compared({OURS: [6.0, 8.0, 9.0], "other": [2.0, 8.0, 3.0]})
    assert found["ours_is_faster"] == {"other": 3.0}  # the median of the ratios 3, 1 and 3


def test_a_part_can_be_measured_again_and_the_others_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "RECORDS", tmp_path)
    monkeypatch.setattr("sys.argv", ["one", "--only", "b"])
    (tmp_path / "one.json").write_text('{"a": 1, "b": 2, "made_with": {"torch": "old", "threads": 1}}')
    measuring.measure("one", "About it.", {"a": lambda: 3, "b": lambda: 4}, "cpu", ("torch",), threads=5)
    found = json.loads((tmp_path / "one.json").read_text())
    assert (found["a"], found["b"], found["made_with"]["threads"]) == (1, 4, 5)
    assert found["made_with"]["torch"] == torch.__version__
    assert capsys.readouterr().err == "b 4\n"


def test_products_alone_are_those_of_a_step():
    products = contenders.products_alone(OneBatch(3, 11, 31).batch, TINY)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        products()
    assert counter.get_total_flops() == training_operations(TINY, BatchShape(3, 11, 11))


def test_a_peer_has_our_sizes_and_learns():
    torch.manual_seed(0)
    ours, theirs, batches = Transformer(TINY), PyTorch(TINY), OneBatch(3, 5, 31)
    batch = batches.batch
    assert ours(batch.src, batch.tgt_in).shape == theirs(batch.src, batch.tgt_in).shape == (3, 5, 31)
    # Pre-norm has two norms more, and torch's has biases there too.
    sizes = [sum(p.numel() for n, p in m.named_parameters() if "norm" not in n) for m in (ours, theirs)]
    assert sizes[0] == sizes[1]
    before = [parameter.detach().clone() for parameter in theirs.parameters()]
    assert peer_steps(theirs, batches)() == 30
    assert not any(torch.equal(a, b) for a, b in zip(before, theirs.parameters(), strict=True))


def test_decoding_without_a_cache_and_by_ctranslate2_gives_the_same_tokens():
    model, src = Transformer(TINY).eval(), torch.randint(3, 31, (3, 7))
    model.output.weight.data[:3] = 0.0
    said = greedy(model, src, max_length=9)
    assert torch.equal(contenders.without_cache(model, src, max_length=9), said)
    found = contenders.by_ctranslate2(model)(src.tolist(), beam_size=1, max_decoding_length=9)
    assert found == said.tolist()


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr(peers, "compile_decoding", lambda model: model)  # compiling takes long


def test_our_decoding_is_compared_with_the_recorded_peers(uncompiled):
    found = peers.measure_decoding(TINY, 2, 5, 1, "cpu")["ours_is_faster"]
    assert found.keys() == records.read("peers")["greedy, 1 sentence of 50"]["ours_is_faster"].keys()


@pytest.mark.parametrize(
    ("row", "part", "peer"),
    [
        ("training beside `nn.Transformer`", "training, 32 sentences of 32", "torch.nn.Transformer"),
        ("… Marian of `transformers`", "training, 32 sentences of 32", "Marian, SDPA"),
        ("… x-transformers", "training, 32 sentences of 32", "x-transformers"),
        ("decoding 64 sentences beside CTranslate2", "greedy, 64 sentences of 50", "CTranslate2"),
        ("… one sentence", "greedy, 1 sentence of 50", "CTranslate2"),
        ("… 1,000 captions", "the 1000 captions, greedy", "CTranslate2"),
        ("… with a beam of 4", "the 1000 captions, beam of 4", "CTranslate2"),
    ],
)
def test_the_readmes_table_shows_the_records(row, part, peer):
    readme = (release.HERE.parent / "README.md").read_text(encoding="utf-8")
    [cells] = [line.strip("| ").split(" | ") for line in readme.splitlines() if line.startswith(f"| {row} |")]
    ratios = [records.read(name)[part]["ours_is_faster"][peer] for name in ("peers", "peers_amd")]
    assert list(map(float, cells[1:3])) == pytest.approx(ratios, rel=0.05)


def test_sentences_of_different_lengths_are_decoded_in_four_ways(monkeypatch, uncompiled):
    known = Transformer(TINY).eval(), [[5, 7], 5 * [11], [9]]
    monkeypatch.setattr(peers, "caption_model", lambda: known)
    monkeypatch.setattr(peers, "LONGEST", 13)
    for beam_size in (1, 4):
        assert len(peers.sentences(beam_size, 1)["tokens_per_second"]) == 4


def test_gpu_benchmarks_run_on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # compiling takes long
    monkeypatch.setattr(gpu.gc, "collect", lambda: None)
    monkeypatch.setattr(gpu, "median_seconds", lambda work: [work(), 1.0][1])
    monkeypatch.setattr(gpu.Trainer, "train_step", lambda self, prepared: asked.append(self.config))
    asked, parts = [], gpu.parts(torch.device("cpu"), rounds=1, tiny=TINY)
    known, names = records.read("gpu"), ("ceilings", "roofline", "number words", "base and big", "attention")
    found = {name: parts[name]() for name in names}
    assert {name: len(part) for name, part in found.items()} == {name: len(known[name]) for name in names}
    assert all(config.compile for config in asked[-4:])  # big: three steps to warm up, and one timed
    assert [*parts] == [name for name in known if name != "made_with"]
    # Figure 16.1's operations and bytes, by hand: 50 tokens by a matrix of 512 × 2,048, four times in bfloat16.
    product = found["roofline"]["feed-forward, 50 tokens"]
    assert product["operations"] == 4 * 2 * 50 * 512 * 2048
    assert product["bytes"] == 4 * 2 * (50 * 512 + 512 * 2048 + 50 * 2048)
    norm = found["roofline"]["layer norm, one kernel"]  # eight times the tokens, read and written in float32
    assert (norm["operations"], norm["bytes"]) == (7 * 400 * 512, 2 * 4 * 400 * 512)


# --- Chapters' experiments


def test_a_chapter_defines_what_its_experiments_use():
    for work in filter(inspect.isfunction, vars(experiments).values()):
        source = inspect.getsource(work)
        used = re.findall(r'(?:book|chapter\("\w+"\))\["(\w+)"\]', source)
        for stem in re.findall(r'chapter\("(\w+)"\)', source):
            assert set(used) <= set(experiments.chapter(stem)), work


# --- Table 3


@pytest.mark.usefixtures("no_shape_checks")  # keys are narrower than values
def test_a_row_changes_what_it_says():
    batch = make_batch(number_words.pairs([7, 987_654]))
    models = {row.change: table3.new_model(row).eval() for row in table3.ROWS}
    assert len(models) == len(table3.ROWS)
    assert all(model(batch.src, batch.tgt_in).isfinite().all() for model in models.values())
    count = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    assert {count[f"h = {h}, d_k = {128 // h}"] for h in (1, 2, 8, 16, 32)} == {count["base"]}
    # d_k narrows queries and keys alone, in six attentions, 128 + 1 numbers for each of h · (32 − d_k) outputs.
    assert count["base"] - count["d_k = 8"] == 6 * 2 * 4 * (32 - 8) * 129
    assert count["learned positions"] - count["base"] == 2 * 64 * 128
    assert [row.training for row in table3.ROWS if row.change == "N = 4, 250 steps"] == [{"steps": 250}]
    large, sinusoids = (
        models[name].target_embedding.position.table for name in ("learned positions, started large", "base")
    )
    assert large.norm().item() == pytest.approx(sinusoids.norm().item(), rel=0.05)
    # Rotary attention sees order, though nothing is added to the embeddings.
    src, tgt = torch.tensor([[3, 4, 5]]), torch.tensor([[1]])
    for change in ("no positions", "base", "only short numbers, rotary positions, 250 steps"):
        is_blind = torch.allclose(*(models[change](x, tgt) for x in (src, src.flip(1))), atol=1e-5)
        assert is_blind == (change == "no positions"), change


def test_a_row_is_trained_and_measured(monkeypatch):
    monkeypatch.setattr(table3, "NUMBERS", 5)
    few = {"steps": 2, "batch_size": 4, "training_pairs": 64, "warmup_steps": 1}
    row = table3.Row("C", "small", {"d_model": 32, "d_ff": 16, **LAYERS, "max_length": 13}, few)
    monkeypatch.setattr(table3, "ROWS", [row])
    found = table3.run(0, 1)
    assert (found["group"], found["change"], found["seed"]) == ("C", "small", 1)
    assert 0 <= found["exact_match"] <= 1 < found["perplexity"]


# --- How fast a class is graded


def test_grading_speed_is_as_stated_in_readme_and_guide():
    record = records.read("throughput")
    runs = {(run["submissions"], run["workers"]): run for run in record["runs"]}
    assert [*runs] == throughput.RUNS
    largest, one_worker, two_workers, *_ = runs.values()
    assert largest["a_minute"] >= 100
    assert one_worker["seconds"] / two_workers["seconds"] >= 1.8
    memory = [run["memory_mb"] for run in runs.values() if run is not one_worker]
    assert max(memory) <= 1.1 * min(memory), "memory does not grow with the class"
    many, some = (f"took {run['seconds'] / 60:.1f} minutes on two cores" for run in (largest, two_workers))
    many = f"1,000 submissions of an assignment on attention, all different, {many}"
    for name in ("README.md", "book/instructors.md"):
        words = " ".join((release.HERE.parent / name).read_text(encoding="utf-8").split())
        assert f"{many}, {record['over_plain_nbgrader']:g} times as many a minute" in words, name
    assert f"300 submissions {some}" in words
