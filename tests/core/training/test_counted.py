"""Losses that count something else than samples: what accumulates, what counts for nothing, what is refused."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.by_hand import line
from support.runs import InOrder, assert_identical, checkpoint, records, tiny, train, weights
from trainlattice import Callback, Options, register_dataset, register_loss, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch
EMPTY = -1.0
"""A target that does not count."""


class MaskOptions(Options):
    reduction: str = "mean"
    returns: str = "tensor"


@register_loss("masked", options=MaskOptions)
class Masked:
    """Mean or sum of ``(pred - target)^2`` over targets that are not negative."""

    def __init__(self, options):
        self.reduction, self.returns = options.reduction, options.returns

    def __call__(self, pred, target):
        mask = (target >= 0).to(pred.dtype)
        total = ((pred - target).square() * mask).sum()
        return total if self.reduction == "sum" else total / mask.sum()

    def num_terms(self, target):
        counted = (target >= 0).sum()
        return {"tensor": counted, "int": int(counted), "float": float(counted)}[self.returns]


def masked(y, *, batch_size, accumulate=1, loss=None, optimizer=None, scheduler=None, **trainer):
    config = line(
        dataset={"x": [1.0] * len(y), "y": y, "batch_size": batch_size},
        trainer={"accumulate": accumulate, **trainer},
    )
    config["loss"] = {"name": "masked", **(loss or {})}
    config["optimizer"] = optimizer or {"name": "sgd", "lr": 0.1}
    if scheduler:
        config["scheduler"] = scheduler
    return config


def trained_weight(config, directory, *callbacks):
    run = train(config, directory, extra_callbacks=[InOrder(), *callbacks]).run_dir
    return run, weights(run)["w"].item()


def by_hand(windows, lr=0.1):
    """Plain SGD on ``mean((w - y)^2)`` over what counts in each window: w after each."""
    w, found = 0.0, []
    for window in windows:
        counted = [y for y in window if y >= 0]
        w -= lr * 2 * (w - sum(counted) / len(counted))
        found.append(w)
    return found


# --- a window is a batch as large as its micro-batches together


@pytest.mark.parametrize(
    ("returns", "batch_size", "accumulate"),
    [("tensor", 6, 1), ("tensor", 3, 2), ("tensor", 1, 6), ("int", 2, 3), ("float", 3, 2)],
)
def test_a_window_is_one_batch_whatever_its_micro_batches_count(tmp_path, returns, batch_size, accumulate):
    """Three, one and two of each micro-batch of three count."""
    y = [1.0, 2.0, 3.0, EMPTY, 6.0, EMPTY, 4.0, EMPTY, EMPTY, 2.0, 3.0, EMPTY]
    config = masked(y, batch_size=batch_size, accumulate=accumulate, loss={"returns": returns})
    run, w = trained_weight(config, tmp_path)
    first, second = by_hand([y[:6], y[6:]])
    assert w == pytest.approx(second, rel=1e-5)
    losses = [r["loss"] for r in records(run, "batch")]
    mean = [
        sum((w0 - v) ** 2 for v in part if v >= 0) / sum(v >= 0 for v in part)
        for w0, part in ((0.0, y[:6]), (first, y[6:]))
    ]
    assert losses == pytest.approx(mean, rel=1e-5)
    (epoch,) = records(run, "epoch")
    assert epoch["train_loss"] == pytest.approx((mean[0] * 4 + mean[1] * 3) / 7, rel=1e-5)


def test_a_sum_adds_up_and_is_reported_as_a_mean_over_what_counts(tmp_path):
    """Gradient of the sum at w = 0: -2 (1 + 2 + 6); four terms less one count."""
    y = [1.0, 2.0, EMPTY, 6.0]
    config = masked(y, batch_size=2, accumulate=2, loss={"reduction": "sum"})
    run, w = trained_weight(config, tmp_path)
    assert w == pytest.approx(0.1 * 2 * 9, rel=1e-6)
    assert records(run, "batch")[0]["loss"] == pytest.approx((1 + 4 + 36) / 3, rel=1e-6)


@pytest.mark.parametrize(
    ("reduction", "gradient"),
    [("mean", 0.5 * -2 * 1.5 + 0.5 * -2 * 6.0), ("sum", 0.5 * -2 * 3.0 + 0.5 * -2 * 6.0)],
)
def test_fixed_multiplies_each_micro_batch_by_one_over_accumulate(tmp_path, reduction, gradient):
    """Whatever it counts, a sum too."""
    config = masked(
        [1.0, 2.0, EMPTY, 6.0],
        batch_size=2,
        accumulate=2,
        loss={"reduction": reduction},
        accumulate_weighting="fixed",
    )
    _, w = trained_weight(config, tmp_path)
    assert w == pytest.approx(-0.1 * gradient, rel=1e-6)


# --- micro-batches in which nothing counts

SKIPPED = "nothing counts"
VARIANTS = [("mean", "samples"), ("sum", "samples"), ("mean", "fixed"), ("sum", "fixed")]


@pytest.mark.parametrize(("reduction", "weighting"), VARIANTS)
@pytest.mark.parametrize("place", [0, 2])
def test_an_empty_micro_batch_has_no_effect(tmp_path, reduction, weighting, place):
    """Its mean is 0 / 0, and would spoil every gradient."""
    micro = [[1.0, 2.0], [4.0, EMPTY]]
    micro.insert(place, [EMPTY, EMPTY])
    config = masked(
        [v for pair in micro for v in pair],
        batch_size=2,
        accumulate=3,
        loss={"reduction": reduction},
        accumulate_weighting=weighting,
    )
    run, w = trained_weight(config, tmp_path)
    # Gradients of the micro-batches at w = 0, of their means or sums.
    first, second = (-2 * 1.5, -2 * 4.0) if reduction == "mean" else (-2 * 3.0, -2 * 4.0)
    if weighting == "fixed":
        gradient = (first + second) / 3
    else:
        gradient = first * 2 / 3 + second / 3 if reduction == "mean" else first + second
    assert w == pytest.approx(-0.1 * gradient, rel=1e-6)
    assert records(run, "batch")[0]["loss"] == pytest.approx((1 + 4 + 16) / 3, rel=1e-6)
    assert records(run, "epoch")[0]["train_loss"] == pytest.approx(7.0, rel=1e-6)


OPTIMIZERS = [
    {"name": "adamw", "lr": 0.1, "weight_decay": 0.1},
    {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    {"name": "adamw", "lr": 0.1, "weight_decay": 0.1, "implementation": "loop"},
    {"name": "sgd", "lr": 0.1, "momentum": 0.9, "implementation": "foreach"},
]


class States(Callback):
    """Weights, optimizer and schedule after each window."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer):
        update = trainer.parts.updates["optimizer"].state_dict()
        held = {"w": trainer.parts.models["model"].w.detach(), **update}
        self.seen.append(_copied(held))


