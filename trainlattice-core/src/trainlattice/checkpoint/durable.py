"""Files that are replaced as a whole and are on disk when the call returns. Torch-free."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
from pathlib import Path


def digest(path: Path) -> tuple[str, int]:
    """sha256 and size in bytes of a file. Hashes it in one call, so that other threads run meanwhile."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:  # nothing cannot be mapped
            return hashlib.sha256().hexdigest(), 0
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            return hashlib.sha256(content).hexdigest(), size


def write_durably(path: Path, text: str) -> None:
    """Replaces a text file as a whole: after a kill it holds the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a file: a hard link where the file system has them, else a copy."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.link.tmp")
    try:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_directory(directory: Path) -> None:
    """Makes renames in a directory durable; a no-op where directories cannot be opened (Windows)."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
