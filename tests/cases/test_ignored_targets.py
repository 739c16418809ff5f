"""Accuracy and loss where some targets do not count."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from support.t1 import records, train_t1  # noqa: E402
from trainlattice import Options, register_loss, register_model  # noqa: E402
from trainlattice.data import Splits, TensorData  # noqa: E402


@register_model("always_class_0", options=Options)
class AlwaysClass0(nn.Module):
    """Logits of two classes at each of the input's places; class 0 is the larger."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.bias.view(1, 2, 1).expand(len(x), 2, x.shape[1])


@pytest.mark.parametrize(
    ("targets", "ignore_index", "accuracy"),
    [
        ([[0, 0, 1, 1]], -100, 0.5),
        ([[0, -100, -100, 1]], -100, 0.5),
        ([[0, 0, 0, 1]], 0, 0.0),  # ignored places are not counted as correct
    ],
)
def test_accuracy_is_the_share_of_the_targets_that_count(
    tmp_path: Path, targets: list[list[int]], ignore_index: int, accuracy: float
) -> None:
    data = TensorData(torch.zeros(1, 4), torch.tensor(targets))
    result = train_t1(
        tmp_path,
        Splits(data, data),
        lr=1e-9,
        model={"name": "always_class_0"},
        loss={"name": "cross_entropy", "ignore_index": ignore_index},
    )
    (epoch,) = records(result, "epoch")
    assert epoch["val_accuracy"] == epoch["train_accuracy"] == accuracy


@register_loss("plain_cross_entropy", options=Options)
class PlainCrossEntropy(nn.CrossEntropyLoss):
    """Says nothing about terms or ignored targets."""

    task = "classification"

    def __init__(self) -> None:
        super().__init__()
        del self.ignore_index
        self.ignored = -100

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(pred, target)


def test_accuracy_of_dense_targets_is_a_share_also_where_the_loss_counts_samples(tmp_path: Path) -> None:
    data = TensorData(torch.zeros(2, 4), torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]]))
    result = train_t1(
        tmp_path,
        Splits(data, data),
        batch_size=2,
        lr=1e-9,
        model={"name": "always_class_0"},
        loss={"name": "plain_cross_entropy"},
    )
    (epoch,) = records(result, "epoch")
    assert epoch["val_accuracy"] == 0.5
    assert epoch["val_loss"] == pytest.approx(0.5 * (math.log1p(math.exp(-1)) + math.log1p(math.exp(1))))


@register_loss("learned_scale", options=Options)
class LearnedScale(nn.Module):
    """A loss with a parameter and a buffer of its own."""

    task = "regression"

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return self.scale * (pred - target).square().mean()


def test_a_loss_learns_is_saved_and_is_resumed(tmp_path: Path) -> None:
    from support.t1 import table

    splits = table([1.0, 1.0], [1.0, 2.0], val=([1.0], [1.0]))

    def state(run: Path) -> dict[str, Tensor]:
        saved: dict[str, Tensor] = torch.load(run / "checkpoints" / "last.pt", weights_only=True)["states"][
            "loss"
        ]
        return saved

    whole = train_t1(tmp_path, splits, loss={"name": "learned_scale"}, trainer={"epochs": 2})
    part = train_t1(tmp_path, splits, loss={"name": "learned_scale"}, dataset={"table": "again"})
    assert whole.run_dir is not None
    assert part.run_dir is not None
    assert state(part.run_dir)["scale"] != 1.0
    rest = train_t1(
        tmp_path,
        splits,
        loss={"name": "learned_scale"},
        dataset={"table": "again"},
        trainer={"epochs": 2},
        resume=part.run_dir,
    )
    assert rest.run_dir is not None
    for name, value in state(whole.run_dir).items():
        assert torch.equal(state(rest.run_dir)[name], value)
    assert state(whole.run_dir)["calls"] == 4  # never in validation
