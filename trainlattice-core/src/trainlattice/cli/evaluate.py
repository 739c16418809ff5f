"""``trainlattice evaluate``"""

from __future__ import annotations

import json

import click

from trainlattice.cli.options import (
    json_alone_on_stdout,
    json_option,
    plugin_option,
    traceback_option,
    verbose_option,
)


@click.command(epilog="Example: trainlattice evaluate runs/20261004-120000_digits --split val --json")
@click.argument("path", metavar="RUN_OR_CHECKPOINT", type=click.Path())
@click.option(
    "--split",
    type=click.Choice(["val", "test"]),
    default="val",
    show_default=True,
    help="Which data to evaluate on.",
)
@click.option("--device", default=None, help="auto, cpu, cuda or cuda:N; by default the run's.")
@plugin_option
@json_option
@verbose_option
@traceback_option
def evaluate(
    path: str,
    split: str,
    device: str | None,
    local_files: tuple[str, ...],
    as_json: bool,
    verbose: bool,
) -> None:
    """Compute the metrics of a checkpoint on validation or test data.

    RUN_OR_CHECKPOINT is a run directory (its checkpoints/best.pt is used, or last.pt if there is no best.pt) or a
    checkpoint file in one. Nothing is written.
    """
    from trainlattice.cli.logs import set_up_logging
    from trainlattice.runs.evaluation import evaluate_run

    set_up_logging(verbose=verbose, quiet=as_json)
    with json_alone_on_stdout(as_json):
        found = evaluate_run(path, split=split, device=device, local_files=local_files)
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **found.as_json()}, indent=2, ensure_ascii=False))
        return
    click.echo(f"{found.checkpoint}  (epoch {found.epoch}, step {found.step})")
    for name, value in found.metrics.items():
        click.echo(f"  {name:<16} {value if isinstance(value, list) else format(value, '.6g')}")
