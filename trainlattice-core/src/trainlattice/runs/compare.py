"""What differs between two runs: configuration, environment, code, data, metrics, weights.

torch is imported only where weights have to be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlattice.checkpoint.durable import digest
from trainlattice.checkpoint.names import LAST
from trainlattice.diagnostics.errors import UsageError
from trainlattice.runs.chain import Chain, Record, read_chain
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.showing import run_directory
from trainlattice.runs.stored import stored_config, stored_json

if TYPE_CHECKING:
    from trainlattice.checkpoint.difference import TensorDifference

_TIMES = ("_seconds", "_per_sec", "_mb")
_PLACE = ("type", "epoch", "step", "at")
_WHERE_IT_LIES = ("experiment.runs_dir",)
_GIT = ("git_commit", "git_dirty", "git_diff_sha256")
_ABSENT = object()


def no_two_runs_share(name: str) -> bool:
    """Whether a field of a record is a time, a rate or memory."""
    return name in ("schema", "time") or name.endswith(_TIMES)


@dataclass(frozen=True)
class Difference:
    """One value that differs.

    :param path: dotted.
    :param sides: the values by side, ``a`` and ``b``; a side that has none is left out.
    """

    path: str
    sides: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, **self.sides}


@dataclass(frozen=True)
class MetricDifference:
    """How the records of two runs differ.

    :param first: where they differ first (type, epoch, step), and the fields that do.
    :param differing: how many records differ, of those that both have.
    :param only: how many records one side alone has, by side.
    :param last: metrics whose last values differ.
    """

    compared: int
    first: dict[str, Any] | None = None
    differing: int = 0
    only: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    last: list[Difference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return self.first is None and not self.last

    def as_json(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "compared": self.compared,
            "differing": self.differing,
            "only": self.only,
            "first": self.first,
            "last": [difference.as_json() for difference in self.last],
        }


@dataclass(frozen=True)
class WeightDifference:
    """How the weights of two checkpoints differ.

    :param same: None if they could not be compared.
    :param tensors: how many were compared; None if the files are the same byte for byte.
    """

    name: str
    same: bool | None
    note: str = ""
    tensors: int | None = None
    differing: list[TensorDifference] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "differing": [tensor.as_json() for tensor in self.differing]}


@dataclass(frozen=True)
class Comparison:
    """All that differs between two runs."""

    a: Path
    b: Path
    config: list[Difference]
    environment: list[Difference]
    components: list[Difference]
    data: list[Difference]
    metrics: MetricDifference
    weights: WeightDifference
    notes: list[str]

    @property
    def same(self) -> bool:
        """Whether nothing differs but times."""
        values = (self.config, self.environment, self.components, self.data)
        return not any(values) and self.metrics.same and self.weights.same is not False

    def as_json(self) -> dict[str, Any]:
        named = ("config", "environment", "components", "data")
        return {
            "a": str(self.a),
            "b": str(self.b),
            "same": self.same,
            **{name: [difference.as_json() for difference in getattr(self, name)] for name in named},
            "metrics": self.metrics.as_json(),
            "weights": self.weights.as_json(),
            "notes": self.notes,
        }


def compare_runs(a: Path, b: Path, *, checkpoint: str = LAST) -> Comparison:
    """Compares two runs; their records are those of the whole chains.

    :param checkpoint: the file whose weights are compared.
    :raises UsageError: if one is no run directory, or has a manifest or configuration that cannot be read.
    :raises CheckpointError: if a checkpoint is damaged.
    """
    if "/" in checkpoint or "\\" in checkpoint or not checkpoint:
        raise UsageError(f"the checkpoint is the name of a file in checkpoints/, not {checkpoint!r}")
    left, right = run_directory(a), run_directory(b)
    (manifest_a, config_a), (manifest_b, config_b) = _content(left), _content(right)
    chains = read_chain(left), read_chain(right)
    return Comparison(
        a,
        b,
        [d for d in _differences(config_a, config_b) if d.path not in _WHERE_IT_LIES],
        list(_differences(_environment(left, manifest_a), _environment(right, manifest_b))),
        list(_differences(_code(manifest_a), _code(manifest_b))),
        list(_differences(manifest_a.get("data") or {}, manifest_b.get("data") or {})),
        compare_records(*(chain.records for chain in chains)),
        _weights(left, right, checkpoint),
        _notes(chains),
    )


def _content(run: RunDirectory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and configuration."""
    manifest, config = stored_json(run.manifest), stored_config(run)
    if manifest is None or config is None:
        file = run.manifest if manifest is None else run.config
        raise UsageError(f"{file} is missing or cannot be read")
    return manifest, config


