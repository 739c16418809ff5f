"""Components without packaging: decorators for Python code, and files named by ``--plugin`` or in YAML."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainlattice.contracts.kind import Component
from trainlattice.plugin.provenance import Provenance
from trainlattice.plugin.registration import Plugin, guarded, import_file

T = TypeVar("T")
LOCAL = "local"
"""The plugin id of everything that comes without a distribution: ``local:logistic``."""

LOCAL_MODULE_PREFIX = "trainlattice_local_"
"""Modules of local files are in sys.modules under a name of their own."""


@dataclass(frozen=True)
class LocalDeclaration:
    """A component that a decorator declared, with the objects themselves."""

    component: Component
    target: Any
    options: Any
    file: str | None


_imported: dict[tuple[str, str, str], LocalDeclaration] = {}  # kind, name, module -> latest declaration
_collecting: ContextVar[list[LocalDeclaration] | None] = ContextVar("collecting", default=None)


def register(
    kind: str, name: str, *, options: type[Any] | None = None, summary: str = ""
) -> Callable[[T], T]:
    """Declares the decorated class or function as a component.

    Importing the module is what registers it; importing it again replaces the declaration.

    :param kind: such as ``model``.
    :param name: what the YAML says.
    :param options: an Options subclass, or None for a component without options.
    """

    def declare(target: T) -> T:
        module, attribute = getattr(target, "__module__", ""), getattr(target, "__name__", "")
        if not attribute.isidentifier():  # a lambda, a partial, an instance
            module, attribute = type(target).__module__, type(target).__name__
        text = summary or next(iter((inspect.getdoc(target) or "").splitlines()), "")
        component = Component(kind, name, f"{module}:{attribute}", summary=text)
        try:
            file = inspect.getsourcefile(target)  # type: ignore[arg-type]
        except TypeError:
            file = None
        declaration = LocalDeclaration(component, target, options, file)
        collector = _collecting.get()
        if collector is not None:
            collector.append(declaration)
        else:
            _imported[kind, name, module] = declaration
        return target

    return declare


def _of_kind(kind: str) -> Callable[..., Callable[[T], T]]:
    def register_kind(name: str, *, options: type[Any] | None = None, summary: str = "") -> Callable[[T], T]:
        return register(kind, name, options=options, summary=summary)

    register_kind.__name__ = f"register_{kind}"
    register_kind.__doc__ = f"``register({kind!r}, ...)``: see :func:`register`."
    return register_kind


register_model = _of_kind("model")
register_dataset = _of_kind("dataset")
register_loss = _of_kind("loss")
register_optimizer = _of_kind("optimizer")
register_scheduler = _of_kind("scheduler")
register_postprocessor = _of_kind("postprocessor")
register_metric = _of_kind("metric")
register_tracker = _of_kind("tracker")
register_callback = _of_kind("callback")


def imported_plugins() -> list[tuple[Plugin, list[LocalDeclaration]]]:
    """What decorators declared in modules that Python imported, one plugin for each file."""
    by_file: dict[str | None, dict[tuple[str, str], LocalDeclaration]] = {}
    for (kind, name, _module), declaration in _imported.items():
        # A file that runs as a program and is imported too is two modules: the later one counts.
        by_file.setdefault(declaration.file, {})[kind, name] = declaration
    return [(Plugin(LOCAL, None, None, file=file), [*found.values()]) for file, found in by_file.items()]


_files: dict[Path, tuple[bytes, Plugin, list[LocalDeclaration]]] = {}


def executed_source(path: Path) -> bytes | None:
    """The content of a local file as it was executed, whatever the file holds now; None if it was not."""
    known = _files.get(path.resolve())
    return known[0] if known is not None else None


def load_file(path: Path) -> tuple[Plugin, list[LocalDeclaration]]:
    """Executes a local file and collects what its decorators declare.

    A file that was executed before in this process and has not changed is not executed again. A file
    that raises gives a broken plugin.
    """
    path = path.resolve()
    plugin = Plugin(LOCAL, None, None, file=str(path))
    declared: list[LocalDeclaration] = []
    try:
        source = path.read_bytes()
    except OSError as error:
        plugin.broken = f"{path} cannot be read: {error.strerror}"
        return plugin, declared
    known = _files.get(path)
    if known is not None and known[0] == source:
        return known[1], known[2]
    token = _collecting.set(declared)
    try:
        stem, digest = re.sub(r"\W", "_", path.stem), hashlib.sha256(source).hexdigest()
        plugin.provenance = Provenance("local", path=str(path), sha256=digest)  # the file may be edited since
        guarded(plugin, lambda: import_file(path, f"{LOCAL_MODULE_PREFIX}{stem}_{digest[:8]}", source))
    finally:
        _collecting.reset(token)
    if plugin.broken is None:
        _files[path] = (source, plugin, declared)
    return plugin, declared
