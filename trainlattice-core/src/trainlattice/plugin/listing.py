"""The installed plugins as plain data, for ``plugins list``. Imports no implementation."""

from __future__ import annotations

from typing import Any

from trainlattice.plugin.inspection import static_problems
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registry


def listing(registry: Registry, kind: str | None = None) -> dict[str, Any]:
    """Plugins, components and problems; ``kind`` leaves only what concerns components of one kind."""
    components = registry.components(kind)
    faults: dict[int, list[str]] = {}
    for registered in registry.components():
        faults.setdefault(id(registered.plugin), []).extend(static_problems(registered))
    plugins = []
    for plugin in registry.plugins:
        by_kind: dict[str, list[str]] = {}
        for registered in components:
            if registered.plugin is plugin:
                by_kind.setdefault(registered.kind.name, []).append(registered.component.name)
        if kind is None or by_kind:
            plugins.append(
                {
                    "id": plugin.id,
                    "distribution": plugin.distribution_name,
                    "version": plugin.version,
                    "status": _status(plugin, faults.get(id(plugin), [])),
                    "reasons": [
                        r for r in (plugin.broken, *plugin.warnings, *faults.get(id(plugin), ())) if r
                    ],
                    "source": plugin.source,
                    "file": plugin.file,
                    "components": by_kind,
                }
            )
    return {
        "schema_version": 1,
        "plugins": plugins,
        "components": [
            {
                "kind": r.kind.name,
                "name": r.component.name,
                "qualified": r.qualified,
                "summary": r.component.summary,
                "default": r.component.default_for is not None,
                "target": r.component.target,
            }
            for r in components
        ],
        "problems": _problems(registry, faults),
    }


def _status(plugin: Plugin, faults: list[str]) -> str:
    if plugin.broken:
        return "broken"
    return "faulty" if faults or plugin.warnings else "ok"


def _problems(registry: Registry, faults: dict[int, list[str]]) -> list[dict[str, Any]]:
    problems = []
    for plugin in registry.plugins:
        if plugin.broken:
            problems.append(_problem("broken plugin", plugin, plugin.broken))
        problems += [_problem("faulty plugin", plugin, fault) for fault in plugin.warnings]
        problems += [_problem("faulty plugin", plugin, fault) for fault in faults.get(id(plugin), ())]
    for plugin_id, plugins in registry.duplicate_ids().items():
        names = " and ".join(str(plugin) for plugin in plugins)
        problems.append(
            {
                "problem": "conflict",
                "plugin": plugin_id,
                "message": f"the plugin name {plugin_id!r} is declared by {names}; "
                "their components are told apart by the distribution's name",
            }
        )
    for kind, name, group in registry.conflicts():
        providers = " and ".join(f"{r.qualified} ({r.plugin})" for r in group)
        problems.append(
            {
                "problem": "conflict",
                "plugin": group[-1].plugin.id,
                "message": f"{kind} {name!r} is provided by {providers}; a configuration has to say which",
            }
        )
    return problems


def _problem(what: str, plugin: Plugin, message: str) -> dict[str, Any]:
    return {"problem": what, "plugin": plugin.id, "message": f"{plugin.id} ({plugin}): {message}"}
