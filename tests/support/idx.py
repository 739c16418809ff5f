"""IDX files, written byte by byte: two classes of tiny images."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy


def idx(array: Any, code: int = 0x08) -> bytes:
    """An array in the IDX format."""
    array = numpy.asarray(array)
    big_endian = array.astype(array.dtype.newbyteorder(">"))
    return (
        struct.pack(">HBB", 0, code, array.ndim)
        + struct.pack(f">{array.ndim}I", *array.shape)
        + big_endian.tobytes()
    )


def images(count: int, size: tuple[int, int] = (2, 3)) -> Any:
    return numpy.arange(count * size[0] * size[1], dtype=numpy.uint8).reshape(count, *size)


def write_idx(directory: Path, train: int = 20, test: int = 4, packed: bool = False) -> None:
    """The four files of MNIST."""
    files = {
        "train-images-idx3-ubyte": images(train),
        "train-labels-idx1-ubyte": numpy.arange(train, dtype=numpy.uint8) % 2,
        "t10k-images-idx3-ubyte": images(test),
        "t10k-labels-idx1-ubyte": numpy.arange(test, dtype=numpy.uint8) % 2,
    }
    for name, array in files.items():
        data = idx(array)
        path = directory / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
