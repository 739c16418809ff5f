"""Declares the built-in callbacks."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_callbacks"


@hookimpl
def trainlattice_components():
    return [
        Component(
            "callback",
            "progress",
            target=f"{PACKAGE}.progress:build",
            options=f"{PACKAGE}.options:ProgressOptions",
            summary="a progress bar on a terminal; nothing where output is piped",
            default_for="callbacks",
        ),
        Component(
            "callback",
            "lr_monitor",
            target=f"{PACKAGE}.lr_monitor:LRMonitor",
            options=f"{PACKAGE}.options:LRMonitorOptions",
            summary="records the learning rates of every optimizer and group",
        ),
        Component(
            "callback",
            "throughput",
            target=f"{PACKAGE}.throughput:Throughput",
            options=f"{PACKAGE}.options:ThroughputOptions",
            summary="records steps, batches and samples a second over the last steps",
        ),
        Component(
            "callback",
            "grad_norm",
            target=f"{PACKAGE}.grad_norm:GradNorm",
            options=f"{PACKAGE}.options:GradNormOptions",
            summary="records norms of the gradients before they are clipped",
        ),
        Component(
            "callback",
            "param_histogram",
            target=f"{PACKAGE}.param_histogram:build",
            options=f"{PACKAGE}.options:ParamHistogramOptions",
            summary="writes how the values of parameters and gradients are distributed",
        ),
        Component(
            "callback",
            "ema",
            target=f"{PACKAGE}.ema:EMA",
            options=f"{PACKAGE}.options:EMAOptions",
            summary="evaluates and saves an exponential moving average of the weights",
        ),
        Component(
            "callback",
            "swa",
            target=f"{PACKAGE}.swa:SWA",
            options=f"{PACKAGE}.options:SWAOptions",
            summary="evaluates and saves the mean of the weights at the ends of epochs",
        ),
        Component(
            "callback",
            "freeze",
            target=f"{PACKAGE}.freeze:Freeze",
            options=f"{PACKAGE}.options:FreezeOptions",
            summary="leaves parameters untrained, for good or until a step",
        ),
        Component(
            "callback",
            "profiler",
            target=f"{PACKAGE}.profiler:Profiler",
            options=f"{PACKAGE}.options:ProfilerOptions",
            summary="writes traces of some steps by torch.profiler",
        ),
        Component(
            "callback",
            "image_grid",
            target=f"{PACKAGE}.image_grid:ImageGrid",
            options=f"{PACKAGE}.options:ImageGridOptions",
            summary="writes a picture of predictions after each validation",
        ),
        Component(
            "callback",
            "trial_summary",
            target=f"{PACKAGE}.trial_summary:TrialSummary",
            options=f"{PACKAGE}.options:TrialSummaryOptions",
            summary="writes how the run ended, with best and last metrics",
        ),
        Component(
            "callback",
            "nan_report",
            target=f"{PACKAGE}.nan_report:NaNReport",
            options=f"{PACKAGE}.options:NaNReportOptions",
            summary="says which module and batch first gave a value that is not finite",
        ),
    ]
