"""Several processes that train one model: the same curve as one, one that is killed, and a restart with fewer."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch
from conftest import assert_close

from transformer_lessons.data.batches import Batches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.tools import cli
from transformer_lessons.trainer import Trainer, TrainingConfig, distributed, parallel
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.resuming import found

# What runs: a tiny model in float64, without dropout, so that only the order of sums differs. Either torchrun has
# started one for each process; or it starts them itself, one stage of a run after another, which is much faster.
SCRIPT = """
import json, os, signal, socket, sys
from pathlib import Path
import torch
import torch.distributed.checkpoint
import torch.distributed.fsdp
from transformer_lessons.trainer import distributed, trainer as training
from transformer_lessons.data import number_words
from transformer_lessons.data.batches import TokenBatches
from transformer_lessons.data.packing import PackedBatches
from transformer_lessons.model import Transformer, TransformerConfig
from transformer_lessons.trainer.resuming import found
from transformer_lessons.trainer.sharding import whole
from transformer_lessons.trainer import Trainer, TrainingConfig

torch.set_num_threads(1)


def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)


def held(tensors):
    return sum(x.to_local().numel() if hasattr(x, "to_local") else x.numel() for x in tensors)


def new_trainer(folder, is_packed=False, in_shares=False, precision="float32"):
    source, target = number_words.vocabularies()
    sizes = dict(d_model=21, num_heads=3, d_ff=17, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(len(source), len(target), **sizes))
    model = model.double() if precision == "float32" else model
    pairs = number_words.pairs(number_words.training_numbers(307, 0))
    # Computed again or not, in one part or two: it changes nothing.
    how = dict(accumulate=2, recompute=distributed.world_size() > 1, precision=precision)
    config = TrainingConfig(steps=50, tokens=211, warmup_steps=7, shard=in_shares, snapshots=1, **how)
    packed, sorted_by_length = PackedBatches(pairs, 211, 31, seed=0), TokenBatches(pairs, 211, seed=0)
    return Trainer(model, packed if is_packed else sorted_by_length, config, folder)


def train(folder, steps=50, killed_at=None, writing=False, **how):
    trainer = new_trainer(folder, **how)
    if found(folder):
        trainer.restore()
    between, exchange = [], training.synchronised

    def seen(loss, is_last):
        between.append(held(p.grad for p in trainer.model.parameters() if p.grad is not None))
        return exchange(loss, is_last)

    training.synchronised = seen
    while trainer.step < steps:
        trainer.history.append(trainer.train_step())
        is_last = trainer.step == killed_at and distributed.rank() == 1
        if is_last and writing:  # its part of the checkpoint, when others have begun with theirs
            torch.distributed.checkpoint.FileSystemWriter.write_data = die
        if trainer.step % 10 == 0:
            trainer.save()
        if is_last:
            die()
    trainer.save()
    state = trainer.optimizer.state
    here = [held(state), held(p.grad for p in state)]
    here += [held(moments[name] for moments in state.values()) for name in ("exp_avg", "exp_avg_sq")]
    total = sum(whole(p).double().sum().item() for p in trainer.model.parameters())
    return {"total": total, "held": here, "between": between[-2:]}


def overflow(folder, **how):
    '''One number of the gradient overflows in the second process: both leave the step out.'''
    trainer = new_trainer(folder, precision="float16", **how)
    trainer.train_step()
    before, unscale = [p.detach().clone() for p in trainer.model.parameters()], trainer.scaler.unscale_

    def spoiled(optimizer):
        if distributed.rank():
            next(iter(optimizer.state)).grad.to_local().view(-1)[0] = float("inf")
        unscale(optimizer)

    scale, trainer.scaler.unscale_ = trainer.scaler.get_scale(), spoiled
    norm = trainer.train_step()["gradient_norm"]
    same = [torch.equal(whole(a), whole(b)) for a, b in zip(before, trainer.model.parameters())]
    trainer.scaler.unscale_ = unscale
    after = trainer.train_step()["gradient_norm"]
    return {"norm": norm, "same": all(same), "after": after, "scales": scale / trainer.scaler.get_scale()}


def work(folder, what="train", **how):
    with distributed.process_group(torch.device("cpu")):
        said = globals()[what](folder, **how)
        sys.stdout.write(json.dumps({"rank": distributed.rank(), **said}) + "\\n")  # at once, or lines would mix
        sys.stdout.flush()


