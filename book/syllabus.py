"""The page of exercises, from what the package knows of them: ``python -m book.syllabus``.

Points and minutes are those of the released notebooks (`exercises.release`); a test holds `exercises.md` against
them.
"""

import re
from pathlib import Path

from transformer_lessons.data.files import replacing
from transformer_lessons.tools import submission

PAGE = Path(__file__).parent / "exercises.md"
GITHUB = "https://github.com/transformer-lessons/transformer-lessons/blob/main/exercises/release"
COLAB = "https://colab.research.google.com/github/transformer-lessons/transformer-lessons/blob/main/exercises/release"

HEAD = """\
# Exercises

Assignments are notebooks with text, cells for your answers, and cells that check them. A check tries an answer
on small inputs and says first, by name, which mistake you made, if people make it often ([all of them, by what
you see](mistakes.md)); otherwise what is required. It shows the smallest case, and never the solution. The cells
marked *graded* use other numbers when the notebook is handed in. A mistake costs what it spoils and nothing else.

There are six kinds of tasks: **predict** a shape or a number before anything runs; **implement** what the
chapter explains; **debug** a program that runs and is wrong;
**extend** by what neither the chapter nor the package hands over; **experiment**: measure, plot and conclude, in
a minute or two of computing; **explain** in a few sentences. The last two are for a person to read.

A part of yours can be heard: `checks.try_in_translator` puts it, right or wrong, into the trained translator, and
prints what that says then. With an attention that forgets its √d_k,

```text
        7  sieben
      421  vier hundert ein und zwanzig
   94,790  vier und neunzig tausend sieben hundert sieben und neunzig
   before  vier und neunzig tausend sieben hundert neunzig
```

By the end of `ps07` your parts are a whole model. `lessons my-transformer ps01*.ipynb ps02*.ipynb …` takes them
out of your notebooks, says part by part whose it is, trains the model beside the package's in half a minute,
saves it, and lets it translate. After a right answer you are told where the package's stands, to compare; if you
give up, `lessons solution ps03 4` prints one, and what it is held to.

Take the assignments in this order, an evening each: each needs its chapters, and what those before it built.

| assignment | chapters | graded tasks | points | hours |
|---|---|---|---|---|
{rows}

Before you hand in, let the command line look at the file: what is missing, doubled, renamed, too large or not
run, and which visible checks fail.

```bash
pip install "transformer-lessons[submission] @ git+https://github.com/transformer-lessons/transformer-lessons"
lessons check-submission ps01_embeddings_attention.ipynb
```
"""
SECTION = """\
<a id="{name}"></a>

## {title}

Goes with {chapters}. [Open in Colab]({colab}/{name}/{name}.ipynb) · [on GitHub]({github}/{name}/{name}.ipynb)

| task | kind | points | difficulty | minutes |
|---|---|---|---|---|
{rows}
"""


def page() -> str:
    """The whole page."""
    assignments = submission.assignments()
    sections = [
        SECTION.format(name=name, rows=table(one["tasks"]), colab=COLAB, github=GITHUB, **without_tasks(one))
        for name, one in assignments.items()
    ]
    return "\n".join([HEAD.format(rows=overview(assignments)), *sections])


def without_tasks(one: dict) -> dict:
    """What is said of an assignment as a whole."""
    return {"title": one["title"], "chapters": one["chapters"]}


def table(tasks: list[dict]) -> str:
    """A row for each task."""
    return "\n".join(f"| {' | '.join(task.values())} |" for task in tasks)


def overview(assignments: dict[str, dict]) -> str:
    """A row for each assignment, and one for all."""
    rows = [
        f"| [{one['title']}](#{name}) | {', '.join(re.findall(r'[0-9]+', one['chapters']))} | {sums([one])} |"
        for name, one in assignments.items()
    ]
    return "\n".join([*rows, f"| all | | {sums(assignments.values())} |"])


def sums(assignments) -> str:
    """Graded tasks, points, and hours to the half."""
    tasks = [task for one in assignments for task in one["tasks"]]
    points = [float(task["points"]) for task in tasks if task["points"] != "–"]
    hours = round(sum(int(task["minutes"]) for task in tasks) / 30) / 2
    return f"{len(points)} | {sum(points):g} | {hours:g}"


if __name__ == "__main__":
    with replacing(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")
    print(PAGE.name)
