"""Declares the built-in datasets."""

from trainlattice.plugin import Component, hookimpl


@hookimpl
def trainlattice_components():
    package = "trainlattice_plugin_datasets"
    return [
        Component(
            "dataset",
            name,
            target=f"{package}.{name}:open_{name}",
            options=f"{package}.options:{options}",
            summary=summary,
        )
        for name, options, summary in (
            ("synthetic", "SyntheticOptions", "classes as noisy prototypes, made in memory from the seed"),
            ("tensor", "TensorOptions", "pairs of tensors in .pt files of a local directory"),
            ("digits", "DigitsOptions", "1,797 real 8x8 images of digits, from scikit-learn"),
            ("idx", "IdxOptions", "IDX files of the MNIST family, plain or gzipped, from a local directory"),
            ("csv", "CsvOptions", "a table of numbers with one or several named inputs and targets"),
            (
                "shapes",
                "ShapesOptions",
                "circles, squares and triangles, with the class of each pixel",
            ),
        )
    ]
