"""Train and evaluate on Multi30k: ``python -m benchmarks.multi30k`` (a quarter of an hour on two CPU cores).

With ``--long``, the recipe ``multi30k-long`` from three seeds, on a GPU if there is one (ten minutes on an H200).

Trains the task's own model and translates the 2016 test set, greedily and with a beam of 5. The training time
is what a user waits for, from the first batch to the last step; nothing else should run meanwhile.

Writes ``transformer_lessons/records/multi30k.json`` or ``multi30k_long.json``, which chapter 16 shows.
"""

import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.contenders import real_tokens
from benchmarks.measuring import program, write
from transformer_lessons.data.batches import Batches, TokenBatches
from transformer_lessons.fast import accelerate
from transformer_lessons.trainer import TrainingConfig, checkpoints, configs
from transformer_lessons.trainer.runs import apply_settings, choose_device, new_trainer, run
from transformer_lessons.trainer.tasks import TASKS, Task, batches


def measure(
    task: Task, tokenisers: tuple, sizes: dict, config: TrainingConfig, device: torch.device, *, replay=True
) -> dict:
    """The seconds of one run, and BLEU of the model that it keeps; `replay`: let a GPU replay its steps."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        trainer = new_trainer(task, tokenisers, sizes, config, device, directory)
        if not replay:
            trainer.add_gradients = trainer._add_gradients
        started = time.perf_counter()
        if not run(trainer, task, tokenisers):
            raise KeyboardInterrupt
        seconds = {"training": round(time.perf_counter() - started, 1)}
        model = accelerate(checkpoints.load_model(directory)[0]).to(device)
    beams = {"greedy": 1, "beam of 5": 5}
    results = {name: task.evaluate(model, *tokenisers, beam_size) for name, beam_size in beams.items()}
    return {"seconds": seconds, "results": results}


def padding(data: Batches) -> float:
    """The share of an epoch's positions that hold no token."""
    epoch = [data[step] for step in range(data.steps_per_epoch)]
    positions = sum(batch.src.numel() + batch.tgt_out.numel() for batch in epoch)
    return round(1 - sum(map(real_tokens, epoch)) / positions, 4)


def describe_data(data: TokenBatches, vocabulary: int) -> dict:
    """Facts about the training data."""
    return {
        "pairs": len(data.pairs),
        "vocabulary": vocabulary,
        "tokens": sum(len(source) + len(target) + 1 for source, target in data.pairs),
        "steps_per_epoch": data.steps_per_epoch,
        "padding": padding(data),
        "padding_of_64_shuffled_pairs": padding(Batches(data.pairs, 64, seed=0)),
    }


if __name__ == "__main__":
    parser = program("multi30k", __doc__)
    parser.add_argument("--long", action="store_true", help="the recipe multi30k-long, from three seeds")
    is_long, task = parser.parse_args().long, TASKS["multi30k"]
    recipe = configs.find("multi30k-long") if is_long else None
    task, sizes, config = apply_settings(recipe, task, task.sizes, task.training)
    device, tokenisers = choose_device("auto" if is_long else "cpu"), task.tokenisers()
    settings = {"data": task.settings, "model": sizes, "training": asdict(config)}
    seeds = range(3 if is_long else 1)
    runs = [measure(task, tokenisers, sizes, replace(config, seed=seed), device) for seed in seeds]
    if is_long:
        tests = [{"seed": seed, "test": one["results"]["beam of 5"]} for seed, one in enumerate(runs)]
        write("multi30k_long", device.type, settings=settings, runs=tests)
    else:
        data = batches(task.pairs(*tokenisers, config), sizes["max_length"], config)
        about, threads = describe_data(data, len(tokenisers[0])), {"threads": torch.get_num_threads()}
        write("multi30k", settings=settings, data=about, run=runs[0], made_with=threads)
