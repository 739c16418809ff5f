"""``trainlattice checkpoint``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from trainlattice.cli.options import json_option, traceback_option
from trainlattice.cli.table import human_size, print_table

_PURPOSES = {
    "last": "last: resume continues here",
    "best": "best: evaluate uses it",
    "numbered": "numbered",
    "emergency": "emergency: for diagnosis, not for resuming",
    "nonfinite": "nonfinite: holds values that are not finite",
    "other": "-",
}


@click.group(epilog="Example: trainlattice checkpoint list runs/20261004-120000_digits")
def checkpoint() -> None:
    """List, verify and inspect checkpoints."""


@checkpoint.command("list", epilog="Example: trainlattice checkpoint list runs/20261004-120000_digits --json")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@json_option
@traceback_option
def list_checkpoints(path: Path, as_json: bool) -> None:
    """List the checkpoints of a run: how far each is, what it is for, and whether it is kept.

    RUN is a run directory or a directory of checkpoints. Compares sizes with the index, and reads no tensor;
    verify compares the bytes.
    """
    from trainlattice.runs.checkpoints import listed

    found = listed(path)
    if as_json:
        _print_json(found.as_json())
        return
    rows = [
        (
            file.path.name,
            "-" if file.epoch is None else str(file.epoch),
            "-" if file.global_step is None else str(file.global_step),
            human_size(file.size),
            file.protected or "no",
            _PURPOSES[file.purpose] + (f" ({file.note})" if file.note else ""),
        )
        for file in found.files
    ]
    if rows:
        print_table(("FILE", "EPOCH", "STEP", "SIZE", "KEPT AS", "FOR"), rows)
    else:
        click.echo(f"{found.directory} holds no checkpoint")
    if found.leftovers:
        names = ", ".join(path.name for path in found.leftovers)
        click.echo(f"\nof saves that did not end, removed by the next one of this run: {names}")


@checkpoint.command("verify", epilog="Example: trainlattice checkpoint verify runs/20261004-120000_digits")
@click.argument("path", metavar="RUN_OR_CHECKPOINT", type=click.Path(path_type=Path))
@json_option
@traceback_option
def verify(path: Path, as_json: bool) -> int:
    """Compare every byte of the checkpoints of a run, or of one file, with the checksums of the index.

    A file that is not in the index is checked by the checksums in itself. Exit code 0 if all are whole, 1 if one
    is damaged or missing.
    """
    from trainlattice.runs.checkpoints import verified

    found = verified(path)
    whole = all(file.verdict in ("ok", "unlisted") for file in found)
    if as_json:
        _print_json({"ok": whole, "files": [file.as_json() for file in found]})
    else:
        rows = [(f.path.name, "ok" if f.verdict == "unlisted" else f.verdict, f.note) for f in found]
        print_table(("FILE", "BYTES", ""), rows)
    return 0 if whole else 1


@checkpoint.command("inspect", epilog="Example: trainlattice checkpoint inspect runs/20261004-120000_digits")
@click.argument("path", metavar="RUN_OR_CHECKPOINT", type=click.Path(path_type=Path))
@json_option
@traceback_option
def inspect(path: Path, as_json: bool) -> None:
    """Show what is in a checkpoint: progress, components, and each tensor with its shape.

    Of a run directory, checkpoints/last.pt is shown. Loads no tensor and executes nothing that the file holds; its
    bytes are not verified.
    """
    from trainlattice.runs.checkpoints import inspected

    found = inspected(path).as_json()
    if as_json:
        _print_json(found)
        return
    best = "none"
    if found["best_metric"] is not None:
        best = f"{found['best_metric']:.6g} in epoch {found['best_epoch']}, step {found['best_step']}"
    click.echo(f"{found['path']}  ({human_size(found['size'])}; its bytes were not verified)")
    for label, value in (
        ("format", found["format"]),
        ("kind", found["kind"]),
        ("progress", f"epoch {found['epoch']}, step {found['global_step']}"),
        ("best metric", best),
        ("stopped", found["stop_reason"] or "no"),
        ("order", f"version {found['order']}"),
        ("budget", "none" if found["budget"] is None else f"{found['budget']} steps"),
        *((f"optimizer {role}", name) for role, name in found["implementations"].items()),
    ):
        click.echo(f"  {label:<20} {value}")
    click.echo("")
    rows = [
        tuple(str(record.get(key) or "-") for key in ("section", "name", "distribution", "version"))
        for record in found["components"]
    ]
    print_table(("SECTION", "COMPONENT", "DISTRIBUTION", "VERSION"), rows)
    click.echo("")
    tensors = [
        (t["path"], t["dtype"], "x".join(map(str, t["shape"])) or "scalar", human_size(t["bytes"]))
        for t in found["tensors"]
    ]
    print_table(("TENSOR", "TYPE", "SHAPE", "SIZE"), tensors)
    totals = found["totals"]
    click.echo(f"\n{totals['tensors']} tensors, {human_size(totals['bytes'])}")


def _print_json(found: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema_version": 1, **found}, indent=2, ensure_ascii=False))
