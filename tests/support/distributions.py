"""Installed distributions made in milliseconds: metadata and modules in a directory on ``sys.path``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent


def fake_distribution(
    site: Path,
    name: str,
    *,
    version: str = "0.1",
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
    files: Mapping[str, str] | None = None,
) -> None:
    """Writes ``<name>-<version>.dist-info`` and source files below ``site``.

    :param entry_points: by group: name -> value, such as ``{"trainlattice.plugins": {"foo": "foo.plugin"}}``.
    :param files: path below ``site`` -> text; packages get their ``__init__.py``.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in (entry_points or {}).items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    for path, text in (files or {}).items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        for package in target.relative_to(site).parents:
            if package != Path("."):
                (site / package / "__init__.py").touch()
        target.write_text(dedent(text), encoding="utf-8")


def fake_plugin(site: Path, plugin: str, source: str, files: Mapping[str, str] | None = None) -> None:
    """The distribution ``trainlattice-plugin-<plugin>`` whose registration module has the given source."""
    package = f"trainlattice_plugin_{plugin}"
    fake_distribution(
        site,
        f"trainlattice-plugin-{plugin}",
        entry_points={"trainlattice.plugins": {plugin: f"{package}.plugin"}},
        files={f"{package}/plugin.py": source, **{f"{package}/{k}": v for k, v in (files or {}).items()}},
    )


def registration(*components: str, kinds: Iterable[str] = ()) -> str:
    """Source of a registration module; declarations are given as they stand in it."""
    hooks = {"components": components, "kinds": tuple(kinds)}
    return "from trainlattice.plugin import Component, Kind, hookimpl\n" + "".join(
        f"\n\n@hookimpl\ndef trainlattice_{hook}():\n    return [{', '.join(declared)}]\n"
        for hook, declared in hooks.items()
        if declared
    )
