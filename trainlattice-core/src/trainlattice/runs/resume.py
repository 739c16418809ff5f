"""Which checkpoint a run continues, and whether it may."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.index import read_index
from trainlattice.checkpoint.names import BEST, EMERGENCY, LAST, NOT_FINITE, step_name
from trainlattice.checkpoint.store import CheckpointStore, checkpoint_of, load, usable
from trainlattice.config.compatibility import Change, changes
from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedConfig
from trainlattice.contracts.settings import LENGTHS, TrainerSettings
from trainlattice.diagnostics.errors import CheckpointError
from trainlattice.runs.build import Built, instance_name
from trainlattice.runs.chain import continued_run
from trainlattice.runs.directory import RunDirectory, run_of_checkpoint
from trainlattice.runs.manifest import read_manifest, status_of
from trainlattice.runs.process import is_alive
from trainlattice.runs.provenance import acting_callbacks, component_records, drift, require_installed
from trainlattice.runs.stored import stored_json
from trainlattice.training.callbacks import CallbackList
from trainlattice.training.checkpointing import restore_objects, restore_progress
from trainlattice.training.length import is_complete
from trainlattice.training.state import TrainerState
from trainlattice.training.stopping import exhausted
from trainlattice.training.trainer import Trainer

logger = logging.getLogger(__name__)
_DECIDES_BITS = (
    "torch_git",
    "processor",
    "torch_threads",
    "float32_matmul_precision",
    "deterministic_algorithms",
    "cudnn_benchmark",
    "device_name",
)
_LENGTH = frozenset(f"trainer.{name}" for name in LENGTHS)


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint that fits the configuration."""

    path: Path
    checkpoint: Checkpoint
    changed: frozenset[str] = frozenset()
    """Dotted paths of the values that are not those of the checkpoint."""

    @property
    def early_stopping_changed(self) -> bool:
        return any(path.startswith("trainer.early_stopping") for path in self.changed)

    @property
    def state(self) -> TrainerState:
        """How far the checkpoint's run had come."""
        state = TrainerState()
        state.load_state_dict(self.checkpoint.trainer)
        return state

    @property
    def implementations(self) -> dict[str, str]:
        """Of its optimizers, by role, as far as they told."""
        states = self.checkpoint.states
        return {
            name.removeprefix("update/"): state["implementation"]
            for name, state in states.items()
            if name.startswith("update/") and isinstance(state, dict) and state.get("implementation")
        }

    def is_over(self, settings: TrainerSettings) -> bool:
        """Whether these settings leave nothing to do. A run that was stopped goes on, but for one that stopped
        early: that asks for a change of trainer.early_stopping or of a length."""
        state, progress = self.state, self.checkpoint.states.get("progress") or {}
        inside = progress.get("windows", 0) if state.stop_reason is None else 0
        asks_for_more = self.early_stopping_changed or not self.changed.isdisjoint(_LENGTH)
        stopped = state.stop_reason is not None and exhausted(state, settings.early_stopping)
        return (is_complete(settings, state) and not inside) or (stopped and not asks_for_more)

    def require_same_data(self, data: dict[str, Any]) -> None:
        """As far as both fingerprints tell.

        :param data: of the opened data, as the manifest records it.
        :raises CheckpointError: if it is not what the checkpoint's run was trained on.
        """
        run = run_of_checkpoint(self.path)
        saved = read_manifest(run).get("data") if run is not None and run.manifest.is_file() else None
        if saved is None:
            logger.warning(
                "no manifest beside %s says what data it is of: whether this is it was not checked", self.path
            )
        for name, now in data.items():
            before = saved.get(name) if isinstance(saved, dict) else None
            if not isinstance(before, dict):
                continue
            if before.get("samples") != now["samples"]:
                fault = f"it had {before.get('samples')} samples and has {now['samples']}"
            elif None not in (before.get("hash"), now["hash"]) and before["hash"] != now["hash"]:
                fault = "its content has changed"
            else:
                continue
            raise CheckpointError(
                f"the {name} data is not that of {self.path}: {fault}; training on other data is a new run"
            )

    def restore_objects(self, built: Built, callbacks: CallbackList, config: ResolvedConfig) -> None:
        """Loads models, optimizers and callbacks. Raises CheckpointError if their state does not fit."""
        states = self.checkpoint.states
        if isinstance(states.get("callbacks"), dict):
            before = self.checkpoint.config.get("callbacks")
            states["callbacks"] = _by_instance(
                states["callbacks"], before, config.as_plain().get("callbacks")
            )
        restore_objects(built.parts, built.mode, callbacks, self.checkpoint, str(self.path))

    def restore_progress(self, trainer: Trainer) -> None:
        """Goes to the step of the checkpoint. A run that had stopped early, or whose early_stopping changed,
        counts stale validations from zero; the best value carries over. The checkpoint's tensors are let go."""
        restore_progress(trainer, self.checkpoint)
        self.checkpoint.states.clear()
        state = trainer.state
        stopped_early = state.stop_reason is not None and exhausted(state, trainer.settings.early_stopping)
        if self.early_stopping_changed or stopped_early:
            state.stale_validations, state.stop_requested = 0, None
        state.stop_reason = None

    def tell_of_another_machine(self, environment: Mapping[str, Any]) -> None:
        """What the last bits depend on, where it is not what the checkpoint's run had."""
        run = run_of_checkpoint(self.path)
        before = (stored_json(run.environment) if run is not None else None) or {}
        for name in _DECIDES_BITS:
            if before.get(name, environment[name]) != environment[name]:
                logger.warning(
                    "%s was %r in the run of %s and is %r here: the last bits may differ",
                    name,
                    before[name],
                    self.path,
                    environment[name],
                )

    def carry_best(self, store: CheckpointStore) -> None:
        """The best checkpoint so far becomes the new run's, by a link or a copy. Where the run went on after the
        checkpoint, its best.pt may be a later one: then it is looked for under its number."""
        held = self.checkpoint.trainer
        value, step = held.get("best_metric"), held.get("best_step")
        if value is None:
            return
        beside = self.path.resolve().parent
        candidates = [beside / BEST]
        if step is not None:  # else only best.pt is known to be the best of anything
            candidates += [self.path.resolve(), beside / step_name(step)]
        reasons = []
        for candidate in candidates:
            if not candidate.is_file():
                continue
            try:
                found = load(candidate, mapped=True).trainer
                if found["global_step"] == step or (step is None and found.get("best_metric") == value):
                    store.adopt(candidate, BEST, epoch=found["epoch"], global_step=found["global_step"])
                    return
            except CheckpointError as error:
                reasons.append(str(error))
        sought = f"of step {step}" if step is not None else f"whose best value is {value!r}"
        why = reasons[0] if reasons else f"there is no checkpoint {sought} in {beside}"
        logger.warning("%s; the best model so far stays unavailable until a better one is found", why)


