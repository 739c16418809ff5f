"""Registers plugins one at a time: each in isolation, a broken one with its cause."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pluggy

from trainlattice.contracts.kind import CORE_SECTION_NAMES, NAME, TARGET, Component, Kind
from trainlattice.diagnostics.hints import did_you_mean
from trainlattice.plugin import provenance
from trainlattice.plugin.discovery import Declaration
from trainlattice.plugin.hookspecs import PROJECT, HookSpecs
from trainlattice.plugin.provenance import Provenance

T = TypeVar("T")

RESERVED_IDS = frozenset({"core", "local"})
"""Plugin ids of what comes from no plugin: core's own components, and local code."""


@dataclass
class Plugin:
    """An installed plugin or a local source of components, and what became of it.

    :param id: the name before the colon of a qualified component name.
    :param distribution_name: as pip knows it; None for local code.
    :param file: of the registration module, once known.
    :param broken: why it cannot be used, or None.
    :param warnings: faults that leave the rest of it usable.
    """

    id: str
    distribution_name: str | None
    version: str | None
    declaration: Declaration | None = None
    file: str | None = None
    broken: str | None = None
    warnings: list[str] = field(default_factory=list)
    components: list[Component] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    module: Any = None

    @cached_property
    def provenance(self) -> Provenance:
        """Where the code comes from. Asks git for an editable checkout, so it is not for listings."""
        if self.declaration is not None:
            return provenance.of_distribution(self.declaration.distribution)
        return provenance.of_file(Path(self.file)) if self.file else Provenance("local")

    @property
    def source(self) -> str:
        """``wheel``, ``editable`` or ``local``: from metadata alone."""
        return provenance.source_kind(self.declaration.distribution)[0] if self.declaration else "local"

    def __str__(self) -> str:
        if self.distribution_name is None:
            return f"{self.id} ({self.file or 'local'})"
        return f"{self.distribution_name} {self.version}"


def new_plugin_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows the hooks and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    return manager


def load(manager: pluggy.PluginManager, declaration: Declaration) -> Plugin:
    """Imports the registration module of one plugin and registers its hooks. Never raises for a fault
    of the plugin: the plugin then has ``broken`` set."""
    plugin = Plugin(
        declaration.name, declaration.distribution_name, declaration.version, declaration=declaration
    )
    if declaration.name in RESERVED_IDS:
        plugin.broken = f"the entry point name {declaration.name!r} is reserved"
        return plugin
    if not NAME.fullmatch(declaration.name):
        plugin.broken = (
            f"the entry point name {declaration.name!r} must have lower-case letters, digits and underscores"
        )
        return plugin
    module = guarded(plugin, lambda: _import(declaration.value))
    if module is not None:
        plugin.file = getattr(module, "__file__", None)
        register_hooks(manager, plugin, module, f"{declaration.distribution_name}:{declaration.name}")
    return plugin


def _import(value: str) -> Any:
    module_name, _, attribute = value.partition(":")
    found: Any = importlib.import_module(module_name.strip())
    for part in filter(None, attribute.strip().split(".")):
        found = getattr(found, part)
    return found


def register_hooks(manager: pluggy.PluginManager, plugin: Plugin, module: Any, name: str) -> None:
    """Registers the hooks of a plugin's module, or marks the plugin as broken."""
    fault = guarded(plugin, lambda: _hook_problem(manager, module, name))
    plugin.broken = plugin.broken or fault
    plugin.module = None if plugin.broken else module


def _hook_problem(manager: pluggy.PluginManager, module: Any, name: str) -> str | None:
    """Registers a module's hooks; what is wrong with them, or None."""
    if manager.is_registered(module):
        return f"{manager.get_name(module)} declares the same module, which is registered once"
    if manager.has_plugin(name):
        return f"{name} is declared twice, and the first declaration counts"
    for attribute in dir(module):
        if attribute.startswith(f"{PROJECT}_") and callable(hook := getattr(module, attribute)):
            if not hasattr(HookSpecs, attribute):
                hint = did_you_mean(attribute, (n for n in vars(HookSpecs) if n.startswith(PROJECT)))
                return f"{attribute} is no hook of TrainLattice" + (f"; {hint}" if hint else "")
            if not hasattr(hook, f"{PROJECT}_impl"):
                return f"{attribute} is not marked with @hookimpl"
    try:
        manager.register(module, name=name)
    except pluggy.PluginValidationError as error:
        if manager.is_registered(module):
            manager.unregister(module)
        return " ".join(str(error).split())
    return None


def collect_kinds(manager: pluggy.PluginManager, plugin: Plugin) -> None:
    """Asks one plugin for its kinds."""
    plugin.kinds = _collect(manager, plugin, "trainlattice_kinds", Kind, lambda kind: _kind_problem(kind))


