"""Set the repository's address: ``make set-repository URL=https://github.com/NAME/REPO``.

The address occurs in links, in Colab's links, in ``pip install git+…`` and on the pages: this rewrites it in
every tracked text file, including notebooks. The current address is read from `pyproject.toml`, which is
written last: after an interruption, the same command finishes the work.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]*)/([A-Za-z0-9._-]+?)(?:\.git)?/?")


def set_repository(url: str, root: Path = ROOT) -> list[str]:
    """Rewrite OWNER/NAME and OWNER.github.io/NAME everywhere below `root`; return the files that changed.

    An address that is not GitHub's ends the process: Colab opens notebooks from nowhere else.
    """
    if not (given := ADDRESS.fullmatch(url.strip())):
        sys.exit(f"book.repository: expected https://github.com/NAME/REPO, got {url!r}")
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    old, new = ADDRESS.fullmatch(settings["project"]["urls"]["Repository"]).groups(), given.groups()
    # A longer name that begins like this is another repository's.
    ours = re.compile(r"(?<![\w.-]){}(/|\.github\.io/){}(?![\w-])".format(*map(re.escape, old)))
    search = ["git", "grep", "--files-with-matches", "--null", "-I", "--fixed-strings", "-e", old[1]]
    listed = subprocess.run(search, cwd=root, capture_output=True, check=True, encoding="utf-8").stdout
    changed = []
    for name in sorted(listed.split("\0")[:-1], key=lambda name: name == "pyproject.toml"):
        text = (root / name).read_bytes().decode()
        if (rewritten := ours.sub(rf"{new[0]}\g<1>{new[1]}", text)) != text:
            (root / name).write_bytes(rewritten.encode())
            changed.append(name)
    return changed


if __name__ == "__main__":
    print(*(paths := set_repository(" ".join(sys.argv[1:]))), sep="\n")
    print(f"{len(paths)} files changed")
