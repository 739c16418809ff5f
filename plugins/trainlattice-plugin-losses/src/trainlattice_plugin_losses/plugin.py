"""Declares the built-in losses."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    module, options = "trainlattice_plugin_losses.losses", "trainlattice_plugin_losses.options"
    return [
        Component(
            "loss",
            "cross_entropy",
            target=f"{module}:CrossEntropy",
            options=f"{options}:CrossEntropyOptions",
            summary="cross entropy of logits and class indices",
            default_for="loss",
        ),
        Component(
            "loss",
            "mse",
            target=f"{module}:MeanSquaredError",
            options=f"{options}:RegressionOptions",
            summary="mean squared error",
        ),
        Component(
            "loss",
            "l1",
            target=f"{module}:L1",
            options=f"{options}:RegressionOptions",
            summary="mean absolute error",
        ),
    ]
