"""One command changes the repository's address wherever it stands, and nothing else."""

import json
import os
import subprocess

import pytest

from book import repository

OLD, NEW = "https://github.com/old-owner/old-name", "https://github.com/New-Owner/new.name"
NOTEBOOK = json.dumps(
    {"cells": [{"source": [f'%pip install "git+{OLD}"\n', "π"]}]}, ensure_ascii=False, indent=1
)
FILES = {
    "pyproject.toml": f'[project.urls]\nRepository = "{OLD}"\n',
    "README.md": f"[book](https://old-owner.github.io/old-name/intro.html), {OLD}.\r\n{OLD}.git {OLD}/issues\n",
    "chapter one.ipynb": NOTEBOOK,
    "colab.md": "https://colab.research.google.com/github/old-owner/old-name/blob/main/a.ipynb\n",
    "ssh.txt": "git@github.com:old-owner/old-name.git https://raw.githubusercontent.com/old-owner/old-name/main/x",
    "run": f"#!/bin/sh\necho {OLD}\n",
}
OTHERS = {
    "others.md": f"{OLD}-fork {OLD}2 https://github.com/old-owner/else"
    " https://my-old-owner.github.io/old-name https://github.com/someone/old-name\n",
    "picture.bin": f"\0{OLD}",
}


@pytest.fixture
def project(tmp_path):
    """A small repository that names its address in every form."""
    for name, text in (FILES | OTHERS).items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    (tmp_path / "run").chmod(0o755)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "untracked.md").write_text(OLD, encoding="utf-8")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes().decode() for path in folder.iterdir() if path.is_file()}


def test_every_form_of_the_address_is_rewritten_and_back_again(project):
    before = contents(project)
    assert set(repository.set_repository(NEW, project)) == set(FILES)
    wanted = {
        name: text.replace("old-owner/old-name", "New-Owner/new.name").replace(
            "old-owner.github.io/old-name", "New-Owner.github.io/new.name"
        )
        for name, text in FILES.items()
    }
    assert contents(project) == before | wanted
    assert os.access(project / "run", os.X_OK)
    assert repository.set_repository(NEW, project) == []
    repository.set_repository(f"{OLD}.git/", project)
    assert contents(project) == before


def test_a_name_that_begins_with_the_old_one_is_not_extended_twice(project):
    for _ in range(2):
        repository.set_repository(f"{OLD}-2", project)
    assert f"{OLD}-2-2" not in "".join(contents(project).values())


@pytest.mark.parametrize(
    "url",
    ["", "https://gitlab.com/a/b", "https://github.com/a", "https://github.com/a/b/tree/main", OLD + '"c'],
)
def test_other_addresses_are_refused(url, project):
    before = contents(project)
    with pytest.raises(ValueError, match=r"expected https://github\.com/NAME/REPO, got "):
        repository.set_repository(url, project)
    assert contents(project) == before


def test_this_repository_has_no_other_form_of_its_address():
    """A form that the command does not know would be left behind."""
    settings = (repository.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    old = repository.ADDRESS.fullmatch(settings.split('Repository = "')[1].split('"')[0]).groups()
    search = ["git", "grep", "-lzI", "/".join(old)]
    listed = subprocess.run(
        search, cwd=repository.ROOT, capture_output=True, check=True, encoding="utf-8"
    ).stdout
    names = listed.split("\0")[:-1]
    assert {"_config.yml", "pyproject.toml", "CITATION.cff"} <= set(names)
    for name in names:
        text = (repository.ROOT / name).read_text(encoding="utf-8")
        assert "/".join(old) not in repository.rewrite(text, old, ("new-owner", "new-name")), name
