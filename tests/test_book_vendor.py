"""What others wrote and the site serves: each file is as published, with its version and licence."""

import hashlib
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[1] / "book" / "_static" / "vendor"
ABOUT = (VENDOR / "README.md").read_text(encoding="utf-8")
OURS = {"README.md", "SHA256SUMS"}


def sums() -> dict[str, str]:
    """The pinned hash of each file."""
    lines = (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_every_file_has_the_hash_that_is_pinned():
    files = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*") if path.is_file()}
    found = {name: digest(path.read_bytes()) for name, path in files.items() if name not in OURS}
    assert len(found) > 20
    assert found == sums()


@pytest.mark.full
def test_the_files_are_those_of_the_published_package(tmp_path):
    """The registry's own, which npm compares with the hash that the registry gives."""
    package, version = re.search(r"npm package `([\w@/-]+)`, version ([\d.]+\d)", ABOUT).groups()
    if not shutil.which("npm"):
        pytest.skip("npm is missing")
    pack = ["npm", "pack", "--silent", f"{package}@{version}"]
    done = subprocess.run(pack, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm cannot reach a registry: {done.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert len(members) > 100
    published = {
        name: next(members[at] for at in (f"package/es5/{inner}", f"package/{inner}") if at in members)
        for name, inner in ((name, name.partition("/")[2]) for name in sums())
    }
    assert {name: digest(content) for name, content in published.items()} == sums()
