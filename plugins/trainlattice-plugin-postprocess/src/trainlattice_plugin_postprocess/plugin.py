"""Declares the post-processors."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_postprocess"
_PROCESSORS = (
    ("argmax", "tensors:argmax", "DimOptions", "index of the largest value of a dimension"),
    ("softmax", "tensors:softmax", "SoftmaxOptions", "probabilities of logits over a dimension"),
    ("channel_format", "tensors:channel_format", "ChannelOptions", "images with channels first or last"),
    ("tensor_slice", "tensors:tensor_slice", "SliceOptions", "a part of a dimension"),
    ("mean_std", "statistics:MeanStd", "MeanStdOptions", "normalised by a mean and a deviation, or back"),
    ("running_stats", "statistics:RunningStats", "RunningOptions", "normalised by what training has seen"),
    ("generate", "generation:Generate", "GenerateOptions", "what the model's generate makes of an input"),
)


@hookimpl
def trainlattice_components():
    return [
        Component(
            "postprocessor",
            name,
            target=f"{PACKAGE}.{target}",
            options=f"{PACKAGE}.options:{options}",
            summary=summary,
        )
        for name, target, options, summary in _PROCESSORS
    ]
