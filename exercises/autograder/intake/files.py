"""The files in a folder or a zip archive that others filled, read within limits and never unpacked to disk.

Links are not followed, pipes and devices not opened, and what an archive says of its members' sizes is not
believed. What cannot be read comes out as a file with a problem, so that one file stops no other.
"""

import io
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from exercises.autograder.intake.contents import MOST_BYTES, too_large

__all__ = ["Upload", "uploads"]

MOST_FILES = 20_000
MOST_FOLDERS = 8  # one in another
MOST_OF_ARCHIVE = 2_000_000_000  # bytes of all its members, unpacked
MOST_AT_ONCE = 8_000_000  # bytes that a list of 100,000 members has
LONGEST_NAME = 255
# What systems, Jupyter and nbgrader's exchange leave behind; nobody hands these in, and nobody is told of them.
JUNK_FOLDERS = ("__MACOSX", ".ipynb_checkpoints", "__pycache__")
JUNK_FILES = (".DS_Store", "Thumbs.db", "desktop.ini", "submission_secret.txt")
ITSELF = "Hand in the notebook itself."
LINK = f"This is a link to another file; links are not followed. {ITSELF}"
NO_FILE = f"This is no ordinary file but a pipe or a device. {ITSELF}"


@dataclass(frozen=True)
class Upload:
    """A file as it was found.

    Attributes:
        parts: its path inside the source; none for the source itself.
        data: what it holds; more than `MOST_BYTES` is never read.
        problem: why it was not read; "" if it was.
    """

    parts: tuple[str, ...]
    data: bytes = b""
    problem: str = ""


def uploads(source: Path) -> Iterator[Upload]:
    """The files of a folder or an archive, without what is junk by name, or the one file that the source is."""
    if source.is_dir():
        found = _in_folder(source, ())
    elif source.suffix.lower() == ".zip":
        found = _in_archive(source)
    else:
        found = iter([_file(source.resolve(), (source.name,))])
    for number, upload in enumerate(one for one in found if not _is_junk(one.parts)):
        if number == MOST_FILES:
            yield Upload((), problem=f"There are more than {MOST_FILES:,} files. The rest was not looked at.")
            return
        yield upload


def _is_junk(parts: tuple[str, ...]) -> bool:
    name = parts[-1] if parts else ""
    in_folder = any(part in JUNK_FOLDERS for part in parts)
    return in_folder or name in JUNK_FILES or name.startswith("._")


def _in_folder(folder: Path, parts: tuple[str, ...]) -> Iterator[Upload]:
    if len(parts) > MOST_FOLDERS:
        yield Upload(parts, problem=f"More than {MOST_FOLDERS} folders stand one in another. {ITSELF}")
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        yield Upload(parts, problem=f"The folder could not be read ({error.strerror}).")
        return
    for name in names:
        path, inside = folder / name, (*parts, name)
        if not os.path.isdir(path) or os.path.islink(path):
            yield _file(path, inside)
        elif not _is_junk(inside):
            yield from _in_folder(path, inside)
            if name.lower().endswith(".ipynb"):
                yield Upload(
                    inside, problem=f"This is a folder, though it is named like a notebook. {ITSELF}"
                )


def _file(path: Path, parts: tuple[str, ...]) -> Upload:
    """A file of its own."""
    try:
        if path.is_symlink():
            return Upload(parts, problem=LINK)
        if not path.is_file():
            return Upload(parts, problem=NO_FILE)
        # Somebody may change it between question and answer: no link is followed here, and no pipe waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return Upload(parts, problem=NO_FILE)
            if status.st_size > MOST_BYTES:
                return Upload(parts, problem=too_large(status.st_size))
            return Upload(parts, file.read(MOST_BYTES + 1))
    except OSError as error:
        return Upload(parts, problem=f"The file could not be read ({error.strerror}).")


class _Careful(io.FileIO):
    """A file of which no more than `MOST_AT_ONCE` bytes are read at once.

    An archive's list of members is read in one go, however long it says it is.
    """

    def read(self, size: int = -1) -> bytes:
        """As of any file."""
        found = super().read(MOST_AT_ONCE + 1 if size < 0 else size) if size <= MOST_AT_ONCE else None
        if found is None or len(found) > MOST_AT_ONCE:
            raise zipfile.BadZipFile("its list of files is too long")
        return found


def _in_archive(source: Path) -> Iterator[Upload]:
    with ExitStack() as opened:
        try:
            archive = opened.enter_context(zipfile.ZipFile(opened.enter_context(_Careful(source))))
        except Exception as error:  # of damaged archives, of about ten kinds
            why = (
                f"The archive cannot be read ({error}). Download it again, or unpack it and give the folder."
            )
            yield Upload((), problem=why)
            return
        left = MOST_OF_ARCHIVE
        for info in archive.infolist():
            if not info.is_dir():
                upload = _member(archive, info, left)
                left -= len(upload.data)
                yield upload


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int) -> Upload:
    parts = _parts(info)
    problem = _problem(info, parts) or ("" if left > 0 else "The archive is too large in all. Split it.")
    if problem or _is_junk(parts):
        return Upload(parts, problem=problem)
    try:
        with archive.open(info) as file:
            data = bytearray()
            while len(data) <= MOST_BYTES and (piece := file.read(1 << 20)):
                data += piece
    except Exception as error:  # likewise
        return Upload(parts, problem=f"The file is damaged in the archive ({error or type(error).__name__}).")
    if len(data) > MOST_BYTES:
        return Upload(parts, problem=too_large(max(len(data), info.file_size)))
    return Upload(parts, bytes(data))


def _parts(info: zipfile.ZipInfo) -> tuple[str, ...]:
    """The path of a member; of old archives, whose names are in no stated encoding, UTF-8 is the likeliest."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def _problem(info: zipfile.ZipInfo, parts: tuple[str, ...]) -> str:
    """Why a member is not even opened."""
    if re.match(r"[/\\]|[a-zA-Z]:", info.filename) or ".." in parts:
        return f"Its path in the archive leads out of the archive. {ITSELF}"
    if len(parts) > MOST_FOLDERS + 1 or any(len(part) > LONGEST_NAME for part in parts):
        return f"Its path in the archive is too long. {ITSELF}"
    if info.flag_bits & 0x1:
        return f"It is encrypted. {ITSELF}"
    if stat.S_ISLNK(info.external_attr >> 16):
        return LINK
    # Of the other methods Python unpacks everything at once, however much that is.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "It is packed by a method that is not read here. Unpack the archive and give the folder."
    return ""
