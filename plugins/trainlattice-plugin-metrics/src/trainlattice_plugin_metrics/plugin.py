"""Declares the metrics."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_metrics"
_METRICS = (
    ("accuracy", "classification:accuracy", "AverageOptions", "share of right predictions"),
    ("top_k", "classification:top_k", "TopKOptions", "share of targets among the k largest scores"),
    ("f1", "classification:f1", "AverageOptions", "harmonic mean of precision and recall"),
    ("precision", "classification:precision", "AverageOptions", "right ones among those that were predicted"),
    ("recall", "classification:recall", "AverageOptions", "those that were predicted among the right ones"),
    ("auroc", "classification:auroc", "AurocOptions", "area under the ROC curve"),
    (
        "confusion_matrix",
        "classification:confusion_matrix",
        "ConfusionMatrixOptions",
        "how often each class was taken for each",
    ),
    ("mae", "regression:mae", None, "mean absolute error"),
    ("mse", "regression:mse", "MSEOptions", "mean squared error, or its root"),
    ("r2", "regression:r2", "R2Options", "coefficient of determination"),
    ("psnr", "images:psnr", "PSNROptions", "peak signal-to-noise ratio, in dB"),
    ("ssim", "images:ssim", "SSIMOptions", "structural similarity of images"),
    ("perplexity", "text:perplexity", "PerplexityOptions", "perplexity of logits over tokens"),
    ("mean", "values:mean", None, "mean of any value of the container"),
    ("torchmetrics", "any_class:build", "AnyOptions", "any class of torchmetrics by its name"),
)


@hookimpl
def trainlattice_components():
    return [
        Component(
            "metric",
            name,
            target=f"{PACKAGE}.{target}",
            options=f"{PACKAGE}.options:{options}" if options else None,
            summary=summary,
        )
        for name, target, options, summary in _METRICS
    ]
