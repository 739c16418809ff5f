"""Libraries of others: that they are there, can be reached, and leave training's random numbers alone."""

from __future__ import annotations

import importlib
import importlib.util
import random
import socket
import sys
import urllib.request
from contextlib import suppress
from types import ModuleType
from urllib.parse import urlsplit

from trainlattice.diagnostics.errors import PluginError

_PORTS = {"http": 80, "https": 443}
_CONNECT_SECONDS = 5.0


def require(library: str) -> None:
    """Raises PluginError with the pip line where a library is not installed."""
    if importlib.util.find_spec(library) is None:
        raise PluginError(
            f"the tracker {library} needs the library {library}, which is not installed\n"
            f"  python -m pip install 'trainlattice-plugin-trackers[{library}]'"
        )


def require_reachable(url: str) -> None:
    """Raises ConnectionError where nobody answers at a URL, at once instead of after minutes of trying again.
    Behind a proxy this cannot be told."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    if host is None or port is None:
        return
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"{url} cannot be reached: {error.strerror or error}") from None


def _another_random() -> ModuleType:
    spec = importlib.util.find_spec("random")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_OWN = _another_random()
"""The module ``random`` once more, with a generator of its own."""


_HTTP = frozenset({"urllib3", "requests"})
_WAITS = "urllib3.util.retry"


def give_own_random(*packages: str) -> None:
    """Modules of these packages, and of those that send their requests, that are loaded draw from another generator
    than training does (the wait before they try again, names): what they draw, and when, is to change no run. To be
    called again once they may have loaded more."""
    with suppress(ImportError):
        importlib.import_module(_WAITS)  # else it may be loaded by the request that draws
    taken = _HTTP.union(packages)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in taken and getattr(module, "__dict__", {}).get("random") is random:
            module.random = _OWN  # type: ignore[attr-defined]
