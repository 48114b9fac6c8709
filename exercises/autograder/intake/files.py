"""The files in a folder or a zip archive that others filled, read within limits and never unpacked to disk.

Links are not followed, pipes and devices not waited for, and the sizes that an archive gives for its members
not believed. What cannot be read comes out as a file with a problem, so one file does not stop the others.
"""

import errno
import io
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from exercises.autograder.intake.cells import MOST_BYTES, TOO_LARGE

MOST_FILES = 20_000
MOST_PACKED = 10  # notebooks that a student has packed into an archive
# What systems, Jupyter and nbgrader's exchange leave behind; nobody hands these in, so they are not reported.
JUNK_FOLDERS = ("__MACOSX", ".ipynb_checkpoints", "__pycache__", ".virtual_documents", ".git")
JUNK_FILES = (".DS_Store", "Thumbs.db", "desktop.ini", "submission_secret.txt")
ITSELF = "Hand in the notebook itself."
UNPACK = "Unpack the archive and give the folder."


@dataclass(frozen=True)
class Upload:
    """A file as it was found."""

    parts: tuple[str, ...]  # its path inside the source; none for the source itself
    data: bytes = b""  # not read much further than `MOST_BYTES`
    problem: str = ""  # why it was not read
    inside: tuple[str, ...] = ()  # its path in the archive that a student has packed


def uploads(source: Path) -> Iterator[Upload]:
    """The files of a folder or an archive, without those with a junk name, or the source itself."""
    if source.is_dir():
        found = _in_folder(source)
    elif source.suffix.lower() == ".zip":
        found = _in_archive(source)
    else:
        found = iter([_file(source.resolve(), (source.name,))])
    for number, upload in enumerate(found):
        if number == MOST_FILES:
            yield Upload((), problem=f"There are more than {MOST_FILES:,} files. The rest was not looked at.")
            return
        yield upload


def _is_junk(parts: tuple[str, ...]) -> bool:
    in_folder = any(part in JUNK_FOLDERS for part in parts)
    return in_folder or parts[-1] in JUNK_FILES or parts[-1].startswith(("._", ".~"))


def _in_folder(source: Path) -> Iterator[Upload]:
    failed: list[OSError] = []
    for folder, folders, names in os.walk(source, onerror=failed.append):
        inside = Path(folder).relative_to(source).parts
        folders[:] = sorted(name for name in folders if name not in JUNK_FOLDERS)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*names, *links]):
            if not _is_junk((*inside, name)):
                yield _file(Path(folder, name), (*inside, name))
    for error in failed:
        parts = Path(error.filename or source).relative_to(source).parts
        yield Upload(parts, problem=f"The folder could not be read ({error.strerror}).")


def _file(path: Path, parts: tuple[str, ...]) -> Upload:
    """Read a single file; no link is followed, and no pipe waited for."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return Upload(parts, problem=f"This is not an ordinary file but a pipe or a device. {ITSELF}")
            if status.st_size > MOST_BYTES:
                return Upload(parts, problem=TOO_LARGE)
            return Upload(parts, file.read(MOST_BYTES + 1))
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Upload(parts, problem=f"This is a link to another file; links are not followed. {ITSELF}")
        return Upload(parts, problem=f"The file could not be read ({error.strerror}).")


def _in_archive(source: Path) -> Iterator[Upload]:
    try:
        archive = ZipFile(source)
    except Exception as error:  # damaged archives raise about ten kinds of errors
        why = f"The archive cannot be read ({error}). Download it again, or unpack it and give the folder."
        yield Upload((), problem=why)
        return
    with archive:
        for parts, info in _members(archive):
            yield _member(archive, info, parts)


def opened(upload: Upload) -> Iterator[Upload]:
    """The notebooks in an archive that a student has packed; any other file as it is."""
    found = []
    with suppress(Exception):  # it is no archive, or a damaged one
        archive = ZipFile(io.BytesIO(upload.data))
        found = [(parts, info) for parts, info in _members(archive) if ".ipynb" in parts[-1].lower()]
    if not 0 < len(found) <= MOST_PACKED:
        yield upload
        return
    for inside, info in found:
        yield replace(_member(archive, info, inside), parts=upload.parts, inside=inside)


def _members(archive: ZipFile) -> Iterator[tuple[tuple[str, ...], ZipInfo]]:
    for info in archive.infolist():
        parts = _parts(info)
        if not info.is_dir() and parts and not _is_junk(parts):
            yield parts, info


def _member(archive: ZipFile, info: ZipInfo, parts: tuple[str, ...]) -> Upload:
    # With other methods Python unpacks everything at once, however much that is.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Upload(parts, problem=f"It is packed by a method that is not supported. {UNPACK}")
    try:
        with archive.open(info) as file:
            return Upload(parts, file.read(MOST_BYTES + 1))
    except Exception as error:  # likewise, and for an encrypted member
        why = error or type(error).__name__
        return Upload(parts, problem=f"The file cannot be read from the archive ({why}).")


def _parts(info: ZipInfo) -> tuple[str, ...]:
    """The path of a member; in old archives, whose names have no stated encoding, UTF-8 is the likeliest."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))
