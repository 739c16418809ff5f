"""Ten hostile plugins installed at once: they are named with their causes, and nothing else suffers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY
from support.distributions import fake_distribution, fake_plugin, registration

HEAD = "from trainlattice.plugin import Component, hookimpl\n\n\n@hookimpl\n"
OPTIONS = (
    "from trainlattice.contracts.options import Options\n\n\nclass NetOptions(Options):\n    width: int = 3\n"
)
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.layer = nn.Linear(4, options.width)

    def forward(self, x):
        return self.layer(x)
"""
GOOD = TINY.replace(
    "name: mlp\n  input_dim: 4\n  hidden_dims: [8]\n  num_classes: 3", "name: net\n  width: 3"
)


def net(plugin: str, name: str = "net") -> str:
    """Source of the declaration of a model in the package of a plugin."""
    package = f"trainlattice_plugin_{plugin}"
    return f"Component('model', {name!r}, '{package}.model:Net', options='{package}.options:NetOptions')"


def install(site: Path) -> None:
    """One plugin that works, and ten that do not."""
    sound = {"model.py": NET, "options.py": OPTIONS}
    fake_plugin(site, "good", registration(net("good")), sound)
    fake_plugin(site, "import_error", "raise ImportError('libmissing.so: cannot open shared object file')")
    fake_plugin(site, "exits", "raise SystemExit(3)")
    fake_distribution(
        site, "missing-dist", entry_points={"trainlattice.plugins": {"missing": "missing_package.plugin"}}
    )
    for name in ("twin-one", "twin-two"):
        package = name.replace("-", "_")
        declared = f"Component('model', 'twin_net', '{package}.plugin:HookimplMarker')"
        source = "from pluggy import HookimplMarker\n" + registration(declared)
        fake_distribution(
            site,
            name,
            entry_points={"trainlattice.plugins": {"twin": f"{package}.plugin"}},
            files={f"{package}/plugin.py": source},
        )
    fake_plugin(site, "impostor", registration(net("impostor", "mlp")), sound)
    fake_plugin(site, "unknown_hook", HEAD + "def trainlattice_modules():\n    return []\n")
    fake_plugin(site, "wrong_argument", HEAD + "def trainlattice_components(config):\n    return []\n")
    fake_plugin(
        site,
        "no_options",
        registration(net("no_options", "no_options_net")),
        {"model.py": NET, "options.py": "class NetOptions:\n    width: int = 3\n"},
    )
    fake_plugin(site, "no_target", registration(net("no_target", "no_target_net")), {"options.py": OPTIONS})
    fake_plugin(
        site,
        "greedy",
        registration(net("greedy", "greedy_net")),
        {"model.py": NET, "options.py": OPTIONS + "    name: str = 'mine'\n"},
    )


# What `plugins list` says of each: plugin id, status and words of its cause.
HOSTILE = {
    "import_error": ("broken", ["ImportError: libmissing.so: cannot open shared object file"]),
    "exits": ("broken", ["SystemExit: 3"]),
    "missing": ("broken", ["No module named 'missing_package'", "--force-reinstall --no-deps missing-dist"]),
    "unknown_hook": ("broken", ["trainlattice_modules is no hook", "did you mean"]),
    "wrong_argument": ("broken", ["trainlattice_components", "'config'"]),
    "no_options": (
        "faulty",
        ["the options of model 'no_options_net'", "no subclass of trainlattice.Options"],
    ),
    "no_target": ("faulty", ["the target of model 'no_target_net' does not exist"]),
    "greedy": ("faulty", ["the options of model 'greedy_net' declare 'name'"]),
}

