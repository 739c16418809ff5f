"""What can be seen of a component without importing it: does its target exist, is its options class one?

Reads source files as text. It reports only what cannot be otherwise; code that it does not understand
(an extension module, a star import, a module ``__getattr__``) passes.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from trainlattice.contracts.kind import ALWAYS_RESERVED, Kind
from trainlattice.plugin.registry import Registered


def static_problems(registered: Registered) -> list[str]:
    """Faults of one component that its users would meet, each as one sentence."""
    if registered.declaration is not None:
        return []
    component, what = registered.component, f"{registered.kind.name} {registered.component.name!r}"
    problems = []
    for label, reference in (("target", component.target), ("options", component.options)):
        if reference is None:
            continue
        fault = _reference_problem(reference)
        if fault is not None:
            problems.append(f"the {label} of {what} does not exist: {fault}")
        elif label == "options":
            problems += _options_problems(reference, what, registered.kind)
    return problems


def target_looks_missing(registered: Registered) -> bool:
    """Whether the source text has no such target. Only importing it can tell for certain."""
    return registered.declaration is None and _reference_problem(registered.component.target) is not None


def _reference_problem(reference: str) -> str | None:
    module, _, attribute = reference.partition(":")
    file = _module_file(module)
    if file is None:
        return f"there is no module {module}"
    names = _top_level(file)
    if names is None or attribute in names:
        return None
    return f"{file} defines no {attribute!r}"


def _options_problems(reference: str, what: str, kind: Kind) -> list[str]:
    definition = _definition(reference)
    if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [f"the options of {what}, {reference}, are a function and no Options class"]
    if not isinstance(definition, ast.ClassDef):
        return []
    problems = []
    if not definition.bases:
        problems.append(f"the options of {what}, {reference}, are no subclass of trainlattice.Options")
    reserved = ALWAYS_RESERVED | kind.reserved | frozenset(_fields(_definition(kind.settings)))
    problems += [
        f"the options of {what} declare {name!r}, a reserved key"
        for name in _fields(definition)
        if name in reserved
    ]
    return problems


def _definition(reference: str | None) -> ast.AST | None:
    """What ``module:Name`` is, from the source of the module."""
    module, _, attribute = (reference or "").partition(":")
    file = _module_file(module) if module else None
    return (_top_level(file) or {}).get(attribute) if file else None


def _fields(definition: ast.AST | None) -> Iterator[str]:
    """The fields that a class of options declares."""
    for statement in definition.body if isinstance(definition, ast.ClassDef) else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id


def _module_file(module: str) -> Path | None:
    """The file of a module; an empty path where there is one that cannot be read as Python source."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)  # a top-level name: nothing is executed
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else Path()
    for location in spec.submodule_search_locations or ():
        base = Path(location, *rest)
        for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
        if base.is_dir() or any(base.parent.glob(f"{base.name}.*")):
            return Path()
    return None


def _top_level(file: Path) -> dict[str, ast.AST] | None:
    """Names that a module binds at its top level, or None if that cannot be told from the text."""
    try:
        return _names(file.read_bytes()) if file.name else None
    except OSError:
        return None


@lru_cache(maxsize=64)
def _names(source: bytes) -> dict[str, ast.AST] | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    names: dict[str, ast.AST] = {}
    for statement in _statements(tree.body):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[statement.name] = statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                names[alias.asname or alias.name.partition(".")[0]] = statement
        else:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names[node.id] = statement
    return None if "*" in names or "__getattr__" in names else names


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _statements(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)
