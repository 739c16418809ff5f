"""Carries out one run: build, directory, train, record how it ended."""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlattice.checkpoint.durable import write_durably
from trainlattice.checkpoint.names import LAST
from trainlattice.checkpoint.store import CheckpointStore
from trainlattice.config.resolve import Resolution
from trainlattice.config.snapshot import read_only
from trainlattice.contracts.settings import TrainerSettings
from trainlattice.diagnostics.errors import ConsoleClosed, TrainLatticeError, UsageError, WallTimeReached
from trainlattice.plugin.lifecycle import RunInfo, RunOutcome
from trainlattice.runs.build import Built, build
from trainlattice.runs.directory import RunDirectory, create
from trainlattice.runs.environment import environment
from trainlattice.runs.fingerprint import fingerprint
from trainlattice.runs.manifest import Manifest, now
from trainlattice.runs.provenance import component_records, used_plugins
from trainlattice.runs.records import RunRecords, recording_warnings
from trainlattice.runs.result import RunResult, UntrackedRunError
from trainlattice.runs.resume import ResumePoint, find_resume_point
from trainlattice.runs.tracking import build_trackers, tracked
from trainlattice.training.callbacks import Callback, CallbackList
from trainlattice.training.checkpointing import Checkpointer
from trainlattice.training.failures import Ending
from trainlattice.training.length import longer, total_steps
from trainlattice.training.state import TrainerState
from trainlattice.training.stopping import exhausted
from trainlattice.training.tracking import Tracking
from trainlattice.training.trainer import Services, Trainer
from trainlattice.training.validation import keeping_rng

logger = logging.getLogger(__name__)


def execute_run(
    resolution: Resolution,
    *,
    resume: Path | None,
    extra_callbacks: Iterable[Callback],
    command: str | None,
) -> RunResult:
    """Builds everything, then creates the run directory, then trains."""
    config = resolution.config
    for warning in resolution.warnings:
        logger.warning("%s", warning.render())
    point = find_resume_point(resume, resolution) if resume is not None else None
    if point is not None and point.is_over(config.trainer):
        return _nothing_to_train(point, resolution)
    trackers = build_trackers(resolution)
    built = build(
        resolution,
        budget=point.checkpoint.budget if point else None,
        implementations=point.implementations if point else None,
    )
    for callback in (extra_callbacks := list(extra_callbacks)):
        if not isinstance(callback, Callback):
            raise UsageError(f"extra_callbacks holds {callback!r}, expected instances of Callback")
    extra = [(f"extra#{index}", callback) for index, callback in enumerate(extra_callbacks, start=1)]
    callbacks = CallbackList([*built.callbacks, *extra])
    for call in callbacks.update_config:
        call(read_only(config.as_plain()))
    if point is not None:
        point.restore_objects(built, callbacks, config)  # it may not fit: nothing has been created yet
        _announce_budget(point, built, resolution)
    data = fingerprint(built.splits)
    if point is not None:
        point.require_same_data(data)
    surroundings = environment(built.strategy.device)
    if point is not None:
        point.tell_of_another_machine(surroundings)
    environment_text = json.dumps(surroundings, indent=2) + "\n"

    def fill(run: RunDirectory) -> None:
        resumed_from = point.path if point else None
        Manifest.create(run, config, command=command, resumed_from=resumed_from, data=data)
        write_durably(run.environment, environment_text)

    run = create(config, fill)
    manifest = Manifest.read(run)
    hooks = resolution.registry.hooks_of(used_plugins(config)).hook
    info = RunInfo(run.path, config.experiment.name, config.as_plain(), point.path if point else None)
    started = time.perf_counter()
    with _finished_when_it_fails(trackers):
        trainer = _trained(resolution, built, run, callbacks, trackers, point, manifest, hooks, info)
        manifest.update(status="finished", finished=now(), **_progress(trainer.state))
    seconds = time.perf_counter() - started
    result = _result(run.path, trainer.state, config.trainer, seconds, lr=trainer.next_lr)
    with _finished_when_it_fails(trackers, finished=True):  # before the wait: it may be long
        hooks.trainlattice_run_finished(run=info, outcome=_outcome(result))
    untracked = trackers.finish("finished")
    if untracked is not None:  # as an exception of that hook: the run is what it is
        raise UntrackedRunError(untracked, result) from untracked.__cause__
    return result


