"""All components that a configuration can name, who provides each, and the rules about names.

A bare name is legal if exactly one plugin provides it; ``plugin:name`` always is, with the plugin's id or
its distribution's name. Nothing overrides anything: two providers of a bare name that a configuration uses
are an error that shows both.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from trainlattice.contracts.kind import ALWAYS_RESERVED, CORE_KINDS, Component, Kind
from trainlattice.diagnostics.errors import PluginError
from trainlattice.plugin import builtin, local
from trainlattice.plugin.discovery import PLUGIN_GROUP, declaration_of, declarations, normalized
from trainlattice.plugin.registration import (
    Plugin,
    cause,
    collect_components,
    collect_kinds,
    load,
    new_plugin_manager,
    register_hooks,
)
from trainlattice.version import __version__

if TYPE_CHECKING:
    from trainlattice.contracts.options import Options


CORE_DISTRIBUTION = "trainlattice-core"


@dataclass(frozen=True, eq=False)
class Registered:
    """A component with its provider."""

    component: Component
    plugin: Plugin
    kind: Kind
    declaration: local.LocalDeclaration | None = None
    namesakes: list[Registered] = field(default_factory=list, repr=False)
    """All components of this kind and name, this one included."""

    @property
    def qualified(self) -> str:
        """``plugin:name``, as the resolved configuration holds it; with the distribution's name in place of
        the plugin's where the plugin of another distribution has both names."""
        same_id = sum(other.plugin.id == self.plugin.id for other in self.namesakes) > 1
        provider = (same_id and self.plugin.distribution_name) or self.plugin.id
        return f"{provider}:{self.component.name}"

    @cached_property
    def options_class(self) -> type[Options]:
        """The options schema. Imports pydantic and the plugin's options module.

        Raises PluginError if it cannot be imported, is no Options subclass or declares a reserved key.
        """
        from trainlattice.contracts.options import Options

        found = self.declaration.options if self.declaration else None
        if self.declaration is None and self.component.options is not None:
            found = self._load(self.component.options, "options")
        if found is None:
            return type("NoOptions", (Options,), {"__module__": __name__})
        if not (isinstance(found, type) and issubclass(found, Options)):
            raise PluginError(
                f"the options of {self.what} are {found!r}, which is no subclass of trainlattice.Options"
            )
        claimed = sorted(reserved_keys(self.kind) & {f.alias or n for n, f in found.model_fields.items()})
        if claimed:
            raise PluginError(
                f"the options of {self.what} declare {', '.join(map(repr, claimed))}, which core reserves "
                f"beside the options of a {self.kind.name}; the plugin's author has to rename it"
            )
        return found

    @cached_property
    def target(self) -> Any:
        """The class or function that builds the component. Imports the implementation.

        Raises PluginError if it cannot be imported.
        """
        if self.declaration is not None:
            return self.declaration.target
        return self._load(self.component.target, "target")

    @cached_property
    def schema_sha256(self) -> str:
        """Digest of the options schema without texts: equal schemas accept the same options."""
        schema = _without_texts(self.options_class.model_json_schema())
        return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()

    @property
    def what(self) -> str:
        """``model 'foo:resnet' (trainlattice-plugin-foo 0.1)``."""
        return f"{self.kind.name} {self.qualified!r} ({self.plugin})"

    def _load(self, reference: str, label: str) -> Any:
        module, _, attribute = reference.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(
                f"the {label} of {self.what}, {reference}, cannot be imported: {cause(error, self.plugin)}"
            ) from error


def reserved_keys(kind: Kind) -> frozenset[str]:
    """Keys that no options class of this kind may declare."""
    settings = settings_class(kind)
    return ALWAYS_RESERVED | kind.reserved | (keys_of(settings) if settings else frozenset())


def keys_of(schema: type[Options]) -> frozenset[str]:
    """The keys of a schema as YAML writes them."""
    return frozenset(info.alias or name for name, info in schema.model_fields.items())


def settings_class(kind: Kind) -> type[Options] | None:
    """The Options with the keys that core reads beside the options of a component of this kind.

    Raises PluginError if the plugin that brings the kind has none.
    """
    if kind.settings is None:
        return None
    from trainlattice.contracts.options import Options

    module, _, attribute = kind.settings.partition(":")
    what = f"the settings of the kind {kind.name!r}, {kind.settings},"
    try:
        found = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(f"{what} cannot be imported: {cause(error)}") from error
    if not (isinstance(found, type) and issubclass(found, Options)):
        raise PluginError(f"{what} are no subclass of trainlattice.Options")
    return found


def _without_texts(schema: Any) -> Any:
    """A JSON Schema without titles and descriptions; a property may well be called ``title``."""
    if isinstance(schema, dict):
        return {
            key: _without_texts(value)
            for key, value in schema.items()
            if not (key in ("title", "description") and isinstance(value, str))
        }
    return [_without_texts(item) for item in schema] if isinstance(schema, list) else schema


