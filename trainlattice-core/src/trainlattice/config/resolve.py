"""From a file to a ResolvedConfig: sections, component names, options, contracts; all mistakes at once.

Nothing here imports torch; a local file that the configuration names may.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from trainlattice.config import document as documents
from trainlattice.config.components import ComponentResolver, wrong_type
from trainlattice.config.contracts import contract_problems
from trainlattice.config.document import Document
from trainlattice.config.lookup import broken_notes
from trainlattice.config.requirements import requirement_problems
from trainlattice.config.resolved import ResolvedConfig, Section
from trainlattice.config.validation import validate
from trainlattice.contracts.kind import Kind
from trainlattice.contracts.options import Options
from trainlattice.contracts.records import ModeContract
from trainlattice.contracts.settings import (
    CORE_SECTIONS,
    CheckpointSettings,
    ExperimentSettings,
    PluginsSettings,
    TrainerSettings,
)
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError, PluginError, UsageError
from trainlattice.diagnostics.hints import did_you_mean
from trainlattice.diagnostics.nodes import Entry, Mapping, Node, Plain, Scalar
from trainlattice.diagnostics.source import Mark, Source
from trainlattice.plugin.registry import Registered, Registry, keys_of, settings_class

OptionsT = TypeVar("OptionsT", bound=Options)
Locate = Callable[[nodes.Path], Mark | None]


@dataclass(frozen=True)
class Resolution:
    """A resolved configuration with what is needed to point at it.

    :param locate: the place of a path, or of the nearest thing above it that the user wrote.
    :param warnings: notices that do not stop a run.
    """

    config: ResolvedConfig
    registry: Registry
    locate: Locate
    warnings: tuple[Diagnostic, ...] = ()


def resolve_file(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    local_files: Sequence[Path | str] = (),
    registry: Registry | None = None,
) -> Resolution:
    """Reads and checks a configuration file. Raises ConfigError with every mistake found.

    :param overrides: ``KEY=VALUE`` texts.
    :param local_files: Python files with components, beside those that the file names.
    """
    _require_list("overrides", overrides)
    _require_list("local_files", local_files)
    registry = registry or Registry.installed()
    document = documents.from_file(Path(path), overrides, _kept_keys(registry))
    return _Resolver(registry, document, local_files).resolve()


def resolve_mapping(
    config: dict[str, Plain],
    overrides: Sequence[str] = (),
    *,
    local_files: Sequence[Path | str] = (),
    registry: Registry | None = None,
) -> Resolution:
    """As :func:`resolve_file` for plain data; mistakes are shown by their dotted path."""
    _require_list("overrides", overrides)
    _require_list("local_files", local_files)
    registry = registry or Registry.installed()
    document = documents.from_mapping(config, overrides)
    return _Resolver(registry, document, local_files).resolve()


def _kept_keys(registry: Registry) -> documents.KeptKeys:
    def kept(section: str) -> frozenset[str]:
        kind = registry.kind_of_section(section)
        settings = settings_class(kind) if kind else None
        return keys_of(settings) if settings else frozenset()

    return kept


def _require_list(name: str, given: object) -> None:
    """A string is a sequence too, of its characters."""
    if isinstance(given, (str, bytes)):
        raise UsageError(f"{name} is a list, such as [{given!r}]")


@dataclass
class _Resolver:
    registry: Registry
    document: Document
    local_files: Sequence[Path | str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)

    def resolve(self) -> Resolution:
        self.diagnostics += self.document.diagnostics
        plugins = self.core_section("plugins", PluginsSettings)
        if plugins is not None:
            plugins = self.local_components(plugins)
            self.diagnostics += requirement_problems(plugins, self.locate)
        self.unknown_sections()
        sections = self.component_sections()
        experiment = self.core_section("experiment", ExperimentSettings)
        trainer = self.core_section("trainer", TrainerSettings)
        checkpoint = self.core_section("checkpoint", CheckpointSettings)
        # A contract is compared wherever both of its sides are valid, whatever else is wrong.
        self.diagnostics += contract_problems(sections, trainer, self.locate)
        if self.diagnostics:
            raise ConfigError(self.with_home(found) for found in self.diagnostics)
        assert experiment is not None
        assert trainer is not None
        assert checkpoint is not None
        assert plugins is not None
        config = ResolvedConfig(experiment, trainer, plugins, sections, checkpoint)
        return Resolution(config, self.registry, self.locate, tuple(self.warnings))

    # --- places ----------------------------------------------------------------------------------

    def locate(self, path: nodes.Path) -> Mark | None:
        node: Node = self.document.root
        mark: Mark | None = None
        for part in path:
            if isinstance(node, Mapping) and str(part) in node.entries:
                entry = node.entries[str(part)]
                mark, node = entry.key_mark, entry.node
                if isinstance(node, Scalar):
                    mark = node.mark
            elif isinstance(below := nodes.child(node, part), (Mapping, nodes.Sequence, Scalar)):
                mark, node = below.mark, below
            else:
                break
        return mark

    def entry(self, section: str) -> Entry | None:
        return self.document.root.entries.get(section)

    # --- sections of core ------------------------------------------------------------------------

    def core_section(self, section: str, schema: type[OptionsT]) -> OptionsT | None:
        entry = self.entry(section)
        if entry is None or (isinstance(entry.node, Scalar) and entry.node.value is None):
            return schema()
        if not isinstance(entry.node, Mapping):
            self.diagnostics.append(wrong_type(section, entry.node, "a mapping of options"))
            return None
        options, diagnostics = validate(
            schema, entry.node, (section,), owner=f"the section {section!r}", at=entry.key_mark
        )
        self.diagnostics += diagnostics
        return options

    def unknown_sections(self) -> None:
        legal = [*CORE_SECTIONS, *(kind.section for kind in self.registry.kinds.values())]
        for name, entry in self.document.root.entries.items():
            if name in legal:
                continue
            self.diagnostics.append(
                Diagnostic(
                    "unknown-section",
                    f"unknown section {name!r}",
                    entry.key_mark,
                    path=name,
                    suggestion=self.section_of_option(name) or did_you_mean(name, legal),
                    notes=(*broken_notes(self.registry), f"sections: {', '.join(sorted(legal))}"),
                )
            )

    def with_home(self, found: Diagnostic) -> Diagnostic:
        """An unknown option that is one of another section, rather than one that resembles it."""
        if found.code != "unknown-option":
            return found
        home = self.section_of_option(found.path.rpartition(".")[2], other_than=found.path.rpartition(".")[0])
        return replace(found, suggestion=home or found.suggestion)

    def section_of_option(self, name: str, other_than: str = "") -> str | None:
        """For a key that was written in the wrong place: the sections that have it."""
        homes = [section for section in self.homes.get(name, ()) if section != other_than]
        return f"it belongs below {' or '.join(homes)}" if homes else None

    @cached_property
    def homes(self) -> dict[str, list[str]]:
        """For each option: the sections in which it may stand, with the components that they name."""
        found: dict[str, list[str]] = {}
        schemas: list[tuple[str, type[Options] | None]] = list(CORE_SECTIONS.items())
        for kind in self.registry.kinds.values():
            entry = self.entry(kind.section)
            registered = self.named(kind, entry.node if entry else None)
            try:
                schemas.append((kind.section, settings_class(kind)))
                schemas.append((kind.section, registered.options_class if registered else None))
            except PluginError:
                continue  # reported where the component is named
        for section, schema in schemas:
            for key, field_info in schema.model_fields.items() if schema is not None else ():
                sections = found.setdefault(field_info.alias or key, [])
                if section not in sections:
                    sections.append(section)
        return found

    def named(self, kind: Kind, node: Node | None) -> Registered | None:
        """The one component that a section names or leaves to its default, without complaint."""
        name = nodes.child(documents.expanded(node), "name") if node is not None else None
        if isinstance(name, Scalar):
            found = self.registry.find(kind.name, name.text)
        else:
            found = self.registry.defaults(kind.name)
        return found[0] if len(found) == 1 else None

    def directory_of(self, place: nodes.Path) -> Path:
        """Of the file in which something stands; the current one for what came from no file."""
        mark = self.locate(place)
        file = mark.source.path if mark else None
        return file.absolute().parent if file else Path.cwd()

    def local_components(self, plugins: PluginsSettings) -> PluginsSettings:
        """Executes the local files; the resolved section names them by absolute path."""
        places = [("plugins", "local", index) for index in range(len(plugins.local))]
        written = [
            (str(self.directory_of(place) / os.path.expanduser(name)), place)
            for place, name in zip(places, plugins.local, strict=True)
        ]
        given = [(os.path.abspath(os.path.expanduser(name)), None) for name in self.local_files]
        paths: list[str] = []
        for name, place in (*written, *given):
            plugin = self.registry.add_file(Path(name))
            if plugin.broken is not None:
                mark = self.locate(place) if place else _command_line(f"--plugin {name}")
                self.diagnostics.append(
                    Diagnostic("broken-plugin", f"{name}: {plugin.broken}", mark, nodes.dotted(place or ()))
                )
            if name not in paths:
                paths.append(name)
        return plugins.model_copy(update={"local": tuple(paths)})

    def component_sections(self) -> dict[str, Section]:
        """The mode first: it says which sections it reads."""
        components = ComponentResolver(self.registry, self.entry, self.document.root.mark)
        mode = components.mode()
        stated = mode.contract if mode else None
        contract = stated if isinstance(stated, ModeContract) else None
        sections: dict[str, Section] = {"mode": mode} if mode else {}
        if contract is not None:
            self.mode_sections(contract)
        for kind in self.registry.kinds.values():
            if kind.name == "mode" or (mode is None and self.may_name_roles(kind.section)):
                continue
            found = components.section(kind, contract)
            if found is not None:
                sections[kind.section] = found
        self.diagnostics += components.diagnostics
        self.warnings += components.warnings
        return sections

    def may_name_roles(self, section: str) -> bool:
        """Whether only the mode can tell what a section says: one component, or one for each role."""
        entry = self.entry(section)
        return entry is not None and isinstance(entry.node, Mapping) and "name" not in entry.node.entries

    def mode_sections(self, contract: ModeContract) -> None:
        """Sections that the mode needs, and sections that it does not read."""
        mode_mark = self.locate(("mode",))
        base_unknown = any(found.path == documents.EXTENDS for found in self.document.diagnostics)
        for section in contract.required:
            entry = self.entry(section)
            if entry is None and base_unknown:
                continue  # it may stand in the file that could not be found
            if entry is None or (isinstance(entry.node, Scalar) and entry.node.value is None):
                mark = entry.key_mark if entry else mode_mark
                self.diagnostics.append(
                    Diagnostic(
                        "missing-section",
                        f"the section {section!r} is {'empty' if entry else 'missing'}",
                        mark or Mark(self.document.root.mark.source, 1, 1),
                        path=section,
                    )
                )
        read = {*contract.required, *contract.optional, "mode"}
        for kind in self.registry.kinds.values():
            entry = self.entry(kind.section)
            if entry is not None and kind.section not in read and not kind.every_mode:
                self.diagnostics.append(
                    Diagnostic(
                        "unused-section",
                        f"the mode of this run does not read the section {kind.section!r}",
                        entry.key_mark,
                        path=kind.section,
                        notes=("remove it, or name a mode that reads it",),
                    )
                )


def _command_line(text: str) -> Mark:
    return Mark(Source("command line", (text,)), 1, 1, len(text), order=20_000)
