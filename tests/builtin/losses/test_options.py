"""What a configuration may say about a loss."""

import inspect

import pytest
from torch import nn

from support.losses import COMPONENTS, options_of
from trainlattice.contracts.records import LossContract


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("cross_entropy", {"class_weights": (1.0, -1.0)}, "class_weights.1"),
        ("cross_entropy", {"class_weights": ()}, "at least 1 item"),
        ("cross_entropy", {"class_weights": (0.0, 0.0)}, "every weight is 0: nothing would count"),
        ("cross_entropy", {"weight": (1.0, 1.0)}, "weight"),
        ("cross_entropy", {"label_smoothing": 1.0}, "label_smoothing"),
        ("nll", {"label_smoothing": 0.1}, "label_smoothing"),
        ("nll", {"ignore_index": 0.5}, "ignore_index"),
        ("nll", {"reduction": "none"}, "reduction"),
        ("focal", {"gamma": -0.1}, "gamma"),
        ("focal", {"binary": True, "alpha": 1.1}, "alpha"),
        ("focal", {"binary": True, "alpha": -0.1}, "alpha"),
        ("focal", {"alpha": 0.25}, "alpha weighs yes against no and needs binary: true"),
        ("focal", {"binary": True, "class_weights": (1.0,)}, "with binary: true there is alpha"),
        ("bce_with_logits", {"pos_weight": (-1.0,)}, "pos_weight"),
        ("bce_with_logits", {"pos_weight": 2.0}, "pos_weight"),
        ("bce_with_logits", {"class_weights": (0.0,)}, "every weight is 0"),
        ("smooth_l1", {"beta": -1.0}, "beta"),
        ("mse", {"beta": 1.0}, "beta"),
        ("kl_div", {"reduction": "none"}, "reduction"),
        ("kl_div", {"log_target": 1}, "log_target"),
        ("cosine_embedding", {"margin": 1.5}, "margin"),
        ("cosine_embedding", {"margin": -1.5}, "margin"),
        ("cosine_embedding", {"reduction": "batchmean"}, "reduction"),
        ("dice", {"smooth": 0.0}, "smooth"),
        ("ssim", {"window_size": 4}, "its size is odd"),
        ("ssim", {"window_size": 1}, "window_size"),
        ("ssim", {"sigma": 0.0}, "sigma"),
        ("ssim", {"data_range": 0.0}, "data_range"),
        ("ssim", {"padding": "valid"}, "padding"),
        ("ssim", {"k1": 0.0}, "k1"),
        ("ssim", {"k2": 0.0}, "k2"),
    ],
)
def test_what_no_loss_takes_is_refused(name, options, says):
    with pytest.raises(ValueError, match=says):
        options_of(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "task"),
    [
        ("cross_entropy", {}, "classification"),
        ("nll", {}, "classification"),
        ("focal", {}, "classification"),
        ("focal", {"binary": True}, None),
        ("bce_with_logits", {}, None),
        ("mse", {}, "regression"),
        ("l1", {}, "regression"),
        ("smooth_l1", {}, "regression"),
        ("kl_div", {}, None),
        ("cosine_embedding", {}, None),
        ("dice", {}, "classification"),
        ("dice", {"binary": True}, None),
        ("ssim", {}, "regression"),
    ],
)
def test_the_task_is_known_before_anything_is_built(name, options, task):
    from support.losses import build

    assert options_of(name, **options).contract() == LossContract(task=task)
    assert build(name, **options).task == task


@pytest.mark.parametrize(
    ("name", "kind", "renamed"),
    [
        ("cross_entropy", nn.CrossEntropyLoss, {"class_weights": "weight"}),
        ("nll", nn.NLLLoss, {"class_weights": "weight"}),
        ("bce_with_logits", nn.BCEWithLogitsLoss, {"class_weights": "weight"}),
        ("smooth_l1", nn.SmoothL1Loss, {}),
        ("mse", nn.MSELoss, {}),
        ("l1", nn.L1Loss, {}),
        ("cosine_embedding", nn.CosineEmbeddingLoss, {}),
        ("kl_div", nn.KLDivLoss, {}),
    ],
)
def test_every_option_of_torchs_loss_is_there_with_its_default(name, kind, renamed):
    ours = {renamed.get(key, key): value for key, value in options_of(name).model_dump().items()}
    for key, parameter in inspect.signature(kind).parameters.items():
        if key in ("size_average", "reduce"):  # replaced by reduction long ago
            continue
        expected = "batchmean" if (name, key) == ("kl_div", "reduction") else parameter.default
        assert ours[key] == expected, key


def test_every_loss_is_documented():
    from pathlib import Path

    root = Path(__file__).parents[3]
    plugin = root / "plugins" / "trainlattice-plugin-losses"
    table = (root / "docs" / "configuration.md").read_text(encoding="utf-8")
    for name in COMPONENTS:
        assert f"\n| `{name}` |" in table, name
        for file in (plugin / "README.md", plugin / "pyproject.toml"):
            assert name in file.read_text(encoding="utf-8"), (name, file)
