"""What is printed when a run ends."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from trainlattice.checkpoint.names import LAST
from trainlattice.diagnostics.source import display_path
from trainlattice.runs.result import RunResult, UntrackedRunError


def command_line() -> str:
    """The command as typed, quoted so that it can be run again."""
    return shlex.join(["trainlattice", *sys.argv[1:]])


def summarize(run: Callable[[], RunResult]) -> None:
    """Runs it and prints its summary, also where it is complete and only a tracker failed."""
    try:
        result = run()
    except UntrackedRunError as error:
        print_summary(error.result)
        raise
    print_summary(result)


def print_summary(result: RunResult) -> None:
    """Best metric and where, time, run directory, how to go on. That nobody can read it makes no failure of a run
    that is complete."""
    if result.run_dir is not None:
        with suppress(OSError):
            _print(result, result.run_dir)


def _print(result: RunResult, run_dir: Path) -> None:
    best = f"none: {result.monitor} was never finite" if result.validated else "none: there was no validation"
    if result.best_metric is not None:
        best = f"{result.monitor} {result.best_metric:.6g} at epoch {result.best_epoch}"
    directory = display_path(run_dir)
    lines = [
        ("best", best),
        ("time", f"{_duration(result.seconds)}, {result.global_step} optimizer steps{_skipped(result)}"),
        ("resume", _how_to_go_on(result, directory)),
    ]
    if result.stop_reason:
        lines.insert(0, ("stopped", result.stop_reason))
    click.echo(f"Run finished: {directory}")
    for label, text in lines:
        click.echo(f"  {label:<8} {text}")


def _skipped(result: RunResult) -> str:
    return f", {result.skipped_steps} skipped" if result.skipped_steps else ""


def _how_to_go_on(result: RunResult, directory: str) -> str:
    assert result.run_dir is not None
    if not (result.run_dir / "checkpoints" / LAST).is_file():
        return "not possible: weights or the optimizer's state were not finite, see checkpoints/nonfinite.pt"
    if result.lr == 0 and result.longer:
        return "not worthwhile: the learning rate has come down to 0; a longer schedule needs a new run"
    more = "".join(f" --set {setting}" for setting in result.longer)
    return f"trainlattice resume {shlex.quote(directory)}{more}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
