"""Declares the built-in learning-rate schedulers."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    module, options = "trainlattice_plugin_schedulers.schedulers", "trainlattice_plugin_schedulers.options"
    return [
        Component(
            "scheduler",
            "warmup_cosine",
            target=f"{module}:WarmupCosine",
            options=f"{options}:WarmupOptions",
            summary="linear warmup, then half a cosine down to min_lr",
        ),
        Component(
            "scheduler",
            "warmup_linear",
            target=f"{module}:WarmupLinear",
            options=f"{options}:WarmupOptions",
            summary="linear warmup, then a straight line down to min_lr",
        ),
        Component(
            "scheduler",
            "step_decay",
            target=f"{module}:StepDecay",
            options=f"{options}:StepDecayOptions",
            summary="multiplies the rate by gamma every step_size steps",
        ),
    ]
