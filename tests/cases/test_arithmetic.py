"""Cases of wrong arithmetic that users of other tools reported; the values are computed by hand."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from support.runs import InOrder  # noqa: E402
from support.t1 import Slope, records, table, train_t1, weight_of  # noqa: E402
from trainlattice import (  # noqa: E402
    Callback,
    Options,
    register_loss,
    register_model,
)
from trainlattice.contracts.settings import TrainerSettings  # noqa: E402
from trainlattice.data import Splits, TensorData  # noqa: E402
from trainlattice.data.loader import MapSource  # noqa: E402
from trainlattice.diagnostics.errors import ConfigError, NonFiniteError  # noqa: E402
from trainlattice.training.callbacks import CallbackList  # noqa: E402
from trainlattice.training.mode import Parts  # noqa: E402
from trainlattice.training.strategy import SingleDevice  # noqa: E402
from trainlattice.training.supervised import Supervised  # noqa: E402
from trainlattice.training.trainer import Services, Trainer  # noqa: E402
from trainlattice.training.update import Update  # noqa: E402

ONES = [1.0]


class Records(list[dict[str, Any]]):
    """A sink that keeps records in memory."""

    def write(self, record: Any) -> None:
        self.append(dict(record))

    def flush(self) -> None:
        pass


def scaled_trainer(
    splits: Splits,
    *,
    batch_size: int = 1,
    lr: float = 0.1,
    init_scale: float = 65536.0,
    growth_interval: int = 2000,
    scheduler: Any = None,
    **settings: Any,
) -> tuple[Trainer, Records]:
    """T1 under fp16 with a gradient scaler on the CPU, through the Python API."""
    device = torch.device("cpu")
    strategy = SingleDevice(device)
    model, loss = Slope(), _MeanSquaredError()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    update = Update(
        optimizer,
        strategy,
        scheduler=scheduler(optimizer) if scheduler else None,
        scaler=torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval),
        max_grad_norm=settings.get("max_grad_norm"),
    )
    parts = Parts({"model": model}, {"optimizer": update}, loss)
    sink = Records()
    trainer = Trainer(
        TrainerSettings(device="cpu", precision="fp16", log_every=1, **settings),
        Supervised(Options(), parts),
        parts,
        strategy,
        Services(sink, CallbackList([])),
        MapSource(splits.train, batch_size=batch_size, shuffle=False, seed=0),
    )
    return trainer, sink


class _MeanSquaredError(nn.Module):
    task = "regression"

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(pred, target)


def slope(trainer: Trainer) -> float:
    return trainer.parts.models["model"].linear.weight.item()


@pytest.mark.parametrize(("weighting", "expected"), [("samples", 0.36), ("fixed", 0.28)])
def test_B30_the_ragged_last_window_counts_by_its_samples(
    tmp_path: Path, weighting: str, expected: float
) -> None:
    result = train_t1(
        tmp_path,
        table(ONES * 10, ONES * 10),
        batch_size=4,
        trainer={"accumulate": 2, "accumulate_weighting": weighting},
    )
    assert result.global_step == 2
    assert weight_of(result) == pytest.approx(expected, rel=1e-6)


def test_B31_schedule_steps_and_logs_count_optimizer_steps(tmp_path: Path) -> None:
    splits = table(ONES * 16, ONES * 16)
    scheduler = {"name": "warmup_linear", "warmup_steps": 2}
    rates = []
    for batch_size, accumulate in ((4, 1), (1, 4)):
        result = train_t1(
            tmp_path,
            splits,
            batch_size=batch_size,
            scheduler=scheduler,
            trainer={"accumulate": accumulate},
        )
        assert result.global_step == 4
        assert result.run_dir is not None
        saved = torch.load(result.run_dir / "checkpoints" / "last.pt", weights_only=True)
        assert saved["budget"] == 4
        rates.append([record["lr"] for record in records(result, "batch")])
        stopped = train_t1(
            tmp_path,
            splits,
            batch_size=batch_size,
            scheduler=scheduler,
            trainer={"accumulate": accumulate, "max_steps": 3},
        )
        assert [record["step"] for record in records(stopped, "batch")] == [1, 2, 3]
    assert rates[0] == rates[1] == pytest.approx([0.05, 0.1, 0.1, 0.05])


@register_model("bias_head", options=Options)
class BiasHead(nn.Module):
    """Logits are a bias alone, for any input."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.bias.view(1, 2, 1).expand(len(x), 2, x.shape[1])