def _trained(
    resolution: Resolution,
    built: Built,
    run: RunDirectory,
    callbacks: CallbackList,
    trackers: Tracking,
    point: ResumePoint | None,
    manifest: Manifest,
    hooks: Any,
    info: RunInfo,
) -> Trainer:
    """A Trainer that has trained to its end, with its records written."""
    config = resolution.config
    with RunRecords(run.metrics, epochs=config.trainer.epochs, follower=trackers.put) as records:
        trainer = _trainer(resolution, built, run, records, callbacks, trackers)
        records.when_closed = lambda: trainer.leave(ConsoleClosed())
        with _recorded_failure(manifest, trainer, hooks, info), recording_warnings(trainer):
            if point is not None:
                if config.checkpoint.keep_best:
                    point.carry_best(CheckpointStore(run.checkpoints))
                point.restore_progress(trainer)
            with keeping_rng():
                hooks.trainlattice_run_created(run=info)
            logger.info("run directory: %s", run.path)
            logger.info("%s", _size(built))
            implementations = {role: update.implementation for role, update in built.parts.updates.items()}
            manifest.update(
                status="running",
                started=now(),
                optimizer_implementation=implementations,
                monitor_direction=trainer.direction,
                **_progress(trainer.state),
            )
            trackers.start(tracked(config, run, info.resumed_from))
            _announce_start(trainer, point, config.experiment.seed)
            trainer.fit()
            trainer.event("end", status="finished")
    return trainer


@contextmanager
def _finished_when_it_fails(trackers: Tracking, *, finished: bool = False) -> Iterator[None]:
    """Whatever ends the run early, trackers are told once all else is written down.

    :param finished: it is complete all the same.
    """
    try:
        yield
    except BaseException as error:
        if finished:
            untracked = trackers.finish("finished")
        else:
            untracked = trackers.finish(Ending.of(error).status, str(error) or type(error).__name__)
        if untracked is not None:
            logger.warning("%s", untracked)
        raise


def _trainer(
    resolution: Resolution,
    built: Built,
    run: RunDirectory,
    records: RunRecords,
    callbacks: CallbackList,
    trackers: Tracking,
) -> Trainer:
    checkpointer = Checkpointer(
        CheckpointStore(run.checkpoints),
        config=resolution.config.as_plain(),
        components=component_records(resolution.config),
        budget=built.budget,
    )
    services = Services(
        records,
        callbacks,
        checkpointer,
        resolution.config.checkpoint,
        run.path,
        built.metrics,
        built.guard,
        trackers,
    )
    return Trainer(
        resolution.config.trainer,
        built.mode,
        built.parts,
        built.strategy,
        services,
        built.train,
        built.val,
    )


@contextmanager
def _recorded_failure(manifest: Manifest, trainer: Trainer, hooks: Any, info: RunInfo) -> Iterator[None]:
    """Whatever ends the run early stands in its manifest, plugins hear of it, and it is raised again. Nothing
    that goes wrong on the way replaces it."""
    try:
        yield
    except BaseException as raised:
        ending = Ending.of(raised)
        status, error = ending.status, ending.error or raised
        failure = {"type": type(error).__name__, "message": str(error)}
        try:
            manifest.update(status=status, finished=now(), error=failure, **_progress(trainer.state))
        except TrainLatticeError as unwritten:  # a full disk, perhaps
            logger.warning("the manifest still says that the run is under way: %s", unwritten)
        try:
            trainer.event("end", status=status)
        except TrainLatticeError as unwritten:
            logger.warning("%s", unwritten)
        ended = f"{status}: {error}" if isinstance(error, (ConsoleClosed, WallTimeReached)) else status
        level = (
            logging.WARNING if isinstance(error, ConsoleClosed) else logging.INFO
        )  # stderr may have a reader
        logger.log(level, "%s", _how_to_go_on(ended, info))
        try:
            hooks.trainlattice_run_failed(run=info, error=error)
        except BaseException:
            logger.exception("a plugin failed while it was told of the failure")
        if error is not raised:
            raise error from raised
        raise


