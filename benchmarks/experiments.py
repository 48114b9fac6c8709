"""The chapters' experiments in full: ``python -m benchmarks.experiments NAME`` (``--help`` lists the names).

Each trains for minutes with the chapter's own cells, from several seeds, and writes
``transformer_lessons/records/NAME.json``, which the chapter shows. It needs a quiet machine with two cores.
"""

import math
import re
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import nbformat
import torch
from tqdm import tqdm

from benchmarks.measuring import program, write
from transformer_lessons.data.files import read_json
from transformer_lessons.tools.cli import main as lessons
from transformer_lessons.trainer.evaluation import evaluate_number_words

BASE = "no change"  # the name in chapter 20
PAIRS = 8, 16, 32, 64, 128  # numbers of pairs that chapter 18's models learn
CHAPTERS = Path(__file__).parent.parent / "book" / "chapters"
# The beginnings of the cells that are needed from each chapter.
CELLS = {
    "02_tokens_and_embeddings": r"# @title (What this chapter imports|The experiment: five kinds of start)",
    "10_residuals": r"# @title (Imports|The model, its two tasks)|def train\(",
    "12_the_whole_model": r"# @title Imports|POSITIONS|batch = |source_size|def softmax_first\(",
    "13_training": r"# @title (What this chapter imports|The experiments: models that differ)",
    "18_linear_attention": r"# @title (What this chapter imports|The look-up task)|WIDTH = |class GatedDelta",
    "19_a_language_model": r"# @title (What this chapter imports|The text|Counted: tokens)|def train_on\(",
    "20_what_came_after": (
        r"# @title (What this|The text|How the queries|Experts|Stretched|Two tokens|Which keys|Every change)"
        r"|class |def (small_model|train|clocks|with_muon)\("
    ),
}


@cache
def chapter(name: str) -> dict:
    """The names that these cells of a chapter define."""
    defined: dict = {}
    for cell in nbformat.read(CHAPTERS / f"{name}.ipynb", as_version=4).cells:
        if re.match(CELLS[name], cell.source):
            exec(cell.source, defined)  # the course's own code
    return defined


def run_all(work: Callable, runs: Iterable[tuple]) -> dict:
    """Results of work(*run), in two processes of one thread: by run without its seed, a list over seeds."""
    found, runs = {}, [*runs]
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        results = pool.map(work, *zip(*runs, strict=True))  # an interruption cancels those that remain
        for (*what, _), result in zip(runs, tqdm(results, total=len(runs)), strict=True):
            found.setdefault(tuple(what) if what[1:] else what[0], []).append(result)
    return found


def mean(losses: list[float]) -> float:
    """The mean, rounded as in the records."""
    return round(sum(losses) / len(losses), 3)


def embedding_starts() -> dict:
    """Chapter 2: five kinds of start, three seeds each; three minutes."""
    kinds = chapter("02_tokens_and_embeddings")["KINDS"]
    return {"losses": run_all(embedding_start, product(kinds, range(3)))}


def embedding_start(kind: str, seed: int) -> list[float]:
    """The first loss, then the mean of the last ten at every 50th step."""
    _, losses = chapter("02_tokens_and_embeddings")["train"](kind, seed, 1_000)
    return [mean(losses[:1]), *(mean(losses[end - 10 : end]) for end in range(50, 1_001, 50))]


def norm_orders() -> dict:
    """Chapter 10: post-norm and pre-norm at seven learning rates, two tasks, ten seeds; a quarter of an hour."""
    tasks, kinds, rates = (list(chapter("10_residuals")[name]) for name in ("TASKS", "KINDS", "RATES"))
    found = run_all(final_loss, product(tasks, kinds, rates, range(10)))
    losses = {task: {kind: [found[task, kind, rate] for rate in rates] for kind in kinds} for task in tasks}
    return {"rates": rates, "losses": losses}


def final_loss(task: str, kind: str, rate: float, seed: int) -> float:
    """The mean of a run's last 20 losses."""
    book = chapter("10_residuals")
    return mean(book["train"](rate, steps=300, seed=seed, task=task, **book["KINDS"][kind])[-20:])


def softmax_twice() -> dict:
    """Chapter 12: softmax twice, at two learning rates, eight seeds; two minutes."""
    return {"right": run_all(next_words, product((0.001, 0.005), range(8)))}


def next_words(rate: float, seed: int) -> list[float]:
    """The share of right predictions in the batch, at every 20th of 1,000 steps."""
    book = chapter("12_the_whole_model")
    torch.manual_seed(seed)
    model = book["Transformer"](book["little"])
    shares = book["overfit"](model, 1_000, rate, loss_of=book["softmax_first"])
    return [round(share, 3) for share in shares[19::20]]


def training_runs() -> dict:
    """Chapter 13: warm-up, smoothing and overfitting, eleven kinds of run, three seeds each; ten minutes."""
    return {"runs": run_all(training_run, product(chapter("13_training")["EXPERIMENTS"], range(3)))}


