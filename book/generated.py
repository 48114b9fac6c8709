"""Pages and data that are generated from the package and the chapters.

Every build of the book writes `mistakes.md`, and `exercises.md` with points and minutes of the released
notebooks. The name of an anchor has no chapter number in it, so the checks' messages keep it when chapters
move; its place is read from the chapters by ``python -m book.generated`` into
``transformer_lessons/checks/places.json``. A test compares the two.
"""

import json
import re
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from book.notebooks import chapters, prose
from transformer_lessons.checks.message import place
from transformer_lessons.checks.symptoms import SYMPTOMS, mistakes_by_symptom, repair_patch
from transformer_lessons.data.files import write_text
from transformer_lessons.tools import submission

BOOK = Path(__file__).parent
PLACES = BOOK.parent / "transformer_lessons" / "checks" / "places.json"
HOME = "https://transformer-lessons.github.io/transformer-lessons/"  # `make set-repository` keeps it right
LAST = "right shape, wrong numbers"  # the symptom of hundreds of mistakes
ANCHOR = re.compile(r'<a id="(?!ch\d\d-|eq:)([^"]+)"></a>')
TEMPLATES = Environment(loader=FileSystemLoader(BOOK / "_templates"), undefined=StrictUndefined)


def mistakes() -> str:
    """The page “Mistakes, by what you see”."""
    symptoms = []
    for name, entries in mistakes_by_symptom().items():
        shown = [(task, one) for task, one in entries if name != LAST or one.symptoms == (LAST,)]
        by_task = [(task, [one for _, one in group]) for task, group in groupby(shown, lambda one: one[0])]
        anchor = "symptom-" + "-".join(re.findall(r"\w+", name.lower()))
        about = {"title": SYMPTOMS[name][:-1], "anchor": anchor, "is_last": name == LAST, "tasks": by_task}
        symptoms.append(about)
    template = TEMPLATES.get_template("mistakes.md.jinja")
    return template.render(symptoms=symptoms, difference=repair_patch, place=place)


def exercises() -> str:
    """The page of exercises."""
    assignments = submission.assignments()
    for one in assignments.values():
        one["numbers"] = ", ".join(re.findall(r"[0-9]+", one["chapters"]))
    return TEMPLATES.get_template("exercises.md.jinja").render(assignments=assignments, sums=sums)


def sums(assignments) -> str:
    """The graded tasks, points and hours; each assignment's hours count in halves, so the column adds up."""
    tasks = [task for one in assignments for task in one["tasks"]]
    points = [float(task["points"]) for task in tasks if task["points"] != "–"]
    hours = sum(round(sum(int(task["minutes"]) for task in one["tasks"]) / 30) / 2 for one in assignments)
    return f"{len(points)} | {sum(points):g} | {hours:g}"


def places() -> str:
    """The place of each anchor in words, and its page, as JSON."""
    found = {}
    for path in chapters():
        text = prose(path)
        title = re.search(r"^# (?:\d+\. )?(.+)$", text, re.MULTILINE)[1]
        for anchor in ANCHOR.finditer(text):
            own = re.match(r'(?:<a id="[^"]+"></a>|\s)*## (\d+\.\d+) (.+)', text[anchor.end() :])
            above = re.findall(r"^## (\d+\.\d+) (.+)$", text[: anchor.start()], re.MULTILINE)
            section = own.groups() if own else above[-1] if above else None
            where = "chapter {}, “{}”".format(*section) if section else f"“{title}”"
            assert anchor[1] not in found, f"{anchor[1]}: two anchors of this name"
            found[anchor[1]] = [without_markdown(where), f"chapters/{path.stem}.html"]
    return json.dumps({"book": HOME, "anchors": found}, indent=1, ensure_ascii=False) + "\n"


def without_markdown(title: str) -> str:
    """A heading as plain text, with its formulas in letters."""
    title = re.sub(r"\\text\{(\w+)\}", r"\1", title).replace(r"\sqrt", "√")
    return re.sub(r"[`$*\\{}]", "", title)


def write_pages() -> None:
    """Write the pages that a build needs and that are not committed."""
    for name, text in (("exercises.md", exercises()), ("mistakes.md", mistakes())):
        write_text(BOOK / name, text)


if __name__ == "__main__":
    write_text(PLACES, places())
