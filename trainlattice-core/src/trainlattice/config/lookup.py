"""What a component name in a configuration means, or why it means nothing."""

from __future__ import annotations

from trainlattice.contracts.kind import Kind
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.hints import closest
from trainlattice.diagnostics.source import Mark
from trainlattice.plugin.discovery import normalized
from trainlattice.plugin.local import LOCAL
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registered, Registry


def find_component(
    registry: Registry, kind: Kind, name: str, mark: Mark | None, path: str
) -> Registered | Diagnostic:
    """The one component of a kind that a name means; a diagnostic if there is none or more than one."""
    found = registry.find(kind.name, name)
    if len(found) == 1:
        return found[0]
    if found:
        return _conflict(kind, name, found, mark, path)
    provider, _, _bare = name.rpartition(":")
    broken = [plugin for plugin in registry.called(provider) if plugin.broken] if provider else []
    if broken:
        return Diagnostic(
            "broken-plugin",
            f"{kind.name} {name!r} comes from the plugin {broken[0].id!r} ({broken[0]}), which is broken",
            mark,
            path,
            notes=(f"cause: {broken[0].broken}",),
        )
    if provider and not registry.called(provider):
        return _no_plugin(registry, kind, name, provider, mark, path)
    return _unknown(registry, kind, name, mark, path)


def _conflict(kind: Kind, name: str, found: list[Registered], mark: Mark | None, path: str) -> Diagnostic:
    rows = [f"{r.qualified}   {r.plugin}   {r.plugin.file or ''}".rstrip() for r in found]
    names = " or ".join(dict.fromkeys(f"'name: {r.qualified}'" for r in found))
    return Diagnostic(
        "conflict",
        f"{kind.name} {name!r} is provided by {len(found)} plugins",
        mark,
        path,
        notes=(*rows, f"fix: write {names}"),
    )


def _no_plugin(
    registry: Registry, kind: Kind, name: str, provider: str, mark: Mark | None, path: str
) -> Diagnostic:
    if provider == LOCAL:
        return Diagnostic(
            "unknown-component",
            f"{kind.name} {name!r} comes from a local file, and none of the local files declares it",
            mark,
            path,
            notes=(
                "name the file with --plugin FILE or plugins.local, or import the module that registers it",
            ),
        )
    distribution = provider if "-" in provider else f"trainlattice-plugin-{provider.replace('_', '-')}"
    ids = [plugin.id for plugin in registry.plugins]
    match = closest(provider, ids)
    advice = f"python -m pip install {distribution}"
    return Diagnostic(
        "unknown-plugin",
        f"{kind.name} {name!r}: the plugin {provider!r} is not installed",
        mark,
        path,
        suggestion=f"did you mean '{match}:{name.rpartition(':')[2]}'?" if match else None,
        notes=(f"if it is the distribution {distribution}: {advice}",),
    )


def _unknown(registry: Registry, kind: Kind, name: str, mark: Mark | None, path: str) -> Diagnostic:
    same_kind = registry.components(kind.name)
    names = sorted({r.component.name for r in same_kind})
    match = closest(name.rpartition(":")[2], names)
    notes = [f"available: {_listing(same_kind)}" if names else f"no plugin provides {kind.with_article}"]
    others = sorted({r.kind.with_article for r in registry.components() if r.component.name == name})
    if others:
        notes.insert(0, f"{name!r} is {' and '.join(others)}, not {kind.with_article}")
    as_distribution = _named_distribution(registry, name)
    if as_distribution is not None:
        theirs = [r.component.name for r in same_kind if r.plugin is as_distribution]
        notes.insert(0, f"{name!r} is a plugin; its {kind.name}s: {', '.join(theirs) or 'none'}")
    notes = [*broken_notes(registry), *notes]
    notes.append(
        f"if {name!r} comes from a plugin that is not installed: python -m pip install trainlattice-plugin-..."
        " (or name a file of yours with --plugin)"
    )
    return Diagnostic(
        "unknown-component",
        f"no {kind.name} is named {name!r}",
        mark,
        path,
        suggestion=f"did you mean {match!r}?" if match else None,
        notes=tuple(notes),
    )


def broken_notes(registry: Registry) -> list[str]:
    """The plugins that may provide what was not found, with what is wrong with them."""
    return [
        f"broken plugin {plugin.id!r} ({plugin}), which may provide it: {plugin.broken}"
        for plugin in registry.broken()
    ]


def _listing(registered: list[Registered]) -> str:
    by_plugin: dict[str, list[str]] = {}
    for r in registered:
        by_plugin.setdefault(r.plugin.id, []).append(r.component.name)
    return ", ".join(f"{' '.join(names)} ({plugin})" for plugin, names in by_plugin.items())


def _named_distribution(registry: Registry, name: str) -> Plugin | None:
    for plugin in registry.plugins:
        if plugin.distribution_name and normalized(plugin.distribution_name) == normalized(name):
            return plugin
    return None
