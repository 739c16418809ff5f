"""Resolving configurations in this process, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trainlattice.config.resolve import resolve_file
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.plugin.registry import Registry

BASE = """\
model:
  name: mlp
  input_dim: 4
  hidden_dims: [8]
  num_classes: 3
dataset:
  name: synthetic
  batch_size: 8
  input_shape: [4]
  num_classes: 3
"""
"""A valid configuration of ten lines; what a test adds begins on line 11."""


def write(directory: Path, text: str | bytes, name: str = "c.yaml") -> Path:
    """A file with exactly these characters."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def resolved(path: Path, *overrides: str, registry: Registry | None = None) -> dict[str, Any]:
    """The resolved configuration of a file as plain data."""
    plain: dict[str, Any] = resolve_file(path, overrides, registry=registry).config.as_plain()
    return plain


def mistakes(
    path: Path, overrides: Sequence[str] = (), *, registry: Registry | None = None
) -> tuple[Diagnostic, ...]:
    """What is wrong with a file, in the order shown. Fails if nothing is."""
    with pytest.raises(ConfigError) as caught:
        resolve_file(path, overrides, registry=registry)
    return caught.value.diagnostics


def mistake(path: Path, *overrides: str, registry: Registry | None = None) -> Diagnostic:
    """The one thing that is wrong with a file."""
    found = mistakes(path, overrides, registry=registry)
    assert len(found) == 1, [diagnostic.render() for diagnostic in found]
    return found[0]


def places(diagnostics: Sequence[Diagnostic]) -> list[tuple[str, str]]:
    """``("c.yaml:11:3", "model.lr")`` for each."""
    return [(f"{Path(d.mark.source.name).name}:{d.mark.line}:{d.mark.column}", d.path) for d in diagnostics]


def typed(value: Any) -> Any:
    """A value in a form in which 1, 1.0 and True differ, and -0.0 differs from 0.0."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [typed(item) for item in value]
    return type(value).__name__, repr(value)
