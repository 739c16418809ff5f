"""Every hook that a plugin can implement: the extension manual.

A plugin is an installed distribution with one entry point::

    [project.entry-points."trainlattice.plugins"]
    foo = "trainlattice_plugin_foo.plugin"

The module that it names holds the hook implementations, marked with :data:`hookimpl`. It is imported by
every command except ``--help``, so it must be light: it imports the standard library and
``trainlattice.plugin`` and nothing else; in particular no torch, no numpy and no pydantic. It names its
code as strings, ``"package.module:attribute"``, which are imported only when a run uses them.

An implementation may leave out arguments that it does not need. A function whose name begins with
``trainlattice_`` and that is no hook, is not marked with :data:`hookimpl` or asks for an argument that the
hook does not have, makes the plugin broken: it is skipped, and named with the cause by ``trainlattice
plugins list``. The same holds for a module that raises anything while it is imported.

Hooks are for what happens a few times in a run. Work per batch is done by callbacks (components of kind
``callback``), which are bound once, when the run starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

from trainlattice.contracts.kind import Component, Kind

if TYPE_CHECKING:
    from trainlattice.plugin.lifecycle import RunInfo, RunOutcome

PROJECT = "trainlattice"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookSpecs:
    # --- registration: called once per process, for every installed plugin ------------------------

    @hookspec
    def trainlattice_components(self) -> Iterable[Component]:  # type: ignore[empty-body]
        """The components that this plugin provides.

        :returns: declarations, in the order in which a listing shows them.

        Must return the same in every process and import nothing. A declaration that is not valid (a name
        with capitals, an unknown kind, a target that is no ``"module:attribute"``) makes the plugin
        broken as a whole, so that no part of it is used by accident.
        """

    @hookspec
    def trainlattice_kinds(self) -> Iterable[Kind]:  # type: ignore[empty-body]
        """New kinds of components, each with a section of its own in the configuration.

        :returns: kinds whose name and section no other plugin and not core claims. Called before
            ``trainlattice_components`` of any plugin, so that plugins can provide components of kinds
            that another plugin brings.
        """

    # --- the life of a run: called only for plugins that provide a component of this run ----------

    @hookspec
    def trainlattice_run_created(self, run: RunInfo) -> None:
        """The run directory exists, with its configuration, and training is about to start.

        Called once per run, in the main process. An exception ends the run before its first step.
        """

    @hookspec
    def trainlattice_run_finished(self, run: RunInfo, outcome: RunOutcome) -> None:
        """The run ended as it should (finished, stopped early, or stopped on request).

        Called once per run, after the last checkpoint is on disk and before trackers are waited for. An exception
        is reported and changes the exit code, but not the recorded status of the run.
        """

    @hookspec
    def trainlattice_run_failed(self, run: RunInfo, error: BaseException) -> None:
        """The run ended by an exception or an interrupt; ``error`` is raised again afterwards.

        Called once per run, after the manifest records the failure. An exception raised here is reported
        and does not replace ``error``.
        """