def training_run(kind: str, seed: int) -> dict:
    """The curves of a run, and its quality on the 1,000 held-out numbers."""
    book = chapter("13_training")
    model, curve = book["experiment"](kind, seed)
    found = evaluate_number_words(model, book["source"], book["target"], book["held_out"])
    loss, _, certainty = book["judge"](model, book["held_out"])
    return {
        "seed": seed,
        "exact_match": found["exact_match"],
        "loss": round(loss, 4),
        "certainty": round(certainty, 4),
        "curve": [[step, round(known, 4), round(unknown, 4)] for step, known, unknown in curve],
    }


def number_words_seeds() -> dict:
    """Chapter 13: number words, ten seeds, as a user trains them; two minutes."""
    return {"runs": [trained(seed) for seed in range(10)]}


def trained(seed: int) -> dict:
    """The entries of a run's own record that are kept."""
    with tempfile.TemporaryDirectory() as directory:
        if lessons(["train", "--seed", str(seed), "--output", directory, "--device", "cpu"]):
            raise SystemExit(f"training with seed {seed} did not finish")
        record = read_json(Path(directory) / "record.json")
    return {name: record[name] for name in ("seed", "steps", "exact_match", "n")}


def hybrids() -> dict:
    """Chapter 18: four layers with tables, with attention, or three to one, three seeds each; ten minutes."""
    found = run_all(recalled, product(chapter("18_linear_attention")["KINDS"], range(3)))
    return {"shares": {kind: {n: values(ones, n) for n in PAIRS} for kind, ones in found.items()}}


def recalled(kind: str, seed: int) -> dict[int, float]:
    """The share that a trained model recalls, by the number of pairs."""
    book = chapter("18_linear_attention")
    model = book["learn"](book["KINDS"][kind], 800, seed)
    return {n: round(book["share_right"](model, n), 3) for n in PAIRS}


def successors() -> dict:
    """Chapter 20: a small language model with one change at a time; a quarter of an hour.

    Six seeds of the model without a change, three of each change, three at each learning rate.
    """
    book = chapter("20_what_came_after")
    runs = [(name, None, seed) for name in book["CHANGES"] for seed in range(6 if name == BASE else 3)]
    found = run_all(successor, [*runs, *product(book["AT_RATES"], book["RATES"], range(3))])
    changes, rates = {name: ones for (name, rate), ones in found.items() if rate is None}, book["RATES"]
    return {
        "changes": {name: {key: values(x, key) for key in ("loss", "long")} for name, x in changes.items()},
        "rates": {name: {x: values(found[name, x], "loss") for x in rates} for name in book["AT_RATES"]},
        "loads": {name: values(ones, "loads") for name, ones in changes.items() if "experts" in name},
        "stretched": values(changes[BASE], "stretched"),
        "sparse": values(changes[BASE], "sparse"),
    }


def values(runs: list[dict], name: str) -> list:
    """The values of this name in the runs that have it."""
    return [run[name] for run in runs if name in run]


def successor(name: str, rate: float | None, seed: int) -> dict:
    """The loss at the trained length; at the chapter's learning rate also on the last 64 of 256, and more."""
    book = chapter("20_what_came_after")
    length, losses = book["LENGTH"], book["losses_by_position"]
    model = book["train"](seed=seed, rate=rate or book["RATE"], **book["CHANGES"][name])
    found = {"loss": finite_mean(losses(model, length))}
    if rate is not None:
        return found
    found["long"] = finite_mean(losses(model, 4 * length)[-length:])
    if "experts" in name:
        found["loads"] = [[round(share, 4) for share in shares.tolist()] for shares in book["shares"](model)]
    if name == BASE and seed < 3:
        stretched = {rule: losses(book["stretched"](model, rule), 4 * length) for rule in book["RULES"]}
        found["stretched"] = {rule: list(map(finite_mean, x.split(32))) for rule, x in stretched.items()}
        found["sparse"] = book["sparse"](model)
    return found


def finite_mean(losses: torch.Tensor) -> float | None:
    """The mean loss; None if the run has diverged, which JSON cannot write."""
    loss = losses.mean().item()
    return round(loss, 4) if math.isfinite(loss) else None


ALL = (embedding_starts, norm_orders, softmax_twice, training_runs, number_words_seeds, hybrids, successors)
EXPERIMENTS = {experiment.__name__: experiment for experiment in ALL}

if __name__ == "__main__":
    about = "\n".join(f"{name}: {work.__doc__.splitlines()[0]}" for name, work in EXPERIMENTS.items())
    parser = program("experiments", about)
    parser.add_argument("name", choices=EXPERIMENTS)
    chosen = parser.parse_args().name
    write(chosen, **EXPERIMENTS[chosen]())