def find_resume_point(path: Path, resolution: Resolution) -> ResumePoint:
    """Loads the checkpoint that a path means and compares it with the configuration.

    :raises CheckpointError: if it is damaged, for diagnosis only, or of another configuration.
    :raises PluginError: if a plugin that it needs is missing or takes other options now.
    """
    path = _checkpoint_in_chain(path)
    checkpoint = load(path)
    _tell_of_a_run_under_way(path)
    if checkpoint.kind != "resume":
        raise CheckpointError(f"{path} was written when training failed, for diagnosis; {_instead_of(path)}")
    given = resolution.config.as_plain()
    require_installed(checkpoint.components, str(path))
    # Before the values: a schema that changed gives values that nobody wrote.
    records = component_records(resolution.config)
    for notice in drift(checkpoint.components, records, str(path)):
        logger.warning("%s", notice)
    found = changes(checkpoint.config, given)
    acting = acting_callbacks(checkpoint.components, checkpoint.config), acting_callbacks(records, given)
    if acting[0] != acting[1]:
        found = [change for change in found if change.path != "callbacks"]
        found.append(Change("callbacks that do more than observe", *acting, allowed=False))
    refused = [change for change in found if not change.allowed]
    allowed = [change for change in found if change.allowed]
    if refused:
        lines = "\n".join(f"  {change}{' (may change)' * change.allowed}" for change in [*refused, *allowed])
        raise CheckpointError(
            f"{path} belongs to another configuration; these values may not change on resume:\n{lines}"
        )
    for change in found:
        if (
            change.path != "plugins.local"
        ):  # where files lie; what is in them was compared with the components
            logger.info("changed on resume: %s", change)
    return ResumePoint(path, checkpoint, frozenset(change.path for change in found))


