"""One command changes the version wherever it stands, and this repository's places agree."""

import json
import subprocess

import pytest
import yaml

from book import repository, version
from book.setup_cell import SETUP_CELL
from transformer_lessons import __version__

ADDRESS = "https://github.com/some-owner/some-name"
CHANGELOG = """# Changelog

Some words.

## Unreleased

### Added

- A thing.

## 0.1.0 - 2025-01-31

- The first.
"""
CITATION = 'cff-version: 1.2.0\ntitle: Lessons\nversion: 0.1.0\ndate-released: "2025-01-31"\nlicense: MIT\n'


def notebook(pinned: str) -> str:
    cells = [{"source": [f'package = "git+{pinned}"\n', "π ≈ 3"]}]
    return json.dumps({"cells": cells, "nbformat": 4}, ensure_ascii=False, indent=1)


@pytest.fixture
def project(tmp_path):
    """A small repository of version 0.1.0."""
    files = {
        "pyproject.toml": f'[project.urls]\nRepository = "{ADDRESS}"\n',
        "transformer_lessons/__init__.py": '"""Of 0.1.0 on."""\n\n__version__ = "0.1.0"\n',
        "CITATION.cff": CITATION,
        "CHANGELOG.md": CHANGELOG,
        "chapters/one two.ipynb": notebook(f"{ADDRESS}@v0.1.0"),
        "others.ipynb": notebook("https://github.com/else/where@v0.1.0"),
        "record.json": '{"transformer-lessons": "0.1.0"}\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_every_place_gets_the_version_and_nothing_else_changes(project):
    before = contents(project)
    assert version.check(None, project) == []
    changed = version.set_version("0.2.0", "2026-12-01", project)
    after = contents(project)
    assert {name for name in after if after[name] != before[name]} == {
        path.relative_to(project).as_posix() for path in changed
    }
    assert after == before | {
        "transformer_lessons/__init__.py": '"""Of 0.1.0 on."""\n\n__version__ = "0.2.0"\n',
        "CITATION.cff": CITATION.replace("0.1.0", "0.2.0").replace("2025-01-31", "2026-12-01"),
        "CHANGELOG.md": CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n## 0.2.0 - 2026-12-01\n"),
        "chapters/one two.ipynb": notebook(f"{ADDRESS}@v0.2.0"),
    }
    assert version.check("v0.2.0", project) == []
    assert version.notes(project) == "### Added\n\n- A thing."


def test_the_first_release_keeps_its_version_and_gets_a_date(project):
    (project / "CHANGELOG.md").write_text(CHANGELOG.split("## 0.1.0")[0], encoding="utf-8")
    (project / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 0.1.0\n", encoding="utf-8")
    assert version.check(None, project) == []
    version.set_version("0.1.0", "2026-12-01", project)
    assert version.check("v0.1.0", project) == []
    assert contents(project)["CITATION.cff"].endswith('version: 0.1.0\ndate-released: "2026-12-01"\n')


def test_a_second_run_changes_nothing_also_on_another_day(project):
    version.set_version("0.2.0", "2026-12-01", project)
    assert version.set_version("0.2.0", "2026-12-02", project) == []


def test_an_interrupted_run_can_be_repeated(project, monkeypatch):
    write = version.replace_file

    def fail_after_some(path, content, calls=iter(range(99))):  # noqa: B008
        if next(calls) == 2:
            raise OSError("disk full")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(version, "replace_file", fail_after_some)
        with pytest.raises(OSError, match="disk full"):
            version.set_version("0.2.0", "2026-12-01", project)
    version.set_version("0.2.0", "2026-12-02", project)
    assert version.check("v0.2.0", project) == []
    assert contents(project)["CHANGELOG.md"].count("## 0.2.0") == 1


@pytest.mark.parametrize("text", ["", "0.2", "v0.2.0", "0.2.0rc1", "0.02.0", "٠.٢.٠"])
def test_other_versions_are_refused(project, text):
    before = contents(project)
    with pytest.raises(ValueError, match=r"expected a version such as 0\.2\.0, got '"):
        version.set_version(text, "2026-12-01", project)
    assert contents(project) == before


def test_an_older_version_is_refused(project):
    (project / version.SOURCE).write_text('__version__ = "0.10.0"\n')
    with pytest.raises(ValueError, match=r"expected a version from 0\.10\.0 on, got 0\.9\.9"):
        version.set_version("0.9.9", "2026-12-01", project)


def test_a_release_without_news_is_refused(project):
    before = CHANGELOG.replace("### Added\n\n- A thing.\n\n", "")
    (project / "CHANGELOG.md").write_text(before, encoding="utf-8")
    with pytest.raises(ValueError, match=r"what is new in 0\.2\.0, got an empty section"):
        version.set_version("0.2.0", "2026-12-01", project)
    assert (project / "CHANGELOG.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("CITATION.cff", "version: 0.1.0", "version: 0.1.1", "CITATION.cff: version is 0.1.1, not 0.1.0"),
        ("CITATION.cff", "-01-31", "-02-01", "CITATION.cff: date-released is 2025-02-01, not 2025-01-31"),
        ("chapters/one two.ipynb", "@v0.1.0", "@v0.1.0rc1", "chapters/one two.ipynb: installs 0.1.0rc1"),
        (
            "CHANGELOG.md",
            "## Unreleased\n",
            "## Next\n",
            "CHANGELOG.md: its first section is not “Unreleased”",
        ),
    ],
)
def test_a_place_that_disagrees_is_named(project, name, old, new, said):
    text = (project / name).read_text(encoding="utf-8")
    assert old in text
    (project / name).write_text(text.replace(old, new), encoding="utf-8")
    assert version.check(None, project) == [said]


def test_a_tag_is_of_this_version_and_of_a_released_one(project):
    assert version.check("v0.1.0", project) == []
    assert version.check("0.1.0", project) == ["the tag is 0.1.0, the version 0.1.0"]
    assert version.check("v0.1.1", project) == ["the tag is v0.1.1, the version 0.1.0"]
    (project / "CHANGELOG.md").write_text(CHANGELOG.replace("0.1.0", "0.0.9"), encoding="utf-8")
    (project / "CITATION.cff").write_text("version: 0.1.0\n", encoding="utf-8")
    (said,) = version.check("v0.1.0", project)
    assert said == "CHANGELOG.md: no section of 0.1.0; `make set-version VERSION=0.1.0` makes it"


def test_the_commands_speak_in_one_line(capsys):
    assert version.main(["set", "next"]) == 2
    assert capsys.readouterr().err == "book.version: expected a version such as 0.2.0, got 'next'\n"
    assert version.main(["check"]) == 0
    assert capsys.readouterr().out == f"all places say {__version__}\n"
    assert version.main(["check", "v99.0.0"]) == 1
    assert f"the tag is v99.0.0, the version {__version__}\n" in capsys.readouterr().out


def test_this_repository_says_one_version_everywhere():
    assert version.check(None) == []
    pinned = [
        path
        for path in version.notebooks(repository.ROOT)
        if b"@v" + __version__.encode() in path.read_bytes()
    ]
    assert len(pinned) >= 39  # chapters, masters and released assignments
    assert f"@v{__version__}" in SETUP_CELL
    citation = yaml.safe_load((repository.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["repository-code"] in SETUP_CELL
