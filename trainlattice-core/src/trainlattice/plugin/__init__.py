"""Plugins: hooks, declarations, decorators. Light enough for every registration module to import."""

from trainlattice.contracts.kind import Component, Kind
from trainlattice.plugin.hookspecs import hookimpl

__all__ = ["Component", "Kind", "hookimpl"]
