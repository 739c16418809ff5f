"""``trainlattice runs``"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainlattice.checkpoint.names import LAST
from trainlattice.cli.options import json_option, traceback_option
from trainlattice.cli.proofs import reproduce, verify_resume
from trainlattice.cli.table import print_table
from trainlattice.diagnostics.diagnostic import printable

if TYPE_CHECKING:
    from trainlattice.runs.compare import Comparison, Difference
    from trainlattice.runs.listing import RunSummary
    from trainlattice.runs.showing import ShownRun

_WIDEST = 100
_MOST_SHOWN = 20


@click.group(epilog="Example: trainlattice runs list")
def runs() -> None:
    """List, show and compare runs; run them again to prove what they did."""


runs.add_command(verify_resume)
runs.add_command(reproduce)


@runs.command("list", epilog="Example: trainlattice runs list --json")
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), default=Path("runs"))
@json_option
@traceback_option
def list_command(directory: Path, as_json: bool) -> None:
    """List the runs of a directory (default: runs), the oldest first.

    A run whose process is gone without a word is killed; one whose manifest cannot be read is broken.
    """
    from trainlattice.runs.listing import list_runs

    found = list_runs(directory)
    if as_json:
        _print_json({"directory": str(directory), "runs": [run.as_json() for run in found]})
        return
    if not found:
        click.echo(f"{directory} holds no runs")
        return
    rows = [
        (
            run.name,
            run.status,
            _or_dash(run.epoch),
            _or_dash(run.global_step),
            _best(run),
            _local(run.created),
            (run.continues or "-") + (f"  ({run.note})" if run.note else ""),
        )
        for run in found
    ]
    print_table(("RUN", "STATUS", "EPOCHS", "STEPS", "BEST", "BEGAN", "CONTINUES"), rows)


@runs.command("show", epilog="Example: trainlattice runs show runs/20261004-120000_digits --json")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@json_option
@traceback_option
def show(path: Path, as_json: bool) -> None:
    """Show a run: status, configuration, components, and metrics over all runs that it continues.

    Of an earlier run, records after the checkpoint that the next one continues are left out: each step stands once.
    """
    from trainlattice.runs.showing import shown

    found = shown(path)
    if as_json:
        _print_json(found.as_json())
    else:
        _print_run(found)


@runs.command("diff", epilog="Example: trainlattice runs diff runs/20261004-120000_a runs/20261004-130000_b")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--checkpoint",
    metavar="NAME",
    default=LAST,
    show_default=True,
    help="The checkpoint whose weights are compared.",
)
@json_option
@traceback_option
def diff(a: Path, b: Path, checkpoint: str, as_json: bool) -> int:
    """Compare two runs: configuration, environment, code, data, metrics and weights.

    Times, rates and where the runs lie do not count. Exit code 0 if nothing else differs, 1 if something does.
    """
    from trainlattice.runs.compare import compare_runs

    found = compare_runs(a, b, checkpoint=checkpoint)
    if as_json:
        _print_json(found.as_json())
    else:
        _print_comparison(found)
    return 0 if found.same else 1


# --- show ----------------------------------------------------------------------------------------


def _print_run(found: ShownRun) -> None:
    run, manifest = found.summary, found.manifest
    click.echo(f"{run.path}  {run.status}" + (f"  ({run.note})" if run.note else ""))
    error = manifest.get("error")
    commit = manifest.get("git_commit")
    changed = " with uncommitted changes" if manifest.get("git_dirty") else ""
    lines = {
        "command": manifest.get("command"),
        "began": _local(run.created) if run.created else None,
        "ended": _local(manifest["finished"]) if manifest.get("finished") else None,
        "error": f"{error.get('type')}: {error.get('message')}" if isinstance(error, Mapping) else None,
        "stopped": manifest.get("stop_reason"),
        "progress": f"{_or_dash(run.epoch)} epochs, {_or_dash(run.global_step)} steps",
        "best": _best(run) + (f" in epoch {run.best_epoch}" if run.best_epoch is not None else ""),
        "commit": f"{commit}{changed}" if commit else None,
    }
    for label, value in lines.items():
        if value is not None:
            _print_line(label, value)
    if found.config is not None:
        click.echo("\nconfiguration")
        for label, value in _highlights(found.config):
            _print_line(label, value)
    _print_components(manifest.get("components"))
    _print_chain(found)
    _print_epochs(found.records)
    for note in found.chain.notes:
        click.echo(f"\nnote: {printable(note)}")


def _print_line(label: str, value: object) -> None:
    text = printable(str(value))
    click.echo(f"  {label:<12} {text if len(text) <= _WIDEST else text[: _WIDEST - 3] + '...'}")


def _highlights(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Sections that name components, with their options; the seed and the Trainer's settings that are set."""
    found = []
    for section, value in config.items():
        if isinstance(value, Mapping) and section not in ("experiment", "plugins"):
            name = f"{value['name']}  " if isinstance(value.get("name"), str) else ""
            options = " ".join(f"{k}={_short(v)}" for k, v in value.items() if k != "name" and v is not None)
            found.append((section, f"{name}{options}".strip()))
    experiment = config.get("experiment")
    if isinstance(experiment, Mapping):
        found.insert(0, ("seed", _short(experiment.get("seed"))))
    return found


