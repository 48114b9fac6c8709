"""One command changes the repository's address wherever it stands, and nothing else."""

import json
import os
import subprocess

import pytest

from book import repository

OLD, NEW = "https://github.com/old-owner/old-name", "https://github.com/New-Owner/new.name"
NOTEBOOK = json.dumps(
    {"cells": [{"source": [f'%pip install "git+{OLD}"\n', "π ≈ 3"]}], "nbformat": 4},
    ensure_ascii=False,
    indent=1,
)


@pytest.fixture
def project(tmp_path):
    """A small repository that names its address in every form."""
    files = {
        "pyproject.toml": f'[project.urls]\nRepository = "{OLD}"\n',
        "README.md": "[book](https://old-owner.github.io/old-name/intro.html),"
        f" {OLD}.\r\n{OLD}.git {OLD}/issues\n",
        "chapter one.ipynb": NOTEBOOK,
        "colab.md": "https://colab.research.google.com/github/old-owner/old-name/blob/main/a.ipynb\n",
        "ssh.txt": "git@github.com:old-owner/old-name.git https://raw.githubusercontent.com/old-owner/old-name/main/x",
        "others.md": f"{OLD}-fork {OLD}2 {OLD}.github https://github.com/old-owner/else old-owner/old-name"
        " https://my-old-owner.github.io/old-name https://github.com/someone/old-name\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "picture.bin").write_bytes(b"\0" + OLD.encode())
    (tmp_path / "run").write_text(f"#!/bin/sh\necho {OLD}\n")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "link.md").symlink_to("README.md")
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "untracked.md").write_text(OLD)
    return tmp_path


def contents(folder):
    files = (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    return {path.name: path.read_bytes().decode() for path in files}


def test_every_form_of_the_address_is_rewritten(project):
    before = contents(project)
    changed = repository.set_repository(NEW, project)
    after = contents(project)
    assert after["pyproject.toml"] == f'[project.urls]\nRepository = "{NEW}"\n'
    assert after["README.md"] == (
        f"[book](https://New-Owner.github.io/new.name/intro.html), {NEW}.\r\n{NEW}.git {NEW}/issues\n"
    )
    assert (
        after["colab.md"] == "https://colab.research.google.com/github/New-Owner/new.name/blob/main/a.ipynb\n"
    )
    assert after["ssh.txt"] == (
        "git@github.com:New-Owner/new.name.git https://raw.githubusercontent.com/New-Owner/new.name/main/x"
    )
    assert after["chapter one.ipynb"] == NOTEBOOK.replace(OLD, NEW)
    touched = {"README.md", "chapter one.ipynb", "colab.md", "pyproject.toml", "run", "ssh.txt"}
    assert {path.name for path in changed} == touched
    assert {name for name in after if after[name] != before[name]} == touched
    assert set(after) == set(before)  # no temporary file is left


def test_there_and_back_again(project):
    """A second run changes nothing; links and permissions stay."""
    before = contents(project)
    repository.set_repository(NEW, project)
    assert repository.set_repository(NEW, project) == []
    repository.set_repository(OLD, project)
    assert contents(project) == before
    assert (project / "link.md").is_symlink()
    assert os.access(project / "run", os.X_OK)


def test_a_name_that_begins_with_the_old_one_is_not_extended_twice(project):
    for _ in range(2):
        repository.set_repository(f"{OLD}-2", project)
    assert f"{OLD}-2-2" not in "".join(contents(project).values())


def test_an_interrupted_run_can_be_repeated(project, monkeypatch):
    write = repository.replace_file

    def fail_at_the_third(path, content, calls=iter(range(99))):  # noqa: B008
        if next(calls) == 2:
            raise OSError("disk full")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(repository, "replace_file", fail_at_the_third)
        with pytest.raises(OSError, match="disk full"):
            repository.set_repository(NEW, project)
    repository.set_repository(NEW, project)
    remaining = [name for name, text in contents(project).items() if f"{OLD}\n" in text or f"{OLD}/" in text]
    assert remaining == []
    assert "New-Owner" in (project / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "url", ["https://github.com/a/b", "https://github.com/a/b/", "https://github.com/a/b.git"]
)
def test_usual_ways_to_write_an_address(url):
    assert repository.parse(url) == ("a", "b")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://gitlab.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/tree/main",
        "https://github.com/a/..",
        'https://github.com/a/b"c',
    ],
)
def test_other_addresses_are_refused_in_one_line(url, capsys):
    assert repository.main([url]) == 2
    shown = capsys.readouterr().err
    assert "expected https://github.com/NAME/REPO" in shown
    assert shown.count("\n") == 1


def test_this_repository_has_no_other_form_of_its_address():
    """A form that the command does not know would be left behind."""
    settings = (repository.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    old = repository.parse(settings.split('Repository = "')[1].split('"')[0])
    found = 0
    for path in repository.tracked_files(repository.ROOT):
        rewritten = repository.rewrite(path.read_bytes(), old, ("new-owner", "new-name"))
        assert "/".join(old).encode() not in rewritten, path
        found += b"new-owner/new-name" in rewritten
    assert found >= 3  # at least _config.yml, pyproject.toml and the introduction
