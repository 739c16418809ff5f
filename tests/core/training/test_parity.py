"""The same weights, to the last bit, as a loop written by hand in plain torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.runs import records, train, weights
from trainlattice.data.order import epoch_order

pytestmark = pytest.mark.torch
SEED, EPOCHS, BATCH = 7, 3, 8
MLP = {"name": "mlp", "input_dim": 64, "hidden_dims": [16, 8], "num_classes": 3}
CNN = {"name": "cnn", "input_shape": [1, 8, 8], "channels": [4, 6], "num_classes": 3}


def plain_mlp():
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(64, 16), nn.GELU(), nn.Dropout(0.1)),
        *(nn.Linear(16, 8), nn.GELU(), nn.Dropout(0.1)),
        nn.Linear(8, 3),
    )


def plain_cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(6 * 2 * 2, 3),
    )


@pytest.fixture
def data(tmp_path):
    """37 and 10 images of 8x8 in the files of the tensor dataset."""
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train.pt", 37), ("validation.pt", 10)):
        features = torch.randn(count, 1, 8, 8, generator=generator)
        labels = torch.randint(3, (count,), generator=generator)
        torch.save({"features": features, "labels": labels}, tmp_path / name)
    return torch.load(tmp_path / "train.pt", weights_only=True)


def configured(tmp_path, model, **sections):
    return {
        "experiment": {"seed": SEED},
        "model": model,
        "dataset": {"name": "tensor", "root": str(tmp_path), "batch_size": BATCH, "num_classes": 3},
        "optimizer": {"name": "adamw", "lr": 0.01},
        "trainer": {"epochs": EPOCHS, "log_every": 1, "device": "cpu"},
        **sections,
    }


@pytest.mark.parametrize(("options", "build"), [(MLP, plain_mlp), (CNN, plain_cnn)], ids=["mlp", "cnn"])
def test_weights_and_losses_equal_those_of_a_plain_loop(tmp_path, data, options, build):
    torch.manual_seed(SEED)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(SEED)
    losses = []
    for epoch in range(EPOCHS):
        for rows in torch.split(epoch_order(37, seed=SEED, epoch=epoch), BATCH):
            loss = functional.cross_entropy(model(data["features"][rows]), data["labels"][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    run = train(configured(tmp_path, options), tmp_path).run_dir
    assert [record["loss"] for record in records(run, "batch")] == losses
    for ours, theirs in zip(weights(run).values(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("options", "build"), [(MLP, plain_mlp), (CNN, plain_cnn)], ids=["mlp", "cnn"])
def test_weights_equal_those_of_a_plain_loop_with_everything_turned_on(tmp_path, data, options, build):
    """Accumulation over two batches, clipping, a schedule, momentum and bf16."""
    torch.manual_seed(SEED)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(SEED)
    steps_per_epoch, step = 3, 0
    for epoch in range(EPOCHS):
        batches = torch.split(epoch_order(37, seed=SEED, epoch=epoch), BATCH)
        for first in range(0, len(batches), 2):
            window = batches[first : first + 2]
            samples = sum(len(rows) for rows in window)
            optimizer.zero_grad()
            for rows in window:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = functional.cross_entropy(model(data["features"][rows]), data["labels"][rows])
                (loss * (len(rows) / samples)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            decay = 1 - (step - 2) / (EPOCHS * steps_per_epoch - 2)
            optimizer.param_groups[0]["lr"] = 0.05 * (step + 1) / 2 if step < 2 else 0.05 * decay
            optimizer.step()
            step += 1

    config = configured(
        tmp_path,
        options,
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        scheduler={"name": "warmup_linear", "warmup_steps": 2},
    )
    config["trainer"] |= {"accumulate": 2, "max_grad_norm": 0.5, "precision": "bf16"}
    run = train(config, tmp_path).run_dir
    for ours, theirs in zip(weights(run).values(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