class Registry:
    """The components of core, of installed plugins and of local code."""

    def __init__(self, manager: pluggy.PluginManager | None = None) -> None:
        self.manager = manager or new_plugin_manager()
        self.plugins: list[Plugin] = []
        self.kinds: dict[str, Kind] = {kind.name: kind for kind in CORE_KINDS}
        self._components: dict[tuple[str, str], list[Registered]] = {}
        core = Plugin(
            "core",
            CORE_DISTRIBUTION,
            __version__,
            declaration=declaration_of(CORE_DISTRIBUTION, "core", builtin.__name__),
            file=builtin.__file__,
            module=builtin,
        )
        self.manager.register(builtin, name=f"{CORE_DISTRIBUTION}:core")
        self._add([core])

    @classmethod
    def installed(cls) -> Registry:
        """Core's own components, every installed plugin, and what imported modules declared."""
        registry = cls()
        registry._add([load(registry.manager, found) for found in declarations(PLUGIN_GROUP)])
        for plugin, declared in local.imported_plugins():
            registry._add_local(plugin, declared)
        return registry

    def add_module(self, module: Any, *, plugin_id: str) -> Plugin:
        """Registers a module with hooks that no distribution declares, for tests of plugins."""
        plugin = Plugin(plugin_id, None, None, file=getattr(module, "__file__", None))
        register_hooks(self.manager, plugin, module, plugin_id)
        self._add([plugin])
        return plugin

    def add_file(self, path: Path) -> Plugin:
        """Executes a local file with components; a file added before is not added again."""
        resolved = str(path.resolve())
        for plugin in self.plugins:
            if plugin.id == local.LOCAL and plugin.file == resolved:
                return plugin
        plugin, declared = local.load_file(path)
        self._add_local(plugin, declared)
        return plugin

    def _add(self, plugins: list[Plugin]) -> None:
        """Kinds of all of them first: a plugin may provide components of another's kind."""
        usable = [plugin for plugin in plugins if plugin.module is not None]
        for plugin in usable:
            collect_kinds(self.manager, plugin)
            for kind in plugin.kinds:
                self._add_kind(kind, plugin)
        for plugin in usable:
            if plugin.module is not None:
                collect_components(self.manager, plugin, self.kinds)
            for component in plugin.components:
                self._add_component(component, plugin)
        self.plugins += plugins

    def _add_kind(self, kind: Kind, plugin: Plugin) -> None:
        for known in self.kinds.values():
            if kind.name == known.name or kind.section == known.section:
                plugin.warnings.append(
                    f"its kind {kind.name!r} (section {kind.section!r}) is left out: "
                    f"the kind {known.name!r} (section {known.section!r}) was there first"
                )
                return
        self.kinds[kind.name] = kind

    def _add_local(self, plugin: Plugin, declared: list[local.LocalDeclaration]) -> None:
        plugin.components = []
        names: set[tuple[str, str]] = set()
        for declaration in declared:
            component = declaration.component
            fault = component.problem()
            if fault is None and component.kind not in self.kinds:
                fault = f"{component.name!r} is of the unknown kind {component.kind!r}"
            if fault is None and (component.kind, component.name) in names:
                fault = f"{component.kind} {component.name!r} is declared twice"
            if fault is not None:
                plugin.broken = fault
                continue
            names.add((component.kind, component.name))
            plugin.components.append(component)
            self._add_component(component, plugin, declaration)
        self.plugins.append(plugin)

    def _add_component(
        self, component: Component, plugin: Plugin, declaration: local.LocalDeclaration | None = None
    ) -> None:
        group = self._components.setdefault((component.kind, component.name), [])
        group.append(Registered(component, plugin, self.kinds[component.kind], declaration, group))

    def kind_of_section(self, section: str) -> Kind | None:
        """The kind whose components a section names."""
        return next((kind for kind in self.kinds.values() if kind.section == section), None)

    def components(self, kind: str | None = None) -> list[Registered]:
        """Everything registered, by kind in the order of kinds, then by name."""
        order = list(self.kinds)
        found = [r for group in self._components.values() for r in group if kind in (None, r.kind.name)]
        return sorted(found, key=lambda r: (order.index(r.kind.name), r.component.name, r.plugin.id))

    def find(self, kind: str, name: str) -> list[Registered]:
        """All that a bare or qualified name, perhaps with a member, may mean: none, one, or a conflict."""
        whole, slash, _ = name.partition("/")
        provider, colon, bare = whole.rpartition(":")
        found = self._components.get((kind, bare), [])
        if slash:
            found = [r for r in found if r.component.member_option]
        if not colon:
            return list(found)
        return [r for r in found if _is_called(r.plugin, provider)]

    def defaults(self, kind: str) -> list[Registered]:
        """Components that claim to stand where the YAML is silent about this kind's section."""
        return [r for r in self.components(kind) if r.component.default_for is not None]

    def conflicts(self) -> list[tuple[str, str, list[Registered]]]:
        """Bare names with several providers: kind, name, providers."""
        return [(k, n, group) for (k, n), group in self._components.items() if len(group) > 1]

    def duplicate_ids(self) -> dict[str, list[Plugin]]:
        """Plugin ids that more than one distribution claims."""
        by_id: dict[str, list[Plugin]] = {}
        for plugin in self.plugins:
            if plugin.id != local.LOCAL:
                by_id.setdefault(plugin.id, []).append(plugin)
        return {plugin_id: plugins for plugin_id, plugins in by_id.items() if len(plugins) > 1}

    def broken(self) -> list[Plugin]:
        """Plugins that cannot be used."""
        return [plugin for plugin in self.plugins if plugin.broken]

    def called(self, name: str) -> list[Plugin]:
        """Plugins of this id or distribution name."""
        return [plugin for plugin in self.plugins if _is_called(plugin, name)]

    def hooks_of(self, used: Iterable[Plugin]) -> pluggy.PluginManager:
        """The manager reduced to the plugins that a run uses: what is merely installed hears nothing."""
        keep = [plugin.module for plugin in used if plugin.module is not None]
        manager = new_plugin_manager()
        for module in reversed(keep):  # pluggy calls the last registered first
            if not manager.is_registered(module):
                manager.register(module)
        return manager


def _is_called(plugin: Plugin, name: str) -> bool:
    if plugin.id == name:
        return True
    return plugin.distribution_name is not None and normalized(plugin.distribution_name) == normalized(name)
