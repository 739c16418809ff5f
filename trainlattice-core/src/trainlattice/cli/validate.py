"""``trainlattice validate``"""

from __future__ import annotations

import json

import click

from trainlattice.cli.options import (
    json_alone_on_stdout,
    json_option,
    plugin_option,
    set_option,
    traceback_option,
)
from trainlattice.diagnostics.errors import ConfigError


@click.command(epilog="Example: trainlattice validate configs/digits_cnn.yaml --json")
@click.argument("config", type=click.Path())
@set_option
@plugin_option
@json_option
@traceback_option
def validate(config: str, overrides: tuple[str, ...], local_files: tuple[str, ...], as_json: bool) -> int:
    """Check the file CONFIG and show every mistake with its line.

    Neither torch nor any data is loaded, and nothing is created. Exit code 0 if it is valid, 3 if a plugin is at
    fault and nothing else, else 2.
    """
    from trainlattice.config.resolve import resolve_file

    try:
        with json_alone_on_stdout(as_json):
            resolution = resolve_file(config, overrides, local_files=local_files)
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(_json([d.as_json() for d in error.diagnostics], valid=False))
        return error.exit_code
    warnings = resolution.warnings
    if as_json:
        click.echo(_json([d.as_json() for d in warnings], valid=True))
        return 0
    for warning in warnings:
        click.echo(warning.render(), err=True)
    names = ", ".join(f"{c.path[0]} {c.name}" for c in resolution.config.components())
    click.echo(f"{config} is valid: {names}")
    return 0


def _json(diagnostics: list[dict[str, object]], *, valid: bool) -> str:
    return json.dumps(
        {"schema_version": 1, "valid": valid, "diagnostics": diagnostics}, indent=2, ensure_ascii=False
    )
