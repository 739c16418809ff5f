"""Declares the built-in optimizers."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    module, options = "trainlattice_plugin_optimizers.optimizers", "trainlattice_plugin_optimizers.options"
    return [
        Component(
            "optimizer",
            "adamw",
            target=f"{module}:adamw",
            options=f"{options}:AdamWOptions",
            summary="Adam with decoupled weight decay",
            default_for="optimizer",
        ),
        Component(
            "optimizer",
            "adam",
            target=f"{module}:adam",
            options=f"{options}:AdamOptions",
            summary="Adam; its weight decay is an L2 penalty",
        ),
        Component(
            "optimizer",
            "sgd",
            target=f"{module}:sgd",
            options=f"{options}:SGDOptions",
            summary="stochastic gradient descent with optional momentum",
        ),
    ]
