"""Runs a run again from its directory alone, and compares metrics and weights bit by bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlattice.checkpoint.names import LAST
from trainlattice.config.compatibility import changes
from trainlattice.config.resolve import resolve_file
from trainlattice.contracts.settings import LENGTHS
from trainlattice.diagnostics.errors import CheckpointError, PluginError, TrainLatticeError, UsageError
from trainlattice.runs.chain import Chain, Record, joined_records, read_chain
from trainlattice.runs.child import WITHOUT_TRACKERS, Child, last_lines
from trainlattice.runs.compare import compare_records
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.manifest import read_manifest, status_of
from trainlattice.runs.proof import Proof
from trainlattice.runs.provenance import component_records, pins_of_changed, plugin_records, require_installed
from trainlattice.runs.rerun import Request, differing_data
from trainlattice.runs.showing import run_directory
from trainlattice.runs.stored import stored_config, stored_json

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedConfig

_DECISIVE = (
    "trainlattice",
    "python",
    "torch",
    "torch_git",
    "torch_threads",
    "cuda",
    "cudnn",
    "machine",
    "processor",
    "device",
    "device_name",
    "deterministic_algorithms",
    "float32_matmul_precision",
    "cudnn_deterministic",
    "cudnn_benchmark",
)
"""Entries of environment.json that can change bits."""
_VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED")
_GIT = ("git_commit", "git_diff_sha256")


@dataclass(frozen=True)
class Reproduction(Proof):
    """What came out.

    :param rerun: the directory of the run that was made.
    :param until: the step up to which both are compared; None: the whole run.
    :param missing: inputs that are not what they were, without which bits cannot be promised.
    :param notes: what else may explain a difference.
    """

    run: Path
    rerun: Path
    until: int | None
    missing: list[str]
    notes: list[str]


def reproduce(
    path: Path, directory: Path, *, tell: Callable[[str], None] = lambda text: None
) -> Reproduction:
    """Runs the run at ``path`` again below ``directory``, from its first step, and compares.

    Of a chain of resumed runs the last one's settings hold, and the schedule has the length of the first. A run
    that did not finish is compared up to its last.pt.

    :param tell: hears of each step, and of what is missing before it is run.
    :raises PluginError: if a plugin is missing or has other code now.
    :raises UsageError: if the data is gone or has changed, or the run cannot be run again.
    """
    original = _Original(path)
    notes = original.notes()
    rerun = _Rerun(original, directory, tell, notes)
    made = rerun.carry_out()

    from trainlattice.checkpoint.identity import WEIGHTS, compare_checkpoints  # imports torch

    parts = compare_checkpoints(original.last, made.checkpoints / LAST, only=WEIGHTS)
    sides = original.chain.records, joined_records(made.path)
    records = compare_records(*(_until(side, original.until) for side in sides))
    return Reproduction(parts, records, path, made.path, original.until, rerun.missing, notes)


class _Original:
    """The run that is to be made again; what it needs is checked without running anything."""

    def __init__(self, path: Path) -> None:
        self.run = run_directory(path)
        self.manifest = read_manifest(self.run)
        self.environment = stored_json(self.run.environment) or {}
        self.chain: Chain = read_chain(self.run)
        self.last = self.run.checkpoints / LAST
        status = status_of(self.manifest).name
        if status in ("created", "running"):
            raise UsageError(f"{path} is under way; reproduce it when it has ended")
        root = self.chain.links[0]
        if root.resumed_from is not None:
            raise UsageError(
                f"{path} cannot be run again from its start: {root.run.path} continues {root.resumed_from}, "
                "whose run directory is gone"
            )
        self.require_code()
        self.until = self.step_of_checkpoint() if status != "finished" else None

    def require_code(self) -> None:
        """Raises PluginError if a plugin is missing or has other code, ConfigError if the configuration is not
        valid any more or a local file is gone."""
        components = [record for record in self.manifest["components"] if record.get("kind") != "tracker"]
        require_installed(components, str(self.run.path))
        pins = pins_of_changed(components)
        if pins:
            raise PluginError(f"{self.run.path} was written with other versions\n  {pins}")
        if not self.run.config.is_file():
            raise UsageError(f"{self.run.config} does not exist: there is nothing to run again")
        config = resolve_file(self.run.config, [WITHOUT_TRACKERS]).config
        changed = _changed_code(components, self.manifest.get("plugins"), config)
        if changed:
            lines = "\n".join(f"  {line}" for line in changed)
            raise PluginError(f"{self.run.path} was written with other code:\n{lines}")

    def step_of_checkpoint(self) -> int:
        step: int = self.checkpoint().trainer["global_step"]
        if step == 0:
            raise CheckpointError(f"{self.last} is of step 0: there is nothing to compare")
        return step

    def checkpoint(self) -> Any:
        from trainlattice.checkpoint.store import load

        return load(self.last)

    def first_config(self) -> Path | None:
        """The configuration that the schedule's length comes from, if the last one gives another."""
        first, last = (stored_config(link.run) or {} for link in (self.chain.links[0], self.chain.links[-1]))
        lengths = [[config.get("trainer", {}).get(key) for key in LENGTHS] for config in (first, last)]
        scheduled = bool(last.get("scheduler")) and lengths[0] != lengths[1]
        return self.chain.links[0].run.config if scheduled else None

    def notes(self) -> list[str]:
        """Settings that changed from one run of a chain to the next: the run that is made has the last ones."""
        found = list(self.chain.notes)
        configs = [stored_config(link.run) or {} for link in self.chain.links]
        for before, after in pairwise(configs):
            for change in changes(before, after):
                lengths = [f"trainer.{name}" for name in (*LENGTHS, "max_wall_time_sec")]
                if change.path not in ("experiment.runs_dir", "experiment.name", *lengths):
                    found.append(f"{change.path} changed on resume: {change.saved!r}, then {change.given!r}")
        if self.until is not None:
            found.append(f"the run did not finish: compared up to step {self.until}, that of its last.pt")
        if not self.manifest.get("data"):
            found.append("the run did not record a fingerprint of its data")
        return found

    def variables(self) -> dict[str, str]:
        """The environment of the process, with threads and flags as the run had them."""
        found = dict(os.environ)
        threads = self.environment.get("torch_threads")
        if type(threads) is int and threads > 0:
            found |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        recorded = self.environment.get("variables")
        if isinstance(recorded, Mapping):
            for name in _VARIABLES:
                found.pop(name, None)
                if isinstance(recorded.get(name), str):
                    found[name] = recorded[name]
        return found