def _print_components(records: Any) -> None:
    if not isinstance(records, list) or not records:
        return
    click.echo("")
    keys = ("section", "name", "distribution", "version")
    rows = [tuple(str(r.get(k) or "-") for k in keys) for r in records if isinstance(r, Mapping)]
    print_table(("SECTION", "COMPONENT", "DISTRIBUTION", "VERSION"), rows, indent="  ")


def _print_chain(found: ShownRun) -> None:
    links = found.as_json()["chain"]
    if len(links) < 2:
        return
    click.echo("\nchain")
    rows = [
        (
            Path(link["path"]).name,
            link["status"],
            "start" if (b := link["begins_at"]) is None else f"step {b}",
        )
        for link in links
    ]
    print_table(("RUN", "STATUS", "FROM"), rows, indent="  ")


def _print_epochs(records: list[dict[str, Any]]) -> None:
    epochs = [record for record in records if record["type"] == "epoch"]
    if not epochs:
        return
    click.echo("\nmetrics")
    names = [
        name
        for name in dict.fromkeys(key for record in epochs for key in record)
        if name in ("epoch", "step", "lr") or name.startswith(("train_", "val_"))
    ]
    lists = {key for record in epochs for key, value in record.items() if isinstance(value, list)}
    names = [name for name in names if not name.endswith("_per_sec") and name not in lists]
    shown = epochs if len(epochs) <= _MOST_SHOWN else epochs[-_MOST_SHOWN:]
    rows = [tuple(_short(record.get(name)) for name in names) for record in shown]
    print_table([name.upper() for name in names], rows, indent="  ")
    left_out = len(epochs) - len(shown)
    click.echo(f"  {len(records)} records" + (f"; {left_out} earlier epochs: --json" if left_out else ""))
    if more := [name for name in lists if name != "nonfinite"]:
        click.echo(f"  with more than one number: {', '.join(sorted(more))} (--json)")


# --- diff ----------------------------------------------------------------------------------------


def _print_comparison(found: Comparison) -> None:
    for title, differences in (
        ("configuration", found.config),
        ("environment", found.environment),
        ("components", found.components),
        ("data", found.data),
    ):
        click.echo(f"{title}: {f'{len(differences)} differ' if differences else 'the same'}")
        _print_differences(differences)
    _print_metrics(found)
    _print_weights(found)
    for note in found.notes:
        click.echo(f"note: {printable(note)}")


def _print_differences(differences: list[Difference]) -> None:
    for difference in differences:
        sides = (_short(difference.sides[s]) if s in difference.sides else "absent" for s in ("a", "b"))
        click.echo(f"  {printable(difference.path)}: {' | '.join(sides)}")


def _print_metrics(found: Comparison) -> None:
    metrics = found.metrics
    if metrics.same:
        click.echo(f"metrics: the same in {metrics.compared} records")
        return
    counts = [f"{metrics.differing} of {metrics.compared} records differ"]
    counts += [f"{count} only in {side}" for side, count in metrics.only.items() if count]
    click.echo(f"metrics: {', '.join(counts)}")
    first = metrics.first
    if first is not None:
        where = f"{first['type']} record of epoch {first['epoch']}, step {first['step']}"
        if "only" in first:
            click.echo(f"  first: the {where} is only in {first['only']}")
        else:
            click.echo(f"  first: the {where}")
            for fields in first["fields"]:
                sides = (repr(fields[s]) if s in fields else "absent" for s in ("a", "b"))
                click.echo(f"    {printable(fields['path'])}: {' | '.join(sides)}")
    if metrics.last:
        click.echo("  last values")
        for difference in metrics.last:
            sides = (repr(difference.sides[s]) if s in difference.sides else "absent" for s in ("a", "b"))
            click.echo(f"    {printable(difference.path)}: {' | '.join(sides)}")


def _print_weights(found: Comparison) -> None:
    weights = found.weights
    if weights.same is None or weights.note:
        click.echo(f"weights ({weights.name}): {printable(weights.note)}")
    elif weights.same:
        click.echo(f"weights ({weights.name}): the same in {weights.tensors} tensors, bit for bit")
    else:
        click.echo(f"weights ({weights.name}): {len(weights.differing)} of {weights.tensors} tensors differ")
        for tensor in weights.differing:
            by = f"by up to {tensor.largest:.3g}" if tensor.largest is not None else ""
            click.echo(f"  {printable(tensor.path)}: {' '.join(filter(None, (by, tensor.note)))}")


# --- text ----------------------------------------------------------------------------------------


def _best(run: RunSummary) -> str:
    return "-" if run.best_metric is None else f"{run.monitor or 'best'} {run.best_metric:.6g}"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        "-" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )


def _local(time: Any) -> str:
    """An ISO time as the clock on the wall shows it."""
    if not isinstance(time, str):
        return "-"
    try:
        return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return time


def _print_json(found: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema_version": 1, **found}, indent=2, ensure_ascii=False))
