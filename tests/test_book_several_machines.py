"""The page about several machines: its commands parse, its numbers are those of `costs`, its script runs."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from test_distributed import needs_gloo
from torch.distributed.run import get_args_parser

from transformer_lessons import records
from transformer_lessons.config import TransformerConfig
from transformer_lessons.tools import cli, costs
from transformer_lessons.trainer.tasks import TASKS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "book" / "several_machines.md").read_text(encoding="utf-8")
BLOCKS = [block.replace("\\\n", " ") for block in re.findall(r"```bash\n(.+?)```", PAGE, re.S)]
LINES = [line.strip() for block in BLOCKS for line in block.splitlines()]
(SCRIPT,) = (block for block in BLOCKS if block.startswith("#!/bin/bash\n"))
LAUNCHED = [line for line in LINES if re.match(r"(srun )?torchrun ", line)]


@pytest.mark.parametrize("command", LAUNCHED)
def test_commands_are_valid(command):
    """The installed torchrun and our command line accept each of them, and each can be given twice."""
    launcher = get_args_parser()
    given = launcher.parse_args(shlex.split(command.removeprefix("srun "))[1:])
    assert (given.module, given.training_script) == (True, "transformer_lessons")
    assert given.standalone or (given.rdzv_backend == "c10d" and given.rdzv_endpoint and given.rdzv_id)
    chosen = cli.make_parser().parse_args(given.training_script_args)
    assert chosen.task == "wmt14" or chosen.config.is_file()
    assert chosen.resume_or_start


def test_torchruns_of_several_nodes_share_no_store_with_their_processes():
    """Otherwise restarts sometimes fail: PyTorch's issue 135712."""
    before = ["\n" + block.partition("torchrun")[0] for block in BLOCKS if "--nnodes" in block]
    needed = "\nexport TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n"
    assert [needed in lines for lines in before] == [True, True]


def rounded(numbers) -> str:
    """Numbers as the cells of a table's row."""
    return " | ".join(f"{number:.1f}" for number in numbers)


