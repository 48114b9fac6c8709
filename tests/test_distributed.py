"""Several processes that train one model: the same curve as one, one that is killed, and a restart with fewer."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from transformer_lessons import distributed, training
from transformer_lessons.data.batches import Batches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.training import Trainer, TrainingConfig

# What torchrun runs: a tiny model in float64, without dropout, so that only the order of sums differs.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch
from transformer_lessons import distributed
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import TokenBatches
from transformer_lessons.data.packing import PackedBatches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.training import Trainer, TrainingConfig

folder, steps, killed_at, is_packed = Path(sys.argv[1]), *map(int, sys.argv[2:])
torch.set_num_threads(1)
with distributed.process_group(torch.device("cpu")):
    source, target = number_words.vocabularies()
    sizes = dict(d_model=21, num_heads=3, d_ff=17, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes)).double()
    pairs = number_words.pairs(number_words.training_numbers(307, 0))
    how = dict(accumulate=2, recompute=distributed.world_size() > 1)  # which changes nothing
    config = TrainingConfig(steps=50, tokens=211, warmup_steps=7, checkpoint_every=10, **how)
    packed, sorted_by_length = PackedBatches(pairs, 211, 31, seed=0), TokenBatches(pairs, 211, seed=0)
    trainer = Trainer(model, packed if is_packed else sorted_by_length, config, folder)
    if (folder / "checkpoint.pt").exists():
        trainer.restore()
    while trainer.step < steps:
        trainer.history.append(trainer.train_step())
        if trainer.step % 10 == 0:
            trainer.save()
        if trainer.step == killed_at and distributed.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    trainer.save()
    total = sum(p.double().sum().item() for p in model.parameters())
    print(json.dumps({"rank": distributed.rank(), "total": total}), flush=True)
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


def started(processes: int, *arguments: str) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [sys.executable, *(launcher if processes > 1 else []), *arguments]


def train(
    tmp_path: Path, name: str, processes: int, steps: int = 50, killed_at: int = -1, is_packed: int = 0
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / name).mkdir(exist_ok=True)
    arguments = map(str, (script, tmp_path / name, steps, killed_at, is_packed))
    command = started(processes, *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300, cwd=tmp_path, check=False
    )
    return done


def curve(folder: Path) -> list[float]:
    content = torch.load(folder / "checkpoint.pt", weights_only=True)
    return [record["loss"] for record in content["history"]]


@needs_gloo
def test_two_processes_train_as_one_and_go_on_as_one(tmp_path):
    one, two = train(tmp_path, "one", 1), train(tmp_path, "two", 2)
    assert one.returncode == two.returncode == 0, two.stderr
    expected = curve(tmp_path / "one")
    assert len(expected) == 50
    assert expected[-1] < 0.9 * expected[0]
    assert max(abs(a - b) for a, b in zip(expected, curve(tmp_path / "two"), strict=True)) <= 1e-10
    ends = [json.loads(line)["total"] for line in two.stdout.splitlines() if line.startswith("{")]
    assert len(ends) == 2
    assert ends[0] == ends[1]  # to the last bit: both took the same steps

    # One of two is killed: an error, at once; what was saved is whole, and one process or two go on from it.
    killed = train(tmp_path, "killed", 2, killed_at=27)
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr or "Signal 9" in killed.stderr
    assert len(curve(tmp_path / "killed")) == 20
    for processes, steps in ((1, 35), (2, 50)):
        resumed = train(tmp_path, "killed", processes, steps)
        assert resumed.returncode == 0, resumed.stderr
    again = curve(tmp_path / "killed")
    assert max(abs(a - b) for a, b in zip(expected, again, strict=True)) <= 1e-10


@needs_gloo
def test_two_processes_train_packed_rows_as_one(tmp_path):
    one, two = (train(tmp_path, str(count), count, steps=13, is_packed=1) for count in (1, 2))
    assert one.returncode == two.returncode == 0, two.stderr
    curves = [curve(tmp_path / name) for name in ("1", "2")]
    assert len(curves[0]) == 13
    assert max(abs(a - b) for a, b in zip(*curves, strict=True)) <= 1e-10


@needs_gloo
def test_the_command_under_torchrun(tmp_path):
    """One record, one set of files, one line of result; and Ctrl-C to all leaves a checkpoint to go on from."""
    config = tmp_path / "small.json"
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    config.write_text(
        json.dumps({"model": sizes, "training": {"checkpoint_every": 100, "training_pairs": 999}})
    )
    run = ["-m", "transformer_lessons", "train", "--device", "cpu", "--output", str(tmp_path / "run")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    new = [sys.executable, *launcher, *run, "--config", str(config), "--steps", "150"]
    with subprocess.Popen(new, env=ENVIRONMENT, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 7:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)  # torchrun passes it on
        _, complaints = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "to go on: lessons train --resume --output" in complaints
    stopped = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"]
    assert 7 <= stopped < 150

    done = subprocess.run(
        [sys.executable, *launcher, *run, "--resume"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("exact match on 1,000 held-out") + done.stdout.count("exact match on 1,000 numbers")
        == 1
    )
    assert json.loads((tmp_path / "run" / "record.json").read_text())["steps"] == 150
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 150


def test_alone_there_is_nothing_to_wait_for(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with distributed.process_group(torch.device("cpu")) as device:
        assert device == torch.device("cpu")
        assert (distributed.rank(), distributed.world_size()) == (0, 1)
        tensor = torch.ones(3)
        assert distributed.summed(tensor) is tensor
        assert distributed.any_of(True, device)
        assert not distributed.any_of(False, device)
        distributed.wait()
    assert not torch.distributed.is_initialized()


class Two:
    """Stands for torch.distributed in the second of two processes; notes what is asked of it."""

    def __init__(self, others: float = 0):
        self.others, self.asked = others, []

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return 1

    def get_world_size(self) -> int:
        return 2

    def init_process_group(self, backend: str):
        self.asked.append(backend)

    def destroy_process_group(self):
        self.asked.append("left")

    def barrier(self):
        self.asked.append("barrier")

    def all_reduce(self, tensor: torch.Tensor):
        tensor += self.others


@pytest.fixture
def two(monkeypatch):
    """This process is the second of two on a machine with two GPUs."""
    group = Two()
    monkeypatch.setattr(distributed, "dist", group)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: group.asked.append(device))
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    return group


def test_every_process_has_its_own_gpu(two):
    with distributed.process_group(torch.device("cuda")) as device:
        assert device == torch.device("cuda", 1)
        assert two.asked == [device, "nccl"]
    assert two.asked[2:] == ["left"]


def test_without_gpus_processes_meet_over_gloo(two):
    def fail():
        with distributed.process_group(torch.device("cpu")) as device:
            assert device == torch.device("cpu")
            raise KeyError("its own mistake")

    with pytest.raises(KeyError, match="its own mistake"):
        fail()
    assert two.asked == ["gloo", "left"]


@pytest.mark.parametrize("count", [0, 1])
def test_more_processes_than_gpus(two, monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    message = f"nproc-per-node: expected at most {count}, the GPUs here, got 2 or more"
    with pytest.raises(ValueError, match=message), distributed.process_group(torch.device("cuda")):
        pass
    assert two.asked == []


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE"])
def test_half_of_what_torchrun_says_is_not_torchrun(two, monkeypatch, missing):
    monkeypatch.delenv(missing)
    with distributed.process_group(torch.device("cuda")) as device:
        assert device == torch.device("cuda")
    assert two.asked == []


def test_what_two_processes_agree_on(two):
    assert (distributed.rank(), distributed.world_size()) == (1, 2)
    distributed.wait()
    assert two.asked == ["barrier"]
    mine, two.others = torch.tensor([3.0, 5.0]), 7
    assert distributed.summed(mine).tolist() == [10.0, 12.0]
    assert mine.tolist() == [3.0, 5.0]
    with torch.device("meta"):  # the flag is on the device that was named, not on the default one
        assert distributed.any_of(False, torch.device("cpu"))
        two.others = 0
        assert distributed.any_of(True, torch.device("cpu"))
        assert not distributed.any_of(False, torch.device("cpu"))


class Parallel(torch.nn.Module):
    """Stands for DistributedDataParallel; notes of each part whether its gradients cross between processes."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module, self.crosses, self.crossed = module, True, []

    def forward(self, batch):
        self.crossed.append(self.crosses)
        return self.module(batch)

    @contextmanager
    def no_sync(self):
        self.crosses = False
        yield
        self.crosses = True


