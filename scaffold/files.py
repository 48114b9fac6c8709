"""What all scaffolds share: names are looked at first, and files written only when everything is known to fit."""

import re
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path
from string import Template

from transformer_lessons.data.files import replacing

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = ROOT / "book" / "chapters"
TEMPLATES = Path(__file__).with_name("templates")


class Filled(Template):
    """A template with §names; a dollar begins an equation and an @ a decorator."""

    delimiter = "§"


def filled(template: str, **values: str) -> str:
    """The text of a template with its names replaced."""
    return Filled((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def identifier(name: str, what: str = "name") -> str:
    """`name`, if it can be one in snake case.

    Raises:
        ValueError: if not.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or iskeyword(name):
        raise ValueError(f"{what}: expected lower case letters, digits and single underscores, got {name!r}")
    return name


def anchor_of(anchor: str) -> str:
    """`anchor` as messages write it, with #, if its chapter has it.

    Raises:
        ValueError: if not, with those that it has.
    """
    bare = anchor.removeprefix("#")
    if not re.fullmatch(r"ch\d\d-[a-z0-9-]+", bare):
        raise ValueError(f"anchor: expected one such as ch05-wrong, got {anchor!r}")
    texts = [path.read_text(encoding="utf-8") for path in CHAPTERS.glob(f"{bare[2:4]}_*.ipynb")]
    known = re.findall(rf'<a id=\\"({bare[:5]}[a-z0-9-]+)\\"></a>', "".join(texts))
    if bare not in known:
        raise ValueError(f"anchor: expected one of {', '.join(known) or 'a chapter'}, got {anchor!r}")
    return f"#{bare}"


def formatted(source: str, path: Path) -> str:
    """Python as the repository's formatter writes it in that file."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(path), "-"]
    run = subprocess.run(command, input=source, capture_output=True, cwd=ROOT, encoding="utf-8", check=True)
    return run.stdout


def with_line(text: str, beside: str, line: str) -> str:
    """`text` with a line added after the last one that matches `beside`.

    Raises:
        ValueError: if none does.
    """
    lines = text.splitlines(keepends=True)
    places = [number for number, each in enumerate(lines) if re.search(beside, each)]
    if not places:
        raise ValueError(f"expected a line that matches {beside!r}, found none")
    return "".join([*lines[: places[-1] + 1], f"{line}\n", *lines[places[-1] + 1 :]])


def write(new: dict[Path, str], changed: dict[Path, str]) -> list[Path]:
    """Write new files, then those that name them; nothing is overwritten that is not meant to be.

    Raises:
        ValueError: if a new file is there already.
    """
    for path in new:
        if path.exists():
            raise ValueError(f"name: expected a new one, there is a file {path.relative_to(ROOT)} already")
    for path, text in (new | changed).items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return [*new, *changed]