# What a configuration that names each is told: name, exit code and words of the cause.
NEEDED = [
    ("import_error:net", 3, ["ImportError: libmissing.so", "trainlattice-plugin-import_error 0.1"]),
    ("exits:net", 3, ["SystemExit: 3", "trainlattice-plugin-exits 0.1"]),
    ("missing:net", 3, ["No module named 'missing_package'", "--force-reinstall --no-deps missing-dist"]),
    ("twin_net", 2, ["'name: twin-one:twin_net' or 'name: twin-two:twin_net'"]),
    ("mlp", 2, ["impostor:mlp", "models:mlp", "trainlattice-plugin-impostor 0.1"]),
    ("unknown_hook:net", 3, ["trainlattice_modules is no hook"]),
    ("wrong_argument:net", 3, ["'config'"]),
    ("no_options_net", 3, ["no subclass of trainlattice.Options"]),
    ("no_target_net", 3, ["No module named 'trainlattice_plugin_no_target.model'"]),
    ("greedy_net", 3, ["declare 'name', which core reserves"]),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hostile") / "site"
    install(directory)
    return directory


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["plugins", "list"],
        ["plugins", "list", "--kind", "model"],
        ["plugins", "list", "--json"],
        ["plugins", "info", "good"],
        ["plugins", "info", "good:net"],
        ["plugins", "info", "exits"],
        ["plugins", "info", "adamw"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_commands_that_need_none_of_them_work(site: Path, tmp_path: Path, command: list[str]):
    done = run_cli(*command, cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


def test_help_knows_nothing_of_them(site: Path, tmp_path: Path):
    assert run_cli("--help", cwd=tmp_path, site=site).stderr == ""


def test_the_list_names_each_with_its_cause(site: Path, tmp_path: Path):
    listing = json.loads(run_cli("plugins", "list", "--json", cwd=tmp_path, site=site).stdout)
    plugins = {plugin["id"]: plugin for plugin in listing["plugins"]}
    for plugin_id, (status, words) in HOSTILE.items():
        assert plugins[plugin_id]["status"] == status
        for word in words:
            assert word in " ".join(plugins[plugin_id]["reasons"])
    conflicts = [p["message"] for p in listing["problems"] if p["problem"] == "conflict"]
    assert any("'twin'" in text and "twin-one 0.1" in text and "twin-two 0.1" in text for text in conflicts)
    assert any("model 'mlp'" in text and "impostor:mlp" in text for text in conflicts)
    assert plugins["good"]["status"] == "ok"
    assert {p["id"] for p in listing["plugins"] if p["status"] == "ok"} >= {"core", "models", "good"}


def test_the_list_for_people_shows_the_same_causes(site: Path, tmp_path: Path):
    done = run_cli("plugins", "list", cwd=tmp_path, site=site)
    for plugin_id, (status, words) in HOSTILE.items():
        (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"{plugin_id} ")]
        assert row.split()[2] == status
        own = [line for line in done.stderr.splitlines() if f" plugin: {plugin_id} (" in line]
        assert own
        assert all(word in " ".join(own) for word in words)


@pytest.mark.torch
def test_a_run_that_needs_none_of_them_trains(site: Path, tmp_path: Path):
    (tmp_path / "good.yaml").write_text(GOOD)
    done = run_cli("validate", "good.yaml", cwd=tmp_path, site=site)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_cli("train", "good.yaml", cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    record = json.loads(manifest.read_text())
    assert record["status"] == "finished"
    assert {plugin["id"] for plugin in record["plugins"]} == {
        "core",
        "good",
        "datasets",
        "losses",
        "optimizers",
        "callbacks",
    }


@pytest.mark.torch
def test_code_that_cannot_be_imported_is_named_before_any_data_is_opened(tmp_path: Path):
    files = {"model.py": "import nowhere_to_be_found\n" + NET, "options.py": OPTIONS}
    fake_plugin(tmp_path / "site", "lacking", registration(net("lacking")), files)
    dataset = "dataset: {name: tensor, root: nowhere, num_classes: 3}\n"
    (tmp_path / "my.yaml").write_text(f"model: net\n{dataset}")
    done = run_cli("train", "my.yaml", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 3
    assert done.stderr.startswith("error: the target of model 'lacking:net'")
    assert "python -m pip install nowhere_to_be_found" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("name", "code", "words"), NEEDED, ids=[name for name, *_ in NEEDED])
def test_a_configuration_that_needs_one_fails_with_its_cause_alone(
    site: Path, tmp_path: Path, name: str, code: int, words: list[str]
):
    text = GOOD.replace("name: net\n  width: 3", f"name: '{name}'")
    (tmp_path / "needs.yaml").write_text(text)
    for command in (["validate", "needs.yaml"], ["train", "needs.yaml"]):
        done = run_cli(*command, cwd=tmp_path, site=site)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("error[") == 1
        assert done.stderr.startswith("error[broken-plugin]" if code == 3 else "error[conflict]")
        assert "needs.yaml:6:9" in done.stderr
        for word in words:
            assert word in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "name", ["impostor:mlp", "models:mlp", "twin-one:twin_net", "trainlattice-plugin-good:net"]
)
def test_what_is_sound_of_them_is_still_there_under_its_full_name(site: Path, tmp_path: Path, name: str):
    text = f"model: {{name: '{name}'}}\ndataset: {{name: synthetic, input_shape: [784]}}\n"
    (tmp_path / "full.yaml").write_text(text)
    done = run_cli("validate", "full.yaml", cwd=tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    assert f"model {name.replace('trainlattice-plugin-good', 'good')}" in done.stdout


def test_a_bare_name_that_nobody_has_shows_the_broken_plugins_before_the_others(site: Path, tmp_path: Path):
    (tmp_path / "unknown.yaml").write_text("model: {name: vit}\ndataset: synthetic\n")
    done = run_cli("validate", "unknown.yaml", cwd=tmp_path, site=site)
    assert done.returncode == 2
    before, _, _ = done.stderr.partition("available:")
    for plugin_id, (status, words) in HOSTILE.items():
        assert status != "broken" or (plugin_id in before and words[0] in before)
