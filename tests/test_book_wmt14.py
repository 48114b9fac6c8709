"""The page about the paper's own training: its commands are commands, and its predictions those of `costs`."""

import json
import re
import shlex
from pathlib import Path

import pytest

from transformer_lessons.config import TransformerConfig
from transformer_lessons.data import wmt14
from transformer_lessons.tools import cli, costs
from transformer_lessons.tools.costs import CARDS, BatchShape
from transformer_lessons.trainer import configs
from transformer_lessons.trainer.config import TrainingConfig
from transformer_lessons.trainer.runs import read_settings
from transformer_lessons.trainer.tasks import TASKS
from transformer_lessons.trainer.text_tasks import Wmt14

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "book" / "wmt14.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.+?)```", PAGE, re.S) for line in block.splitlines()]
MODELS = {"base": TransformerConfig.base(), "big": TransformerConfig.big()}


def table(first: str) -> dict[str, list[float]]:
    """The numbers of the table whose first heading this is, by the first cell of a row."""
    (body,) = re.findall(rf"^\| {first} \|.+\n\|[-|]+\n((?:\|.+\n)+)", PAGE, re.M)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
    return {row[0]: [float(cell) for cell in row[1:]] for row in rows}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_commands(command):
    words = shlex.split(command)
    if words[0] == "torchrun":
        assert words[1:5] == ["--nproc-per-node", "8", "-m", "transformer_lessons"]
        words = ["lessons", *words[5:]]
    if words[0] == "pip":
        assert words == ["pip", "install", ".[wmt14]"]
        return
    assert words[0] == "lessons"
    chosen = cli.make_parser().parse_args(words[1:])  # leaves with exit code 2 if it cannot
    if words[1] == "train":
        assert chosen.task == "wmt14" or chosen.config.is_file()


def test_all_of_them_were_found():
    assert len(COMMANDS) == 7
    assert "wmt14-big" in configs.names()
    assert "--config wmt14-big --output runs/wmt14-big" in " ".join(COMMANDS)


def test_the_file_of_settings_is_one(tmp_path):
    (block,) = re.findall(r"```json\n(.+?)```", PAGE, re.S)
    (tmp_path / "less.json").write_text(block)
    sizes, training = read_settings(tmp_path / "less.json", TASKS[json.loads(block)["task"]])
    assert sizes == Wmt14.sizes
    assert training.accumulate > Wmt14.training.accumulate
    assert training.recompute


def test_hours_are_those_of_the_cost_model():
    """As on the page about costs: one card, an eighth of the batch at a time, sentences of 25 tokens."""
    expected = {}
    for name in ("T4", "A100", "H100", "H200"):
        expected[name] = [
            steps * 8 * costs.training_seconds(MODELS[model], shape, CARDS[name], utilisation=share) / 3600
            for model, steps in (("base", 100_000), ("big", 300_000))
            for shape in [BatchShape(125, 25, 25)]
            for share in (0.3, 0.1)
        ]
    found = table("card")
    assert list(found) == list(expected)
    for name, hours in expected.items():
        assert found[name] == pytest.approx(hours, abs=0.051), name
    assert round(expected["H100"][0] * 3600 / 100_000 * 1000) == 32
    assert "in 32 milliseconds" in PAGE


def test_memory_is_that_of_the_cost_model():
    found = table("parts of a batch")
    assert list(found) == ["1", "4", "8", "1, float16", "4, float16", "8, float16"]
    for name, sizes in found.items():
        parts, _, precision = name.partition(", ")
        shape = BatchShape(1_000 // int(parts), 25, 25)
        expected = [
            costs.training_memory(config, shape, precision or "bfloat16", recompute=recompute).peak / 1e9
            for config in MODELS.values()
            for recompute in (False, True)
        ]
        assert sizes == pytest.approx(expected, abs=0.051), name
    # What runs by default fits on a card of 16 GB.
    assert Wmt14.training.accumulate == 4
    assert TrainingConfig(**json.loads(configs.find("wmt14-big").read_text())["training"]).accumulate == 8
    assert max(found["4, float16"][0], found["8, float16"][2]) < 16


def test_disk_and_epochs():
    """Weights and two moments in a checkpoint, the weights once more as the model and once in each snapshot."""
    sizes = []
    for config, snapshots in zip(MODELS.values(), (5, 20), strict=True):
        sizes.append((3 + 1 + snapshots) * 4 * costs.parameters(config) / 1e9)
    ids = wmt14.PAIRS["train"] * (60 * 2 + 2 * 8) / 1e9
    wanted = (
        f"{ids:.1f} GB for the ids, if a pair has 60 tokens; a run's folder takes {sizes[0]:.1f} GB for base"
    )
    text = " ".join(PAGE.split())
    assert f"{wanted} and {sizes[1]:.1f} for big" in text
    steps = wmt14.PAIRS["train"] * 60 / Wmt14.training.tokens
    assert f"{round(steps, -2):,.0f} steps, so that 100,000 steps see each pair about eighteen times" in text
    assert 18 <= 100_000 / steps < 19


def test_the_setup_is_that_of_the_code():
    assert f"{wmt14.PAIRS['train']:,} of `{wmt14.HOME}`, `{wmt14.CONFIG}`" in PAGE
    assert f"more than {Wmt14.longest} tokens, left out" in PAGE
    assert f"same number, {Wmt14.training.checkpoint_every:,} steps apart; big 600" in PAGE
    assert f'`schedule` "{Wmt14.training.schedule}"' in PAGE
    big = json.loads(configs.find("wmt14-big").read_text())["training"]
    assert (big["steps"], big["checkpoint_every"], big["snapshots"]) == (300_000, 600, 20)


def test_chapters_lead_here():
    for name in ("16_training_on_gpus", "cost_model"):
        assert "](../wmt14.md)" in (ROOT / "book" / "chapters" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert "- file: wmt14\n" in (ROOT / "book" / "_toc.yml").read_text()
