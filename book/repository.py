"""Give the repository its address: ``python -m book.repository https://github.com/NAME/REPO``.

The address stands in links, in Colab's links, in ``pip install git+…`` and on the pages: this rewrites it in
every tracked text file, notebooks included, and touches nothing else. The address in use is read from
`pyproject.toml`, which is written last: after an interruption, the same command finishes the work.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(
    r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100}?)(?:\.git)?/?"
)
# What stands before OWNER/REPO; Colab's and the plain form differ only further left.
PREFIXES = r"github\.com[/:]|colab\.research\.google\.com/github/|raw\.githubusercontent\.com/"
# A longer name that only begins like ours is another repository; `.git` and a full stop may follow.
END = r"(?![A-Za-z0-9_-]|\.(?!git\b)[A-Za-z0-9_-])"


def parse(url: str) -> tuple[str, str]:
    """Owner and name of a repository on GitHub (Colab opens notebooks from nowhere else).

    Raises:
        ValueError: for anything that is not such an address.
    """
    match = ADDRESS.fullmatch(url.strip())
    if not match or match[1].endswith("-") or match[2] in (".", ".."):
        raise ValueError(f"expected https://github.com/NAME/REPO, got {url!r}")
    return match[1], match[2]


def rewrite(content: bytes, old: tuple[str, str], new: tuple[str, str]) -> bytes:
    """`content` with every form of the old address replaced by the new one."""
    owner, name = map(re.escape, old)
    plain = re.compile(rf"({PREFIXES}){owner}/{name}{END}".encode())
    pages = re.compile(rf"(?<![A-Za-z0-9.-]){owner}\.github\.io/{name}{END}".encode())
    content = plain.sub(lambda match: match[1] + "/".join(new).encode(), content)
    return pages.sub(f"{new[0]}.github.io/{new[1]}".encode(), content)


def tracked_files(root: Path) -> list[Path]:
    """The repository's files that are really there, without links and submodules."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    paths = [root / os.fsdecode(name) for name in listed.split(b"\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in the file's place in one step, with the file's permissions."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def set_repository(url: str, root: Path = ROOT) -> list[Path]:
    """Rewrite the address everywhere below `root`; the files that changed."""
    new = parse(url)
    settings = root / "pyproject.toml"
    old = parse(tomllib.loads(settings.read_text(encoding="utf-8"))["project"]["urls"]["Repository"])
    changed = []
    for path in sorted(tracked_files(root), key=lambda path: (path == settings, path)):
        content = path.read_bytes()
        if b"\0" in content:  # not text
            continue
        if (rewritten := rewrite(content, old, new)) != content:
            replace_file(path, rewritten)
            changed.append(path)
    return changed


def main(arguments: list[str]) -> int:
    """The command."""
    try:
        changed = set_repository(" ".join(arguments))
    except ValueError as error:
        print(f"book.repository: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"book.repository: git: {error.stderr.decode().strip()}", file=sys.stderr)
        return 2
    for path in changed:
        print(path.relative_to(ROOT))
    print(f"{len(changed)} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
