"""Weights and losses of a run equal those of a hand-written loop, bit for bit."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from support import hand_written
from support.runs import records, train, weights

pytestmark = pytest.mark.torch
SEED, SAMPLES, BATCH, EPOCHS, LR, CLASSES = 3, 52, 8, 3, 0.05, 3


class MLP(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            *(nn.Linear(math.prod(shape), 16), nn.GELU(), nn.Dropout(0.1)),
            *(nn.Linear(16, 8), nn.GELU(), nn.Dropout(0.1)),
            nn.Linear(8, outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class CNN(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(nn.Conv2d(shape[0], 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(4, 6, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        )
        self.head = nn.Linear(6 * (shape[1] // 4) * (shape[2] // 4), outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).flatten(1))


SHAPE = (1, 8, 8)
MODELS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "mlp": (MLP, {"input_dim": 64, "hidden_dims": [16, 8]}),
    "cnn": (CNN, {"input_shape": list(SHAPE), "channels": [4, 6]}),
}
LOSSES: dict[str, Any] = {
    "cross_entropy": functional.cross_entropy,
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
}
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "adamw": (partial(torch.optim.AdamW, fused=True), {"name": "adamw"}),
    "adam": (partial(torch.optim.Adam, fused=True), {"name": "adam"}),
    "sgd": (partial(torch.optim.SGD, fused=True), {"name": "sgd"}),
    "adamw_foreach": (
        partial(torch.optim.AdamW, foreach=True),
        {"name": "adamw", "implementation": "foreach"},
    ),
    "sgd_loop": (partial(torch.optim.SGD, foreach=False), {"name": "sgd", "implementation": "loop"}),
    "momentum": (partial(torch.optim.SGD, momentum=0.9, fused=True), {"name": "sgd", "momentum": 0.9}),
}


def warmup_cosine(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return LR * (step + 1) / warmup
    return 0.0 if step >= total else LR * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def warmup_linear(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return LR * (step + 1) / warmup
    return 0.0 if step >= total else LR * (1.0 - (step - warmup) / (total - warmup))


def step_decay(step: int, warmup: int, total: int) -> float:
    return LR * 0.5 ** (step // 4)


SCHEDULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "warmup_cosine": (warmup_cosine, {"warmup_steps": 3}),
    "warmup_linear": (warmup_linear, {"warmup_steps": 3}),
    "step_decay": (step_decay, {"step_size": 4, "gamma": 0.5}),
}


def case(model: str = "mlp", **changes: Any) -> Any:
    name = "-".join([model, *(f"{k}={v}" for k, v in changes.items())])
    return pytest.param(model, changes, id=name)


CASES = [
    case(model, **changes)
    for model in MODELS
    for changes in (
        {},
        {"accumulate": 3},
        {"clip": 0.1},
        {"accumulate": 2, "clip": 0.1, "schedule": "warmup_cosine"},
        *({"schedule": name} for name in SCHEDULES),
        *({"loss": name} for name in LOSSES),
        *({"optimizer": name} for name in OPTIMIZERS),
        {"bf16": True},
        {
            "bf16": True,
            "accumulate": 3,
            "clip": 0.5,
            "schedule": "warmup_linear",
            "optimizer": "momentum",
        },
    )
]


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_weights_equal_those_of_a_hand_written_loop(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    loss, optimizer = changes.get("loss", "cross_entropy"), changes.get("optimizer", "adamw")
    accumulate, clip, bf16 = changes.get("accumulate", 1), changes.get("clip"), changes.get("bf16", False)
    outputs = CLASSES if loss == "cross_entropy" else 2
    data = write_data(tmp_path, outputs, regression=loss != "cross_entropy")
    schedule, options = SCHEDULES[changes["schedule"]] if "schedule" in changes else (None, {})
    config: dict[str, Any] = {
        "experiment": {"name": "parity", "seed": SEED},
        "model": {"name": name, "num_classes": outputs, **MODELS[name][1]},
        "dataset": {"name": "tensor", "root": str(tmp_path), "batch_size": BATCH, "num_classes": outputs},
        "loss": {"name": loss},
        "optimizer": {**OPTIMIZERS[optimizer][1], "lr": LR},
        "callbacks": [],
        "trainer": {
            "epochs": EPOCHS,
            "device": "cpu",
            "log_every": 1,
            "accumulate": accumulate,
            "max_grad_norm": clip,
            "precision": "bf16" if bf16 else "fp32",
        },
    }
    if schedule is not None:
        config["scheduler"] = {"name": changes["schedule"], **options}
    result = train(config, tmp_path)

    torch.manual_seed(SEED)
    model = MODELS[name][0](SHAPE, outputs)
    steps = math.ceil(math.ceil(SAMPLES / BATCH) / accumulate) * EPOCHS
    losses = hand_written.train(
        model,
        data,
        LOSSES[loss],
        OPTIMIZERS[optimizer][0](model.parameters(), lr=LR),
        (lambda step: schedule(step, 3, steps)) if schedule is not None else None,
        epochs=EPOCHS,
        batch_size=BATCH,
        accumulate=accumulate,
        clip=clip,
        bf16=bf16,
        seed=SEED,
    )

    for trained, expected in zip(weights(result.run_dir).values(), model.state_dict().values(), strict=True):
        assert torch.equal(trained, expected)
    assert [record["loss"] for record in records(result.run_dir, "batch")] == losses


def write_data(root: Path, outputs: int, *, regression: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    for file in ("validation.pt", "train.pt"):
        features = torch.randn(SAMPLES, *SHAPE, generator=generator)
        labels = torch.randint(outputs, (SAMPLES,), generator=generator)
        if regression:
            labels = torch.randn(SAMPLES, outputs, generator=generator)
        torch.save({"features": features, "labels": labels}, root / file)
    return features, labels
