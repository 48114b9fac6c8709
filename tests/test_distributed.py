"""Training in several processes: the same losses as one, an interrupt, and resuming with another number."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from transformer_lessons.data.batches import Batches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, TrainingConfig, distributed
from transformer_lessons.trainer.tasks import NumberWords

# A tiny model in float64, without dropout, so that only the order of sums differs. The stages of a run have
# different numbers of processes, which are forked: torchrun would take seconds to start each of them.
SCRIPT = """
import json, os, socket, sys
from pathlib import Path
import torch
import torch.distributed.fsdp
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import TokenBatches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer import Trainer, TrainingConfig, distributed

torch.set_num_threads(1)
pairs = number_words.pairs(number_words.training_numbers(307, 0))
batches = TokenBatches(pairs, 211, seed=0)  # of 8 to 38 rows


def held(tensors):
    return sum(x.to_local().numel() if hasattr(x, "to_local") else x.numel() for x in tensors)


def new_trainer(folder, shard=False):
    source, target = number_words.vocabularies()
    sizes = dict(d_model=21, num_heads=3, d_ff=17, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes)).double()
    # Computed again or not, in one part, or in four or five: it changes nothing.
    how = dict(recompute=shard, accumulate=5 if distributed.world_size() == 2 else 1)
    config = TrainingConfig(steps=20, tokens=211, warmup_steps=7, shard=shard, snapshots=1, **how)
    return Trainer(model, batches, config, folder)


def train(folder, steps, **how):
    trainer = new_trainer(folder, **how)
    if (folder := Path(folder)) and (folder / "checkpoint.pt").exists():
        trainer.restore()
    while trainer.step < steps:
        trainer.history.append(trainer.train_step())
    trainer.save()
    state = trainer.optimizer.state
    moments = [[values[name] for values in state.values()] for name in ("exp_avg", "exp_avg_sq")]
    weights = sum(distributed.full_tensor(p).double().sum().item() for p in trainer.model.parameters())
    here = [held(state), held(p.grad for p in state), *map(held, moments)]
    return {"losses": [record["loss"] for record in trainer.history], "held": here, "weights": weights}


def start(processes, port, **how):
    for rank in range(processes):
        if not os.fork():
            if processes > 1:
                place = dict(MASTER_ADDR="localhost", MASTER_PORT=port, RANK=rank, WORLD_SIZE=processes)
                os.environ.update({name: str(value) for name, value in place.items()})
            with distributed.process_group(torch.device("cpu")):
                said = {"rank": rank, "folder": how["folder"], **train(**how)}
                sys.stdout.write(json.dumps(said) + "\\n")  # at once, or lines would mix
                sys.stdout.flush()
            os._exit(0)
    if any([os.wait()[1] for _ in range(processes)]):
        sys.exit("a process has failed")


for stage in json.loads(sys.argv[1]):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    Path(stage["folder"]).mkdir(exist_ok=True)
    start(port=port, **stage)
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)
STAGES = [
    # One process to compare with; then a run as two copies, two shards, three shards and one process.
    {"processes": 1, "folder": "alone", "steps": 20},
    {"processes": 2, "folder": "run", "steps": 7},
    {"processes": 2, "folder": "run", "steps": 14, "shard": True},
    {"processes": 3, "folder": "run", "steps": 17, "shard": True},
    {"processes": 1, "folder": "run", "steps": 20},
]


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> list[list[dict]]:
    """The last output of each process, with its folder, by stage and rank; one subprocess runs all stages."""
    parent = tmp_path_factory.mktemp("runs")
    given = json.dumps([{**stage, "folder": str(parent / stage["folder"])} for stage in STAGES])
    how = {"capture_output": True, "text": True, "timeout": 500, "env": ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", SCRIPT, given], check=False, **how)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    said = [[lines.pop(0) for _ in range(stage["processes"])] for stage in STAGES]
    return [sorted(end, key=lambda one: one["rank"]) for end in said]


@needs_gloo
def test_copies_and_shards_train_as_one_process_and_resume_each_others_checkpoints(ends):
    """Whatever rows a process has: of nine, one has five and the other four, both in four parts."""
    expected = ends[0][0]["losses"]
    assert expected[-1] < 0.95 * expected[0]
    for end in ends:
        assert len({said["weights"] for said in end}) == 1  # to the last bit: all took the same steps
        for said in end:
            assert said["losses"] == pytest.approx(expected[: len(said["losses"])], rel=0, abs=1e-10)
    everything = ends[0][0]["held"]
    assert [said["held"] for said in ends[1]] == [everything] * 2
    for whole, *parts in zip(everything, *(said["held"] for said in ends[2]), strict=True):
        assert sum(parts) == whole > 0  # of weights, gradients and both moments
        assert max(parts) < 0.54 * whole
    paths = [next(Path(end[0]["folder"]).glob("weights-*.pt")) for end in (ends[0], ends[4])]
    assert {path.name for path in paths[1].parent.iterdir()} == {"checkpoint.pt", paths[0].name}
    one, run = map(torch.load, paths)
    assert run.keys() == one.keys()
    assert all((run[name] - one[name]).abs().max() < 1e-8 for name in one)


def losses(folder: Path) -> list[float]:
    path = folder / "metrics.jsonl"
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()] if path.exists() else []


