"""The page “Mistakes, by what you see”, made from the checks' lists when the book is built."""

import re
from html import escape
from itertools import groupby
from pathlib import Path

from transformer_lessons.checks.definitions import Mistake, Task
from transformer_lessons.checks.message import place
from transformer_lessons.checks.symptoms import SYMPTOMS, difference, known
from transformer_lessons.data.files import replacing

PAGE = Path(__file__).parent / "mistakes.md"
LAST = ("right shape, wrong numbers",)
HEAD = """# Mistakes, by what you see

Something is wrong, and you know what it looks like. Under each symptom stand the mistakes that show it, part by
part; open one to see the line that makes it, and where the book explains it. These are the mistakes that the
exercises know by name, so your own model may have another; but most models that fail, fail like this. In a
terminal, `lessons symptoms NaN` prints the same.

{contents}
"""


def page() -> str:
    """The whole page."""
    symptoms = {name: entries for name, entries in known().items() if entries}
    contents = "\n".join(f"- [{SYMPTOMS[name][:-1]}](#{slug(name)})" for name in symptoms)
    sections = [section(name, entries) for name, entries in symptoms.items()]
    return "\n".join([HEAD.format(contents=contents), *sections])


def slug(symptom: str) -> str:
    """The anchor of a symptom's section."""
    return "symptom-" + "-".join(re.findall(r"\w+", symptom.lower()))


def section(symptom: str, entries: list[tuple[Task, Mistake]]) -> str:
    """A symptom, with its mistakes by task."""
    parts = [f'<a id="{slug(symptom)}"></a>\n\n## {SYMPTOMS[symptom][:-1]}\n']
    if symptom in LAST:
        parts.append("Only those that show nothing more telling; part by part.\n")
        entries = [(task, mistake) for task, mistake in entries if mistake.symptoms == (symptom,)]
    for task, group in groupby(entries, key=lambda entry: entry[0]):
        told = [entry(task, mistake) for _, mistake in group]
        if symptom in LAST:  # hundreds
            told = [
                f"<details><summary><code>{task.public}</code>: {len(told)}</summary>\n",
                *told,
                "</details>\n",
            ]
        else:
            told.insert(0, f"**`{task.public}`**\n")
        parts += told
    return "\n".join(parts)


def entry(task: Task, mistake: Mistake) -> str:
    """One mistake, to be opened."""
    where, address = place(mistake.anchor, "")
    return "\n".join(
        [
            f"<details><summary>{escape(upper(mistake.you))}</summary>\n",
            f"{mistake.looks} {mistake.why}\n",
            f"```diff\n{difference(task, mistake)}\n```\n",
            f'<a href="{address}">{escape(upper(where))}</a>\n',
            "</details>\n",
        ]
    )


def upper(text: str) -> str:
    """The same as a sentence begins."""
    return text[:1].upper() + text[1:]


def write() -> None:
    """Write the page into the book's folder."""
    with replacing(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
