"""Declares the built-in models."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    package = "trainlattice_plugin_models"
    return [
        Component(
            "model",
            name,
            target=f"{package}.{target}",
            options=f"{package}.options:{options}",
            summary=summary,
        )
        for name, target, options, summary in (
            ("mlp", "mlp:MLP", "MLPOptions", "fully connected layers with GELU and dropout"),
            (
                "cnn",
                "cnn:CNN",
                "CNNOptions",
                "blocks of convolution, GELU and max pooling, and a linear head",
            ),
            (
                "late_fusion",
                "late_fusion:LateFusion",
                "LateFusionOptions",
                "several inputs: layers for each, put together below an MLP",
            ),
            (
                "multi_head",
                "multi_head:MultiHead",
                "MultiHeadOptions",
                "several outputs: an MLP with a linear head for each, for multi-task training",
            ),
            (
                "autoencoder",
                "autoencoder:Autoencoder",
                "AutoencoderOptions",
                "images through a few values and back, with convolutions",
            ),
            (
                "unet",
                "unet:UNet",
                "UNetOptions",
                "a class for each pixel: convolutions with skip connections",
            ),
        )
    ]
