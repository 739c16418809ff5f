"""``plugins list`` and ``plugins info``: every plugin with what it provides and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cli import run_cli
from support.distributions import fake_distribution, fake_plugin, registration
from trainlattice.config.describe import describe_component
from trainlattice.config.resolve import resolve_file
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.plugin.registry import Registry

BUILT_IN = {
    "core": {"mode": ["supervised"]},
    "models": {"model": ["autoencoder", "cnn", "late_fusion", "mlp", "multi_head", "unet"]},
    "datasets": {"dataset": ["csv", "digits", "idx", "shapes", "synthetic", "tensor"]},
    "metrics": {
        "metric": [
            "accuracy",
            "auroc",
            "confusion_matrix",
            "f1",
            "mae",
            "mean",
            "mse",
            "perplexity",
            "precision",
            "psnr",
            "r2",
            "recall",
            "ssim",
            "top_k",
            "torchmetrics",
        ]
    },
    "postprocess": {
        "postprocessor": [
            "argmax",
            "channel_format",
            "generate",
            "mean_std",
            "running_stats",
            "softmax",
            "tensor_slice",
        ]
    },
    "losses": {
        "loss": [
            "bce_with_logits",
            "cosine_embedding",
            "cross_entropy",
            "dice",
            "focal",
            "kl_div",
            "l1",
            "mse",
            "nll",
            "smooth_l1",
            "ssim",
        ]
    },
    "optimizers": {"optimizer": ["adam", "adamw", "sgd"]},
    "schedulers": {"scheduler": ["step_decay", "warmup_cosine", "warmup_linear"]},
    "callbacks": {
        "callback": [
            "ema",
            "freeze",
            "grad_norm",
            "image_grid",
            "lr_monitor",
            "nan_report",
            "param_histogram",
            "profiler",
            "progress",
            "swa",
            "throughput",
            "trial_summary",
        ]
    },
    "trackers": {"tracker": ["csv", "mlflow", "tensorboard", "wandb"]},
}
MODEL = "Component('model', 'net', 'json:JSONDecoder', summary='a net')"


def listed(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """``plugins list --json`` with what is in ``tmp_path / "site"``."""
    done = run_cli("plugins", "list", "--json", *arguments, cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plugin_of(listing: dict[str, Any], plugin_id: str) -> dict[str, Any]:
    (found,) = [plugin for plugin in listing["plugins"] if plugin["id"] == plugin_id]
    return found


# --- list -----------------------------------------------------------------------------------------


def test_the_built_in_plugins_provide_what_the_documentation_promises(cli: Callable):
    listing = json.loads(cli("plugins", "list", "--json").out)
    assert listing["schema_version"] == 1
    assert {p["id"]: p["components"] for p in listing["plugins"] if p["id"] in BUILT_IN} == BUILT_IN
    assert {p["status"] for p in listing["plugins"]} == {"ok"}
    assert listing["problems"] == []


def test_the_defaults_of_silent_sections_are_marked(cli: Callable):
    listing = json.loads(cli("plugins", "list", "--json").out)
    assert {c["qualified"] for c in listing["components"] if c["default"]} == {
        "core:supervised",
        "losses:cross_entropy",
        "optimizers:adamw",
        "callbacks:progress",
    }


def test_a_strangers_plugin_is_listed_with_version_source_and_file(tmp_path: Path):
    site = tmp_path / "site"
    fake_distribution(
        site,
        "acme-dist",
        version="1.2.3",
        entry_points={"trainlattice.plugins": {"acme": "acme_package.plugin"}},
        files={"acme_package/plugin.py": registration(MODEL)},
    )
    listing = listed(tmp_path)
    assert plugin_of(listing, "acme") == {
        "id": "acme",
        "distribution": "acme-dist",
        "version": "1.2.3",
        "status": "ok",
        "reasons": [],
        "source": "wheel",
        "file": str(site / "acme_package" / "plugin.py"),
        "components": {"model": ["net"]},
    }
    assert {
        "kind": "model",
        "name": "net",
        "qualified": "acme:net",
        "summary": "a net",
        "default": False,
        "target": "json:JSONDecoder",
    } in listing["components"]


def test_the_table_has_one_line_for_each_plugin(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", registration(MODEL, MODEL.replace("model", "loss", 1)))
    done = run_cli("plugins", "list", cwd=tmp_path, site=tmp_path / "site")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["PLUGIN", "VERSION", "STATUS", "SOURCE", "COMPONENTS"]
    (row,) = [row for row in rows if row.startswith("acme ")]
    assert row.split() == ["acme", "0.1", "ok", "wheel", "model", "1", "·", "loss", "1"]
    assert done.stderr == ""


def test_a_kind_is_listed_with_a_line_for_each_component(tmp_path: Path):
    """In a process of its own: other tests register components in this one."""
    out = run_cli("plugins", "list", "--kind", "optimizer", cwd=tmp_path).stdout
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "adam", "adamw", "sgd"]
    assert "adamw (default)" in out
    assert "optimizers:sgd" in out


def test_a_kind_leaves_other_plugins_out_of_the_json(tmp_path: Path):
    listing = listed(tmp_path, "--kind", "loss")
    assert {c["kind"] for c in listing["components"]} == {"loss"}
    assert [p["id"] for p in listing["plugins"]] == ["losses"]


def test_a_kind_of_a_plugin_can_be_listed(tmp_path: Path):
    declared = "Component('robot', 'arm', 'json:JSONDecoder')"
    fake_plugin(tmp_path / "site", "acme", registration(declared, kinds=["Kind('robot', 'robot')"]))
    assert [c["qualified"] for c in listed(tmp_path, "--kind", "robot")["components"]] == ["acme:arm"]


def test_an_unknown_kind_exits_with_2_and_the_kinds(cli: Callable):
    said = cli("plugins", "list", "--kind", "modle")
    assert said.code == 2
    assert "no kind 'modle'" in said.err
    assert "dataset" in said.err


def test_a_broken_plugin_is_listed_with_its_cause(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", "import nowhere_to_be_found\n")
    plugin = plugin_of(listed(tmp_path), "acme")
    assert plugin["status"] == "broken"
    assert plugin["components"] == {}
    assert "No module named 'nowhere_to_be_found'" in plugin["reasons"][0]
    done = run_cli("plugins", "list", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "acme (trainlattice-plugin-acme 0.1): ModuleNotFoundError" in done.stderr
    assert "No module named" not in done.stdout


def test_conflicts_are_problems_that_name_both_sides(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", registration(MODEL.replace("net", "mlp")))
    (problem,) = listed(tmp_path)["problems"]
    assert problem["problem"] == "conflict"
    assert "model 'mlp'" in problem["message"]
    assert "models:mlp (trainlattice-plugin-models" in problem["message"]
    assert "acme:mlp (trainlattice-plugin-acme 0.1)" in problem["message"]


def test_two_distributions_of_one_plugin_name_are_a_problem_that_names_both(tmp_path: Path):
    for name in ("first", "second"):
        fake_distribution(
            tmp_path / "site",
            f"{name}-dist",
            entry_points={"trainlattice.plugins": {"twin": f"{name}_package.plugin"}},
            files={f"{name}_package/plugin.py": registration(MODEL.replace("net", name))},
        )
    listing = listed(tmp_path)
    (problem,) = listing["problems"]
    assert "'twin' is declared by first-dist 0.1 and second-dist 0.1" in problem["message"]
    assert {c["qualified"] for c in listing["components"]} >= {"twin:first", "twin:second"}


def test_a_kind_that_was_there_first_is_a_problem_of_the_second(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", registration(kinds=["Kind('model', 'network')"]))
    listing = listed(tmp_path)
    assert plugin_of(listing, "acme")["status"] == "faulty"
    assert "'model'" in listing["problems"][0]["message"]


def test_what_a_plugin_prints_while_it_is_read_leaves_json_alone(tmp_path: Path):
    noise = "print('welcome to acme')\n"
    options = noise + "from trainlattice import Options\n\n\nclass Net(Options):\n    pass\n"
    declared = "Component('model', 'net', 'json:loads', options='trainlattice_plugin_acme.options:Net')"
    fake_plugin(tmp_path / "site", "acme", noise + registration(declared), {"options.py": options})
    (tmp_path / "my.yaml").write_text("model: net\ndataset: synthetic\n")
    for arguments in (
        ["plugins", "list", "--json"],
        ["plugins", "info", "net", "--json"],
        ["validate", "my.yaml", "--json"],
        ["schema"],
    ):
        done = run_cli(*arguments, cwd=tmp_path, site=tmp_path / "site")
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)
        assert "welcome to acme" in done.stderr


# --- info -----------------------------------------------------------------------------------------


def test_a_component_is_explained_with_origin_options_and_example(cli: Callable):
    said = cli("plugins", "info", "adamw")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "optimizer adamw"
    assert any(
        line.split()[:2] == ["provided", "by"] and "trainlattice-plugin-optimizers" in line for line in lines
    )
    row = next(line for line in lines if line.split()[:1] == ["lr"])
    assert "number > 0" in row
    assert "0.001" in row
    assert "Learning rate" in row
    assert "example:" in lines


@pytest.mark.parametrize("name", ["mlp", "models:mlp", "trainlattice-plugin-models:mlp"])
def test_a_component_is_found_by_each_of_its_names(cli: Callable, name: str):
    (found,) = json.loads(cli("plugins", "info", name, "--json").out)["found"]
    assert found["title"] == "model mlp"
    assert {row["name"] for row in found["options"]} >= {"input_dim", "hidden_dims", "num_classes"}


@pytest.mark.parametrize("name", ["models", "trainlattice-plugin-models", "trainlattice_plugin_models"])
def test_a_plugin_is_explained_with_its_components(cli: Callable, name: str):
    said = cli("plugins", "info", name)
    assert said.code == 0
    assert said.out.startswith("plugin models\n")
    assert "mlp" in said.out
    assert "cnn" in said.out


def test_keys_that_core_reads_beside_a_dataset_are_in_its_table(cli: Callable):
    (found,) = json.loads(cli("plugins", "info", "synthetic", "--json").out)["found"]
    beside = {row["name"]: row["default"] for row in found["options"] if row["beside"]}
    assert beside == {"batch_size": "64", "num_workers": "0", "start_method": "null", "drop_last": "false"}


def test_a_name_that_means_two_things_explains_both(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", registration(MODEL.replace("net", "mlp")))
    done = run_cli("plugins", "info", "mlp", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "models:mlp" in done.stdout
    assert "acme:mlp" in done.stdout
    assert "name: acme:mlp" in done.stdout  # an example that says which


def test_an_unknown_name_exits_with_2_and_a_suggestion(cli: Callable):
    said = cli("plugins", "info", "adamww")
    assert said.code == 2
    assert "'adamww'" in said.err
    assert "did you mean 'adamw'?" in said.err


def test_a_broken_plugin_is_explained_with_its_cause(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", "raise SystemExit('no licence')\n")
    done = run_cli("plugins", "info", "acme", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "broken: SystemExit: no licence" in done.stdout


def test_a_component_whose_options_cannot_be_read_exits_with_3_and_the_cause(tmp_path: Path):
    declared = "Component('model', 'net', 'a.b:C', options='nowhere_to_be_found:Options')"
    fake_plugin(tmp_path / "site", "acme", registration(declared))
    done = run_cli("plugins", "info", "net", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 3
    assert "No module named 'nowhere_to_be_found'" in done.stderr


def test_a_deprecated_component_says_so(tmp_path: Path):
    declared = "Component('model', 'net', 'json:loads', deprecated='since 0.3: use newer_net')"
    fake_plugin(tmp_path / "site", "acme", registration(declared))
    done = run_cli("plugins", "info", "net", cwd=tmp_path, site=tmp_path / "site")
    assert "since 0.3: use newer_net" in done.stdout


REGISTRY = Registry.installed()


def codes_of_mistakes(path: Path) -> set[str]:
    try:
        resolve_file(path)
    except ConfigError as error:
        return {found.code for found in error.diagnostics}
    return set()


BUILT_IN_COMPONENTS = [
    r for r in REGISTRY.components() if r.plugin.id in BUILT_IN
]  # not those of other tests


@pytest.mark.parametrize("registered", BUILT_IN_COMPONENTS, ids=lambda registered: registered.qualified)
def test_the_example_of_every_built_in_component_validates(tmp_path: Path, registered: Any):
    """Up to contracts with its neighbours, which an example by itself cannot know."""
    example = describe_component(registered, REGISTRY).example
    path = tmp_path / "example.yaml"
    neighbours = {"model": "mlp", "dataset": "synthetic"}
    neighbours.pop(registered.kind.section, None)
    path.write_text("".join(f"{section}: {name}\n" for section, name in neighbours.items()) + example)
    assert codes_of_mistakes(path) <= {"contract"}


def test_an_example_names_its_component_and_every_option(cli: Callable):
    (found,) = json.loads(cli("plugins", "info", "sgd", "--json").out)["found"]
    own = {row["name"] for row in found["options"] if not row["beside"]}
    assert yaml.safe_load(found["example"])["optimizer"].keys() == {"name", *own}