def _copied(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("optimizer", "reduction", "weighting"),
    [
        *[(optimizer, "mean", "samples") for optimizer in OPTIMIZERS],
        *[(OPTIMIZERS[0], *variant) for variant in VARIANTS[1:]],
    ],
)
def test_an_empty_window_is_no_step(tmp_path, optimizer, reduction, weighting):
    """The second of three windows of two micro-batches is empty: neither momentum nor weight decay acts."""
    full = [1.0, 2.0, 4.0, EMPTY]
    common = {
        "batch_size": 2,
        "accumulate": 2,
        "loss": {"reduction": reduction},
        "optimizer": optimizer,
        "scheduler": {"name": "step_decay", "step_size": 1, "gamma": 0.5},
        "accumulate_weighting": weighting,
    }
    states = States()
    run, w = trained_weight(masked([*full, *[EMPTY] * 4, *full], **common), tmp_path, states)
    assert_identical(states.seen[1], states.seen[0])
    other, expected = trained_weight(masked([*full, *full], **common), tmp_path)
    assert w == expected
    assert_identical(
        checkpoint(run)["states"]["update/optimizer"], checkpoint(other)["states"]["update/optimizer"]
    )
    held = checkpoint(run)["trainer"]
    assert (held["global_step"], held["skipped_steps"], held["nonfinite_updates"]) == (2, 1, 0)
    (event,) = [r for r in records(run, "event") if r["event"] == "skipped_step"]
    assert (event["reason"], event["step"]) == (SKIPPED, 1)
    assert not {"loss", "accuracy"} & set(event)
    assert [r["lr"] for r in records(run, "batch")] == pytest.approx([0.1, 0.05])
    left, right = records(run, "epoch")[0], records(other, "epoch")[0]
    assert left["train_loss"] == right["train_loss"]


