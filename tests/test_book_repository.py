"""One command changes the repository's address wherever it occurs, and nothing else."""

import os
import subprocess

import pytest

from book import repository

OLD, NEW = "https://github.com/old-owner/old-name", "https://github.com/New-Owner/2nd.name"
FILES = {
    "pyproject.toml": f'[project.urls]\nRepository = "{OLD}"\n',
    "README.md": f"[book](https://old-owner.github.io/old-name/intro.html), {OLD}.\r\n{OLD}.git {OLD}/issues\n",
    "chapter one.ipynb": rf'{{"source": ["%pip install \"git+{OLD}\"\n", "π"]}}',
    "colab.md": "https://colab.research.google.com/github/old-owner/old-name/blob/main/a.ipynb\n",
    "ssh.txt": "git@github.com:old-owner/old-name.git https://raw.githubusercontent.com/old-owner/old-name/main/x",
    "run": f"#!/bin/sh\necho {OLD}\n",
}
OTHERS = {
    "others.md": f"{OLD}-fork {OLD}2 https://github.com/old-owner/else"
    " https://my-old-owner.github.io/old-name https://github.com/someone/old-name\n",
    "picture.bin": f"\0{OLD}",
}


def contents(folder):
    return {path.name: path.read_bytes().decode() for path in folder.iterdir() if path.is_file()}


def test_every_form_of_the_address_is_rewritten_and_back_again(tmp_path):
    for name, text in (FILES | OTHERS).items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    (tmp_path / "run").chmod(0o755)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "untracked.md").write_text(OLD, encoding="utf-8")
    before = contents(tmp_path)
    assert set(repository.set_repository(NEW, tmp_path)) == set(FILES)
    for name, text in FILES.items():
        wanted = text.replace("old-owner.github.io/old-name", "New-Owner.github.io/2nd.name")
        assert contents(tmp_path)[name] == wanted.replace("old-owner/old-name", "New-Owner/2nd.name")
    assert os.access(tmp_path / "run", os.X_OK)
    assert repository.set_repository(NEW, tmp_path) == []
    repository.set_repository(f"{OLD}.git/", tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "url", ["https://gitlab.com/a/b", "https://github.com/a", f"{OLD}/tree/main", OLD + '"c']
)
def test_other_addresses_are_refused_before_anything_is_read(url, tmp_path):
    with pytest.raises(SystemExit, match=r"expected https://github\.com/NAME/REPO, got "):
        repository.set_repository(url, tmp_path)
