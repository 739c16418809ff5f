"""``trainlattice plugins``"""

from __future__ import annotations

import json
from typing import Any

import click

from trainlattice.cli.options import json_alone_on_stdout, json_option, traceback_option
from trainlattice.cli.table import print_table
from trainlattice.diagnostics.errors import UsageError


@click.group(epilog="Example: trainlattice plugins list --kind model")
def plugins() -> None:
    """List plugins and explain their components."""


@plugins.command("list", epilog="Example: trainlattice plugins list --kind model --json")
@click.option("--kind", metavar="KIND", help="Only components of this kind, one a line.")
@json_option
@traceback_option
def list_plugins(kind: str | None, as_json: bool) -> None:
    """List the installed plugins, what they provide, and what is wrong with them.

    No implementation is imported: neither torch nor any library of a plugin.
    """
    from trainlattice.plugin.listing import listing
    from trainlattice.plugin.registry import Registry

    with json_alone_on_stdout(as_json):
        registry = Registry.installed()
    if kind is not None and kind not in registry.kinds:
        raise UsageError(f"there is no kind {kind!r}; kinds: {', '.join(registry.kinds)}")
    found = listing(registry, kind)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    if kind is not None:
        _print_components(found)
    else:
        _print_plugins(found)
    for problem in found["problems"]:
        click.echo(f"\n{problem['problem']}: {problem['message']}", err=True)


def _print_plugins(found: dict[str, Any]) -> None:
    rows = [
        (
            plugin["id"],
            plugin["version"] or "-",
            plugin["status"],
            plugin["source"],
            " · ".join(f"{kind} {len(names)}" for kind, names in plugin["components"].items()) or "-",
        )
        for plugin in found["plugins"]
    ]
    print_table(("PLUGIN", "VERSION", "STATUS", "SOURCE", "COMPONENTS"), rows)
    count = sum(len(names) for plugin in found["plugins"] for names in plugin["components"].values())
    click.echo(
        f"\n{len(rows)} plugins, {count} components, {len(found['problems'])} problems"
        "    details: trainlattice plugins info NAME"
    )


def _print_components(found: dict[str, Any]) -> None:
    rows = [
        (c["name"] + (" (default)" if c["default"] else ""), c["qualified"], c["summary"])
        for c in found["components"]
    ]
    print_table(("NAME", "QUALIFIED", "SUMMARY"), rows)


@plugins.command("info", epilog="Example: trainlattice plugins info adamw")
@click.argument("name")
@json_option
@traceback_option
def info(name: str, as_json: bool) -> None:
    """Explain a plugin or a component: origin, options with types and defaults, a YAML block."""
    from trainlattice.config.describe import describe_component, describe_plugin
    from trainlattice.diagnostics.hints import did_you_mean
    from trainlattice.plugin.registry import Registry

    with json_alone_on_stdout(as_json):
        registry = Registry.installed()
    found = [r for kind in registry.kinds for r in registry.find(kind, name)]
    owners = registry.called(name)
    if not found and not owners:
        names = [r.component.name for r in registry.components()] + [p.id for p in registry.plugins]
        hint = did_you_mean(name, names) or "see: trainlattice plugins list"
        raise UsageError(f"no plugin and no component is named {name!r}; {hint}")
    with json_alone_on_stdout(as_json):
        described = [describe_plugin(plugin, registry) for plugin in owners]
        described += [describe_component(registered, registry) for registered in found]
    if as_json:
        plain = {"schema_version": 1, "found": [d.as_json() for d in described]}
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join(d.as_text() for d in described))
