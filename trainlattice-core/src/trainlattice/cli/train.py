"""``trainlattice train``"""

from __future__ import annotations

import click

from trainlattice.cli.options import training_options


@click.command(epilog="Example: trainlattice train configs/digits_cnn.yaml --set optimizer.lr=3e-4")
@click.argument("config", type=click.Path())
@click.option("--resume", metavar="PATH", help="A run directory or a checkpoint to continue.")
@click.option("--runs-dir", metavar="DIR", help="Where run directories go (experiment.runs_dir).")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Build everything, take one batch through every phase, show shapes, memory and time; create no run.",
)
@training_options
def train(
    config: str,
    resume: str | None,
    runs_dir: str | None,
    dry_run: bool,
    overrides: tuple[str, ...],
    local_files: tuple[str, ...],
    verbose: bool,
) -> None:
    """Train what the file CONFIG says, in a new run directory.

    Every mistake in CONFIG is shown with its line before anything is created.
    """
    from trainlattice.cli.dry_run import print_dry_run
    from trainlattice.cli.logs import set_up_logging
    from trainlattice.cli.summary import command_line, summarize
    from trainlattice.runs.experiment import dry_run_file, run_from_file

    set_up_logging(verbose=verbose)
    if runs_dir is not None:
        quoted = runs_dir.replace("'", "''")  # a string of YAML, whatever is in it
        overrides = (*overrides, f"experiment.runs_dir='{quoted}'")
    if dry_run:
        if resume is not None:
            raise click.UsageError("--dry-run tries a run that begins: leave out --resume")
        print_dry_run(dry_run_file(config, overrides=overrides, local_files=local_files))
        return
    summarize(
        lambda: run_from_file(
            config, overrides=overrides, local_files=local_files, resume=resume, command=command_line()
        )
    )
