"""Files that are written whole or not at all."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

from transformer_lessons import expect


@contextmanager
def replacing(path: Path):
    """Yields a temporary path beside `path`; on success it is flushed to disk and takes its place.

    A pitfall: it has to be in the same folder. From another disk a rename is a copy, and can be seen half done.

    Raises:
        ValueError: for what is no path.
    """
    path = expect.path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # safetensors would keep the file to its owner
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: dict) -> None:
    """Write readable JSON, whole or not at all.

    A pitfall: tuples come back as lists, and keys as strings even if they were numbers.

    Raises:
        ValueError: for what is no path, or a content that is no dict, or that JSON cannot express.
    """
    expect.kind(dict, content=content)
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    except TypeError as error:
        raise ValueError(f"content: expected what JSON can express, got {error}") from None
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path) -> dict:
    """Read a JSON object.

    A pitfall: Python also reads NaN and Infinity, which are not JSON and which a browser refuses.

    Raises:
        ValueError: if the file holds something else, naming the file and the place; for what is no path.
        FileNotFoundError: if there is none.
    """
    path = expect.path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content
