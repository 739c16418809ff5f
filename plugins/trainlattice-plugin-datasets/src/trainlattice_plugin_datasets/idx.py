"""IDX files, the format of MNIST and its relatives."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy
import torch
from torch import Tensor

from trainlattice.contracts.options import OptionError, existing_directory
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice_plugin_datasets.options import IdxOptions
from trainlattice_plugin_datasets.splitting import split

# Third byte of the magic number -> numpy type; all are big-endian (http://yann.lecun.com/exdb/mnist/).
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def open_idx(options: IdxOptions) -> Splits:
    """Float32 images ``[N, 1, H, W]`` scaled to [0, 1], then normalised, and int64 labels ``[N]``."""
    root = existing_directory("root", options.root)
    train = _pair(root, options, "train")
    test = _pair(root, options, "test")
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise OptionError(
            "test_images",
            f"test images are {list(test.inputs.shape[1:])}, training images {list(train.inputs.shape[1:])}",
        )
    contract = DatasetContract(tuple(train.inputs.shape[1:]), "classification", options.num_classes)
    if options.val_fraction is None:
        return Splits(train, test, test, contract=contract)
    kept, held_out = split(len(train), options.val_fraction, options.split_seed, train.targets)
    return Splits(
        TensorData(train.inputs[kept], train.targets[kept]),
        TensorData(train.inputs[held_out], train.targets[held_out]),
        test,
        contract=contract,
    )


def read_idx(path: Path) -> Tensor:
    """The array of an IDX file, plain or gzipped.

    :raises ValueError: if it is no complete IDX file.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is no complete gzip file: {error}") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise ValueError(f"{path} is no IDX file: it begins with {data[:4].hex()}")
    rank = data[3]
    header = 4 + 4 * rank
    if len(data) < header:
        raise ValueError(f"{path} ends inside its header")
    shape = tuple(int(n) for n in numpy.frombuffer(data, ">u4", rank, 4))
    dtype = numpy.dtype(_TYPES[data[2]])
    expected = header + int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
    if len(data) != expected:
        raise ValueError(f"{path} has {len(data)} bytes, and its header promises {expected}")
    array = numpy.frombuffer(data, dtype, offset=header).reshape(shape)
    return torch.from_numpy(array.astype(dtype.newbyteorder("=")))


def _pair(root: Path, options: IdxOptions, part: str) -> TensorData:
    images = _read(root, f"{part}_images", getattr(options, f"{part}_images"))
    labels = _read(root, f"{part}_labels", getattr(options, f"{part}_labels")).to(torch.int64)
    if images.dim() != 3 or labels.dim() != 1 or len(images) != len(labels):
        raise OptionError(
            f"{part}_labels",
            f"images have the shape {list(images.shape)} and labels {list(labels.shape)}; "
            "expected [N, H, W] and [N]",
        )
    outside = ((labels < 0) | (labels >= options.num_classes)).nonzero().flatten()
    if len(outside):
        row = int(outside[0])
        raise OptionError(
            "num_classes",
            f"label {int(labels[row])} in row {row} of {getattr(options, f'{part}_labels')} is outside "
            f"0..{options.num_classes - 1}",
        )
    scale = 255.0 if images.dtype == torch.uint8 else 1.0
    pixels = images.to(torch.float32).div_(scale).sub_(options.mean).div_(options.std)
    return TensorData(pixels.unsqueeze(1), labels)


def _read(root: Path, option: str, name: str) -> Tensor:
    """Debian ships the files gzipped, other places plain: either is found by the plain name."""
    for candidate in (root / name, root / f"{name}.gz", root / name.removesuffix(".gz")):
        if candidate.is_file():
            try:
                return read_idx(candidate)
            except ValueError as error:
                raise OptionError(option, str(error)) from None
    raise OptionError(option, f"neither {name} nor {name}.gz exists in {root}")
