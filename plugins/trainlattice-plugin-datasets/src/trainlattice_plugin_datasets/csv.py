"""Tables of numbers: one row a sample, one or several columns the targets."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import torch
from torch import Tensor

from trainlattice.contracts.options import OptionError, existing_file
from trainlattice.contracts.records import DatasetContract, Task
from trainlattice.data import Splits, TensorData, TensorFields
from trainlattice_plugin_datasets.options import CsvOptions
from trainlattice_plugin_datasets.splitting import split

Place = tuple[str | int, ...]
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


def open_csv(options: CsvOptions) -> Splits:
    """Float32 features ``[N, F]``; int64 classes ``[N]`` or float32 targets ``[N, 1]``. With several inputs or
    targets a batch is a dict of these: ``input`` or ``input/<name>``, ``target`` or ``target/<name>``.

    Missing values are filled in, and features standardised, by what the training rows say alone. Each class of the
    first target that has classes gives its share of validation rows.
    """
    header, rows, lines = _read(options)
    wanted = _target_columns(options, header)
    targets, widths = {}, {}
    for key, (column, task, place) in wanted.items():
        cells = [row[header.index(column)] for row in rows]
        targets[key], widths[key] = _targets(options, column, task, place, cells, lines)
    inputs = _input_columns(options, header, {column for column, _, _ in wanted.values()})
    columns = [column for group in inputs.values() for column in group]
    values = [
        [_number(row[column], header[column], line, options) for column in columns]
        for row, line in zip(rows, lines, strict=True)
    ]
    features = torch.tensor(values, dtype=torch.float64)
    classes = next((targets[key] for key, (_, task, _) in wanted.items() if task == "classification"), None)
    try:
        train, val = split(len(rows), options.val_fraction, options.split_seed, classes)
    except ValueError as error:
        raise OptionError("val_fraction", str(error)) from None
    features = _filled(features, train, options, [header[c] for c in columns])
    if options.standardize:
        mean, std = features[train].mean(0), features[train].std(0, correction=0)
        features = (features - mean) / torch.where(std > 0, std, torch.ones_like(std))
    groups = features.to(torch.float32).split([len(group) for group in inputs.values()], 1)
    fields = {**dict(zip(inputs, groups, strict=True)), **targets}
    single = "target" in targets
    contract = DatasetContract(
        (len(columns),) if "input" in inputs else None,
        options.task if single else None,
        widths["target"] if single else None,
    )
    return Splits(_data(fields, train), _data(fields, val), contract=contract)


def _data(fields: dict[str, Tensor], rows: Tensor) -> TensorData | TensorFields:
    chosen = {key: values[rows] for key, values in fields.items()}
    if set(chosen) == {"input", "target"}:
        return TensorData(chosen["input"], chosen["target"])
    return TensorFields(chosen)


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


def _target_columns(options: CsvOptions, header: list[str]) -> dict[str, tuple[str, Task, Place]]:
    """By key of a batch: the column, its task and the option that names it."""
    if isinstance(options.target, str):
        assert options.task is not None
        wanted: dict[str, tuple[str, Task, Place]] = {"target": (options.target, options.task, ("target",))}
    else:
        wanted = {
            f"target/{name}": (target.column, target.task, ("target", name, "column"))
            for name, target in options.target.items()
        }
    for column, _, place in wanted.values():
        if column not in header:
            raise OptionError(place, f"there is no column {column!r}; columns: {', '.join(header)}")
    return wanted


def _input_columns(options: CsvOptions, header: list[str], targets: set[str]) -> dict[str, list[int]]:
    """By key of a batch: indices of its columns."""
    if options.features is None:
        names = [name for name in header if name not in targets]
        if not names:
            raise OptionError("path", f"{options.path} has no column beside the target")
        return {"input": [header.index(name) for name in names]}
    if isinstance(options.features, tuple):
        return {"input": _indices(("features",), options.features, header, targets)}
    return {
        f"input/{group}": _indices(("features", group), names, header, targets)
        for group, names in options.features.items()
    }


def _indices(place: Place, names: tuple[str, ...], header: list[str], targets: set[str]) -> list[int]:
    for index, name in enumerate(names):
        if name not in header:
            raise OptionError((*place, index), f"there is no column {name!r}; columns: {', '.join(header)}")
        if name in targets:
            raise OptionError((*place, index), f"{name!r} is {'the' if len(targets) == 1 else 'a'} target")
        if name in names[:index]:
            raise OptionError((*place, index), f"{name!r} is named twice")
    return [header.index(name) for name in names]


def _targets(
    options: CsvOptions, column: str, task: Task, place: Place, cells: list[str], lines: list[int]
) -> tuple[Tensor, int]:
    """Targets, and how many outputs they need."""
    for cell, line in zip(cells, lines, strict=True):
        if cell.strip().lower() in _MISSING:
            raise OptionError(place, f"{options.path}:{line}: the target {column!r} is missing")
    if task == "regression":
        numbers = [_number(cell, column, line, options) for cell, line in zip(cells, lines, strict=True)]
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
