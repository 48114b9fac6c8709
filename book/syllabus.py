"""The page of exercises, from what the package knows of them: ``python -m book.syllabus``.

Points and minutes are those of the released notebooks (`exercises.release`), numbers of mistakes those of
``python -m benchmarks.check_table``; a test holds `exercises.md` against both.
"""

import re
from pathlib import Path

from transformer_lessons import checks, records
from transformer_lessons.data.files import replacing
from transformer_lessons.tools import submission

PAGE = Path(__file__).parent / "exercises.md"
GITHUB = "https://github.com/transformer-lessons/transformer-lessons/blob/main/exercises/release"
COLAB = "https://colab.research.google.com/github/transformer-lessons/transformer-lessons/blob/main/exercises/release"

HEAD = """\
# Exercises

Assignments are notebooks with text, cells for your answers, and cells that check them. A check tries an answer
on many inputs, says what is required and what happened instead and, if the answer behaves like a known mistake,
which one. It never shows the solution. The cells marked *graded* use other numbers when the notebook is handed
in, and count each requirement by itself.

There are five kinds of tasks: **predict** a shape or a number before anything runs; **implement** what the
chapter explains, with the requirements that tutorials forget; **debug** a program that runs and is wrong;
**extend** by what neither the chapter nor the package hands over; **explain** in a few sentences, for a person.

Take the assignments in this order: each needs its chapters, and what those before it built.

| assignment | chapters | graded tasks | points | hours |
|---|---|---|---|---|
{rows}

Before you hand in, let the command line look at the file: what is missing, doubled, renamed, too large or not
run, and which visible checks fail.

```bash
pip install "transformer-lessons[submission] @ git+https://github.com/transformer-lessons/transformer-lessons"
lessons check-submission ps03_attention.ipynb
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
KNOWN = """\
<a id="catalogue"></a>

## What the checks know

{tasks} tasks have {mistakes:,} known mistakes; people write some of them in several ways, {ways:,} in all. Each
way has to fail and to be named as what it is, and every right answer in other words has to pass. *Asked* is what
a right answer must do, each tried on inputs of its own; *passing* are right answers.

| task | asked | mistakes | failing | named | passing |
|---|---|---|---|---|---|
{rows}

A right answer takes {passing_ms:.0f} ms of processor time in the median task, a diagnosis
{diagnosis_median_s:.2g} s in the median and {diagnosis_worst_s:.2g} s at most (one thread; {device}, torch
{torch}).
"""


def page() -> str:
    """The whole page."""
    assignments = submission.assignments()
    sections = [
        SECTION.format(name=name, rows=table(one["tasks"]), colab=COLAB, github=GITHUB, **without_tasks(one))
        for name, one in assignments.items()
    ]
    return "\n".join([HEAD.format(rows=overview(assignments)), *sections, known(records.read("checks"))])


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


def known(record: dict) -> str:
    """What the checks catch and name, task by task."""
    rows = [
        f"| `{name}` | {row['requirements']} | {row['mistakes']} | {row['caught']}/{row['ways']} "
        f"| {row['named']}/{row['ways']} | {row['passed']}/{row['alternates']} |"
        for name, row in record["tasks"].items()
    ]
    made_with = {name: record["made_with"][name] for name in ("device", "torch")}
    return KNOWN.format(rows="\n".join(rows), **record["total"], **made_with)


if __name__ == "__main__":
    assert list(records.read("checks")["tasks"]) == checks.tasks(), "first: python -m benchmarks.check_table"
    with replacing(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")
    print(PAGE.name)