def test_B32_tokens_of_a_window_weigh_the_same_wherever_they_stand(tmp_path: Path) -> None:
    inputs = torch.zeros(2, 3)
    targets = torch.tensor([[0, -100, -100], [1, 1, 1]])

    def bias_after(batch_size: int, accumulate: int) -> list[float]:
        result = train_t1(
            tmp_path,
            Splits(TensorData(inputs, targets)),
            batch_size=batch_size,
            lr=1.0,
            model={"name": "bias_head"},
            loss={"name": "cross_entropy"},
            trainer={"accumulate": accumulate},
        )
        assert result.run_dir is not None
        saved = torch.load(result.run_dir / "checkpoints" / "last.pt", weights_only=True)
        bias: list[float] = saved["states"]["model/model"]["bias"].tolist()
        return bias

    assert bias_after(1, 2) == pytest.approx([-0.25, 0.25])
    assert bias_after(2, 1) == pytest.approx([-0.25, 0.25])


def test_B32_a_micro_batch_without_a_supervised_token_counts_for_nothing(tmp_path: Path) -> None:
    targets = torch.tensor([[0, 1, 1], [-100, -100, -100]])
    result = train_t1(
        tmp_path,
        Splits(TensorData(torch.zeros(2, 3), targets)),
        lr=1.0,
        model={"name": "bias_head"},
        loss={"name": "cross_entropy"},
        trainer={"accumulate": 2},
    )
    (batch,) = records(result, "batch")
    assert batch["loss"] == pytest.approx(math.log(2))


def test_B34_gradients_are_unscaled_before_they_are_clipped() -> None:
    trainer, sink = scaled_trainer(table(ONES, [0.25]), max_grad_norm=1.0)
    trainer.fit()
    assert slope(trainer) == pytest.approx(0.05)
    assert next(r for r in sink if r["type"] == "batch")["grad_norm"] == pytest.approx(0.5)

    # A gradient of -10 times 65536 is no fp16 number.
    trainer, sink = scaled_trainer(table(ONES, [5.0]), init_scale=1024.0, max_grad_norm=1.0)
    trainer.fit()
    assert slope(trainer) == pytest.approx(0.1, rel=1e-5)
    assert next(r for r in sink if r["type"] == "batch")["grad_norm"] == pytest.approx(10.0)


def test_B35_the_scale_is_updated_once_per_window() -> None:
    trainer, _ = scaled_trainer(table(ONES * 8, [0.5] * 8), growth_interval=2, accumulate=2)
    trainer.fit()
    scaler = trainer.parts.updates["optimizer"].scaler
    assert scaler is not None
    assert trainer.state.global_step == 4
    assert scaler.get_scale() == 262144.0


def test_B36_a_step_that_the_scaler_skips_advances_nothing() -> None:
    from trainlattice_plugin_schedulers.options import WarmupOptions
    from trainlattice_plugin_schedulers.schedulers import WarmupLinear

    splits = table([1e30, 1.0, 1.0, 1.0], [0.25] * 4)
    trainer, sink = scaled_trainer(
        splits, scheduler=lambda optimizer: WarmupLinear(WarmupOptions(warmup_steps=4), optimizer, 10)
    )
    seen: list[tuple[float, float]] = []

    class Watch(Callback):
        def on_step_end(self, trainer: Trainer) -> None:
            scaler = trainer.parts.updates["optimizer"].scaler
            assert scaler is not None
            seen.append((slope(trainer), scaler.get_scale()))

    trainer.callbacks = CallbackList([("watch", Watch())])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit()
    assert seen[0] == (0.0, 32768.0)
    assert trainer.state.skipped_steps == 1
    assert trainer.state.global_step == 3
    assert [r["lr"] for r in sink if r["type"] == "batch"] == pytest.approx([0.025, 0.05, 0.075])
    (skipped,) = [r for r in sink if r.get("event") == "skipped_step"]
    assert skipped["reason"] == "skipped by the scaler"


