"""``trainlattice resume``"""

from __future__ import annotations

import click

from trainlattice.cli.options import training_options


@click.command(epilog="Example: trainlattice resume runs/20261004-120000_digits --set trainer.epochs=40")
@click.argument("path", metavar="RUN_OR_CHECKPOINT", type=click.Path())
@training_options
def resume(path: str, overrides: tuple[str, ...], local_files: tuple[str, ...], verbose: bool) -> None:
    """Continue a run with its own configuration, in a new run directory.

    RUN_OR_CHECKPOINT is a run directory (its checkpoints/last.pt is used) or a checkpoint file in one.
    """
    from trainlattice.cli.logs import set_up_logging
    from trainlattice.cli.summary import command_line, summarize
    from trainlattice.runs.experiment import resume_run

    set_up_logging(verbose=verbose)
    summarize(lambda: resume_run(path, overrides=overrides, local_files=local_files, command=command_line()))
