"""Sections of every kind: one component, a list, roles, and those that a mode does not read."""

from __future__ import annotations

import pytest

from support.checking import BASE, mistake, mistakes, places, resolved, write
from support.odd import odd_registry


@pytest.fixture(scope="module")
def registry():
    return odd_registry()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("callbacks: [progress]\n", ["callbacks:progress"]),
        ("callbacks:\n- progress\n- {name: watcher, width: 3}\n- progress\n",
         ["callbacks:progress", "odd:watcher", "callbacks:progress"]),
        ("callbacks: []\n", []),
        ("callbacks:\n", []),
    ],
)  # fmt: skip
def test_a_list_keeps_its_order_and_may_be_empty(tmp_path, registry, text, names):
    config = resolved(write(tmp_path, BASE + text), registry=registry)
    assert [callback["name"] for callback in config["callbacks"]] == names


def test_mistakes_in_a_list_are_shown_at_their_item(tmp_path, registry):
    path = write(
        tmp_path,
        BASE
        + "callbacks:\n- prgress\n- name: watcher\n- {name: watcher, width: 0, hight: 2}\n- 3\n- [progress]\n",
    )
    assert places(mistakes(path, registry=registry)) == [
        ("c.yaml:12:3", "callbacks.0.name"),
        ("c.yaml:13:9", "callbacks.1.width"),
        ("c.yaml:14:26", "callbacks.2.width"),
        ("c.yaml:14:29", "callbacks.2.hight"),
        ("c.yaml:15:3", "callbacks.3"),
        ("c.yaml:16:3", "callbacks.4"),
    ]


@pytest.mark.parametrize(
    ("text", "got"), [("progress", "the string 'progress'"), ("{name: progress}", "a mapping")]
)
def test_a_section_that_is_a_list_takes_no_single_component(tmp_path, text, got):
    found = mistake(write(tmp_path, BASE + f"callbacks: {text}\n"))
    assert places([found]) == [("c.yaml:11:12", "callbacks")]
    assert found.message == f"expected a list of callbacks, got {got}"


def test_the_keys_of_core_stand_beside_the_options_of_a_dataset(tmp_path, registry):
    path = write(tmp_path, "model: any\ndataset:\n  name: data\n  batch_size: 2\n  outputs: 3\n")
    assert resolved(path, registry=registry)["dataset"] == {
        "name": "odd:data", "batch_size": 2, "num_workers": 0, "start_method": None,
        "drop_last": False, "shape": None, "task": None, "outputs": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("batch_size: 0", "3:15", "expected a value greater than 0, got the number 0"),
        ("num_workers: -1", "3:16", "expected a value greater than or equal to 0, got the number -1"),
        ("batch-size: 4", "3:3", "unknown option 'batch-size' for dataset 'odd:data'"),
    ],
)
def test_the_keys_of_core_are_checked_like_options(tmp_path, registry, option, place, message):
    path = write(tmp_path, f"dataset:\n  name: data\n  {option}\nmodel: any\n")
    found = mistake(path, registry=registry)
    assert (places([found])[0][0], found.message) == (f"c.yaml:{place}", message)


def test_a_section_that_the_mode_does_not_read_is_a_mistake(tmp_path, registry):
    found = mistake(write(tmp_path, BASE + "export: {name: text, width: 3}\n"), registry=registry)
    assert (found.code, places([found])) == ("unused-section", [("c.yaml:11:1", "export")])
    assert found.notes == ("remove it, or name a mode that reads it",)


# --- a mode with roles -------------------------------------------------------------------------------

PAIR = "mode: pair\ndataset: data\n"


def test_models_by_role_are_resolved_each(tmp_path, registry):
    path = write(tmp_path, PAIR + "model:\n  first: any\n  second: {name: mlp, input_dim: 3}\n")
    model = resolved(path, registry=registry)["model"]
    assert model["first"] == {"name": "odd:any", "inputs": None}
    assert (model["second"]["name"], model["second"]["input_dim"]) == ("models:mlp", 3)


