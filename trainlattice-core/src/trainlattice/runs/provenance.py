"""Which code each component of a run comes from, and what has changed since. Torch-free."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainlattice.contracts.records import CallbackContract
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.errors import PluginError
from trainlattice.plugin.discovery import installed_version
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registered

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedComponent, ResolvedConfig


def used_plugins(config: ResolvedConfig) -> list[Plugin]:
    """Plugins that provide a component of this run, each once, in the order of the sections."""
    return list({id(c.registered.plugin): c.registered.plugin for c in config.components()}.values())


def component_records(config: ResolvedConfig) -> list[dict[str, Any]]:
    """One record for each component: what it is called, who provides it, which options it takes."""
    records = []
    for component in config.components():
        registered = component.registered
        plugin = registered.plugin
        records.append(
            {
                "section": nodes.dotted(component.path),
                "kind": registered.kind.name,
                "name": registered.qualified,
                "distribution": plugin.distribution_name,
                "version": plugin.version,
                "module": registered.component.target,
                "file": _file_of(registered),
                "schema_sha256": registered.schema_sha256,
                "sha256": plugin.provenance.sha256 if plugin.distribution_name is None else None,
                "observes": _observes(component),
            }
        )
    return records


def _observes(component: ResolvedComponent) -> bool | None:
    """Of a callback, whether it leaves the training alone."""
    if component.registered.kind.name != "callback":
        return None
    return component.contract.observes if isinstance(component.contract, CallbackContract) else True


def acting_callbacks(records: Iterable[dict[str, Any]], config: dict[str, Any]) -> list[Any]:
    """Of the callbacks of a configuration as plain data, those that do more than observe.

    :param records: of its components.
    """
    of_callbacks = [record for record in records if record["kind"] == "callback"]
    pairs = zip(of_callbacks, config.get("callbacks") or (), strict=False)
    return [callback for record, callback in pairs if record.get("observes") is False]


def _file_of(registered: Registered) -> str | None:
    """The file of a component's code once it is imported, else that of the declaration."""
    module = sys.modules.get(registered.component.target.partition(":")[0])
    return getattr(module, "__file__", None) or registered.plugin.file


def plugin_records(config: ResolvedConfig) -> list[dict[str, Any]]:
    """One record for each plugin that the run uses, with what identifies its code."""
    return [
        {
            "id": plugin.id,
            "distribution": plugin.distribution_name,
            "version": plugin.version,
            **plugin.provenance.as_json(),
        }
        for plugin in used_plugins(config)
    ]


def require_installed(records: Iterable[dict[str, Any]], name: str) -> None:
    """Stops where a distribution that a run used is gone. Trackers may stay away: they change nothing.

    :param name: of the run or checkpoint, for the message.
    :raises PluginError: with the pip line that brings it back.
    """
    missing = {
        record["distribution"]: record["version"]
        for record in records
        if record.get("kind") != "tracker"
        and record.get("distribution")
        and installed_version(record["distribution"]) is None
    }
    if missing:
        pins = " ".join(f"'{distribution}=={version}'" for distribution, version in missing.items())
        raise PluginError(
            f"{name} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed\n"
            f"  python -m pip install {pins}"
        )


def pins_of_changed(records: Iterable[dict[str, Any]]) -> str:
    """The pip line that brings back the versions that a run used; empty if they are installed."""
    changed = {
        record["distribution"]: record["version"]
        for record in records
        if record.get("distribution") and installed_version(record["distribution"]) != record["version"]
    }
    pins = " ".join(f"'{distribution}=={version}'" for distribution, version in changed.items())
    return f"python -m pip install {pins}" if pins else ""


def _place(record: dict[str, Any]) -> str:
    """Callbacks may come and go: they are known by name."""
    return "callbacks" if record["kind"] == "callback" else str(record["section"])


def drift(saved: Iterable[dict[str, Any]], given: Iterable[dict[str, Any]], name: str) -> list[str]:
    """Compares the components of a checkpoint with those of a configuration.

    :returns: notices of versions that changed.
    :raises PluginError: where the options schema of a component changed.
    """
    now = {(_place(record), record["name"]): record for record in given}
    notices, stops = [], []
    for before in saved:
        current = now.get((_place(before), before["name"]))
        observes = before["kind"] == "tracker" or (
            before["kind"] == "callback" and before.get("observes", True)
        )
        if current is None or observes:
            continue  # another name is a changed configuration, and is reported as such
        if before["schema_sha256"] != current["schema_sha256"]:
            repair = ""
            if before["distribution"]:
                pin = f"{before['distribution']}=={before['version']}"
                repair = f"\n  python -m pip install '{pin}'"
            stops.append(
                f"the options of {before['kind']} {before['name']!r} are not those of {name}: written with "
                f"{before['version'] or 'another version'}, now {current['version'] or 'another one'}{repair}"
            )
        elif before.get("sha256") != current["sha256"]:
            notices.append(f"the code of {before['kind']} {before['name']!r} is not that of {name}")
        elif before["version"] != current["version"]:
            notices.append(
                f"{before['distribution']} is {current['version']}, and {name} was written with {before['version']}"
            )
    if stops:
        raise PluginError("\n".join(stops))
    return list(dict.fromkeys(notices))
