"""Pictures in files of their own, for light pages and dark ones: ``python -m book.picture`` draws them.

`cross_attention.svg` is the README's: where the packaged model looks while it translates. `grading.svg`, for
instructors and SECURITY.md, is a notebook's way to its mark.
"""

from pathlib import Path

from transformer_lessons.data import number_words
from transformer_lessons.data.batches import make_batch
from transformer_lessons.tools.attention_maps import attention_maps
from transformer_lessons.tools.drawing import SMALL, Canvas
from transformer_lessons.tools.svg import PALETTE
from transformer_lessons.trainer.checkpoints import load_model

STATIC = Path(__file__).parent / "_static"
NUMBER = 421
LIGHT, DARK = ("".join(f"--{role}:{colours[mode]};" for role, colours in PALETTE.items()) for mode in (0, 1))
STYLE = f"svg{{{LIGHT}background:var(--paper);fill:var(--ink);font-family:system-ui,sans-serif}}"
STYLE += f"@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}"


def cross_attention() -> Canvas:
    """The last decoder layer's, for one number, averaged over heads."""
    model, _, _ = load_model()
    maps = attention_maps(model, *make_batch(number_words.pairs([NUMBER]))[:2])
    weights = maps[f"decoder_layers.{model.config.num_decoder_layers - 1}.cross_attention"][0].mean(dim=0)
    german = number_words.german_tokens(NUMBER)
    english = number_words.english_tokens(number_words.english(NUMBER))
    canvas = Canvas(190)
    cells = weights[:-1].tolist()
    shape = canvas.matrix(84, 56, cells, weights=True, cell=(50, 24), digits=2)
    canvas.label(shape, german, english, ("decoder", "encoder"), ("writes", "reads"))
    return canvas


def grading() -> Canvas:
    """A notebook's way to its marks, and which process sees what: the student's in blue, the tests in green."""
    canvas = Canvas(476)
    _handed_in(canvas)
    _run(canvas)
    _given_back(canvas)
    return canvas


def _handed_in(canvas: Canvas) -> None:
    theirs = canvas.token(1, 12, "student's notebook", "query", 150)
    master = canvas.token(176, 12, "master: hidden tests", "value", 163)
    canvas.box(1, 46, 338, 58, tint=0.05)
    canvas.text(170, 60, "intake", bold=True)
    canvas.text(170, 76, "mends the file, or puts it aside with a reason;", size=SMALL)
    canvas.text(170, 90, "tests come back from the master", size=SMALL)
    canvas.arrow(theirs.bottom, (theirs.bottom[0], 46), role="query")
    canvas.arrow(master.bottom, (master.bottom[0], 46), role="value")


def _run(canvas: Canvas) -> None:
    canvas.box(1, 126, 338, 206, role="soft", tint=0.04)
    canvas.text(10, 141, "worker, one of several", "soft", SMALL, "left")
    forking = canvas.box(8, 156, 124, 42, "forking process\nsees neither", "soft", size=SMALL)
    canvas.box(8, 230, 124, 94, role="key", tint=0.08)
    canvas.text(70, 291, "box: no network, no", "key", SMALL)
    canvas.text(70, 306, "files, no processes", "key", SMALL)
    learners = canvas.box(14, 236, 112, 42, "learner's process\nruns the cells", "query", size=SMALL)
    tests = canvas.box(
        222, 236, 112, 88, "tests' process\ncompares values,\nwrites the mark", "value", size=SMALL
    )
    canvas.arrow(forking.bottom, learners.top, role="soft", dashed=True)
    canvas.arrow(forking.right, (240, forking.right[1]), (240, tests.y), role="soft", dashed=True)
    canvas.text(186, 188, "forks for each", "soft", SMALL)
    canvas.text(186, 202, "notebook", "soft", SMALL)
    canvas.arrow((290, 104), (290, tests.y), role="value")
    canvas.text(284, 141, "after the fork:", size=SMALL, align="right")
    canvas.text(284, 156, "cells and tests", size=SMALL, align="right")
    for y, start, end, words in ((250, 222, 126, "cells, calls"), (268, 126, 222, "plain values")):
        canvas.arrow((start, y), (end, y))
        canvas.text(174, y + (-9 if start > end else 10), words, size=SMALL)
    canvas.arrow(tests.bottom, (tests.bottom[0], 352), role="value")


def _given_back(canvas: Canvas) -> None:
    words = canvas.token(1, 368, "you: answers in words", width=142, size=SMALL)
    book = canvas.box(166, 352, 136, 32, "gradebook", bold=True, tint=0.05)
    canvas.arrow(words.right, book.left)
    for x, what, whom in (
        (1, "feedback", "the student"),
        (118, "report", "you"),
        (235, "table", "Canvas, Moodle"),
    ):
        to = canvas.box(x, 430, 104, 44, f"{what}\nfor {whom}", tint=0.05, size=SMALL)
        canvas.arrow(book.bottom, (book.bottom[0], 407), (to.top[0], 407), to.top)


def write(name: str, canvas: Canvas) -> None:
    """As a file."""
    view, content = canvas.svg("map")
    size = f'viewBox="{view}" width="{1.5 * canvas.width:g}" height="{1.5 * canvas.height:g}"'
    xmlns = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = f"<svg {xmlns} {size}><style>{STYLE}</style>{content}</svg>\n"
    (STATIC / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write("cross_attention", cross_attention())
    write("grading", grading())