@pytest.mark.parametrize("policy", ["stop", "skip", "continue"])
def test_an_empty_window_is_no_fault_under_any_policy(tmp_path, policy):
    y = [EMPTY, 1.0, EMPTY, 1.0]
    run, w = trained_weight(masked(y, batch_size=1, nonfinite=policy, nonfinite_budget=0), tmp_path)
    assert w == pytest.approx(by_hand([[1.0], [1.0]])[-1], rel=1e-6)
    assert len([r for r in records(run, "event") if r.get("reason") == SKIPPED]) == 2


def test_an_epoch_in_which_nothing_counts_has_no_loss_and_goes_on(tmp_path):
    run, w = trained_weight(masked([EMPTY] * 4, batch_size=2, epochs=2), tmp_path)
    assert w == 0.0
    assert all("train_loss" not in r for r in records(run, "epoch"))
    assert checkpoint(run)["trainer"]["global_step"] == 0


def test_a_validation_is_a_mean_over_what_counts_in_it(tmp_path):
    """Batches of 2: three of six count. At w = 0 the squares are 1, 4 and 16."""

    @register_dataset("half_counted")
    def build():
        def data(y):
            return TensorData(torch.ones(len(y), 1), torch.tensor(y).unsqueeze(1))

        val = data([1.0, 2.0, EMPTY, EMPTY, EMPTY, 4.0])
        return Splits(data([0.0, 0.0]), val, contract=DatasetContract((1,), "regression", 1))

    config = masked([0.0, 0.0], batch_size=2)
    config["dataset"] = {"name": "half_counted", "batch_size": 2}
    run, w = trained_weight(config, tmp_path)
    assert w == 0.0
    assert records(run, "epoch")[0]["val_loss"] == pytest.approx(7.0, rel=1e-6)


# --- classes


class Listed:
    """Samples that are not in memory as two tensors."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


CLASSES = 200
TARGETS: list[torch.Tensor] = []


class ClassOptions(Options):
    in_memory: bool = True


@register_dataset("many_classes", options=ClassOptions)
def open_classes(options):
    """Four inputs and the targets in TARGETS."""
    (targets,) = TARGETS
    inputs = torch.randn(len(targets), 4, generator=torch.Generator().manual_seed(0))
    data = TensorData(inputs, targets)
    contract = DatasetContract((4,), "classification", CLASSES)
    return Splits(data if options.in_memory else Listed(data), contract=contract)


@register_model("linear_classes")
def linear_classes():
    return nn.Linear(4, CLASSES)


def classes(targets, *, in_memory=True, loss=None, **sections):
    TARGETS[:] = [targets]
    config = tiny(
        model={"name": "linear_classes"},
        dataset={"name": "many_classes", "in_memory": in_memory, "batch_size": 2},
        loss=loss or {"name": "cross_entropy"},
        optimizer={"name": "sgd", "lr": 0.5},
        **sections,
    )
    return {**config, "callbacks": []}


@pytest.fixture(scope="module")
def first_weights(tmp_path_factory):
    """With which every run of this model begins."""

    class Copy(Callback):
        def on_run_start(self, trainer):
            self.state = _copied(dict(trainer.parts.models["model"].state_dict()))

    copy = Copy()
    train(classes(torch.tensor([0, 1])), tmp_path_factory.mktemp("first"), extra_callbacks=[copy])
    return copy.state


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_a_class_that_a_narrow_integer_takes_for_the_ignored_one_counts(
    tmp_path, first_weights, dtype, in_memory
):
    """156 is -100 in eight bits."""
    targets = torch.tensor([156, 3, 156, 156])
    trainer = {"trainer": {"epochs": 1, "accumulate": 2}}
    narrow = train(classes(targets.to(dtype), in_memory=in_memory, **trainer), tmp_path).run_dir
    wide = train(classes(targets, in_memory=in_memory, **trainer), tmp_path).run_dir
    assert_identical(weights(narrow), weights(wide))
    assert weights(narrow)["bias"][156] > first_weights["bias"][156] + 0.1


@pytest.mark.parametrize("in_memory", [True, False])
def test_ignored_targets_of_32_bits_do_not_count(tmp_path, first_weights, in_memory):
    """Three of four count, in one window of two micro-batches."""
    targets = torch.tensor([7, -100, 9, 11], dtype=torch.int32)
    config = classes(targets, in_memory=in_memory, trainer={"epochs": 1, "accumulate": 2})
    model = _as_it_began(first_weights)
    run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
    inputs = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    functional.cross_entropy(model(inputs), targets.long()).backward()
    _assert_one_step(model, weights(run))


def _as_it_began(state):
    model = nn.Linear(4, CLASSES)
    model.load_state_dict(state)
    return model


def _assert_one_step(model, found, lr=0.5):
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            found[name], parameter.detach() - lr * parameter.grad, rtol=1e-5, atol=1e-7
        )


class Derived(nn.CrossEntropyLoss):
    """torch's own loss, with nothing but its task."""

    task = "classification"


