"""``trainlattice runs verify-resume`` and ``runs reproduce``: they train, compare and say what is identical."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainlattice.cli.options import (
    json_alone_on_stdout,
    json_option,
    plugin_option,
    set_option,
    traceback_option,
)
from trainlattice.cli.table import print_table
from trainlattice.diagnostics.diagnostic import printable

if TYPE_CHECKING:
    from trainlattice.checkpoint.identity import PartIdentity
    from trainlattice.runs.compare import MetricDifference

keep_option = click.option("--keep", is_flag=True, help="Keep the runs also if they are identical.")


@click.command("verify-resume", epilog="Example: trainlattice runs verify-resume my.yaml --kills 5")
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--kills", type=click.IntRange(min=1), default=3, show_default=True, help="How often the run is killed."
)
@click.option("--seed", type=click.IntRange(min=0), help="Of the instants of the kills; drawn if not given.")
@set_option
@plugin_option
@keep_option
@json_option
@traceback_option
def verify_resume(
    config: Path,
    kills: int,
    seed: int | None,
    overrides: tuple[str, ...],
    local_files: tuple[str, ...],
    keep: bool,
    as_json: bool,
) -> int:
    """Prove that what CONFIG trains can be killed and resumed.

    Trains once straight and once killed (SIGKILL) at random instants and resumed after each, in a temporary
    directory; then compares weights, optimizer, random states and records bit by bit. Exit code 0 if they are
    identical, 1 if something differs, 2 if CONFIG is wrong or does not train.
    """
    from trainlattice.runs.child import working_directory
    from trainlattice.runs.verification import verify_resume

    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    tell = _teller(as_json)
    tell(f"seed {seed}, {_counted(kills, 'kill')}")
    with working_directory("verify") as directory:
        with json_alone_on_stdout(as_json):
            found = verify_resume(
                config,
                directory,
                kills=kills,
                seed=seed,
                overrides=overrides,
                local_files=local_files,
                tell=tell,
            )
        kept = _kept(directory, keep=keep or not found.same)
    if as_json:
        _print_json({**found.as_json(), "directory": kept})
    else:
        _print_parts(found.parts, found.records)
        what = "identical" if found.same else "NOT identical"
        click.echo(
            f"{what}: the run that was never touched, and the one after {_counted(len(found.kills), 'kill')}"
        )
        _print_kept(kept)
    return 0 if found.same else 1


@click.command("reproduce", epilog="Example: trainlattice runs reproduce runs/20261004-120000_digits")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@keep_option
@json_option
@traceback_option
def reproduce(path: Path, keep: bool, as_json: bool) -> int:
    """Run RUN again from its directory alone, and compare metrics and final weights bit by bit.

    Of a chain of resumed runs the whole is run, with the settings of the last. Nothing in RUN is changed. Exit
    code 0 if all is identical, 1 if something differs, 2 or 3 if data or a plugin is missing or changed: then
    nothing is trained.
    """
    from trainlattice.runs.child import working_directory
    from trainlattice.runs.reproduction import reproduce

    with working_directory("reproduce") as directory:
        with json_alone_on_stdout(as_json):
            found = reproduce(path, directory, tell=_teller(as_json))
        kept = _kept(directory, keep=keep or not found.same)
    if as_json:
        _print_json({**found.as_json(), "directory": kept})
    else:
        _print_parts(found.parts, found.records)
        what = "identical: the run can be reproduced" if found.same else "NOT identical"
        click.echo(
            what + (f"; {_counted(len(found.missing), 'input')} not as before" if found.missing else "")
        )
        _print_kept(kept)
    return 0 if found.same else 1


def _teller(as_json: bool) -> Callable[[str], None]:
    """Progress goes to stderr where stdout is for JSON."""
    return lambda text: click.echo(printable(text), err=as_json)


def _kept(directory: Path, *, keep: bool) -> str | None:
    from trainlattice.runs.child import remove

    if keep:
        return str(directory)
    remove(directory)
    return None


def _print_kept(kept: str | None) -> None:
    if kept is not None:
        click.echo(f"the runs are kept in {kept}")


def _print_parts(parts: list[PartIdentity], records: MetricDifference) -> None:
    rows = [(part.file, part.name, _size(part), _verdict(part)) for part in parts]
    rows.append(("metrics.jsonl", "records", _counted(records.compared, "record"), _of_records(records)))
    click.echo("")
    print_table(("FILE", "PART", "COMPARED", "RESULT"), rows)
    click.echo("")


def _size(part: PartIdentity) -> str:
    sizes = ((part.tensors, "tensor"), (part.values, "value"))
    return ", ".join(_counted(*size) for size in sizes if size[0]) or "-"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _verdict(part: PartIdentity) -> str:
    return "identical" if part.same else f"{part.differing} differ; first {part.first}"


def _of_records(records: MetricDifference) -> str:
    first = records.first
    if first is None:
        return "identical"
    wrong = records.differing + sum(records.only.values())
    where = f"{first['type']} record of epoch {first['epoch']}, step {first['step']}"
    if "only" in first:
        side = {"a": "first", "b": "second"}[first["only"]]
        return f"{wrong} differ; first the {where}: only in the {side}"
    fields = first["fields"][0]
    sides = " | ".join(repr(fields[side]) if side in fields else "absent" for side in ("a", "b"))
    return f"{wrong} differ; first the {where}: {fields['path']} {sides}"


def _print_json(found: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema_version": 1, **found}, indent=2, ensure_ascii=False))
