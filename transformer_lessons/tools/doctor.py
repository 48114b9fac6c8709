"""What is installed here, and whether it works: ``lessons doctor``."""

import argparse
from importlib.metadata import version

import torch

from transformer_lessons.data import number_words
from transformer_lessons.trainer.checkpoints import load_model
from transformer_lessons.trainer.runs import choose_device, versions
from transformer_lessons.trainer.tasks import NumberWords, translations


def doctor(chosen: argparse.Namespace) -> int:
    """Print it; 0 if all is well, 1 if something is wrong with this installation."""
    facts = {**versions(choose_device("auto")), "threads": str(torch.get_num_threads())}
    facts |= {name: version(name) for name in ("numpy", "jaxtyping", "safetensors", "tqdm")}
    for name, value in facts.items():
        print(f"{name:20} {value}")
    task = NumberWords()
    (word,) = translations(task, load_model(), [task.read("421")])
    is_right = word == number_words.german(421)
    print(f"{'trained model':20} 421 is {word}" + ("" if is_right else ", which is wrong"))
    print("all is well" if is_right else "something is wrong with this installation")
    return 0 if is_right else 1
