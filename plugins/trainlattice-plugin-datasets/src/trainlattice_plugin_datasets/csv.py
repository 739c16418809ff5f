"""Tables of numbers: one row a sample, one column the target."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import torch
from torch import Tensor

from trainlattice.contracts.options import OptionError, existing_file
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice_plugin_datasets.options import CsvOptions
from trainlattice_plugin_datasets.splitting import split

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


def open_csv(options: CsvOptions) -> Splits:
    """Float32 features ``[N, F]``; int64 classes ``[N]`` or float32 targets ``[N, 1]``.

    Missing values are filled in, and features standardised, by what the training rows say alone.
    """
    header, rows, lines = _read(options)
    columns = _columns(options, header)
    target_column = header.index(options.target)
    targets, num_outputs = _targets(options, [row[target_column] for row in rows], lines)
    values = [
        [_number(row[column], header[column], line, options) for column in columns]
        for row, line in zip(rows, lines, strict=True)
    ]
    features = torch.tensor(values, dtype=torch.float64)
    classes = targets if options.task == "classification" else None
    try:
        train, val = split(len(rows), options.val_fraction, options.split_seed, classes)
    except ValueError as error:
        raise OptionError("val_fraction", str(error)) from None
    features = _filled(features, train, options, [header[c] for c in columns])
    if options.standardize:
        mean, std = features[train].mean(0), features[train].std(0, correction=0)
        features = (features - mean) / torch.where(std > 0, std, torch.ones_like(std))
    features = features.to(torch.float32)
    contract = DatasetContract((len(columns),), options.task, num_outputs)
    return Splits(
        TensorData(features[train], targets[train]),
        TensorData(features[val], targets[val]),
        contract=contract,
    )


def _read(options: CsvOptions) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, rows, and the line on which each row ends."""
    path: Path = existing_file("path", options.path)
    rows, lines = [], []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=options.delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise OptionError(
                        "path",
                        f"{path}:{reader.line_num} has {len(row)} cells, and the header has {len(header)}",
                    )
                rows.append(row)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise OptionError("path", f"{path} is not UTF-8 text: {error.reason}") from None
    except csv.Error as error:
        raise OptionError("path", f"{path}:{reader.line_num}: {error}") from None
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise OptionError("path", f"{path} has several columns named {', '.join(map(repr, repeated))}")
    if not rows:
        raise OptionError("path", f"{path} has no rows")
    return header, rows, lines


def _columns(options: CsvOptions, header: list[str]) -> list[int]:
    if options.target not in header:
        raise OptionError("target", f"there is no column {options.target!r}; columns: {', '.join(header)}")
    if options.features is None:
        names = [name for name in header if name != options.target]
        if not names:
            raise OptionError("path", f"{options.path} has no column beside the target")
        return [header.index(name) for name in names]
    for index, name in enumerate(options.features):
        if name not in header:
            raise OptionError(
                ("features", index), f"there is no column {name!r}; columns: {', '.join(header)}"
            )
        if name == options.target:
            raise OptionError(("features", index), f"{name!r} is the target")
        if name in options.features[:index]:
            raise OptionError(("features", index), f"{name!r} is named twice")
    return [header.index(name) for name in options.features]


def _targets(options: CsvOptions, cells: list[str], lines: list[int]) -> tuple[Tensor, int]:
    for cell, line in zip(cells, lines, strict=True):
        if cell.strip().lower() in _MISSING:
            raise OptionError("target", f"{options.path}:{line}: the target {options.target!r} is missing")
    if options.task == "regression":
        numbers = [
            _number(cell, options.target, line, options) for cell, line in zip(cells, lines, strict=True)
        ]
        return torch.tensor(numbers, dtype=torch.float32).unsqueeze(1), 1
    names = sorted({cell.strip() for cell in cells}, key=_by_number)
    index = {name: number for number, name in enumerate(names)}
    return torch.tensor([index[cell.strip()] for cell in cells]), len(names)


def _by_number(name: str) -> tuple[int, float, str]:
    """Numbers before words, numbers by value."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)


def _number(cell: str, column: str, line: int, options: CsvOptions) -> float:
    text = cell.strip()
    if text.lower() in _MISSING:
        if options.missing == "refuse":
            raise OptionError(
                "missing",
                f"{options.path}:{line}: {column!r} is missing; 'missing: mean' or 'missing: median' fills it in",
            )
        return math.nan
    try:
        number = math.nan if "_" in text else float(text)  # Python alone takes 1_000 for a number
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError("path", f"{options.path}:{line}: {column!r} is {text!r}, which is no finite number")
    return number


def _filled(features: Tensor, train: Tensor, options: CsvOptions, names: list[str]) -> Tensor:
    absent = features.isnan()
    if not absent.any():
        return features
    known = features[train]
    empty = known.isnan().all(0).nonzero().flatten()
    if len(empty):
        name = names[int(empty[0])]
        raise OptionError(
            "missing", f"{name!r} has no value in the training rows to take a {options.missing} of"
        )
    centre = known.nanmean(0) if options.missing == "mean" else known.nanquantile(0.5, dim=0)
    return torch.where(absent, centre, features)
