"""Declares the built-in trackers."""

from trainlattice.plugin import Component, hookimpl

PACKAGE = "trainlattice_plugin_trackers"


@hookimpl
def trainlattice_components():
    return [
        Component(
            "tracker",
            "csv",
            target=f"{PACKAGE}.csv_files:CsvFiles",
            summary="a CSV file for each type of record, in the run directory",
        ),
        Component(
            "tracker",
            "tensorboard",
            target=f"{PACKAGE}.tensorboard_events:TensorBoard",
            summary="event files for TensorBoard, in the run directory",
        ),
        Component(
            "tracker",
            "wandb",
            target=f"{PACKAGE}.wandb_run:WandbRun",
            options=f"{PACKAGE}.options:WandbOptions",
            summary="a run of Weights & Biases",
        ),
        Component(
            "tracker",
            "mlflow",
            target=f"{PACKAGE}.mlflow_run:MlflowRun",
            options=f"{PACKAGE}.options:MlflowOptions",
            summary="a run of MLflow",
        ),
    ]
