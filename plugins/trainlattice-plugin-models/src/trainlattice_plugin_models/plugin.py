"""Declares the built-in models."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    options = "trainlattice_plugin_models.options"
    return [
        Component(
            "model",
            "mlp",
            target="trainlattice_plugin_models.mlp:MLP",
            options=f"{options}:MLPOptions",
            summary="fully connected layers with GELU and dropout",
        ),
        Component(
            "model",
            "cnn",
            target="trainlattice_plugin_models.cnn:CNN",
            options=f"{options}:CNNOptions",
            summary="blocks of convolution, GELU and max pooling, and a linear head",
        ),
    ]
