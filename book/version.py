"""The next release's version, everywhere at once: ``python -m book.version set 0.2.0``.

The version stands in `transformer_lessons/__init__.py`; the package, the setup cell and the site read it there.
Beside it, the notebooks name the release that they install, `CITATION.cff` names the one to cite, and
`CHANGELOG.md` says what is new in it: `set` rewrites these, and nothing else (released assignments hold checksums
of cells as well, so `make set-version` makes them anew). The version itself is written last:
after an interruption, the same command finishes the work. ``check [TAG]`` compares them all, and ``notes`` prints
what the changelog says of this version.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.version import Version

from book import repository
from book.repository import ROOT, replace_file, tracked_files

SOURCE = "transformer_lessons/__init__.py"
ASSIGNMENT = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
NUMBER = "(?:0|[1-9][0-9]*)"
SEMANTIC = re.compile(rf"{NUMBER}\.{NUMBER}\.{NUMBER}")
UNRELEASED = "## Unreleased\n"
# Of the changelog: `## 0.1.0 - 2026-12-01`, and what follows until the next version.
SECTION = re.compile(r"^## (\S+) - (\d{4}-\d\d-\d\d)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def parse(version: str) -> str:
    """A version that semantic versioning knows, without suffixes.

    Raises:
        ValueError: for anything else.
    """
    if not SEMANTIC.fullmatch(version):
        raise ValueError(f"expected a version such as 0.2.0, got {version!r}")
    return version


def current(root: Path = ROOT) -> str:
    """The version of the package in `root`, read from its source."""
    return ASSIGNMENT.search((root / SOURCE).read_text(encoding="utf-8"))[1]


def released(changelog: str) -> dict[str, tuple[str, str]]:
    """Date and text of each version that the changelog has."""
    return {version: (day, text.strip()) for version, day, text in SECTION.findall(changelog)}


def release_in_changelog(text: str, version: str, day: str) -> str:
    """What is unreleased becomes `version` of `day`.

    Raises:
        ValueError: if nothing stands there.
    """
    before, heading, after = text.partition(UNRELEASED)
    news = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0]
    if not news.strip():
        raise ValueError(
            f"CHANGELOG.md: expected under “Unreleased” what is new in {version}, got an empty section"
        )
    return f"{before}{heading}\n## {version} - {day}\n{after}"


def cite(text: str, version: str, day: str) -> str:
    """The citation file with another version and its date."""
    text = re.sub(r"^date-released: .*\n", "", text, flags=re.MULTILINE)
    return re.sub(
        r"^version: .*\n", f'version: {version}\ndate-released: "{day}"\n', text, flags=re.MULTILINE
    )


def pins(root: Path) -> re.Pattern[bytes]:
    """A notebook's ``git+https://…@v0.1.0``, in two groups: what stands before the version, and the version."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    address = "/".join(repository.parse(settings["project"]["urls"]["Repository"]))
    return re.compile(rf"(git\+https://github\.com/{re.escape(address)}@v)([\w.+-]*\w)".encode())


def notebooks(root: Path) -> list[Path]:
    """The repository's notebooks."""
    return [path for path in tracked_files(root) if path.suffix == ".ipynb"]


def set_version(version: str, day: str, root: Path = ROOT) -> list[Path]:
    """Write `version`, released on `day`, everywhere below `root`; the files that changed.

    Raises:
        ValueError: for a version that is none or older than the current one, or a changelog without news.
    """
    if Version(parse(version)) < Version(old := current(root)):
        raise ValueError(f"expected a version from {old} on, got {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if version in released(changelog):  # a second run: the day is that of the first
        day = released(changelog)[version][0]
    else:
        changelog = release_in_changelog(changelog, version, day)
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    source = ASSIGNMENT.sub(f'__version__ = "{version}"', (root / SOURCE).read_text(encoding="utf-8"))
    pin = pins(root)
    contents = {path: pin.sub(rb"\g<1>" + version.encode(), path.read_bytes()) for path in notebooks(root)}
    contents |= {
        root / "CHANGELOG.md": changelog.encode(),
        root / "CITATION.cff": cite(citation, version, day).encode(),
        root / SOURCE: source.encode(),
    }
    changed = [path for path, content in contents.items() if content != path.read_bytes()]
    for path in changed:
        replace_file(path, contents[path])
    return changed


def disagreements(root: Path = ROOT) -> list[str]:
    """Which places do not say what the package's source says."""
    version, pin, found = current(root), pins(root), []
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    if re.findall(r"^## .*\n", changelog, re.MULTILINE)[:1] != [UNRELEASED]:
        found.append("CHANGELOG.md: its first section is not “Unreleased”")
    day, _ = released(changelog).get(version, (None, None))
    for name, wanted in {"version": version, "date-released": day}.items():
        line = re.search(rf'^{name}: "?([^"\n]*)"?$', citation, re.MULTILINE)
        if (line and line[1]) != wanted:
            found.append(f"CITATION.cff: {name} is {line and line[1]}, not {wanted}")
    for path in notebooks(root):
        named = {text.decode() for _, text in pin.findall(path.read_bytes())}
        if named - {version}:
            found.append(f"{path.relative_to(root).as_posix()}: installs {', '.join(sorted(named))}")
    return found


def check(tag: str | None, root: Path = ROOT) -> list[str]:
    """What speaks against releasing this tree under `tag`; without one, whether all places agree."""
    version, found = current(root), disagreements(root)
    if tag is not None:
        if tag != f"v{version}":
            found.append(f"the tag is {tag}, the version {version}")
        if version not in released((root / "CHANGELOG.md").read_text(encoding="utf-8")):
            found.append(
                f"CHANGELOG.md: no section of {version}; `make set-version VERSION={version}` makes it"
            )
    return found


def notes(root: Path = ROOT) -> str:
    """What the changelog says of the current version.

    Raises:
        ValueError: if it has no section of it.
    """
    sections = released((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if (version := current(root)) not in sections:
        raise ValueError(
            f"CHANGELOG.md: expected a section of {version}, got {', '.join(sections) or 'none'}"
        )
    return sections[version][1]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="book.version", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    setting = commands.add_parser("set", help="rewrite the version everywhere")
    setting.add_argument("version")
    today = datetime.now(UTC).date()
    setting.add_argument(
        "--date", type=date.fromisoformat, default=today, help="of the release (default: today)"
    )
    checking = commands.add_parser("check", help="do all places agree, with a tag too?")
    checking.add_argument("tag", nargs="?")
    commands.add_parser("notes", help="what the changelog says of this version")
    options = parser.parse_args(arguments)
    try:
        return run(options)
    except ValueError as error:
        print(f"book.version: {error}", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"book.version: git: {error.stderr.decode().strip()}", file=sys.stderr)
    return 2


def run(options: argparse.Namespace) -> int:
    """One of the three commands; 1 if `check` finds something."""
    if options.command == "notes":
        print(notes())
        return 0
    if options.command == "check":
        found = check(options.tag or None)
        print("\n".join(found) or f"all places say {current()}")
        return 1 if found else 0
    changed = set_version(options.version, options.date.isoformat())
    for path in changed:
        print(path.relative_to(ROOT).as_posix())
    print(f"{len(changed)} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
