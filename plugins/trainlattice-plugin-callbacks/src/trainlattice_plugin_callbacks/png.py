"""Writes a PNG: eight bits a channel, nothing but the standard library (the format is that of RFC 2083)."""

from __future__ import annotations

import struct
import zlib


def png(pixels: bytes, width: int, height: int, channels: int) -> bytes:
    """
    :param pixels: row by row, ``channels`` bytes for each: 1 is gray, 3 are red, green and blue.
    """
    if len(pixels) != width * height * channels:
        raise ValueError(f"{len(pixels)} bytes are no {width} x {height} pixels of {channels}")
    stride = width * channels
    rows = b"".join(
        b"\0" + pixels[start : start + stride] for start in range(0, len(pixels), stride)
    )  # no filter
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
