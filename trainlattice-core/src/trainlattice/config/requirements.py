"""``plugins.require``: distributions that a configuration says it needs."""

from __future__ import annotations

from collections.abc import Callable

from packaging.requirements import InvalidRequirement, Requirement

from trainlattice.contracts.settings import PluginsSettings
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.source import Mark
from trainlattice.plugin.discovery import installed_version


def requirement_problems(
    plugins: PluginsSettings, locate: Callable[[nodes.Path], Mark | None]
) -> list[Diagnostic]:
    """A diagnostic for each requirement that is not met, with the pip line that meets it."""
    problems = []
    for index, text in enumerate(plugins.require):
        place: nodes.Path = ("plugins", "require", index)
        mark, path = locate(place), nodes.dotted(place)
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            message = (
                f"{text!r} is no requirement; write a distribution name and versions, such as 'foo>=0.3'"
            )
            problems.append(Diagnostic("invalid-value", message, mark, path))
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = installed_version(requirement.name)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        have = "is not installed" if version is None else f"is installed as {version}"
        problems.append(
            Diagnostic(
                "missing-plugin",
                f"{requirement.name} {have}, and this configuration needs {text}",
                mark,
                path,
                notes=(f"python -m pip install '{text}'",),
            )
        )
    return problems
