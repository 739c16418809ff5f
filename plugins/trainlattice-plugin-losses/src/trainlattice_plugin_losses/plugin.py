"""Declares the built-in losses."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_losses"


def _loss(name: str, target: str, options: str, summary: str, *, default_for: str | None = None) -> Component:
    return Component(
        "loss",
        name,
        target=f"{PACKAGE}.{target}",
        options=f"{PACKAGE}.options:{options}",
        summary=summary,
        default_for=default_for,
    )


@hookimpl
def trainlattice_components():
    return [
        _loss(
            "cross_entropy",
            "classification:CrossEntropy",
            "CrossEntropyOptions",
            "cross entropy of logits and class indices",
            default_for="loss",
        ),
        _loss(
            "nll",
            "classification:NegativeLogLikelihood",
            "NLLOptions",
            "negative log-likelihood of log-probabilities and class indices",
        ),
        _loss(
            "focal",
            "classification:focal",
            "FocalOptions",
            "cross entropy that counts hard samples more, of classes or of yes and no",
        ),
        _loss(
            "bce_with_logits",
            "binary:BinaryCrossEntropy",
            "BCEOptions",
            "binary cross entropy of logits and yes or no",
        ),
        _loss("mse", "regression:MeanSquaredError", "RegressionOptions", "mean squared error"),
        _loss("l1", "regression:L1", "RegressionOptions", "mean absolute error"),
        _loss(
            "smooth_l1",
            "regression:SmoothL1",
            "SmoothL1Options",
            "squared error near the target, absolute error far from it",
        ),
        _loss(
            "kl_div",
            "distributions:KLDivergence",
            "KLDivOptions",
            "Kullback-Leibler divergence of log-probabilities from probabilities",
        ),
        _loss(
            "cosine_embedding",
            "embeddings:CosineEmbedding",
            "CosineEmbeddingOptions",
            "cosine between two embeddings that are alike or differ",
        ),
        _loss(
            "dice",
            "segmentation:Dice",
            "DiceOptions",
            "soft Dice loss of regions, of classes or of yes and no",
        ),
        _loss("ssim", "images:SSIM", "SSIMOptions", "one minus the structural similarity of images"),
    ]