@pytest.mark.parametrize(("warmup", "first"), [(4, 0.025), (0, 0.1), (1, 0.1)])
@pytest.mark.parametrize("name", ["warmup_cosine", "warmup_linear"])
def test_B37_the_first_update_has_a_rate(tmp_path: Path, name: str, warmup: int, first: float) -> None:
    result = train_t1(
        tmp_path,
        table(ONES * 10, ONES * 10),
        scheduler={"name": name, "warmup_steps": warmup},
    )
    rates = [record["lr"] for record in records(result, "batch")]
    assert rates[0] == pytest.approx(first)
    assert rates[:warmup] == pytest.approx([0.1 * (s + 1) / warmup for s in range(warmup)])
    assert all(a >= b for a, b in zip(rates[warmup:], rates[warmup + 1 :], strict=False))
    one = train_t1(
        tmp_path, table(ONES, ONES), scheduler={"name": name, "warmup_steps": 4, "total_steps": 10}
    )
    assert weight_of(one) == pytest.approx(0.05)  # 0.025 * 2


@pytest.mark.parametrize("name", ["warmup_cosine", "warmup_linear"])
@pytest.mark.parametrize(
    ("warmup", "total", "valid"),
    [(10, 10, False), (20, 10, False), (1, 1, False), (0, 1, True), (0, 10, True)],
)
@pytest.mark.parametrize("derived", [False, True])
def test_B38_a_warmup_as_long_as_the_run_is_a_configuration_error(
    tmp_path: Path, name: str, warmup: int, total: int, valid: bool, derived: bool
) -> None:
    scheduler = {"name": name, "warmup_steps": warmup, **({} if derived else {"total_steps": total})}
    splits = table(ONES * total, ONES * total)
    if valid:
        result = train_t1(tmp_path, splits, scheduler=scheduler)
        assert all(0 <= record["lr"] <= 0.1 for record in records(result, "batch"))
        return
    with pytest.raises(ConfigError) as caught:
        train_t1(tmp_path, splits, scheduler=scheduler)
    assert caught.value.exit_code == 2
    text = str(caught.value)
    assert "scheduler.warmup_steps" in text
    assert str(warmup) in text
    assert str(total) in text
    assert not (tmp_path / "runs").exists()


@register_loss("bf16_mean", options=Options)
class Bf16Mean(nn.Module):
    """A mean in bfloat16, as a loss under autocast may return it: 300 of them, added in bfloat16, end at 256."""

    task = "regression"

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        return ((pred - target) ** 2).to(torch.bfloat16).mean()


def test_B39_means_are_exact_in_half_precision(tmp_path: Path) -> None:
    result = train_t1(
        tmp_path,
        table([0.0], [0.0], val=([0.0] * 300, ONES * 300)),
        batch_size=1,
        loss={"name": "bf16_mean"},
        trainer={"precision": "bf16"},
    )
    (epoch,) = records(result, "epoch")
    assert epoch["val_loss"] == 1.0


