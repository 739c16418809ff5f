"""Declares the built-in callbacks."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    return [
        Component(
            "callback",
            "progress",
            target="trainlattice_plugin_callbacks.progress:build",
            options="trainlattice_plugin_callbacks.options:ProgressOptions",
            summary="a progress bar on a terminal; nothing where output is piped",
            default_for="callbacks",
        ),
    ]
