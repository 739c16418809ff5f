"""Parameter groups: who is in which, with which options, and what is refused."""

import pytest
import torch
from torch import nn

from support.runs import checkpoint, run_dirs, tiny, train
from trainlattice import Callback, register_model
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.training.groups import GroupingError, grouped, named_parameters

pytestmark = pytest.mark.torch


class Net(nn.Module):
    """A parameter of each kind, and one of none."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.scale = nn.Parameter(torch.ones(()))
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        index = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        return self.last(self.norm(self.first(x + self.table(index)))) * self.scale


@register_model("grouped_net")
def grouped_net(options):
    return Net()


def test_a_loss_without_parameters_leaves_the_names_of_the_model_alone(tmp_path):
    seen = Groups()
    made = config({"params": "first.*"}, {"params": "rest"})
    train({**made, "loss": {"name": "cross_entropy"}}, tmp_path, extra_callbacks=[seen])
    assert seen.found[0][0] == ["first.weight", "first.bias"]


class Groups(Callback):
    """The groups of the optimizer when the run begins."""

    def on_run_start(self, trainer):
        names = {id(p): name for name, p in trainer.parts.models["model"].named_parameters()}
        optimizer = trainer.parts.updates["optimizer"].optimizer
        self.found = [([names[id(p)] for p in g["params"]], g) for g in optimizer.param_groups]


def config(*groups, name="adamw", **options):
    made = tiny(model={"name": "grouped_net"})
    made["optimizer"] = {"name": name, "lr": 0.01, **options, "groups": list(groups)}
    return made


def test_kinds_are_disjoint_and_rest_is_what_is_left(tmp_path):
    seen = Groups()
    groups = [{"params": kind} for kind in ("bias", "norm", "embedding", "matrix", "rest")]
    train(config(*groups), tmp_path, extra_callbacks=[seen])
    assert [names for names, _ in seen.found] == [
        ["first.bias", "last.bias"],
        ["norm.weight", "norm.bias"],
        ["table.weight"],
        ["first.weight", "last.weight"],
        ["scale"],
    ]


def test_a_group_has_its_options_and_the_others_of_the_optimizer(tmp_path):
    seen = Groups()
    plain = {"params": ["bias", "norm"], "weight_decay": 0.0, "lr": 0.1}
    train(
        config(plain, {"params": "rest", "betas": [0.8, 0.9]}, weight_decay=0.3),
        tmp_path,
        extra_callbacks=[seen],
    )
    (_, first), (names, second) = seen.found
    assert (first["lr"], first["weight_decay"], first["betas"]) == (0.1, 0.0, (0.9, 0.999))
    assert (second["lr"], second["weight_decay"], second["betas"]) == (0.01, 0.3, (0.8, 0.9))
    assert names == ["scale", "table.weight", "first.weight", "last.weight"]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_steps_are_those_of_torch_with_the_same_groups(tmp_path, name):
    class Steps(Groups):
        def on_run_start(self, trainer):
            super().on_run_start(trainer)
            self.start = {k: v.clone() for k, v in trainer.parts.models["model"].state_dict().items()}
            self.batches = []

        def on_batch_end(self, trainer, phase, container):
            if phase == "train":
                self.batches.append((container["input"], container["target"]))

    seen = Steps()
    made = config(
        {"params": ["bias", "norm"], "lr": 0.1}, {"params": "rest"}, name=name, implementation="loop"
    )
    run = train(made, tmp_path, extra_callbacks=[seen]).run_dir
    model = Net()
    model.load_state_dict(seen.start)
    kinds = {"first.bias", "last.bias", "norm.weight", "norm.bias"}
    own = [p for n, p in model.named_parameters() if n in kinds]
    rest = [p for n, p in model.named_parameters() if n not in kinds]
    groups = [{"params": own, "lr": 0.1}, {"params": rest}]
    made_by_torch = torch.optim.AdamW if name == "adamw" else torch.optim.SGD
    optimizer = made_by_torch(groups, lr=0.01, foreach=False)
    for x, y in seen.batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    held = checkpoint(run)["states"]["model/model"]
    assert all(torch.equal(held[name], value) for name, value in model.state_dict().items())


def test_a_schedule_scales_each_group_and_a_resumed_run_keeps_them(tmp_path):
    made = config({"params": "matrix", "lr": 0.1}, {"params": "rest"})
    made["scheduler"] = {"name": "step_decay", "step_size": 2, "gamma": 0.5}
    whole = train(made, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    first = {**made, "trainer": {**made["trainer"], "epochs": 1}}
    held = checkpoint(whole)["states"]["update/optimizer"]["optimizer"]["param_groups"]
    assert held[0]["lr"] == pytest.approx(10 * held[1]["lr"])
    partly = train(first, tmp_path, extra_callbacks=[Callback()]).run_dir
    resumed = train(made, tmp_path, resume=partly, extra_callbacks=[Callback()]).run_dir
    groups = checkpoint(resumed)["states"]["update/optimizer"]["optimizer"]["param_groups"]
    assert [group["lr"] for group in groups] == [group["lr"] for group in held]


def test_patterns_of_names():
    parameters = named_parameters({"model": Net()})
    found = grouped(parameters, [["first.*", "last.weight"], ["rest"]])
    assert [len(group) for group in found] == [3, 5]
    two = named_parameters({"generator": nn.Linear(1, 1), "discriminator": nn.Linear(1, 1)})
    assert [held.name for held in two][::2] == ["generator.weight", "discriminator.weight"]


def test_a_tied_or_frozen_parameter_stands_once_or_not_at_all():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net[0].bias.requires_grad_(False)
    assert [held.name for held in named_parameters({"model": net})] == ["0.weight", "1.bias"]


# --- mistakes


@pytest.mark.parametrize(
    ("wanted", "group", "message"),
    [
        ([["bias"], ["*.bias"], ["rest"]], 1, "the parameter 'first.bias' is in group 0 already"),
        ([["bias"]], None, "no group has 'scale', 'table.weight', 'first.weight' and 3 more; a last group"),
        (
            [["conv*"], ["rest"]],
            0,
            "no parameter is in this group; parameters: scale, table.weight, first.weight",
        ),
        ([["*"], ["rest"]], 1, "no parameter is in this group"),
        ([["rest"], ["rest"]], 1, "another group has the rest already"),
    ],
)
def test_a_parameter_is_in_exactly_one_group_and_no_group_is_empty(wanted, group, message):
    with pytest.raises(GroupingError) as raised:
        grouped(named_parameters({"model": Net()}), wanted)
    assert message in str(raised.value)
    assert raised.value.group == group


def refused(tmp_path, made):
    with pytest.raises(ConfigError) as raised:
        train(made, tmp_path)
    assert run_dirs(tmp_path) == []
    return str(raised.value)


def test_mistakes_are_shown_at_their_place(tmp_path):
    text = refused(tmp_path, config({"params": "bias", "lr_": 1.0}, {"params": "rest", "weight_decay": -1.0}))
    assert "optimizer.groups.0.lr_" in text
    assert "did you mean 'lr'?" in text
    assert "optimizer.groups.1.weight_decay" in text
    assert "greater than or equal to 0" in text
    assert "optimizer.groups.0" in refused(tmp_path, config({"params": "conv.*"}, {"params": "rest"}))
    assert "no group has" in refused(tmp_path, config({"params": "bias"}))
    assert "optimizer.groups.0.params" in refused(tmp_path, config({"lr": 1.0}))


def test_without_groups_nothing_changes(tmp_path):
    made = tiny(model={"name": "grouped_net"})
    one = train(made, tmp_path / "one", extra_callbacks=[Callback()]).run_dir
    explicit = {**made, "optimizer": {**made["optimizer"], "groups": [{"params": "rest"}]}}
    other = train(explicit, tmp_path / "two", extra_callbacks=[Callback()]).run_dir
    left, right = (checkpoint(run)["states"]["model/model"] for run in (one, other))
    assert all(torch.equal(left[name], right[name]) for name in left)