def test_memory_is_sixteen_bytes_a_parameter():
    big = TransformerConfig.big()
    models = {"base": TransformerConfig.base(), "big": big}
    for d, n in ((2048, 12), (4096, 24)):
        sizes = {"d_model": d, "num_heads": d // 64, "d_ff": 4 * d}
        model = replace(big, **sizes, num_encoder_layers=n, num_decoder_layers=n)
        models[f"d_model {d}, {n} + {n} layers"] = model
    for name, config in models.items():
        count = costs.parameters(config)
        held = rounded(16e-9 * count / processes for processes in (1, 2, 8, 16))
        assert f"| {name} | {count / 1e6:,.0f} million | {held} |\n" in PAGE


def test_the_page_about_wmt14_predicts_as_the_cost_model_does(request):
    page = (ROOT / "book" / "wmt14.md").read_text(encoding="utf-8")
    models, shape = (TransformerConfig.base(), TransformerConfig.big()), costs.BatchShape(125, 25, 25)
    for name in ("T4", "A100", "H100", "H200"):
        hours = [
            steps * 8 * costs.training_operations(model, shape) / (costs.CARDS[name].rate * share) / 3600
            for model, steps in zip(models, (100_000, 300_000), strict=True)
            for share in (0.3, 0.1)
        ]
        assert f"| {name} | {rounded(hours)} |" in page
    for parts in (1, 4, 8) if request.config.getoption("--full") else (8,):
        part = costs.BatchShape(1_000 // parts, 25, 25)
        peaks = [
            costs.training_memory(model, part, "bfloat16", recompute=again).peak / 1e9
            for model in models
            for again in (False, True)
        ]
        assert f"| {parts} | {rounded(peaks)} |" in page


def test_pages_quote_what_was_measured():
    measured, shape = records.read("gpu")["base and big"]["steps"], costs.BatchShape(1_000, 25, 25)
    ms, share, hours = {}, {}, {}
    for model, steps in (("base", 100_000), ("big", 300_000)):
        seconds = measured[f"{model}: bfloat16, compiled"]["seconds"]
        flops = costs.training_operations(getattr(TransformerConfig, model)(), shape)
        ms[model], hours[model] = f"{1e3 * seconds:.0f}", f"{steps * seconds / 3600:.1f}"
        share[model] = f"{flops / seconds / costs.CARDS['H200'].rate:.0%}"
    texts = [(ROOT / "book" / name).read_text() for name in ("wmt14.md", "chapters/cost_model.ipynb")]
    page, chapter = (" ".join(text.split()) for text in texts)
    base, big = share["base"], share["big"]
    assert f"base {base} of the rate, {hours['base']} hours; big {big}, {hours['big']} |" in chapter
    assert f"**{base}** for base and **{big}** for big" in chapter
    assert f"{ms['base']} milliseconds for base ({base}; 64 without) and {ms['big']} for big ({big})" in page
    assert f"which makes {hours['base']} and {hours['big']} hours" in page


def test_encoding_command_encodes_what_a_run_needs(monkeypatch):
    (line,) = (line for line in LINES if line.startswith("python -c "))
    wmt14, asked = TASKS["wmt14"], []
    monkeypatch.setattr(type(wmt14), "tokenisers", lambda self: (3, 5))
    monkeypatch.setattr(type(wmt14), "pairs", lambda self, *given: asked.append(given))
    exec(shlex.split(line)[2], {})
    assert asked == [(3, 5, wmt14.training)]


# ---- The Slurm script

# This machine plays both machines: a torchrun for each runs in the background, and the script waits for both.
SRUN = """#!/bin/bash
for machine in 1 2; do "$@" & echo $! > machine-$machine.pid; pids="$pids $!"; done
code=0
for pid in $pids; do wait $pid || code=$?; done
exit $code
"""
SCONTROL = """#!/bin/bash
[ "$*" = "show hostnames here[1-2]" ] && printf 'localhost\\nelsewhere\\n'
"""
SMALL = {
    "model": {
        **{"d_model": 16, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "dropout": 0.0,
    },
    "training": {"steps": 150, "checkpoint_every": 10, "training_pairs": 999, "warmup_steps": 5},
}


def losses(folder: Path) -> list[float]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [*range(1, len(records) + 1)]
    return [record["loss"] for record in records]


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A folder to submit from, with the page's script for a tiny sharded model, and stand-ins for Slurm."""
    (tmp_path / "bin").mkdir()
    torchrun = f'#!/bin/bash\nexec "{sys.executable}" -m torch.distributed.run "$@"\n'
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, "torchrun": torchrun}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    script = SCRIPT
    for old, new in {
        "source .venv/bin/activate\n": "",
        "--nproc-per-node gpu": "--nproc-per-node 1",
        "--config wmt14-big": "--config small.json --device cpu --shard",
        "runs/wmt14-big": "run",
        ":29500": f":{20_000 + os.getpid() % 10_000}",
    }.items():
        assert script.count(old) == 1
        script = script.replace(old, new)
    (tmp_path / "job").write_text(script)
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    slurm = {"SLURM_JOB_NODELIST": "here[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7"}
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    here = {**os.environ, **slurm, "PATH": path, "OMP_NUM_THREADS": "1"}
    return {"args": ["bash", "job"], "cwd": tmp_path, "env": here, "text": True}


@pytest.mark.full
@needs_gloo
def test_the_slurm_script_survives_a_death_on_one_machine(job, tmp_path, capsys, monkeypatch):
    """Both torchruns restart their processes, which resume; the result is that of a single process."""
    metrics = tmp_path / "run" / "metrics.jsonl"
    with subprocess.Popen(**job, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while not metrics.exists() or len(metrics.read_text().splitlines()) < 13:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.05)
            (victim,) = psutil.Process(int((tmp_path / "machine-2.pid").read_text())).children()
            victim.kill()
            said, complaints = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                _ = [left.kill() for left in psutil.Process(process.pid).children(recursive=True)]
    assert process.returncode == 0, complaints
    assert "exitcode: -9" in complaints
    assert said.count("exact match on") == 1
    monkeypatch.chdir(tmp_path)
    alone = ["train", "--config", "small.json", "--device", "cpu", "--output", "alone"]
    assert cli.main(alone) == 0
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)
    assert len(losses(tmp_path / "run")) == 150
    assert json.loads((tmp_path / "run" / "record.json").read_text())["steps"] == 150


def test_what_slurm_reads_comes_before_the_first_command():
    comments = [line for line in SCRIPT.splitlines() if line.startswith("#SBATCH ")]
    assert SCRIPT.splitlines()[1 : len(comments) + 1] == comments
    assert subprocess.run(["bash", "-n"], input=SCRIPT, text=True, check=False).returncode == 0