@pytest.fixture
def trainer(two, monkeypatch) -> Trainer:
    """In the second of two processes; it gets three of the seven pairs of a batch."""
    monkeypatch.setattr(training, "DistributedDataParallel", Parallel)
    config = TransformerConfig(11, 13, 6, 3, 5, 1, 1, max_length=17)
    batches = Batches([([3 + n], [5 + n]) for n in range(7)], 7, seed=0)
    return Trainer(Transformer(config), batches, TrainingConfig(batch_size=7, accumulate=3, steps=2))


def test_gradients_cross_between_processes_once_a_step(trainer):
    for _ in range(2):
        trainer.train_step()
    assert trainer.parallel.crossed == [False, False, True] * 2


def test_the_second_of_two_processes_shows_and_writes_nothing(trainer, capsys, tmp_path):
    trainer.directory = tmp_path
    assert trainer.run()
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_no_two_processes_share_their_dropout(two, trainer, monkeypatch):
    """However many there are, and whichever checkpoint they go on from."""
    monkeypatch.setattr(distributed, "any_of", lambda value, device: True)  # stop before the first step
    ranks, steps, seeds = (1, 2, 63, 64), range(0, 256, 8), set()
    for rank in ranks:
        monkeypatch.setattr(two, "get_rank", lambda rank=rank: rank)
        for trainer.step in steps:
            trainer.run()
            seeds.add(torch.initial_seed())
    assert len(seeds) == len(ranks) * len(steps)
