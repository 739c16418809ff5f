"""Plugins that this process sees as installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainlattice.config.resolve import Resolution, resolve_file
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.plugin.registry import Registry


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty directory of distributions, first on ``sys.path``; its modules are forgotten afterwards."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    yield directory
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def installed() -> Callable[[], Registry]:
    """Reads what is installed now, as every command does when it starts."""

    def read() -> Registry:
        importlib.invalidate_caches()  # files may be younger than the clock of the directory tells
        return Registry.installed()

    return read


@pytest.fixture
def resolve(tmp_path: Path, installed: Callable[[], Registry]) -> Callable[..., Resolution]:
    """Checks a configuration, given as text, with what is installed now."""

    def check(text: str, **options: object) -> Resolution:
        path = tmp_path / "my.yaml"
        path.write_text(text, encoding="utf-8")
        return resolve_file(path, registry=installed(), **options)

    return check


@pytest.fixture
def refused(resolve: Callable[..., Resolution]) -> Callable[..., ConfigError]:
    """The error of a configuration, given as text, that must not pass."""

    def check(text: str, **options: object) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            resolve(text, **options)
        return caught.value

    return check
