"""Third-party files that the site serves: each is as published, with its version and licence."""

import hashlib
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[1] / "book" / "_static" / "vendor"
OURS = {"README.md", "SHA256SUMS"}


def sums() -> dict[str, str]:
    """The pinned hash of each file."""
    lines = (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_every_file_has_the_hash_that_is_pinned():
    files = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*") if path.is_file()}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert {name: digest for name, digest in found.items() if name not in OURS} == sums()


@pytest.mark.full
def test_the_files_are_those_of_the_published_package(tmp_path):
    """npm downloads the package and compares it with the hash that the registry gives."""
    about = (VENDOR / "README.md").read_text(encoding="utf-8")
    package, version = re.search(r"npm package `([\w@/-]+)`, version ([\d.]+\d)", about).groups()
    if not shutil.which("npm"):
        pytest.skip("npm is missing")
    pack = ["npm", "pack", "--silent", f"{package}@{version}"]
    done = subprocess.run(pack, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm cannot reach a registry: {done.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        for name, digest in sums().items():
            inner = name.partition("/")[2]
            at = f"package/{inner}" if inner == "LICENSE" else f"package/es5/{inner}"
            assert hashlib.sha256(archive.extractfile(at).read()).hexdigest() == digest, name
