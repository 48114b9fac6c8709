"""Train chapter 19's model: ``python -m benchmarks.language_model`` (five minutes on two quiet cores).

A `LanguageModel` and a smaller draft model are trained on ``transformer_lessons/data/this_book.txt`` with the
chapter's own cells. Their weights go into ``transformer_lessons/pretrained/this_book``, and the course of the
training into ``transformer_lessons/records/language_model.json``; the chapter shows both.

The text is the prose of the chapters on 2026-11-25, without code, tables, displayed formulas and links.
"""

import torch
from safetensors.torch import save_file
from tqdm import tqdm

from benchmarks import RECORDS
from benchmarks.experiments import chapter
from benchmarks.measuring import program, write
from transformer_lessons.data.files import replacing
from transformer_lessons.variants.language_model import speculate

PRETRAINED = RECORDS.parent / "pretrained" / "this_book"
STEPS, EVERY, SAMPLE_STEPS, PROMPT = {"model": 800, "draft": 500}, 50, (50, 200, 400, 800), "A softmax"


def trained(name: str, book: dict) -> tuple[torch.nn.Module, dict]:
    """One of the two models, trained, and its record: losses on both parts of the text, and samples."""
    torch.manual_seed(0)
    model = book["new_model"](**book["SIZES"][name])
    losses, held_out, samples = [], {}, {}
    steps = book["train_on"](book["training"], model, STEPS[name])
    for step, loss in enumerate(tqdm(steps, name, total=STEPS[name]), start=1):
        losses.append(round(loss, 3))
        if step % EVERY == 0:
            held_out[step] = round(book["loss_on"](book["held_out"], model), 3)
        if step in SAMPLE_STEPS and name == "model":
            with torch.random.fork_rng():  # else the first steps' batches would come again
                torch.manual_seed(0)
                samples[step] = book["said"](model, PROMPT, 60)
    return model, {"losses": losses, "held_out": held_out, "says": samples}


if __name__ == "__main__":
    program("language_model", __doc__).parse_args()
    book = chapter("19_a_language_model")
    book["speculate"] = speculate  # the same code as the chapter's, word for word
    found = {}
    for name in STEPS:
        model, found[name] = trained(name, book)
        state = {key: x.half() for key, x in model.state_dict().items() if key != "output.weight"}  # tied
        with replacing(PRETRAINED / f"{name}.safetensors") as temporary:
            save_file(state, temporary)
    both, passes = [book["read_model"](name) for name in STEPS], {}
    for name, drawn in book["DRAWN"].items():
        passes[name] = [round(book["tokens_a_pass"](*both, n, drawn), 2) for n in book["GUESSES"]]
    write("language_model", **found, tokens_a_pass=passes)
