"""Data of a test's own through a model that gives it back."""

import pytest
import torch
from torch import nn

from support.runs import train
from trainlattice import Options, register_dataset, register_loss, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData

DATA = {}


class GivenOptions(Options):
    num_classes: int | None = None


@register_dataset("given", options=GivenOptions)
def open_given(options):
    """The same samples to train and to validate on: predictions as inputs, and their targets."""
    data = TensorData(DATA["preds"], DATA["target"])
    task = "classification" if options.num_classes else None
    return Splits(data, data, contract=DatasetContract(None, task, options.num_classes))


@register_model("echo")
class Echo(nn.Module):
    """Its input, plus zero times its parameter."""

    def __init__(self):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + 0.0 * self.zero


@register_loss("nothing")
class Nothing(nn.Module):
    broadcasts = True

    def forward(self, pred, target):
        return (0.0 * pred).sum()


@pytest.fixture
def measured(tmp_path):
    """The run of an echo with some metrics, in batches of 4."""

    def run(preds, target, *metrics, num_classes=None, trainer=None, **arguments):
        DATA.update(preds=preds, target=target)
        dataset = {"name": "given", "batch_size": 4}
        if num_classes:
            dataset["num_classes"] = num_classes
        config = {
            "model": {"name": "echo"},
            "dataset": dataset,
            "loss": {"name": "nothing"},
            "optimizer": {"name": "sgd", "lr": 1e-9},
            "trainer": {"device": "cpu", "log_every": 1000, **(trainer or {})},
            "metrics": list(metrics),
            "callbacks": [],
        }
        return train(config, tmp_path, **arguments)

    return run
