"""``trainlattice schema``"""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainlattice.cli.options import json_alone_on_stdout, traceback_option
from trainlattice.diagnostics.errors import UsageError


@click.command(epilog="Example: trainlattice schema -o trainlattice.schema.json")
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to a file.")
@click.option("--records", is_flag=True, help="The schema of one line of metrics.jsonl instead.")
@traceback_option
def schema(output: str | None, records: bool) -> None:
    """Write the JSON Schema of configurations with everything that is installed.

    Editors complete and check YAML with it: put this line first in a configuration:
    # yaml-language-server: $schema=trainlattice.schema.json
    """
    from trainlattice.config.json_schema import json_schema
    from trainlattice.contracts.metric_records import records_schema
    from trainlattice.plugin.registry import Registry

    with json_alone_on_stdout(output is None):
        found, problems = (records_schema(), []) if records else json_schema(Registry.installed())
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    for problem in problems:
        click.echo(f"warning: {problem}", err=True)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror or error}") from None
        click.echo(f"wrote {output}")
