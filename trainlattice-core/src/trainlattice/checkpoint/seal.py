"""A checkpoint file that knows its own digest: written once, hashed while the bytes are on their way.

A file of ``torch.save`` is a zip archive. Its comment, the last bytes of the file, holds the sha256 of everything
before it (but for its length), so that a file can be checked wherever it lies. Torch's own checksums, one
for each tensor, would cost as much time again and are left out where torch lets them (2.6 and later).
Checking a file needs no torch.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from trainlattice.checkpoint.durable import hash_bytes, to_disk

_END = b"PK\x05\x06"
_END_SIZE = 22
_MARK = b"trainlattice sha256 "
_CHUNK = 1 << 20
_TO_DISK = 32 << 20


class SealedWriter(io.RawIOBase):
    """What ``torch.save`` writes to. A thread hashes each large piece while it is written, and the disk begins
    with the first pieces, so that the fsync at the end finds little to do."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="trainlattice-hash")
        self._tail = b""
        self._on_its_way = 0
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Holds the last bytes back: they may be the end of the archive."""
        view = memoryview(data).cast("B")
        if len(view) < _CHUNK:
            held = self._tail + bytes(view)
            self._out(memoryview(held)[: max(len(held) - _END_SIZE, 0)])
            self._tail = held[-_END_SIZE:]
        else:
            self._out(memoryview(self._tail))
            self._out(view[:-_END_SIZE])
            self._tail = bytes(view[-_END_SIZE:])
        return len(view)

    def seal(self) -> str:
        """Ends the file; its sha256."""
        end = self._tail
        if end[:4] != _END or end[-2:] != b"\0\0":
            raise OSError("torch.save did not end with the end of a zip archive")
        sealed = self._sha256.copy()
        sealed.update(end[:-2])
        comment = _MARK + sealed.hexdigest().encode()
        last = end[:-2] + len(comment).to_bytes(2, "little") + comment
        self._sha256.update(last)
        self._write(memoryview(last))
        self._pool.shutdown()
        return self._sha256.hexdigest()

    def close(self) -> None:
        self._pool.shutdown()
        super().close()

    def _out(self, view: memoryview) -> None:
        if len(view) < _CHUNK // 2:
            self._sha256.update(view)
            self._write(view)
            return
        hashed = self._pool.submit(self._sha256.update, view)
        try:
            self._write(view)
        finally:
            hashed.result()  # torch may let go of the memory when this returns

    def _write(self, view: memoryview) -> None:
        written = 0
        while written < len(view):
            written += self._file.write(view[written:])
        self.size += len(view)
        if self.size - self._on_its_way >= _TO_DISK and hasattr(os, "posix_fadvise"):
            # Starts the writing without waiting for it, and keeps a checkpoint from pushing the data set out of the
            # page cache. Only a hint: an error of the disk is fsync's to tell.
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._on_its_way = self.size


def save_sealed(content: Any, path: Path) -> tuple[str, int]:
    """``torch.save`` to a file that is on disk when this returns; its sha256 and size."""
    import torch

    with open(path, "wb", buffering=0) as file, SealedWriter(file) as writer:
        with _without_crc():
            torch.save(content, cast("BinaryIO", writer))
        sha256 = writer.seal()
        to_disk(file.fileno())
        return sha256, writer.size


def seal_of(path: Path) -> str | None:
    """What a file's own seal must be, or None if it has none."""
    length = _END_SIZE + len(_MARK) + 64
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < length:
            return None
        file.seek(size - length)
        tail = file.read()
    if not tail.startswith(_END) or not tail.startswith(_MARK, _END_SIZE):
        return None
    return tail[-64:].decode("ascii", errors="replace")


def is_intact(path: Path) -> bool:
    """Whether a sealed file is as it was written."""
    expected, length = seal_of(path), 2 + len(_MARK) + 64
    with open(path, "rb", buffering=0) as file:
        sha256 = hash_bytes(file, path.stat().st_size - length)
        says = int.from_bytes(file.read(2), "little")
    return sha256.hexdigest() == expected and says == length - 2


def own_fault(path: Path) -> str | None:
    """What the checksums in a file say against it: its seal, or those of the records of a zip archive. None if it
    is whole."""
    if seal_of(path) is not None:
        return None if is_intact(path) else "its bytes are not those that its own sha256 was made of"
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        return f"it is no checkpoint file ({error})"
    return None if bad is None else f"its record {bad!r} is damaged"


@contextmanager
def _without_crc() -> Iterator[None]:
    import torch

    options = torch.serialization
    if not hasattr(options, "set_crc32_options"):  # before torch 2.6
        yield
        return
    before = options.get_crc32_options()
    options.set_crc32_options(False)
    try:
        yield
    finally:
        options.set_crc32_options(before)
