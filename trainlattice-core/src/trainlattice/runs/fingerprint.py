"""What identifies the data of a run: the size of each split and a hash of its content, bounded in cost."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from trainlattice.checkpoint.rng import capture_rng, restore_rng
from trainlattice.data.spare import spare
from trainlattice.data.splits import MapDataset, Splits, TensorData, TensorFields

MOST_BYTES = 64 * 1024 * 1024
"""Tensors in memory up to this size are hashed whole."""
BLOCK_BYTES = 1024 * 1024
MOST_SAMPLES = 16


class _UnidentifiedError(Exception):
    """A split has no hash; the message says why."""


def fingerprint(splits: Splits) -> dict[str, Any]:
    """By split: ``samples``, ``hash`` and what it is ``of``, or a null hash and the ``reason``.

    A dataset may offer ``fingerprint() -> str``. Tensors in memory are hashed whole up to 64 MiB, else in 64
    evenly spaced blocks of 1 MiB; of other map-style data, up to 16 evenly spaced samples, unless they are
    random. The random states of this process are left as they were.
    """
    before = capture_rng()
    try:
        return {
            name: _of_split(split)
            for name in ("train", "val", "test")
            if (split := getattr(splits, name)) is not None
        }
    finally:
        restore_rng(before)


def _of_split(split: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"samples": None, "hash": None}
    try:
        found["samples"] = len(split) if hasattr(split, "__len__") else None
        found["hash"], found["of"] = _content(split)
    except _UnidentifiedError as why:
        found["reason"] = str(why)
    except (Exception, SystemExit) as error:  # the data is a plugin's: whatever is wrong, the run goes on
        found["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return found


def _content(split: Any) -> tuple[str, str]:
    offered = getattr(split, "fingerprint", None)
    if callable(offered):
        own = offered()
        if not isinstance(own, str):
            raise _UnidentifiedError(f"its fingerprint() gave a {type(own).__name__}, expected a str")
        return own, "its own fingerprint()"
    if isinstance(split, TensorData):
        return _of_tensors([split.inputs, split.targets])
    if isinstance(split, TensorFields):
        return _of_tensors(list(split.fields.values()), list(split.fields))
    split = spare(split)
    if isinstance(split, IterableDataset) or not isinstance(split, MapDataset):
        raise _UnidentifiedError("a stream is not read before the run")
    return _of_samples(split)


# --- tensors in memory ---------------------------------------------------------------------------


def _of_tensors(tensors: list[Tensor], keys: list[str] | None = None) -> tuple[str, str]:
    sha256 = hashlib.sha256()
    if keys is not None:
        _feed(sha256.update, keys)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    for tensor in tensors:
        _feed(sha256.update, [str(tensor.dtype), list(tensor.shape)])
    total = sum(sizes)
    if total <= MOST_BYTES:
        for tensor in tensors:
            _feed_bytes(sha256.update, tensor)
        return f"sha256:{sha256.hexdigest()}", "all bytes"
    count = MOST_BYTES // BLOCK_BYTES
    for number in range(count):
        begin = (total - BLOCK_BYTES) * number // (count - 1)
        end = begin + BLOCK_BYTES
        for tensor, size in zip(tensors, sizes, strict=True):
            if begin < size and end > 0:
                _feed_bytes(sha256.update, _elements(tensor, max(0, begin), min(size, end)))
            begin, end = begin - size, end - size
    return f"sha256:{sha256.hexdigest()}", f"{count} blocks of {BLOCK_BYTES // 2**20} MiB"


def _elements(tensor: Tensor, begin: int, end: int) -> Tensor:
    """The elements that hold a range of a tensor's bytes, in their order. A view that was expanded or transposed
    is not made contiguous: it may be far larger than memory."""
    size = tensor.element_size()
    first, last = begin // size, -(-end // size)
    if tensor.is_contiguous():
        return tensor.view(-1)[first:last]
    return tensor[torch.unravel_index(torch.arange(first, last), tensor.shape)]


def _feed_bytes(update: Callable[[Any], object], tensor: Tensor) -> None:
    held = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    size = held.numel() * held.element_size()
    if size:  # no copy, and no NumPy
        update((ctypes.c_char * size).from_address(held.data_ptr()))


# --- samples -------------------------------------------------------------------------------------


def _of_samples(dataset: Any) -> tuple[str, str]:
    if getattr(dataset, "stochastic", False):
        raise _UnidentifiedError("samples are stochastic")
    last, count = len(dataset) - 1, min(MOST_SAMPLES, len(dataset))
    places = sorted({last * number // max(1, count - 1) for number in range(count)})
    first = _hash_of(dataset, places)
    if first != _hash_of(dataset, places):
        raise _UnidentifiedError("samples are stochastic")
    of = "all samples" if len(places) == len(dataset) else f"{len(places)} evenly spaced samples"
    return f"sha256:{first}", of


def _hash_of(dataset: Any, places: list[int]) -> str:
    sha256 = hashlib.sha256()
    before = {name: _hash_of_value(state) for name, state in capture_rng().items()}
    fetch_batch = getattr(dataset, "fetch_batch", None)
    for place in places:
        sample = fetch_batch(torch.tensor([place])) if fetch_batch is not None else dataset[place]
        _feed(sha256.update, sample)
    after = capture_rng()  # may hold one more: a sample may import NumPy
    if any(_hash_of_value(after[name]) != digest for name, digest in before.items()):
        raise _UnidentifiedError("samples are stochastic")
    return sha256.hexdigest()


def _hash_of_value(value: Any) -> str:
    sha256 = hashlib.sha256()
    _feed(sha256.update, value)
    return sha256.hexdigest()


def _feed(update: Callable[[bytes], object], value: Any) -> None:
    """Hashes a value with its types and structure, so that no two different ones give the same bytes."""
    if isinstance(value, Tensor):
        _feed(update, ["tensor", str(value.dtype), list(value.shape)])
        _feed_bytes(update, value)
    elif isinstance(value, Mapping):
        update(b"m%d:" % len(value))
        for key, item in value.items():
            _feed(update, key)
            _feed(update, item)
    elif isinstance(value, (list, tuple)):
        update(b"l%d:" % len(value))
        for item in value:
            _feed(update, item)
    elif isinstance(value, (str, bytes, bytearray)):
        held = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
        update(b"%c%d:" % (b"s" if isinstance(value, str) else b"b", len(held)) + held)
    elif isinstance(value, bool) or value is None:
        update(b"c" + str(value).encode())
    elif isinstance(value, int):
        update(b"i%d;" % value)
    elif isinstance(value, float):
        update(b"f" + struct.pack("<d", value))
    elif hasattr(value, "tobytes") and not getattr(
        getattr(value, "dtype", None), "hasobject", False
    ):  # NumPy's arrays and scalars, PIL's images
        described = [type(value).__name__, *(str(getattr(value, n, None)) for n in _DESCRIBE)]
        _feed(update, [*described, value.tobytes()])
    else:
        raise _UnidentifiedError(f"a sample holds a {type(value).__name__}, which cannot be hashed")


_DESCRIBE = ("dtype", "shape", "mode", "size")