def test_mistakes_are_shown_at_their_role(tmp_path, registry):
    path = write(tmp_path, PAIR + "model:\n  first: {name: mlp, input_dim: x}\n  second: mpl\n")
    assert places(mistakes(path, registry=registry)) == [
        ("c.yaml:4:33", "model.first.input_dim"),
        ("c.yaml:5:11", "model.second.name"),
    ]


@pytest.mark.parametrize("text", ["model: mlp\n", "model: {first: any, third: any}\n", "model: [any, any]\n"])
def test_a_section_with_roles_takes_these_roles_only(tmp_path, registry, text):
    found = mistakes(write(tmp_path, PAIR + text), registry=registry)[0]
    assert found.path == "model"
    assert found.message.startswith("expected a mapping with the keys first, second, got ")


@pytest.mark.parametrize("second", ["", ", second: null"])
def test_a_missing_role_is_named(tmp_path, registry, second):
    found = mistake(write(tmp_path, PAIR + f"model: {{first: any{second}}}\n"), registry=registry)
    assert found.path == "model.second"
    assert found.message == "the section 'model' needs a model for the role 'second'"


@pytest.mark.parametrize("section", ["loss: mse", "scheduler: {name: step_decay, step_size: 3}", "loss:"])
def test_another_mode_reads_other_sections(tmp_path, registry, section):
    path = write(tmp_path, PAIR + f"model: {{first: any, second: any}}\n{section}\n")
    name = section.partition(":")[0]
    found = mistake(path, registry=registry)
    assert (found.code, places([found])) == ("unused-section", [("c.yaml:4:1", name)])


def test_defaults_of_sections_that_the_mode_does_not_read_stay_out(tmp_path, registry):
    config = resolved(write(tmp_path, PAIR + "model: {first: any, second: any}\n"), registry=registry)
    assert {"model", "dataset", "optimizer", "callbacks"} < config.keys()
    assert {"loss", "scheduler", "export"}.isdisjoint(config)


@pytest.mark.parametrize("name", ["family/one", "odd:family/one"])
def test_a_name_may_give_a_member_after_a_slash(tmp_path, registry, name):
    path = write(tmp_path, BASE + f"metrics:\n- {name}\n- {{name: {name}, size: 3}}\n")
    found = resolved(path, registry=registry)["metrics"]
    assert [(m["name"], m["member"], m["size"]) for m in found] == [
        ("odd:family", "one", 1),
        ("odd:family", "one", 3),
    ]
    again = write(
        tmp_path, BASE + "metrics: [{name: family, member: one}, {name: family, member: one, size: 3}]\n"
    )
    assert resolved(again, registry=registry)["metrics"] == found


def test_mistakes_in_a_member_are_shown_at_the_name(tmp_path, registry):
    path = write(
        tmp_path,
        BASE
        + "metrics:\n- name: family/onee\n- {name: family/one, member: other}\n- family/\n- name: family\n",
    )
    found = mistakes(path, registry=registry)
    assert places(found) == [
        ("c.yaml:12:9", "metrics.0.member"),
        ("c.yaml:13:22", "metrics.1.member"),
        ("c.yaml:14:3", "metrics.2.member"),
        ("c.yaml:15:9", "metrics.3.member"),
    ]
    assert found[0].suggestion == "did you mean 'one'?"
    assert found[1].message == "metric 'odd:family' has 'member' in its name already"


def test_a_component_without_members_has_no_slash_in_its_name(tmp_path, registry):
    found = mistake(write(tmp_path, BASE + "callbacks: [watcher/one]\n"), registry=registry)
    assert found.message == "no callback is named 'watcher/one'"


def test_two_metrics_are_told_apart_by_the_names_that_their_options_give(tmp_path, registry):
    trainer = "trainer: {monitor: val_other_of_2}\n"
    metrics = "metrics: [family/one, family/other, {name: family/other, size: 2}]\n"
    assert resolved(write(tmp_path, BASE + metrics + trainer), registry=registry)
    twice = write(tmp_path, BASE + "metrics: [family/one, family/one]\n")
    assert mistake(twice, registry=registry).message.startswith("the name 'one_of_1' is taken")