class Labels(nn.Module):
    """Predicts class 1 where x is positive, and learns nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([-x, x], dim=1) + self.nothing


register_model("labels", options=Options)(Labels)


def test_B41_training_and_validation_metrics_do_not_mix(tmp_path: Path) -> None:
    x = torch.ones(4, 1)
    splits = Splits(
        TensorData(x, torch.zeros(4, dtype=torch.int64)), TensorData(x, torch.ones(4, dtype=torch.int64))
    )

    class Flip(Callback):
        """From the second epoch on, validation labels are wrong."""

        def on_epoch_end(self, trainer: Trainer, metrics: Any) -> None:
            trainer.val.dataset.targets = torch.zeros(4, dtype=torch.int64)  # type: ignore[union-attr]

    result = train_t1(
        tmp_path,
        splits,
        callbacks=[Flip()],
        model={"name": "labels"},
        loss={"name": "cross_entropy"},
        trainer={"epochs": 2, "validate_every_steps": 2},
    )
    epochs = records(result, "epoch")
    assert [r["val_accuracy"] for r in epochs] == [1.0, 0.0]
    assert [r["train_accuracy"] for r in epochs] == [0.0, 0.0]
    assert [r["val_accuracy"] for r in records(result, "validation")] == [1.0, 1.0, 0.0, 0.0]


@register_loss("minus_log", options=Options)
class MinusLog(nn.Module):
    """The mean of the predictions that are not negative: losses of tokens, given as inputs."""

    task = None

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        mask = target >= 0
        return pred[mask].mean()

    def num_terms(self, target: Tensor) -> Tensor:
        return (target >= 0).sum()


@register_model("given", options=Options)
class Given(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + 0 * self.nothing


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([[math.log(2), -1, -1], [math.log(8), -1, -1]], 4.0),
        ([[math.log(2)] * 3, [math.log(8), -1, -1]], 2.828427),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 2])
def test_B42_the_validation_loss_is_a_mean_over_tokens(
    tmp_path: Path, tokens: list[list[float]], expected: float, batch_size: int
) -> None:
    data = TensorData(torch.tensor(tokens), torch.tensor(tokens))
    result = train_t1(
        tmp_path,
        Splits(data, data),
        batch_size=batch_size,
        model={"name": "given"},
        loss={"name": "minus_log"},
    )
    (epoch,) = records(result, "epoch")
    assert math.exp(epoch["val_loss"]) == pytest.approx(expected, rel=1e-6)


def eight_with_a_nan() -> Splits:
    x = [1.0] * 8
    x[4] = math.nan
    return table(x, [1.0 + i for i in range(8)])


def test_B44_stop_ends_the_run_at_the_step_that_is_not_finite(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="step 5") as caught:
        train_t1(tmp_path, eight_with_a_nan(), callbacks=[InOrder()])
    assert caught.value.exit_code == 12
    (run,) = (tmp_path / "runs").iterdir()
    rows = records(run)
    assert any(r["step"] in (4, 5) and r.get("loss", 0) is None and r["nonfinite"] for r in rows)
    steps = [r["loss"] for r in rows if r["type"] == "batch"]
    assert all(loss is not None for loss in steps[:4])


def test_B44_skip_leaves_the_step_out(tmp_path: Path) -> None:
    result = train_t1(tmp_path, eight_with_a_nan(), callbacks=[InOrder()], trainer={"nonfinite": "skip"})
    others = [1.0 + i for i in range(8) if i != 4]
    expected = train_t1(tmp_path, table([1.0] * 7, others), callbacks=[InOrder()])
    assert weight_of(result) == weight_of(expected)
    (skipped,) = [r for r in records(result, "event") if r["event"] == "skipped_step"]
    assert skipped["loss"] is None
    assert result.global_step == 7
    (epoch,) = records(result, "epoch")
    (other,) = records(expected, "epoch")
    assert epoch["train_loss"] == other["train_loss"]


def test_B44_skip_is_bounded_by_its_budget(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="nonfinite_budget"):
        train_t1(
            tmp_path,
            table([math.nan] * 4, ONES * 4),
            trainer={"nonfinite": "skip", "nonfinite_budget": 2},
        )


def test_B44_continue_never_overwrites_a_good_checkpoint(tmp_path: Path) -> None:
    class Poison(Callback):
        def on_epoch_start(self, trainer: Trainer) -> None:
            if trainer.state.epoch == 1:
                trainer.train.dataset.inputs[0] = math.nan  # type: ignore[attr-defined]

    result = train_t1(
        tmp_path,
        table(ONES * 2, ONES * 2, val=(ONES, ONES)),
        callbacks=[Poison()],
        trainer={"nonfinite": "continue", "epochs": 2},
    )
    assert result.run_dir is not None
    assert math.isfinite(weight_of(result))
    assert math.isnan(weight_of(result, "nonfinite.pt"))
    assert math.isfinite(weight_of(result, "best.pt"))


@register_loss("root", options=Options)
class Root(nn.Module):
    """Finite, with the gradient 0 * inf = NaN on call number six."""

    task = "regression"

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(pred, target)
        if not pred.is_meta and torch.is_grad_enabled():
            self.calls += 1
            if self.calls == 6:
                return loss + torch.sqrt(pred.sum() * 0.0)
        return loss


@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_B45_a_gradient_that_is_not_finite_never_reaches_a_checkpoint(
    tmp_path: Path, clip: float | None, optimizer: str
) -> None:
    with pytest.raises(NonFiniteError, match="step 6"):
        train_t1(
            tmp_path,
            table(ONES * 2, ONES * 2, val=(ONES, ONES)),
            optimizer={"name": optimizer},
            loss={"name": "root"},
            trainer={"max_grad_norm": clip, "epochs": 5},
        )
    (run,) = (tmp_path / "runs").iterdir()
    for file in ("last.pt", "best.pt"):
        saved = torch.load(run / "checkpoints" / file, weights_only=True)
        assert saved["trainer"]["global_step"] == 4
        assert torch.isfinite(saved["states"]["model/model"]["linear.weight"]).all()


class Recording(nn.Module):
    """Remembers in which mode it was called; one child is meant to stay in eval mode."""

    seen: list[tuple[bool, bool, bool]]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        self.norm = nn.BatchNorm1d(1).eval()
        self.seen = []

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta:
            self.seen.append((self.training, torch.is_grad_enabled(), self.norm.training))
        return self.norm(self.linear(x))


register_model("recording", options=Options)(Recording)


@pytest.mark.parametrize("raises", [False, True])
def test_B47_validation_leaves_every_module_in_its_mode(tmp_path: Path, raises: bool) -> None:
    modules: list[Recording] = []

    class Watch(Callback):
        def on_run_start(self, trainer: Trainer) -> None:
            modules.append(trainer.parts.models["model"])  # type: ignore[arg-type]

        def on_batch_end(self, trainer: Trainer, phase: str, container: Any) -> None:
            if raises and phase == "val":
                raise RuntimeError("in the middle of validation")

    def train() -> None:
        train_t1(
            tmp_path,
            table(ONES * 6, ONES * 6, val=(ONES, ONES)),
            callbacks=[Watch()],
            model={"name": "recording"},
            trainer={"validate_every_steps": 2},
        )

    if raises:
        with pytest.raises(RuntimeError, match="in the middle"):
            train()
    else:
        train()
    (module,) = modules
    assert module.training
    assert not module.norm.training
    assert torch.is_grad_enabled()
    training = [seen for seen in module.seen if seen[0]]
    validation = [seen for seen in module.seen if not seen[0]]
    assert training == [(True, True, False)] * (2 if raises else 6)
    assert validation == [(False, False, False)] * (1 if raises else 3)
    assert module.norm.num_batches_tracked == 0
    assert module.norm.running_mean.tolist() == [0.0]


def test_accumulating_equals_a_batch_as_many_times_as_large(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(22, 1, generator=generator), torch.randn(22, 1, generator=generator)
    big = train_t1(tmp_path, Splits(TensorData(x, y)), batch_size=8)
    small = train_t1(tmp_path, Splits(TensorData(x, y)), batch_size=2, trainer={"accumulate": 4})
    assert big.global_step == small.global_step == 3
    assert weight_of(small) == pytest.approx(weight_of(big), rel=1e-5)
    for a, b in zip(records(big, "batch"), records(small, "batch"), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
