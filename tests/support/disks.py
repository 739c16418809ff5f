"""Disks that are full, as far as this process sees them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def fill_the_disk_of(file: Path) -> None:
    """Whatever this process writes from now on to a file that it holds open fails, as on a disk that is full."""
    full = os.open("/dev/full", os.O_WRONLY)
    for number in os.listdir("/proc/self/fd"):
        try:
            found = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own
            continue
        if found == str(file.resolve()):
            os.dup2(full, int(number))
    os.close(full)


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system without hard links."""

    def link(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", link)


@contextmanager
def copies_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, *, number: int = 1) -> Iterator[None]:
    """From the given one on, a copy of a file ends in its middle: the disk is full. Files are not linked."""
    copyfile, left = shutil.copyfile, [number]

    def copy(source: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] > 0:
            return copyfile(source, target)
        with open(source, "rb") as whole, open(target, "wb") as half:
            half.write(whole.read(100))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        refuse_links(patch)
        patch.setattr(shutil, "copyfile", copy)
        yield