@needs_gloo
def test_an_interrupted_command_is_resumed_by_one_process(tmp_path, monkeypatch, capsys):
    """Ctrl-C leaves a checkpoint of the last step; `test_book_several_machines` kills a process."""
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    training = {"training_pairs": 999, "checkpoint_every": 5, "steps": 60, "warmup_steps": 5}
    settings = {"model": {**sizes, "dropout": 0.0}, "training": training}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    words = f"train --device cpu --config {tmp_path / 'small.json'} --shard --resume-or-start".split()
    here = [*words, "--output", str(tmp_path / "run")]
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 -m transformer_lessons".split()
    given = {"env": ENVIRONMENT, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *launcher, *here], **given) as process:
        while len(losses(tmp_path / "run")) < 7:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)  # torchrun passes it on
        _, complaints = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "to continue: lessons train --resume --output" in complaints
    assert 7 <= torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"] < 60
    result = {"exact_match": 0.0, "n": 1000, "errors": {}, "examples": []}
    monkeypatch.setattr(NumberWords, "evaluate", lambda *given: result)
    assert cli.main(here) == 0
    assert cli.main([*words, "--output", str(tmp_path / "alone")]) == 0
    assert capsys.readouterr().out.count("exact match on 1,000 numbers") == 2
    assert len(losses(tmp_path / "run")) == 60
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)


@pytest.fixture
def two(monkeypatch):
    """This process is the second of two on a machine with two GPUs; returns the calls of torch."""
    asked = []
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda tensor: tensor.mul_(2))
    monkeypatch.setattr(distributed.dist, "init_process_group", asked.append)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: asked.append("left"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    return asked


def test_every_process_has_its_own_gpu(two, monkeypatch):
    with distributed.process_group(torch.device("cuda")) as device:
        assert two == [device, "nccl"] == [torch.device("cuda", 1), "nccl"]
    assert two[2:] == ["left"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    message = "nproc-per-node: expected at most 1, the number of GPUs here, got more"
    with pytest.raises(ValueError, match=message), distributed.process_group(torch.device("cuda")):
        pass


def test_the_second_copy_sends_gradients_once_a_step_and_writes_nothing(two, monkeypatch, tmp_path, capsys):
    """It also has its own dropout and shows nothing."""
    monkeypatch.setattr(distributed, "DistributedDataParallel", lambda module: module)
    model = Transformer(TransformerConfig(11, 13, 6, 3, 5, 1, 1, max_length=17))
    batches, crossed = Batches([([3 + n], [5 + n]) for n in range(7)], 7, seed=0), []
    trainer = Trainer(model, batches, TrainingConfig(batch_size=7, accumulate=3, steps=2), tmp_path)
    trainer.loss.register_forward_pre_hook(
        lambda loss, given: crossed.append((len(given[0].src), loss.require_backward_grad_sync))
    )
    assert trainer.run()
    assert crossed == [(1, False), (1, False), (1, True)] * 2  # three of the seven rows
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    seeds = set()
    for rank in (1, 2, 63, 64):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        for trainer.step in range(2, 256, 64):
            trainer.run()
            seeds.add(torch.initial_seed())
    assert len(seeds) == 4 * 4