def _how_to_go_on(ended: str, run: RunInfo) -> str:
    directory = shlex.quote(str(run.directory))
    if (run.directory / "checkpoints" / LAST).is_file():
        return f"{ended}; to continue: trainlattice resume {directory}"
    if not run.directory.is_dir():
        return f"{ended}, and its directory {directory} is gone"
    if run.resumed_from is not None:
        return f"{ended} before its first checkpoint; from where it began: trainlattice resume {directory}"
    config = shlex.quote(str(run.directory / "config.yaml"))
    return f"{ended} before its first checkpoint; to start it again: trainlattice train {config}"


def _size(built: Built) -> str:
    """``52,000 parameters on cpu, 1,438 training samples, 45 batches per epoch``"""
    parameters = sum(p.numel() for model in built.parts.models.values() for p in model.parameters())
    return (
        f"{parameters:,} parameters on {built.strategy.device}, {_count(built.train.num_samples)} training "
        f"samples, {_count(built.train.batches_per_epoch)} batches per epoch"
    )


def _count(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"


def _announce_start(trainer: Trainer, point: ResumePoint | None, seed: int) -> None:
    device = str(trainer.strategy.device)
    if point is None:
        trainer.event("start", seed=seed, device=device)
    else:
        trainer.event("resume", seed=seed, device=device, checkpoint=str(point.path))


def _progress(state: TrainerState) -> dict[str, Any]:
    return {
        "epoch": state.epoch,
        "global_step": state.global_step,
        "best_metric": state.best_metric,
        "best_epoch": state.best_epoch,
        "stop_reason": state.stop_reason,
    }


def _result(
    run_dir: Path | None,
    state: TrainerState,
    settings: TrainerSettings,
    seconds: float,
    *,
    lr: float | None = None,
) -> RunResult:
    return RunResult(
        run_dir,
        "finished",
        state.epoch,
        state.global_step,
        settings.monitor,
        state.best_metric,
        state.best_epoch,
        state.stop_reason,
        state.validated_at >= 0,
        seconds,
        state.skipped_steps,
        state.samples,
        lr,
        tuple(longer(settings, state)),
    )


def _outcome(result: RunResult) -> RunOutcome:
    return RunOutcome(
        result.status,
        result.stop_reason,
        result.epoch,
        result.global_step,
        result.best_metric,
        result.best_epoch,
    )


def _nothing_to_train(point: ResumePoint, resolution: Resolution) -> RunResult:
    state = point.state
    early = exhausted(state, resolution.config.trainer.early_stopping)
    stopped = f" and stopped ({state.stop_reason})" if state.stop_reason else ""
    ways = [f"--set {setting}" for setting in longer(resolution.config.trainer, state)]
    ways += ["a change of trainer.early_stopping, or of a length,"] * (early and not ways)
    logger.info(
        "%s has completed %d epochs, %d steps%s: nothing is left to train; %s trains on",
        point.path,
        state.epoch,
        state.global_step,
        stopped,
        " ".join(ways),
    )
    return _result(None, state, resolution.config.trainer, 0.0)


def _announce_budget(point: ResumePoint, built: Built, resolution: Resolution) -> None:
    """A schedule keeps the length that it began with, also where trainer.epochs changed."""
    trainer, budget = resolution.config.trainer, point.checkpoint.budget
    if (
        resolution.config.sections.get("scheduler")
        and budget is not None
        and point.state.global_step >= budget
    ):
        rate = next(iter(built.parts.updates.values())).next_lr
        logger.warning(
            "the schedule ended at step %d: the learning rate stays %g; a longer schedule needs a new run",
            budget,
            rate,
        )
    derived = total_steps(trainer, built.train)
    if resolution.config.sections.get("scheduler") and point.checkpoint.budget != derived:
        logger.info(
            "the schedule keeps its budget of %s steps from the checkpoint; this configuration alone would "
            "give %s",
            point.checkpoint.budget,
            derived,
        )