class DerivedOptions(Options):
    ignore_index: int = -100
    weighted: bool = False


@register_loss("derived", options=DerivedOptions)
def build_derived(options):
    weight = torch.ones(CLASSES) if options.weighted else None
    if weight is not None:
        weight[1] = 9.0
    return Derived(weight=weight, ignore_index=options.ignore_index)


@pytest.mark.parametrize("ignored", [-100, 5])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [(6, 1), (2, 3)])
def test_a_loss_derived_from_torchs_counts_as_torch_does(tmp_path, first_weights, ignored, weighted, size):
    """With class weights [1, 9, 1, ...] torch divides by the sum of the weights of the targets that count."""
    targets = torch.tensor([0, 1, 1, ignored, 5, ignored])
    batch_size, accumulate = size
    loss = {"name": "derived", "ignore_index": ignored, "weighted": weighted}
    config = classes(targets, loss=loss, trainer={"epochs": 1, "accumulate": accumulate, "log_every": 1})
    config["dataset"]["batch_size"] = batch_size
    model = _as_it_began(first_weights)
    run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    plain = build_derived(DerivedOptions(ignore_index=ignored, weighted=weighted))
    expected = plain(model(inputs), targets)
    expected.backward()
    _assert_one_step(model, weights(run))
    (batch,) = records(run, "batch")
    assert batch["loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert records(run, "epoch")[0]["train_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_class_weights_do_not_change_what_an_accuracy_is(tmp_path):
    """Two of the four targets are named by the largest logit, whatever batches they stand in."""

    @register_model("always_zero")
    class AlwaysZero(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(CLASSES))

        def forward(self, x):
            return self.bias + 5.0 * functional.one_hot(torch.zeros(len(x), dtype=torch.int64), CLASSES)

    config = classes(torch.tensor([0, 0, 1, 1]), loss={"name": "derived", "weighted": True})
    config["model"] = {"name": "always_zero"}
    config["optimizer"]["lr"] = 1e-6
    config["trainer"] = {"epochs": 1}
    run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
    assert records(run, "epoch")[0]["train_accuracy"] == 0.5


# --- what is no count


class Returns(Options):
    what: str


VALUES = {
    "none": None,
    "text": "3",
    "vector": torch.ones(2),
    "nan": math.nan,
    "nan tensor": torch.tensor(math.nan),
    "infinite": math.inf,
    "negative": -1,
    "negative tensor": torch.tensor(-1),
    "list": [1],
}


@register_loss("miscounts", options=Returns)
class Miscounts(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.what = options.what

    def forward(self, pred, target):
        return (pred - target).square().mean()

    def num_terms(self, target):
        return VALUES[self.what]


@pytest.mark.parametrize("what", VALUES)
def test_a_loss_that_does_not_count_is_refused_before_a_run_exists(tmp_path, what):
    config = {**line(), "loss": {"name": "miscounts", "what": what}}
    with pytest.raises(ConfigError, match=r"(?s)the batch counts as .*expected a number >= 0 \(num_terms"):
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_an_accuracy_beside_a_loss_that_counts_otherwise_is_the_share_of_all_targets(tmp_path):
    """Two batches, of three and one sample; the loss counts one term in each."""

    @register_model("says_zero")
    class SaysZero(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

        def forward(self, x):
            return self.bias.expand(len(x), 2)

    @register_loss("one_term")
    class OneTerm(nn.Module):
        task = "classification"

        def forward(self, pred, target):
            return nn.functional.cross_entropy(pred[:1], target[:1])

        def num_terms(self, target):
            return 1

    @register_dataset("four_targets")
    def build():
        data = TensorData(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1]))
        return Splits(data, data, contract=DatasetContract((1,), "classification", 2))

    config = tiny(model={"name": "says_zero"}, loss={"name": "one_term"}, trainer={"epochs": 1})
    config["dataset"] = {"name": "four_targets", "batch_size": 3}
    config["optimizer"] = {"name": "sgd", "lr": 1e-9}
    (epoch,) = records(train(config, tmp_path).run_dir, "epoch")
    assert epoch["val_accuracy"] == epoch["train_accuracy"] == 0.75