def _by_instance(states: dict[str, Any], before: Any, now: Any) -> dict[str, Any]:
    """The states of callbacks by the names that they have now. Callbacks may come, go and move: among several of
    one component, a state belongs to the one with the same options."""
    held = _instances(before)
    renamed = dict(states)
    for component in {name for name, _ in held.values()}:
        old = [key for key, (name, _) in held.items() if name == component]
        new = [key for key, (name, _) in _instances(now).items() if name == component]
        if len(old) == len(new) == 1:
            continue
        for key in old:
            renamed.pop(key, None)
        left = list(old)
        for key in new:
            options = _instances(now)[key]
            same = next((k for k in left if held[k] == options), None)
            if same is None:
                logger.warning("the callback %r begins without a state: none was saved with its options", key)
            else:
                left.remove(same)
                if same in states:
                    renamed[key] = states[same]
    return renamed


def _instances(callbacks: Any) -> dict[str, tuple[str, Any]]:
    """Component and options by the name under which a callback's state is saved."""
    named: dict[str, tuple[str, Any]] = {}
    for callback in callbacks or ():
        named[instance_name(callback["name"], named)] = (callback["name"], callback)
    return named


def _tell_of_a_run_under_way(checkpoint: Path) -> None:
    run = run_of_checkpoint(checkpoint)
    if run is None or not run.manifest.is_file():
        return
    manifest = read_manifest(run)
    if status_of(manifest).name == "running" and is_alive(manifest.get("process") or {}) is True:
        logger.warning(
            "%s is under way in process %s: this run goes on from %s beside it",
            run.path,
            manifest["process"]["pid"],
            checkpoint.name,
        )


def _checkpoint_in_chain(path: Path) -> Path:
    """The checkpoint that a path means. A run that ended before its first checkpoint stands where the one that it
    continued stood."""
    seen: set[Path] = set()
    start = path
    while path.is_dir() and path.resolve() not in seen:
        seen.add(path.resolve())
        run = RunDirectory(path)
        if not run.manifest.is_file() or _holds_checkpoint(run):
            break
        parent = read_manifest(run).get("resumed_from")
        if not isinstance(parent, str):
            break
        path = Path(parent)
        if not path.is_file():  # runs that were moved together still find one another
            before = continued_run(run, path)
            if before is not None:
                path = before.checkpoints / path.name
    if path != start:
        logger.info("%s saved no checkpoint: it is resumed from where it began, %s", start, path)
    if path.is_dir() and not _holds_checkpoint(RunDirectory(path)) and (path / "config.yaml").is_file():
        raise CheckpointError(f"{path} holds no checkpoint to resume from; {_anew(path)} starts it again")
    return checkpoint_of(path).resolve()


def _holds_checkpoint(run: RunDirectory) -> bool:
    """Whether it has saved one to resume from, also if last.pt is gone and another must be named. A best.pt alone
    was carried over."""
    if any(path.name not in (BEST, EMERGENCY, NOT_FINITE) for path in run.checkpoints.glob("[!.]*.pt")):
        return True
    return LAST in read_index(run.checkpoints)


def _anew(run: Path) -> str:
    return f"trainlattice train {shlex.quote(str(run / 'config.yaml'))}"


def _instead_of(path: Path) -> str:
    """What to resume from where this checkpoint is for diagnosis only."""
    good, run = usable(path.parent, but=path.name), run_of_checkpoint(path)
    if good:
        return f"usable: {', '.join(good)}"
    if run is None:
        return "there is no other usable checkpoint beside it"
    if run.manifest.is_file() and read_manifest(run).get("resumed_from"):
        return f"trainlattice resume {shlex.quote(str(run.path))} goes on from where its run began"
    return f"{_anew(run.path)} starts its run again"
