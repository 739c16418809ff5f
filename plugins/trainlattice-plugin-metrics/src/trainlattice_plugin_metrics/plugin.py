"""Declares the built-in metrics."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_metrics"


@hookimpl
def trainlattice_components():
    named = [
        ("accuracy", "classification:accuracy", "AccuracyOptions", "share of right classes or labels"),
        (
            "top_k",
            "classification:accuracy",
            "TopKOptions",
            "share of targets among the k largest predictions",
        ),
        ("f1", "classification:f1", "ScoreOptions", "harmonic mean of precision and recall"),
        (
            "precision",
            "classification:precision",
            "ScoreOptions",
            "share of predicted positives that are right",
        ),
        ("recall", "classification:recall", "ScoreOptions", "share of positives that are found"),
        ("auroc", "classification:auroc", "AurocOptions", "area under the ROC curve"),
        (
            "confusion_matrix",
            "classification:confusion_matrix",
            "ConfusionMatrixOptions",
            "counts by true class (rows) and predicted class (columns)",
        ),
        ("mae", "regression:mae", "MaeOptions", "mean absolute error"),
        ("mse", "regression:mse", "MseOptions", "mean squared error"),
        ("r2", "regression:r2", "R2Options", "share of the target's variance that is explained"),
        ("psnr", "regression:psnr", "PsnrOptions", "peak signal-to-noise ratio of images, dB"),
        ("ssim", "regression:ssim", "SsimOptions", "structural similarity of images"),
        ("perplexity", "perplexity:perplexity", "PerplexityOptions", "of logits [B, T, V] and tokens [B, T]"),
        ("mean", "mean:mean", None, "mean of the values of any key, by samples"),
    ]
    metrics = [
        Component(
            "metric",
            name,
            target=f"{PACKAGE}.{target}",
            options=options and f"{PACKAGE}.options:{options}",
            summary=summary,
        )
        for name, target, options, summary in named
    ]
    any_other = Component(
        "metric",
        "torchmetrics",
        target=f"{PACKAGE}.any_class:build",
        options=f"{PACKAGE}.options:AnyClassOptions",
        summary="any class of torchmetrics: torchmetrics/ClassName, with the class's own options",
        member_option="class",
    )
    return [*metrics, any_other]
