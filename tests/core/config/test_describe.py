"""``plugins info``: the option table and the example come from the schema that checks them."""

from __future__ import annotations

import json

import pytest

from support.checking import resolved, write
from support.odd import odd_registry
from trainlattice.config.describe import describe_component, describe_plugin
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.yaml_reader import read_string
from trainlattice.plugin.registry import Registry

REGISTRY = odd_registry()
BUILT_IN = [
    registered
    for registered in Registry.installed().components()
    if registered.plugin.distribution_name is not None
]
NEUTRAL = {"model": "model: any\n", "dataset": "dataset: data\n"}


def described(kind: str, name: str):
    (registered,) = REGISTRY.find(kind, name)
    return describe_component(registered, REGISTRY)


def options(kind: str, name: str):
    return {row.name: row for row in described(kind, name).options}


def test_there_are_built_in_components_of_every_kind_of_core():
    kinds = {registered.kind.name for registered in BUILT_IN}
    assert kinds >= {"mode", "model", "dataset", "loss", "optimizer", "scheduler", "callback"}


@pytest.mark.parametrize("registered", BUILT_IN, ids=lambda r: r.qualified)
def test_the_example_of_every_built_in_component_validates(tmp_path, registered):
    example = describe_component(registered, REGISTRY).example
    section = registered.kind.section
    others = "".join(text for name, text in NEUTRAL.items() if name != section)
    config = resolved(write(tmp_path, example + others), registry=REGISTRY)[section]
    assert (config[0] if isinstance(config, list) else config)["name"] == registered.qualified


@pytest.mark.parametrize("registered", BUILT_IN, ids=lambda r: r.qualified)
def test_every_built_in_component_and_option_is_explained(registered):
    description = describe_component(registered, REGISTRY)
    assert description.facts["summary"]
    for row in description.options:
        assert row.description, row.name
        assert row.type not in ("", "any"), row.name


@pytest.mark.parametrize("name", ["odd", "demanding"])
def test_the_example_of_unusual_options_validates(tmp_path, name):
    text = described("model", name).example + NEUTRAL["dataset"]
    assert resolved(write(tmp_path, text), registry=REGISTRY)["model"]["name"] == f"odd:{name}"


def test_the_example_writes_every_default_out():
    example = nodes.to_plain(read_string(described("optimizer", "adamw").example, name="e.yaml")[0])
    assert example == {
        "optimizer": {
            "name": "adamw", "lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01,
            "amsgrad": False,
        }
    }  # fmt: skip


def test_the_example_of_a_callback_is_a_list():
    assert (
        described("callback", "progress").example == "callbacks:\n- name: progress\n  refresh_per_second: 8\n"
    )


@pytest.mark.parametrize(
    ("kind", "name", "option", "type_", "default"),
    [
        ("optimizer", "sgd", "lr", "number > 0", "0.001"),
        ("optimizer", "sgd", "momentum", "number >= 0 and < 1", "0.0"),
        ("optimizer", "adamw", "betas", "[number >= 0 and < 1, number >= 0 and < 1]", "[0.9, 0.999]"),
        ("optimizer", "adamw", "amsgrad", "boolean", "false"),
        ("model", "mlp", "hidden_dims", "list of integer >= 1", "[512, 256, 128]"),
        ("model", "odd", "maybe", "string or null", "null"),
        ("model", "odd", "either", "integer or string", "0"),
        ("model", "odd", "choice", "alpha | beta | 1e3", '"alpha"'),
        ("model", "odd", "color", "red | blue", '"red"'),
        ("model", "odd", "inner", "mapping or null", "null"),
        ("model", "odd", "schedule", "mapping or null", "null"),
        ("model", "odd", "day", "string", '"2024-02-29"'),
        ("model", "odd", "lambda", "number", "0.0"),
        ("model", "demanding", "fixed", "7", None),
        ("scheduler", "step_decay", "step_size", "integer >= 1", None),
    ],
)
def test_types_bounds_and_defaults_are_in_words(kind, name, option, type_, default):
    row = options(kind, name)[option]
    assert (row.type, row.default) == (type_, default)


def test_the_keys_of_core_are_listed_beside_the_options_of_a_dataset():
    rows = options("dataset", "synthetic")
    assert [name for name, row in rows.items() if row.beside] == [
        "batch_size",
        "num_workers",
        "start_method",
        "drop_last",
    ]
    assert not any(row.beside for row in options("scheduler", "step_decay").values())


def test_the_text_is_a_table_and_an_example():
    text = described("scheduler", "step_decay").as_text()
    assert "  OPTION" in text
    assert "required" in text
    assert "example:\n  scheduler:\n    name: step_decay\n" in text
    assert described("mode", "supervised").as_text().count("no options") == 1


def test_a_deprecated_component_and_a_default_say_so():
    assert described("model", "old").facts["deprecated"] == "use any, since 0.1"
    assert "optimizer" in described("optimizer", "adamw").facts["default"]
    assert not described("optimizer", "sgd").facts["default"]


def test_an_option_with_an_example_has_it_in_place_of_its_default():
    """One that only some configurations need has a default, and the example shows how it is given."""
    example = described("dataset", "csv").example
    assert "  target: target\n" in example
    assert "  task: classification\n" in example


def test_a_plugin_shows_its_distribution_and_components():
    (plugin,) = REGISTRY.called("models")
    description = describe_plugin(plugin, REGISTRY)
    assert description.facts["distribution"].startswith("trainlattice-plugin-models ")
    assert description.facts["status"] == "ok"
    assert ["model", "mlp"] in [row.split()[:2] for row in description.components]


@pytest.mark.parametrize(("kind", "name"), [("model", "odd"), ("dataset", "csv")])
def test_as_json_is_plain_data(kind, name):
    plain = json.loads(json.dumps(described(kind, name).as_json()))
    assert plain["title"] == f"{kind} {name}"
    assert {"name", "type", "default", "description", "beside"} == plain["options"][0].keys()
