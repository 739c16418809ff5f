"""What ``train --dry-run`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trainlattice.cli.table import human_size, print_table

if TYPE_CHECKING:
    from trainlattice.runs.dry_run import DryRun


def print_dry_run(found: DryRun) -> None:
    """Size, memory, time, and each phase with the keys of its container."""
    middle, least, most = (_time(seconds) for seconds in found.step_seconds)
    held = ", ".join(f"{name} {human_size(size)}" for name, size in found.bytes_by.items())
    peak = f"; peak {human_size(found.peak_bytes)}" if found.peak_bytes is not None else ""
    steps = "an unknown number of steps"
    if found.total_steps is not None:
        whole = _time(found.total_steps * found.step_seconds[0])
        steps = f"{found.total_steps:,} steps: {whole} without data and validation"
    for label, text in (
        ("parameters", f"{found.parameters:,}, of which {found.trained:,} are trained, on {found.device}"),
        ("memory", f"{held}{peak}"),
        (
            "data",
            f"{_count(found.samples)} samples, {_count(found.steps_per_epoch)} steps in an epoch; "
            f"the first window took {_time(found.data_seconds)}",
        ),
        ("step", f"{middle} ({least} to {most}); {steps}"),
    ):
        click.echo(f"{label:<11} {text}")
    for trial in found.phases:
        measured = "  ".join(
            f"{name} {value:.4g}" for name, value in trial.metrics.items() if isinstance(value, (int, float))
        )
        click.echo(f"\n{trial.phase}: one batch  {measured}")
        print_table(("KEY", "TYPE", "SHAPE OR VALUE"), trial.keys, indent="  ")
    click.echo("\ndry run: no run was created")


def _count(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"


def _time(seconds: float) -> str:
    """``3.2 ms``, ``12 s``, ``5 min``, ``3.4 h``"""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