def collect_components(manager: pluggy.PluginManager, plugin: Plugin, kinds: dict[str, Kind]) -> None:
    """Asks one plugin for its components; one declaration that is not valid breaks the plugin."""
    seen: set[tuple[str, str]] = set()

    def problem(component: Component) -> str | None:
        fault = component.problem()
        if fault is None and component.kind not in kinds:
            hint = did_you_mean(component.kind, kinds)
            fault = f"{component.name!r} is of the unknown kind {component.kind!r}" + (
                f"; {hint}" if hint else ""
            )
        if fault is None and (component.kind, component.name) in seen:
            fault = f"{component.kind} {component.name!r} is declared twice"
        if fault is None and component.default_for not in (None, kinds[component.kind].section):
            fault = (
                f"{component.kind} {component.name!r} cannot be the default for {component.default_for!r}: "
                f"its section is {kinds[component.kind].section!r}"
            )
        seen.add((component.kind, component.name))
        return fault

    plugin.components = _collect(manager, plugin, "trainlattice_components", Component, problem)


def _kind_problem(kind: Kind) -> str | None:
    for label, value in (("name", kind.name), ("section", kind.section)):
        if not (isinstance(value, str) and NAME.fullmatch(value)):
            return f"kind {label} {value!r}: lower-case letters, digits and underscores"
    if kind.section in CORE_SECTION_NAMES:
        return f"kind {kind.name!r}: the section {kind.section!r} belongs to core"
    if kind.form not in ("one", "list"):
        return f"kind {kind.name!r}: form is 'one' or 'list', not {kind.form!r}"
    if kind.settings is not None and not (isinstance(kind.settings, str) and TARGET.fullmatch(kind.settings)):
        return f"kind {kind.name!r}: settings {kind.settings!r} is not of the form 'package.module:Class'"
    if kind.several is not None and (kind.form != "one" or not isinstance(kind.several, str)):
        return f"kind {kind.name!r}: several {kind.several!r} is a key, and the form then is 'one'"
    for label, words, container in (
        ("arguments", kind.arguments, tuple),
        ("reserved", kind.reserved, frozenset),
    ):
        if not (isinstance(words, container) and all(isinstance(word, str) for word in words)):
            return f"kind {kind.name!r}: {label} {words!r} is no {container.__name__} of strings"
    return None


def _collect(
    manager: pluggy.PluginManager,
    plugin: Plugin,
    hook: str,
    expected: type[T],
    problem: Callable[[T], str | None],
) -> list[T]:
    others = [p for p in manager.get_plugins() if p is not plugin.module]
    caller = manager.subset_hook_caller(hook, others)

    def call() -> list[T]:
        returned: list[T] = []
        results = caller()
        if not results and caller.get_hookimpls():  # pluggy leaves out None
            raise TypeError(f"{hook} returned None, expected a list of {expected.__name__}")
        for result in results:
            if not isinstance(result, Iterable) or isinstance(result, (str, bytes)):
                raise TypeError(f"{hook} returned {result!r}, expected a list of {expected.__name__}")
            for item in result:
                if not isinstance(item, expected):
                    raise TypeError(f"{hook} returned {item!r} in its list, expected {expected.__name__}")
                fault = problem(item)
                if fault is not None:
                    raise ValueError(fault)
                returned.append(item)
        return returned

    collected = guarded(plugin, call)
    if collected is None:
        manager.unregister(plugin.module)
        plugin.module = None
        return []
    return collected


def guarded(plugin: Plugin, call: Callable[[], T]) -> T | None:
    """Runs code of a plugin. Whatever it raises, SystemExit included, marks the plugin as broken; only
    the user's own Ctrl-C passes."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        plugin.broken = cause(error, plugin)
        return None


def cause(error: BaseException, plugin: Plugin | None = None) -> str:
    """An exception in one line: type, text, the last line outside the import machinery, and advice."""
    try:
        text = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException:  # whatever a plugin raises may be written carelessly too
        text = ""
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and "importlib" not in frame.filename
    ]
    if isinstance(error, SyntaxError) and error.filename:
        line += f" ({error.filename}:{error.lineno})"
    elif len(frames) > 0 and frames[-1].filename not in (__file__, importlib.__file__):
        line += f" ({frames[-1].filename}:{frames[-1].lineno})"
    if isinstance(error, ModuleNotFoundError) and error.name:
        line += _missing_module_advice(error.name, plugin)
    return line


def _missing_module_advice(name: str, plugin: Plugin | None) -> str:
    if plugin is None or plugin.declaration is None:
        return ""
    own = plugin.declaration.value.partition(":")[0].partition(".")[0]
    if name.partition(".")[0] == own:
        return (
            "; the installed metadata names a module that is not there, so reinstall it: "
            f"python -m pip install --force-reinstall --no-deps {plugin.distribution_name}"
        )
    return f"; it needs a package that is not installed: python -m pip install {name.partition('.')[0]}"


def import_file(path: Path, module_name: str, source: bytes) -> ModuleType:
    """Executes the content of a Python file as a module of the given name.

    From its text: Python's bytecode cache does not notice an edit within a second that keeps the size.
    """
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    code = compile(source, str(path), "exec", dont_inherit=True)
    sys.modules[module_name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
