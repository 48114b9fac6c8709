"""Files that are written whole or not at all."""

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def replacing(path: Path):
    """Yield a temporary path next to `path`, whose folder is made; on success, flush it to disk and rename it.

    A pitfall: it has to be in the same folder. From another disk, a rename is a copy, visible half done.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        with temporary.open("rb+") as file:  # Windows cannot flush a read-only file
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # safetensors would let only the owner read the file
        temporary.replace(path)
    except (RuntimeError, SafetensorError) as error:
        if type(error) not in (RuntimeError, SafetensorError):  # such as one of torch's compiler
            raise
        raise OSError(f"{path}: could not be written; is the disk full? {brief(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def digest(source: str | list[str]) -> str:
    """A short checksum of a text. A pitfall: a notebook may store a text as one string or as lines."""
    return hashlib.sha256("".join(source).strip().encode()).hexdigest()[:16]


def brief(error: Exception) -> str:
    """The message of an error on one line, at most 200 characters."""
    return " ".join(str(error).split())[:200]


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: dict) -> None:
    """Write readable JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict:
    """Read a JSON object; ValueError, naming the file, if it holds something else."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise ValueError(f"{path}: expected JSON, got something else: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content
