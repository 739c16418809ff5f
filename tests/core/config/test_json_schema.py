"""The JSON Schema accepts what the checker accepts, and refuses what can be told without the contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from support.checking import BASE, mistakes, resolved, write
from support.odd import odd_registry
from trainlattice.config.json_schema import json_schema
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.yaml_reader import read_file, read_string

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found, problems = json_schema(odd_registry())
    assert problems == []
    return found


@pytest.fixture(scope="module")
def validator(schema) -> Draft7Validator:
    return Draft7Validator(schema)


def load(path: Path) -> dict[str, Any]:
    """The file with what it extends, section by section."""
    config: Any = nodes.to_plain(read_file(path)[0])
    base = load(path.parent / config.pop("extends")) if "extends" in config else {}
    return {**base, **config}


def plain(text: str) -> Any:
    return nodes.to_plain(read_string(text, name="t.yaml")[0])


def test_it_is_a_valid_schema_of_draft_7_and_json(schema):
    Draft7Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_every_reference_has_a_definition(schema):
    text = json.dumps(schema)
    references = {part.partition('"')[0] for part in text.split('"#/definitions/')[1:]}
    assert references
    assert references <= schema["definitions"].keys()
    assert "$defs" not in text
    assert "prefixItems" not in text


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_configuration_of_the_repository_is_accepted(validator, path):
    validator.validate(load(path))
    validator.validate(nodes.to_plain(read_file(path)[0]))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_every_resolved_configuration_is_accepted(validator, path):
    validator.validate(resolved(path))


@pytest.mark.parametrize(
    ("metric", "valid"),
    [
        ("family/one", True),
        ("odd:family/one", True),
        ("{name: family/one, size: 2}", True),
        ("{name: odd:family, member: one}", True),
        ("{name: family/one, size: two}", False),
        ("families/one", False),
    ],
)
def test_a_name_with_a_member_has_the_options_of_its_family(validator, metric, valid):
    assert validator.is_valid(plain(BASE + f"metrics: [{metric}]\n")) is valid


ACCEPTED = [
    "",
    "mode: supervised\n",
    "mode: core:supervised\n",
    "optimizer: sgd\n",
    "optimizer: {lr: 0.1, betas: [0.9, 0.99]}\n",
    "optimizer: {name: sgd, momentum: 0.9}\n",
    "optimizer: {name: optimizers:sgd, nesterov: true, momentum: 0.5}\n",
    "optimizer: {lr: 1}\n",
    "scheduler: {name: step_decay, step_size: 3}\n",
    "scheduler: warmup_cosine\n",
    "callbacks: [progress, {name: progress, refresh_per_second: 2}]\n",
    "callbacks: []\n",
    "callbacks:\n",
    "scheduler:\n",
    "trainer:\n",
    "experiment: {name: x, seed: 0, runs_dir: out}\n",
    "trainer: {early_stopping: {patience: 2}, max_grad_norm: null, precision: bf16}\n",
    "plugins: {require: [trainlattice-core]}\n",
]
REFUSED = [
    "trainers: {}\n",
    "lr: 0.1\n",
    "optimizer: adamv\n",
    "optimizer: {name: adamv}\n",
    "optimizer: {weight-decay: 0.1}\n",
    "optimizer: {lr: '1e-3'}\n",
    "optimizer: {lr: true}\n",
    "optimizer: {lr: 0}\n",
    "optimizer: {name: sgd, betas: [0.9, 0.9]}\n",
    "optimizer: {betas: [0.9]}\n",
    "optimizer: {betas: [0.9, 0.9, 0.9]}\n",
    "optimizer: {betas: [0.9, 2]}\n",
    "optimizer: {betas: [a, 0.9]}\n",
    "optimizer: [sgd]\n",
    "scheduler: {step_size: 3}\n",
    "scheduler: {name: step_decay}\n",
    "scheduler: {name: step_decay, step_size: 0}\n",
    "loss: {name: cross_entropy, label_smoothing: 1}\n",
    "loss: {reduction: none}\n",
    "callbacks: progress\n",
    "callbacks: [progres]\n",
    "callbacks: [{name: progress, refresh_per_second: 0}]\n",
    "callbacks: [{refresh: 1}]\n",
    "trainer: {epochs: true}\n",
    "trainer: {epochs: 0}\n",
    "trainer: {epoch: 1}\n",
    "trainer: {precision: fp8}\n",
    "trainer: {early_stopping: {}}\n",
    "trainer: {early_stopping: {patience: 2, monitor: x}}\n",
    "trainer: fast\n",
    "experiment: {seed: -1}\n",
    "experiment: {name: 3}\n",
    "plugins: {local: a.py}\n",
    "mode: supervized\n",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_schema_and_checker_accept_the_same(tmp_path, validator, text):
    resolved(write(tmp_path, BASE + text))
    validator.validate(plain(BASE + text))


@pytest.mark.parametrize("text", REFUSED)
def test_schema_and_checker_refuse_the_same(tmp_path, validator, text):
    mistakes(write(tmp_path, BASE + text))
    assert not validator.is_valid(plain(BASE + text))


ODD = "dataset: data\nmodel:\n  name: odd\n"


@pytest.mark.parametrize(
    "options",
    [
        "pair: [1, a]", "layers: [{width: 1}, {width: 2, bias: false}]", "groups: {a: {width: 1}}", "inner: null",
        "inner: {width: 1}", "schedule: {kind: cosine, steps: 3}", "schedule: {kind: steps, at: [1, 2]}",
        "color: blue", "choice: '1e3'", "table: {a: 1, b: x}", "lambda: 2", "day: '2024-01-31'", "either: x",
    ],
)  # fmt: skip
def test_nested_options_unions_and_mappings_are_accepted(tmp_path, validator, options):
    text = f"{ODD}  {options}\n"
    resolved(write(tmp_path, text), registry=odd_registry())
    validator.validate(plain(text))


@pytest.mark.parametrize(
    "options",
    [
        "pair: [a, 1]", "pair: [1]", "pair: [1, a, 2]", "layers: [{width: 0}]", "layers: [{widht: 1}]",
        "groups: {a: 1}", "inner: {}", "schedule: {kind: cosine}", "schedule: {kind: linear, steps: 3}",
        "schedule: {kind: cosine, steps: 3, at: [1]}", "color: green", "choice: 1e3", "table: {a: [1]}",
        "lambda_: 2", "either: 1.5", "words: [1]",
    ],
)  # fmt: skip
def test_nested_options_unions_and_mappings_are_refused(tmp_path, validator, options):
    text = f"{ODD}  {options}\n"
    mistakes(write(tmp_path, text), registry=odd_registry())
    assert not validator.is_valid(plain(text))


def test_it_describes_every_option_with_its_default(schema):
    trainer = (
        schema["definitions"] if "trainer" not in schema["properties"] else schema["properties"]["trainer"]
    )
    text = json.dumps(trainer)
    assert "Passes over the training set; null" in text
    assert '"default": 10' in text


def test_a_plugin_whose_options_cannot_be_used_is_left_out_and_named(tmp_path):
    import types

    from trainlattice.plugin import Component, hookimpl

    @hookimpl
    def trainlattice_components():
        return [Component("model", "gone", target="support.odd:never_built", options="support.odd:Nothing")]

    module = types.ModuleType("gone_plugin")
    module.trainlattice_components = trainlattice_components
    registry = odd_registry()
    registry.add_module(module, plugin_id="gone")
    found, problems = json_schema(registry)
    (problem,) = problems
    assert "model 'gone:gone'" in problem
    assert '"gone"' not in json.dumps(found)
    Draft7Validator(found).validate(plain(BASE))
