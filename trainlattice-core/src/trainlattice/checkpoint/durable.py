"""Files that are replaced as a whole and are on disk when the call returns. Torch-free."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

_CHUNK = 1 << 20


def digest(path: Path) -> tuple[str, int]:
    """sha256 and size in bytes of a file. Other threads run meanwhile."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        return hash_bytes(file, size).hexdigest(), size


def hash_bytes(file: RawIOBase, count: int) -> hashlib._Hash:
    """The sha256 of the next ``count`` bytes, or of those that are left. One buffer for all: mapping the file would
    cost a tenth more."""
    sha256, buffer = hashlib.sha256(), memoryview(bytearray(min(_CHUNK, max(count, 1))))
    while count > 0 and (read := file.readinto(buffer[: min(_CHUNK, count)])):
        sha256.update(buffer[:read])
        count -= read
    return sha256


def write_durably(path: Path, content: str | bytes) -> None:
    """Replaces a file as a whole: after a kill it holds the old content or the new one. Text becomes UTF-8."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            to_disk(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_directory(path.parent)


def second_name(source: Path, target: Path) -> Path:
    """A file that holds what ``source`` does and lies beside ``target``, to be renamed to it: a hard link where the
    file system has them, else a copy on disk."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.link.tmp")
    try:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
            with open(temporary, "r+b") as file:
                to_disk(file.fileno())
    except BaseException:
        discard(temporary)
        raise
    return temporary


def discard(temporary: Path) -> None:
    """Deletes a file if that is possible: what kept it from being used is the error to tell."""
    with suppress(OSError):
        temporary.unlink()


def to_disk(descriptor: int) -> None:
    """``os.fsync``, and on macOS what that does not do: asks the drive itself to write."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError:  # a file system without it
            pass
    os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes renames in a directory durable; a no-op where directories cannot be opened (Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
