"""Make the student notebooks from the masters: ``python -m exercises.release [ASSIGNMENT …]``.

nbgrader removes solutions and hidden tests. Whatever it adds that varies from run to run without meaning is
removed too, so that the same master gives the same bytes. Each notebook is replaced as a whole or not at all.
"""

import argparse
import json
import logging
import re
import sys
import tempfile
from pathlib import Path

import nbformat
import nbgrader.api
from alembic.config import Config as MigrationConfig
from alembic.script import ScriptDirectory
from nbgrader.apps import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from book.notebooks import KERNEL
from transformer_lessons.data.files import write_text
from transformer_lessons.tools.submission import digest, grade_id

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parent / "transformer_lessons" / "tools" / "assignments.json"
# Text that only a master may contain.
MASTER_ONLY = (
    "BEGIN SOLUTION",
    "END SOLUTION",
    "BEGIN HIDDEN TESTS",
    "END HIDDEN TESTS",
    "BEGIN MARK SCHEME",
)
TASK_COLUMNS = ("task", "kind", "points", "difficulty", "minutes")
METADATA = {
    "kernelspec": KERNEL,
    "language_info": {"name": "python"},
}
CELL_METADATA = ("deletable", "editable", "nbgrader", "tags")


def database_version() -> str:
    """The schema version (Alembic's head) that nbgrader stores in each database it creates."""
    config = MigrationConfig()
    config.set_main_option("script_location", str(Path(nbgrader.api.__file__).parent / "alembic"))
    return ScriptDirectory.from_config(config).get_current_head()


# nbgrader's own function runs the command `alembic`, which must be on the PATH and takes five seconds.
nbgrader.api.get_alembic_version = database_version


def masters() -> list[Path]:
    """The masters of all assignments, in order."""
    return sorted(HERE.glob("source/*/*.ipynb"))


def released(master: Path) -> Path:
    """The path of a master's student version."""
    return HERE / "release" / master.parent.name / master.name


def course(root: Path, changes: Config | None = None) -> NbGraderAPI:
    """nbgrader's API with our configuration, for a course in another folder.

    Args:
        root: the folder for this course's submissions, gradebook and results.
        changes: changes to the configuration.

    Raises:
        ValueError: if nbgrader would not find something: it takes `HERE` for a pattern, and `root` for a URL.
    """
    for folder, signs in ((HERE, "[*?"), (root, "?")):
        if any(sign in str(folder) for sign in signs):
            wanted = f"expected a folder without {' or '.join(signs)} in its path"
            raise ValueError(f"{wanted}, got {folder}: rename it")
    config = Config()
    config.merge(PyFileConfigLoader("nbgrader_config.py", path=str(HERE)).load_config())
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.source_directory = str(HERE / "source")
    config.CourseDirectory.db_url = f"sqlite:///{root / 'gradebook.db'}"
    for name in ("release", "submitted", "autograded", "feedback"):
        config.CourseDirectory[f"{name}_directory"] = str(root / name)
    config.merge(changes or Config())
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def generate(master: Path, api: NbGraderAPI) -> str:
    """The student version of a master, as the text of a notebook.

    Raises:
        RuntimeError: if nbgrader refuses the master; the message has its log.
    """
    assignment = master.parent.name
    result = api.generate_assignment(assignment, force=True)
    if not result["success"]:
        raise RuntimeError(f"{master.name}: {result.get('error', '')}{result.get('log', '')}")
    made = Path(api.coursedir.format_path(api.coursedir.release_directory, ".", assignment)) / master.name
    return normalised(nbformat.read(made, as_version=4))


def normalised(notebook: nbformat.NotebookNode) -> str:
    """The text of a notebook, reduced to what matters.

    Raises:
        ValueError: if it still contains something that only a master may contain.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in CELL_METADATA})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.validate(notebook)
    text = nbformat.writes(notebook) + "\n"
    left = [words for words in MASTER_ONLY if words in text]
    if left:
        raise ValueError(f"a student version must not contain {', '.join(left)}")
    return text


def manifest(texts: dict[str, str]) -> str:
    """What the package knows of released assignments, as JSON: their tasks, and their cells without texts."""
    return (
        json.dumps({name: entry(json.loads(text)["cells"]) for name, text in texts.items()}, indent=1) + "\n"
    )


def task_checks(cells: list[dict]) -> dict[str, list[str]]:
    """The names under which `checks` knows the answers, by task number."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for task in re.findall(r'checks\.require\("(\w+)"', "".join(cell["source"])):
            found.setdefault(cell["id"].split("-")[1], []).append(task)
    return found


def entry(cells: list[dict]) -> dict:
    """Title, chapters and task table from the first cell, and what the package needs to know about each cell.

    Raises:
        ValueError: if the first cell lacks any of these.
    """
    intro = "".join(cells[0]["source"])
    title = re.match(r"# (ps\d\d · .+)\n", intro)
    chapters = re.search(r"^Goes with (chapters? .+)$", intro, re.MULTILINE)
    rows = [
        [part.strip() for part in line.split("|")[1:-1]] for line in intro.splitlines() if line[:1] == "|"
    ]
    if not title or not chapters or rows[:1] != [list(TASK_COLUMNS)]:
        raise ValueError("a first cell should have a title, “Goes with chapters …” and a table of its tasks")
    return {
        "title": title[1],
        "chapters": chapters[1].rstrip("."),
        "tasks": [dict(zip(TASK_COLUMNS, row, strict=True)) for row in rows[2:]],
        "checks": task_checks(cells),
        "cells": {
            grade_id(cell): {
                "type": cell["cell_type"],
                "locked": cell["metadata"]["nbgrader"]["locked"],
                "sum": digest(cell["source"]),
            }
            for cell in cells
            if grade_id(cell)
        },
    }


def main() -> int:
    """Make the student versions of the named assignments, or of all; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("assignments", nargs="*", metavar="ASSIGNMENT", help="for example ps02_masks")
    wanted = parser.parse_args().assignments
    unknown = set(wanted) - {master.parent.name for master in masters()}
    if unknown:
        print(f"no such assignment: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    logging.getLogger("traitlets").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        api = course(Path(folder))
        for master in masters():
            if not wanted or master.parent.name in wanted:
                write_text(released(master), generate(master, api))
                print(released(master).relative_to(HERE.parent))
    texts = {
        m.parent.name: released(m).read_text(encoding="utf-8") for m in masters() if released(m).exists()
    }
    write_text(MANIFEST, manifest(texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
