"""Chapter 19's model, trained: ``python -m benchmarks.language_model`` (five minutes on two quiet cores).

A `LanguageModel` and a smaller one that drafts for it read ``transformer_lessons/data/this_book.txt``, by the
chapter's own cells. Their weights go into ``transformer_lessons/pretrained/this_book``, and what happened on the
way into ``transformer_lessons/records/language_model.json``; the chapter shows both.

The text is the prose of the chapters as it was on 2026-11-25: ``--text`` writes it anew, of today's chapters.
"""

import argparse
import re
import time

import nbformat
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from benchmarks import RECORDS
from benchmarks.experiments import chapter
from benchmarks.measuring import write
from book.notebooks import chapters
from transformer_lessons.data.files import replacing
from transformer_lessons.variants.language_model import speculate

PACKAGE = RECORDS.parent
TEXT, PRETRAINED = PACKAGE / "data" / "this_book.txt", PACKAGE / "pretrained" / "this_book"
STEPS, EVERY, SAYS_AT, PROMPT = {"model": 800, "draft": 500}, 50, (50, 200, 400, 800), "A softmax"
MARKUP = (  # of Markdown, what goes, and what stands in its place
    (r"(?s:\$\$.*?\$\$|```.*?```)|<[^>]*>", ""),
    (r"!\[[^\]]*\]\([^)]*\)|(?m:^\|.*$)", ""),
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"[*`]", ""),
    (r"\n{3,}", "\n\n"),
)


def prose() -> str:
    """The chapters' words, without code, tables, displayed formulas and links."""
    text = ""
    for path in chapters():
        for cell in nbformat.read(path, as_version=4).cells:
            text += f"{cell.source}\n\n" if cell.cell_type == "markdown" else ""
    for pattern, replacement in MARKUP:
        text = re.sub(pattern, replacement, text)
    return text


def trained(name: str, book: dict) -> tuple[torch.nn.Module, dict]:
    """One of the two models, and its record: losses on both parts of the text, seconds, what it says."""
    torch.manual_seed(0)
    model = book["new_model"](**book["SIZES"][name])
    losses, held_out, says, started = [], {}, {}, time.perf_counter()
    steps = book["train_on"](book["training"], model, STEPS[name])
    for step, loss in enumerate(tqdm(steps, name, total=STEPS[name]), start=1):
        losses.append(round(loss, 3))
        if step % EVERY == 0:
            held_out[step] = round(book["loss_on"](book["held_out"], model), 3)
        if step in SAYS_AT and name == "model":
            with torch.random.fork_rng():  # or the next batches would be those of the first steps
                torch.manual_seed(0)
                says[step] = book["said"](model, PROMPT, 60)
    seconds = round(time.perf_counter() - started, 1)
    return model, {"losses": losses, "held_out": held_out, "says": says, "seconds": seconds}


def main() -> None:
    """Train both and store them, or write the text anew."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", action="store_true", help="write the text of today's chapters instead")
    if parser.parse_args().text:
        with replacing(TEXT) as temporary:
            temporary.write_text(prose(), encoding="utf-8")
        return
    book = chapter("19_a_language_model")
    book["speculate"] = speculate  # the package's is the chapter's, word for word
    PRETRAINED.mkdir(exist_ok=True)
    found = {}
    for name in STEPS:
        model, found[name] = trained(name, book)
        state = {key: x.half() for key, x in model.state_dict().items() if key != "output.weight"}  # tied
        with replacing(PRETRAINED / f"{name}.safetensors") as temporary:
            save_file(state, temporary)
    both = [book["read_model"](name) for name in STEPS]
    passes = {
        name: [round(book["tokens_a_pass"](*both, n, drawn), 2) for n in book["GUESSES"]]
        for name, drawn in book["DRAWN"].items()
    }
    write("language_model", **found, tokens_a_pass=passes)


if __name__ == "__main__":
    main()