def _changed_code(components: Iterable[Record], stored: Any, config: ResolvedConfig) -> list[str]:
    """A line for each component or plugin whose code is not what it was, as far as a sha256 tells."""
    found = []
    now = {record["section"]: record for record in component_records(config)}
    for record in components:
        sha256 = record.get("sha256")
        if sha256 is not None and sha256 != (now.get(record.get("section")) or {}).get("sha256"):
            found.append(f"{record.get('kind')} {record.get('name')!r}, of {record.get('file')}")
    plugins = {record["distribution"]: record for record in plugin_records(config) if record["distribution"]}
    for record in stored if isinstance(stored, list) else ():
        current = plugins.get(record.get("distribution")) or {}
        hashes = record.get("sha256"), current.get("sha256")
        if None not in hashes and hashes[0] != hashes[1]:
            found.append(f"{record['distribution']} {record.get('version')}, with other files")
    return found


class _Rerun:
    """The processes that make the run again.

    :param missing: filled with what is not as it was, once a process has begun.
    """

    def __init__(
        self, original: _Original, directory: Path, tell: Callable[[str], None], notes: list[str]
    ) -> None:
        self.original, self.directory, self.tell, self.notes = original, directory, tell, notes
        self.missing: list[str] = []

    def carry_out(self) -> RunDirectory:
        first, resume = self.original.first_config(), None
        self.original.checkpoint()  # damaged or absent: known before hours of training
        for note in self.notes:
            self.tell(f"note: {note}")
        if first is not None:
            # A schedule keeps the length that it began with: one step with that, and the rest resumed.
            resume = self.process("first", str(first), until=1)
        return RunDirectory(
            self.process("again", str(self.original.run.config), until=self.original.until, resume=resume)
        )

    def process(self, name: str, config: str, *, until: int | None, resume: Path | None = None) -> Path:
        """Runs to the end, or to a step; the run directory."""
        runs_dir, log = self.directory / name, self.directory / f"{name}.log"
        data = self.original.manifest.get("data") or {}
        request = Request(config, str(runs_dir), data, until, str(resume) if resume else None)
        with Child(
            [request.as_text()],
            log,
            module="trainlattice.runs.rerun",
            environment=self.original.variables(),
        ) as child:
            run = child.run_directory(runs_dir)
            if run is not None and not self.missing:
                self.compare_inputs(RunDirectory(run))
            code = child.wait()
        if run is None:
            raise _failure(
                code, f"{self.original.run.path} cannot be run again; the end of {log}:\n{last_lines(log)}"
            )
        changed = differing_data(data, read_manifest(RunDirectory(run)).get("data") or {}) if data else []
        if changed:
            lines = "\n".join(f"  {line}" for line in changed)
            raise UsageError(
                f"{self.original.run.path} was not run again: its data is not what it was\n{lines}"
            )
        if code != (143 if until is not None else 0):
            raise TrainLatticeError(
                f"running {self.original.run.path} again fails; the end of {log}:\n{last_lines(log)}"
            )
        return run

    def compare_inputs(self, made: RunDirectory) -> None:
        """Says what can make a difference, before it does."""
        then, now = self.original.environment, stored_json(made.environment) or {}
        self.missing += [
            f"{key}: {then[key]} then, {now.get(key)} now"
            for key in _DECISIVE
            if key in then and then[key] != now.get(key)
        ]
        numpy = [(side.get("packages") or {}).get("numpy") for side in (then, now)]
        if numpy[0] != numpy[1]:
            self.missing.append(f"numpy: {numpy[0]} then, {numpy[1]} now")
        for line in self.missing:
            self.tell(f"missing: {line}")
        current = stored_json(made.manifest) or {}
        if any(self.original.manifest.get(key) != current.get(key) for key in _GIT):
            self.notes.append("the repository in the current directory has another commit or other changes")
            self.tell(f"note: {self.notes[-1]}")


def _failure(code: int, message: str) -> TrainLatticeError:
    """With the exit code of a process that made no run."""
    if code == PluginError.exit_code:
        return PluginError(message)
    return TrainLatticeError(message) if code < 0 else UsageError(message)


def _until(records: Iterable[Record], step: int | None) -> list[Record]:
    """The records of a run that did not finish, without what may have come after the checkpoint of this step."""
    return [
        r for r in records if step is None or r["step"] < step or (r["step"], r["type"]) == (step, "batch")
    ]
