"""Finds the distributions that declare plugins, from metadata alone: no plugin code is imported.

pluggy's ``load_setuptools_entrypoints`` is not used: it loses one of two entry points of the same name
without a word, and one import that fails ends the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeAlias

PLUGIN_GROUP = "trainlattice.plugins"
COMMAND_GROUP = "trainlattice.commands"

Distribution: TypeAlias = metadata.Distribution


@dataclass(frozen=True)
class Declaration:
    """One entry point of an installed distribution.

    :param name: left side of the entry point: the plugin's id, or the command's name.
    :param value: right side, ``package.module`` or ``package.module:attribute``.
    """

    name: str
    value: str
    distribution_name: str
    version: str
    distribution: Distribution = field(compare=False, repr=False)


def normalized(name: str) -> str:
    """A distribution name as packaging tools compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declarations(group: str) -> list[Declaration]:
    """All entry points of a group, sorted by name and distribution.

    A distribution that is found twice (an ``egg-info`` beside a source tree, ``lib64`` linked to
    ``lib``) counts once, as for an import: the first on ``sys.path``. Metadata that no tool could read is
    passed over.
    """
    found: list[Declaration] = []
    for name, distribution in _distributions():
        try:
            found += _declared(name, distribution, group)
        except Exception:  # the parsers of importlib.metadata raise whatever a damaged file leads to
            continue
    return sorted(found, key=lambda d: (d.name, normalized(d.distribution_name)))


def _declared(name: str, distribution: Distribution, group: str) -> list[Declaration]:
    text = distribution.read_text("entry_points.txt")
    if not text or group not in text:
        return []
    own: Any = distribution.metadata  # an email message; the protocol does not show its get()
    name, version = own.get("Name", name), own.get("Version", "unknown")
    entries = dict.fromkeys((e.name, e.value) for e in distribution.entry_points if e.group == group)
    return [Declaration(key, value, name, version, distribution) for key, value in entries]


def declaration_of(distribution_name: str, name: str, value: str) -> Declaration | None:
    """A declaration of an installed distribution that stands in no entry point, or None."""
    try:
        distribution = metadata.distribution(distribution_name)
    except metadata.PackageNotFoundError:
        return None
    return Declaration(name, value, distribution_name, distribution.version, distribution)


def installed_version(distribution_name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution_name)
    except metadata.PackageNotFoundError:
        return None


def _distributions() -> Iterator[tuple[str, Distribution]]:
    """Installed distributions, the first of each name; names are read from the directory's name."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        path = getattr(distribution, "_path", None)  # not public, and cheaper than parsing METADATA
        stem = str(getattr(path, "name", "")).rpartition(".")[0]
        name = stem.split("-", 1)[0] if "-" in stem else stem
        key = normalized(name or distribution.metadata["Name"] or "")
        if key and key not in seen:
            seen.add(key)
            yield key, distribution