def start(processes, port, **how):
    for rank in range(processes):
        if not os.fork():
            if processes > 1:
                place = dict(MASTER_ADDR="localhost", MASTER_PORT=port, RANK=rank, WORLD_SIZE=processes)
                os.environ.update({name: str(value) for name, value in place.items()})
            work(**how)
            os._exit(0)
    if any([os.wait()[1] for _ in range(processes)]):
        sys.exit("a process has failed")


folder = Path(sys.argv[1])
for stage in json.loads(sys.argv[2]):
    processes = stage.pop("processes")
    if "RANK" in os.environ:
        work(folder, **stage)
    else:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        start(processes, port, folder=folder, **stage)
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this torch has no gloo",
)


def train(folder: Path, *stages: dict, torchrun: bool = False) -> subprocess.CompletedProcess:
    """Run the script in that folder, stage by stage: how many processes, and the arguments of its `train`."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    (folder / "run").mkdir(exist_ok=True)
    number = str(stages[0]["processes"])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", number]
    command = [*(launcher if torchrun else []), str(script), str(folder / "run"), json.dumps(stages)]
    return subprocess.run(
        [sys.executable, *command],
        **{"capture_output": True, "text": True, "check": False, "timeout": 300},
        env=ENVIRONMENT,
        cwd=folder,
    )


def printed(done: subprocess.CompletedProcess) -> list[dict]:
    """What each process said at its end, by its number."""
    assert done.returncode == 0, done.stderr
    lines = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return sorted((json.loads(line) for line in lines), key=lambda said: said["rank"])


def curve(folder: Path) -> list[float]:
    path = found(folder / "run")
    content = torch.load(path / "progress.pt" if path.is_dir() else path, weights_only=True)
    return [record["loss"] for record in content["history"]]


def names(folder: Path) -> set[str]:
    """What a run has left, but for the snapshot of its last step."""
    return {path.name for path in (folder / "run").iterdir()} - {"weights-000050.pt"}


def assert_same(one: list[float], other: list[float]) -> None:
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 1e-10


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[list[float], dict, dict]:
    """One process with the whole batch: its curve, what it said at its end, and its weights."""
    folder = tmp_path_factory.mktemp("alone")
    (said,) = printed(train(folder, {"processes": 1}))
    expected = curve(folder)
    assert len(expected) == 50
    assert expected[-1] < 0.9 * expected[0]
    return expected, said, torch.load(folder / "run" / "weights-000050.pt")


@needs_gloo
def test_two_processes_train_as_one(tmp_path, alone):
    expected, said, _ = alone
    ends = printed(train(tmp_path, {"processes": 2}))
    assert_same(expected, curve(tmp_path))
    assert len(ends) == 2
    assert ends[0]["total"] == ends[1]["total"]  # to the last bit: both took the same steps
    assert ends[0]["held"] == ends[1]["held"] == said["held"]


@needs_gloo
def test_one_of_two_is_killed_and_one_or_two_go_on(tmp_path, alone):
    """An error, at once; what was saved is whole."""
    killed = train(tmp_path, {"processes": 2, "killed_at": 27}, torchrun=True)
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr or "Signal 9" in killed.stderr
    assert len(curve(tmp_path)) == 20
    printed(train(tmp_path, {"processes": 1, "steps": 35}, {"processes": 2}))
    assert_same(alone[0], curve(tmp_path))


@needs_gloo
def test_two_processes_with_half_of_the_model_each_train_as_one(tmp_path, alone):
    """Odd sizes, tied weights, layers computed again, a batch in two parts."""
    expected, said, weights = alone
    ends = printed(train(tmp_path, {"processes": 2, "in_shares": True}))
    assert_same(expected, curve(tmp_path))
    assert ends[0]["total"] == ends[1]["total"]
    for everything, *shares in zip(said["held"], *(end["held"] for end in ends), strict=True):
        assert sum(shares) == everything > 0  # of weights, gradients and both moments
        assert max(shares) < 0.54 * everything
    for end in ends:  # nor are gradients whole between the two parts of a batch
        assert end["between"] == [0, end["held"][1]]
    assert names(tmp_path) == {"checkpoint"}
    # The snapshot is whole, and of one's own making.
    saved = torch.load(tmp_path / "run" / "weights-000050.pt")
    assert saved.keys() == weights.keys()
    for name, tensor in saved.items():
        assert_close(tensor, weights[name], tolerance=1e-8)


@needs_gloo
def test_one_of_two_is_killed_while_it_writes_its_share_and_three_or_one_go_on(tmp_path, alone):
    stage = {"processes": 2, "in_shares": True}
    killed = train(tmp_path, {**stage, "killed_at": 20, "writing": True}, torchrun=True)
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr or "Signal 9" in killed.stderr
    assert ".checkpoint" in names(tmp_path)  # which nobody takes for a checkpoint
    assert len(curve(tmp_path)) == 10
    printed(train(tmp_path, {**stage, "processes": 3, "steps": 15}, {**stage, "processes": 1}))
    assert_same(alone[0], curve(tmp_path))
    assert names(tmp_path) == {"checkpoint"}


@needs_gloo
def test_a_run_goes_on_in_shares_and_again_without(tmp_path, alone):
    stages = [
        {"processes": 1, "steps": 20},
        {"processes": 2, "steps": 27, "in_shares": True},
        {"processes": 2},
    ]
    printed(train(tmp_path, *stages[:2]))
    assert_same(alone[0][:27], curve(tmp_path))
    assert names(tmp_path) - {"weights-000027.pt"} == {"checkpoint"}
    printed(train(tmp_path, *stages[2:]))
    assert_same(alone[0], curve(tmp_path))
    assert names(tmp_path) == {"checkpoint.pt"}


@needs_gloo
def test_an_overflow_in_one_share_stops_the_step_in_all(tmp_path):
    ends = printed(train(tmp_path, {"processes": 2, "what": "overflow", "in_shares": True}))
    assert len(ends) == 2
    for end in ends:
        assert end["norm"] is None
        assert end["same"]
        assert end["after"] > 0
        assert end["scales"] == 2


@needs_gloo
def test_two_processes_train_packed_rows_as_one(tmp_path):
    curves = []
    for name, stage in {"one": {}, "two": {}, "shares": {"in_shares": True}}.items():
        folder = tmp_path / name
        folder.mkdir()
        processes = 1 if name == "one" else 2
        printed(train(folder, {**stage, "processes": processes, "steps": 7, "is_packed": True}))
        curves.append(curve(folder))
    assert len(curves[0]) == 7
    assert_same(*curves[:2])
    assert_same(*curves[1:])


def tiny(folder: Path, **training) -> Path:
    """Settings for `lessons train`, of a run that takes seconds."""
    sizes = {"d_model": 16, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    settings = {"model": {**sizes, "dropout": 0.0}, "training": {"training_pairs": 999, **training}}
    (folder / "small.json").write_text(json.dumps(settings))
    return folder / "small.json"


def wait_for_steps(folder: Path, steps: int, process: subprocess.Popen) -> None:
    metrics = folder / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < steps:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)


@needs_gloo
def test_the_command_under_torchrun(tmp_path):
    """One record, one set of files, one line of result; and Ctrl-C to all leaves a checkpoint to go on from."""
    config = tiny(tmp_path, checkpoint_every=100)
    run = ["-m", "transformer_lessons", "train", "--device", "cpu", "--output", str(tmp_path / "run")]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    new = [sys.executable, *launcher, *run, "--config", str(config), "--steps", "150"]
    with subprocess.Popen(new, env=ENVIRONMENT, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        wait_for_steps(tmp_path / "run", 7, process)
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


@needs_gloo
def test_the_command_in_shares_is_killed_and_one_process_goes_on_by_the_same_words(tmp_path):
    """Within seconds there is an error that says what happened; the model at the end is whole."""
    config = tiny(tmp_path, checkpoint_every=5, steps=150, warmup_steps=5)
    words = ["train", "--device", "cpu", "--config", str(config), "--output", str(tmp_path / "run")]
    words += ["--shard", "--resume-or-start"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command = [sys.executable, *launcher, "transformer_lessons", *words]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        wait_for_steps(tmp_path / "run", 7, process)
        psutil.Process(process.pid).children()[1].kill()
        _, complaints = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "SIGKILL" in complaints
    before = torch.load(tmp_path / "run" / "checkpoint" / "progress.pt", weights_only=True)["step"]
    assert before % 5 == 0
    assert before < 150
    assert cli.main(words) == 0
    assert cli.main([*words[:-2], "--overwrite", "--output", str(tmp_path / "alone")]) == 0
    one, other = (
        [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("run", "alone")
    )
    assert len(one) == 150
    assert one == pytest.approx(other, rel=1e-3)
    models = [load_model(tmp_path / name)[0].state_dict() for name in ("run", "alone")]
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        # What is added to all keys alike changes no weight of attention: its gradient is rounding alone, of which
        # AdamW makes steps as long as any.
        if not name.endswith("W_k.bias"):
            assert_close(tensor, models[1][name], tolerance=1e-4)


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
    monkeypatch.setattr(parallel, "DistributedDataParallel", Parallel)
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
