"""The same problem on the same order of data gives the same losses and weights in PyTorch Lightning.

Optional: ``python -m pip install lightning`` runs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from support.runs import records, train, weights
from trainlattice.data.order import epoch_order

lightning = pytest.importorskip("lightning.pytorch", reason="PyTorch Lightning is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]  # Lightning's own warnings
SEED, SAMPLES, BATCH, EPOCHS, LR = 5, 48, 8, 3, 0.05


def write_data(root: Path) -> tuple[Tensor, Tensor]:
    """48 samples of 6 values in 3 classes, as files of the dataset ``tensor``."""
    generator = torch.Generator().manual_seed(0)
    for file in ("validation.pt", "train.pt"):
        features = torch.randn(SAMPLES, 6, generator=generator)
        labels = torch.randint(3, (SAMPLES,), generator=generator)
        torch.save({"features": features, "labels": labels}, root / file)
    return features, labels


def lightning_module(data: tuple[Tensor, Tensor], optimizer: str) -> Any:
    """The model of TrainLattice's ``mlp``, written as users of Lightning do."""

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> Tensor:
            """Takes the batch that TrainLattice has at this place: Lightning only counts."""
            rows = epoch_order(SAMPLES, seed=SEED, epoch=self.current_epoch).split(BATCH)[index]
            loss = functional.cross_entropy(self.net(data[0][rows]), data[1][rows])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            if optimizer == "sgd":
                return torch.optim.SGD(self.parameters(), lr=LR, momentum=0.9)
            return torch.optim.AdamW(self.parameters(), lr=LR)

    torch.manual_seed(SEED)
    return Module()


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_losses_and_weights_agree_to_1e_6(
    tmp_path: Path, optimizer: str, clip: float | None, accumulate: int
) -> None:
    data = write_data(tmp_path)
    module = lightning_module(data, optimizer)
    lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        gradient_clip_val=clip,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(tmp_path),
    ).fit(module, DataLoader(range(SAMPLES // BATCH)))

    run = train(
        {
            "experiment": {"seed": SEED},
            "model": {"name": "mlp", "input_dim": 6, "hidden_dims": [16], "num_classes": 3, "dropout": 0.0},
            "dataset": {"name": "tensor", "root": str(tmp_path), "batch_size": BATCH, "num_classes": 3},
            "optimizer": {"name": optimizer, "lr": LR, **({"momentum": 0.9} if optimizer == "sgd" else {})},
            "callbacks": [],
            "trainer": {
                "epochs": EPOCHS,
                "device": "cpu",
                "log_every": 1,
                "accumulate": accumulate,
                "max_grad_norm": clip,
            },
        },
        tmp_path,
    ).run_dir
    windows = [module.losses[i : i + accumulate] for i in range(0, len(module.losses), accumulate)]
    expected = [sum(window) / len(window) for window in windows]
    assert [record["loss"] for record in records(run, "batch")] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    for ours, theirs in zip(weights(run).values(), module.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