def _environment(run: RunDirectory, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**(stored_json(run.environment) or {}), **{key: manifest.get(key) for key in _GIT}}


def _code(manifest: dict[str, Any]) -> dict[str, Any]:
    """Components by section and plugins by id. Where a file lies is left out: its digest says what it is."""

    def by(key: str, records: Any) -> dict[str, Any]:
        found = records if isinstance(records, list) else []
        return {
            str(record.get(key)): {k: v for k, v in record.items() if k not in (key, "file")}
            for record in found
            if isinstance(record, dict)
        }

    return {
        "components": by("section", manifest.get("components")),
        "plugins": by("id", manifest.get("plugins")),
    }


def _notes(chains: Iterable[Chain]) -> list[str]:
    return list(dict.fromkeys(note for chain in chains for note in chain.notes))


# --- values --------------------------------------------------------------------------------------


def _differences(a: Any, b: Any, path: str = "") -> Iterator[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(a.get(key, _ABSENT), b.get(key, _ABSENT), below)
    elif _is_list_of_mappings(a) and _is_list_of_mappings(b):
        for place in range(max(len(a), len(b))):
            one, other = (side[place] if place < len(side) else _ABSENT for side in (a, b))
            yield from _differences(one, other, f"{path}.{place}")
    elif type(a) is not type(b) or a != b:
        yield Difference(path, {name: v for name, v in (("a", a), ("b", b)) if v is not _ABSENT})


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


# --- metrics -------------------------------------------------------------------------------------


def compare_records(a: Iterable[Record], b: Iterable[Record]) -> MetricDifference:
    """Compares what was measured, record by record: times, rates and memory are left out, and so are events
    other than steps that were skipped."""
    left, right = _placed(a), _placed(b)
    both = left.keys() & right.keys()
    differing = {key for key in both if left[key] != right[key]}
    only = {"a": left.keys() - right.keys(), "b": right.keys() - left.keys()}
    wrong = differing | only["a"] | only["b"]
    # In the order in which the runs wrote them: by step, then as they stand in the file.
    order = {key: place for side in (right, left) for place, key in enumerate(side)}
    first = min(wrong, key=lambda key: (key[2], order[key]), default=None)
    return MetricDifference(
        len(both),
        _first(first, left, right) if first is not None else None,
        len(differing),
        {side: len(keys) for side, keys in only.items()},
        list(_differences(_last_values(left.values()), _last_values(right.values()))),
    )


def _placed(records: Iterable[Record]) -> dict[tuple[Any, ...], Record]:
    """What was measured, by where it stands. A key that comes twice is numbered."""
    placed: dict[tuple[Any, ...], Record] = {}
    records = list(records)
    end = max((record["step"] for record in records), default=0)
    for record in records:
        if record["step"] < end and (record.get("partial") or record.get("at") == "stop"):
            continue  # the close of an earlier part of a chain: a run in one piece has none
        if record["type"] == "event" and record.get("event") != "skipped_step":
            continue
        key: tuple[Any, ...] = tuple(record.get(name) for name in _PLACE)
        number = 0
        while (*key, number) in placed:
            number += 1
        placed[(*key, number)] = {
            name: value for name, value in record.items() if not no_two_runs_share(name)
        }
    return placed


def _first(
    key: tuple[Any, ...], left: Mapping[tuple[Any, ...], Record], right: Mapping[tuple[Any, ...], Record]
) -> dict[str, Any]:
    where = {name: value for name, value in zip(_PLACE, key, strict=False) if value is not None}
    if key not in left or key not in right:
        return {**where, "only": "a" if key in left else "b"}
    fields = [difference.as_json() for difference in _differences(left[key], right[key])]
    return {**where, "fields": fields}


def _last_values(records: Iterable[Record]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    for record in records:
        if record["type"] != "event":
            last.update({k: v for k, v in record.items() if k not in (*_PLACE, "nonfinite")})
    return last


# --- weights -------------------------------------------------------------------------------------


def _weights(a: RunDirectory, b: RunDirectory, name: str) -> WeightDifference:
    paths = a.checkpoints / name, b.checkpoints / name
    present = [path.is_file() for path in paths]
    if not any(present):
        return WeightDifference(name, None, f"neither run has {name}")
    if not all(present):
        missing = paths[present.index(False)]
        return WeightDifference(name, False, f"{missing} does not exist")
    if digest(paths[0]) == digest(paths[1]):
        return WeightDifference(name, True, "the files are the same")
    from trainlattice.checkpoint.difference import weight_differences

    count, differing = weight_differences(*paths)
    return WeightDifference(name, not differing, tensors=count, differing=differing)
