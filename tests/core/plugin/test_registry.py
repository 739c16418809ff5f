"""What a name in a configuration means: bare and qualified names, conflicts, defaults, broken providers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.distributions import fake_distribution, fake_plugin, registration
from trainlattice.config.resolve import Resolution
from trainlattice.diagnostics.errors import ConfigError, PluginError
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]
Resolve = Callable[..., Resolution]
Refused = Callable[..., ConfigError]

OPTIONS = "from trainlattice.contracts.options import Options\n"


def model(name: str, **more: str) -> str:
    """Source of a model's declaration."""
    arguments = "".join(f", {key}={value!r}" for key, value in more.items())
    return f"Component('model', {name!r}, 'json:JSONDecoder'{arguments})"


def config(name: str) -> str:
    return f"model:\n  name: {name}\ndataset: synthetic\n"


def install_with_options(site: Path, source: str, kind: str = "model") -> None:
    """The plugin ``acme`` with one component ``net`` whose options class is ``Net``."""
    declared = (
        f"Component({kind!r}, 'net', 'json:JSONDecoder', options='trainlattice_plugin_acme.options:Net')"
    )
    fake_plugin(site, "acme", registration(declared), {"options.py": OPTIONS + source})


# --- bare and qualified names ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "net",
        "acme:net",
        "trainlattice-plugin-acme:net",
        "trainlattice_plugin_acme:net",
        "Trainlattice.Plugin-Acme:net",
    ],
)
def test_a_component_is_named_bare_or_by_plugin_or_by_distribution(site: Path, resolve: Resolve, name: str):
    fake_plugin(site, "acme", registration(model("net")))
    assert resolve(config(name)).config.one("model").name == "acme:net"


def test_the_resolved_configuration_holds_qualified_names_of_defaults_too(site: Path, resolve: Resolve):
    fake_plugin(site, "acme", registration(model("net")))
    plain = resolve(config("net")).config.as_plain()
    assert plain["model"] == {"name": "acme:net", "inputs": None}
    assert plain["optimizer"]["name"] == "optimizers:adamw"
    assert plain["mode"] == {"name": "core:supervised"}


def test_a_name_of_two_plugins_is_refused_with_versions_files_and_both_full_names(
    site: Path, refused: Refused
):
    for name, version in (("acme", "1.2"), ("zebra", "0.4")):
        fake_distribution(
            site,
            f"trainlattice-plugin-{name}",
            version=version,
            entry_points={"trainlattice.plugins": {name: f"{name}_package.plugin"}},
            files={f"{name}_package/plugin.py": registration(model("net"))},
        )
    error = refused(config("net"))
    (found,) = error.diagnostics
    assert found.code == "conflict"
    assert (found.mark.line, found.mark.column) == (2, 9)
    assert found.path == "model.name"
    assert "'net'" in found.message
    text = found.render()
    for name, version in (("acme", "1.2"), ("zebra", "0.4")):
        row = next(line for line in text.splitlines() if f"trainlattice-plugin-{name} {version}" in line)
        assert f"{name}:net" in row
        assert str(site / f"{name}_package" / "plugin.py") in row
    assert "write 'name: acme:net' or 'name: zebra:net'" in text
    assert error.exit_code == 2


@pytest.mark.parametrize("name", ["acme:mlp", "models:mlp"])
@pytest.mark.parametrize("first", ["acme", "builtin"])
def test_neither_a_built_in_nor_a_strangers_component_overrides_the_other(
    site: Path, resolve: Resolve, refused: Refused, monkeypatch: pytest.MonkeyPatch, name: str, first: str
):
    fake_plugin(site, "acme", registration(model("mlp")))
    if first == "builtin":
        monkeypatch.setattr(sys, "path", [*(p for p in sys.path if p != str(site)), str(site)])
    assert resolve(config(name).replace("synthetic", "{name: synthetic, input_shape: [784]}")).config.one(
        "model"
    ).name == (name)
    names = [line for line in str(refused(config("mlp"))).splitlines() if ":mlp   " in line]
    assert [row.split()[0] for row in sorted(names)] == ["acme:mlp", "models:mlp"]


def test_a_conflict_about_a_name_that_is_not_used_concerns_nobody(site: Path, resolve: Resolve):
    fake_plugin(site, "acme", registration(model("mlp"), model("net")))
    assert resolve(config("net")).config.one("model").name == "acme:net"


def two_distributions_of_one_plugin_name(site: Path) -> None:
    for name in ("first-dist", "second-dist"):
        package = name.replace("-", "_")
        fake_distribution(
            site,
            name,
            entry_points={"trainlattice.plugins": {"twin": f"{package}.plugin"}},
            files={f"{package}/plugin.py": registration(model("net"), model(f"only_{package}"))},
        )


def test_two_distributions_with_one_entry_point_name_both_count(site: Path, installed: Installed):
    two_distributions_of_one_plugin_name(site)
    registry = installed()
    assert {plugin.distribution_name for plugin in registry.called("twin")} == {"first-dist", "second-dist"}
    assert [p.distribution_name for p in registry.duplicate_ids()["twin"]] == ["first-dist", "second-dist"]
    assert all(plugin.broken is None for plugin in registry.called("twin"))


def test_components_of_two_plugins_of_one_name_are_told_apart_by_distribution(
    site: Path, resolve: Resolve, refused: Refused
):
    two_distributions_of_one_plugin_name(site)
    for ambiguous in ("net", "twin:net"):
        text = str(refused(config(ambiguous)))
        assert "write 'name: first-dist:net' or 'name: second-dist:net'" in text
    resolved = resolve(config("second-dist:net")).config
    assert resolved.one("model").registered.plugin.distribution_name == "second-dist"
    # A name that only one of them has stays as it is: installing the other changes no configuration.
    assert resolve(config("first-dist:only_first_dist")).config.one("model").name == "twin:only_first_dist"


def test_what_two_plugins_of_one_name_provide_resolves_again_from_the_resolved_configuration(
    site: Path, resolve: Resolve
):
    two_distributions_of_one_plugin_name(site)
    name = resolve(config("second-dist:net")).config.as_plain()["model"]["name"]
    again = resolve(config(name)).config.one("model")
    assert again.registered.plugin.distribution_name == "second-dist"


@pytest.mark.parametrize("source", [registration(model("net")), "raise SystemExit(3)"])
def test_a_stranger_with_the_name_of_a_built_in_plugin_changes_no_qualified_name(
    site: Path, resolve: Resolve, source: str
):
    """Else the checkpoints of every run so far would belong to another configuration."""
    text = "model: mlp\ndataset: {name: synthetic, input_shape: [784]}\n"
    before = resolve(text).config.as_plain()
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {"models": "acme_package.plugin"}},
        files={"acme_package/plugin.py": source},
    )
    assert resolve(text).config.as_plain() == before
    assert resolve(text.replace("mlp", "'models:mlp'")).config.as_plain() == before


# --- names that mean nothing ----------------------------------------------------------------------


def test_capitals_are_no_other_name_and_the_right_spelling_is_suggested(refused: Refused):
    text = str(refused(config("MLP")))
    assert "no model is named 'MLP'" in text
    assert "did you mean 'mlp'?" in text


def test_an_unknown_name_shows_what_there_is_and_from_where(site: Path, refused: Refused):
    fake_plugin(site, "acme", registration(model("net")))
    text = str(refused(config("nett")))
    assert "did you mean 'net'?" in text
    assert "net (acme)" in text
    assert "autoencoder cnn late_fusion mlp multi_head unet (models)" in text
    assert "python -m pip install" in text


def test_the_name_of_another_kind_is_called_what_it_is(refused: Refused):
    assert "'adamw' is an optimizer, not a model" in str(refused(config("adamw")))


def test_a_distribution_name_in_place_of_a_component_lists_its_components(site: Path, refused: Refused):
    fake_plugin(site, "acme", registration(model("net"), model("other")))
    assert "its models: net, other" in str(refused(config("trainlattice-plugin-acme")))


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("vision:vit", "trainlattice-plugin-vision"),
        ("two_words:vit", "trainlattice-plugin-two-words"),
        ("acme-vision:vit", "acme-vision"),
    ],
)
def test_a_plugin_that_is_not_installed_is_named_with_the_pip_line(
    refused: Refused, name: str, distribution: str
):
    error = refused(config(f"'{name}'"))
    assert f"the plugin '{name.partition(':')[0]}' is not installed" in str(error)
    assert f"python -m pip install {distribution}\n" in str(error) + "\n"
    assert error.exit_code == 3


def test_a_misspelt_plugin_is_suggested(refused: Refused):
    assert "did you mean 'models:mlp'?" in str(refused(config("'model:mlp'")))


def test_a_component_that_its_plugin_does_not_have_is_unknown(refused: Refused):
    error = refused(config("'models:mpl'"))
    assert "did you mean 'mlp'?" in str(error)
    assert error.exit_code == 2


# --- broken plugins -------------------------------------------------------------------------------


def test_a_configuration_that_names_a_broken_plugin_fails_with_the_cause(site: Path, refused: Refused):
    fake_plugin(site, "acme", "import nowhere_to_be_found\n")
    error = refused(config("'acme:net'"))
    (found,) = error.diagnostics
    assert found.code == "broken-plugin"
    assert "trainlattice-plugin-acme 0.1" in found.message
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in found.notes[0]
    assert "python -m pip install nowhere_to_be_found" in found.notes[0]
    assert error.exit_code == 3


def test_a_bare_name_that_a_broken_plugin_may_provide_shows_its_cause_before_all_else(
    site: Path, refused: Refused
):
    fake_plugin(site, "acme", "raise SystemExit('no licence found')\n")
    (found,) = refused(config("net")).diagnostics
    assert "'acme'" in found.notes[0]
    assert "SystemExit: no licence found" in found.notes[0]


def test_an_unknown_section_shows_the_broken_plugins_that_may_bring_it(site: Path, refused: Refused):
    fake_plugin(site, "acme", "raise SystemExit('no licence found')\n")
    text = str(refused(config("mlp") + "environment: cart_pole\n"))
    assert "unknown section 'environment'" in text
    assert "SystemExit: no licence found" in text


def test_broken_plugins_that_are_not_needed_never_matter(site: Path, resolve: Resolve):
    fake_plugin(site, "acme", "raise SystemExit(3)\n")
    fake_plugin(site, "bad_hook", registration("Component('modell', 'net', 'json:JSONDecoder')"))
    fake_plugin(site, "zebra", registration(model("net")))
    resolution = resolve(config("net"))
    assert resolution.config.one("model").name == "zebra:net"
    assert resolution.warnings == ()


# --- options classes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("Net = {'width': 3}\n", "no subclass of trainlattice.Options"),
        ("class Net:\n    width: int = 3\n", "no subclass of trainlattice.Options"),
        ("def Net():\n    return Options()\n", "no subclass of trainlattice.Options"),
        ("Net = Options()\n", "no subclass of trainlattice.Options"),
        ("from pydantic import BaseModel\nclass Net(BaseModel):\n    width: int = 3\n", "no subclass"),
        ("", "has no attribute 'Net'"),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_options_that_are_no_options_class_are_the_plugins_fault(
    site: Path, refused: Refused, source: str, said: str
):
    install_with_options(site, source)
    error = refused(config("net"))
    (found,) = error.diagnostics
    assert found.code == "broken-plugin"
    assert said in found.message
    assert "model 'acme:net' (trainlattice-plugin-acme 0.1)" in found.message
    assert found.mark.line == 2
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("model", "name"),
        ("model", "inputs"),
        ("dataset", "name"),
        ("dataset", "batch_size"),
        ("dataset", "num_workers"),
        ("dataset", "shuffle"),
        ("loss", "weight"),
        ("loss", "pred_key"),
        ("optimizer", "implementation"),
        ("callback", "name"),
    ],
)
def test_an_options_class_cannot_claim_a_key_that_core_reads(
    site: Path, installed: Installed, kind: str, key: str
):
    install_with_options(site, f"class Net(Options):\n    {key}: int = 1\n", kind)
    (registered,) = installed().find(kind, "net")
    with pytest.raises(PluginError, match=f"declare '{key}', which core reserves"):
        _ = registered.options_class


@pytest.mark.parametrize("alias", ["as", "name"])
def test_an_alias_cannot_claim_a_reserved_key_either(site: Path, installed: Installed, alias: str):
    source = f"from pydantic import Field\nclass Net(Options):\n    field: int = Field(1, alias={alias!r})\n"
    install_with_options(site, source)
    (registered,) = installed().find("model", "net")
    with pytest.raises(PluginError, match=f"declare '{alias}'"):
        _ = registered.options_class


def test_an_inherited_reserved_key_is_refused(site: Path, installed: Installed):
    source = "class Base(Options):\n    batch_size: int = 1\nclass Net(Base):\n    width: int = 1\n"
    install_with_options(site, source, "dataset")
    (registered,) = installed().find("dataset", "net")
    with pytest.raises(PluginError, match="batch_size"):
        _ = registered.options_class


def test_a_component_without_options_takes_none(site: Path, refused: Refused):
    fake_plugin(site, "acme", registration(model("net")))
    error = refused("model:\n  name: net\n  width: 3\ndataset: synthetic\n")
    assert "unknown option 'width' for model 'acme:net'" in str(error)
    assert "it has no options" in str(error)


def test_a_contract_that_raises_is_the_plugins_fault(site: Path, resolve: Resolve):
    source = "class Net(Options):\n    width: int = 3\n    def contract(self):\n        return 1 / 0\n"
    install_with_options(site, source)
    with pytest.raises(
        PluginError, match=r"model 'acme:net' \(trainlattice-plugin-acme 0.1\).*division"
    ) as e:
        resolve(config("net"))
    assert e.value.exit_code == 3


def test_the_digest_of_an_options_schema_ignores_texts_and_notices_types(site: Path, installed: Installed):
    field = "from pydantic import Field\nclass {}(Options):\n    width: {} = Field({}, description={!r})\n"
    variants = {
        "same": field.format("Same", "int", 3, "Units."),
        "reworded": field.format("Reworded", "int", 3, "Hidden units."),
        "retyped": field.format("Retyped", "float", 3.0, "Units."),
        "new_default": field.format("NewDefault", "int", 4, "Units."),
    }
    classes = {name: source.split("class ")[1].split("(")[0] for name, source in variants.items()}
    declared = [model(name, options=f"trainlattice_plugin_acme.options:{classes[name]}") for name in variants]
    source = OPTIONS + "".join(variants.values())
    fake_plugin(site, "acme", registration(*declared), {"options.py": source})
    registry = installed()
    digest = {name: registry.find("model", name)[0].schema_sha256 for name in variants}
    assert digest["same"] == digest["reworded"]
    assert len(set(digest.values())) == 3


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "has no attribute 'Net'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import nowhere_to_be_found\n", "python -m pip install nowhere_to_be_found"),
    ],
)
def test_a_target_that_cannot_be_imported_names_its_plugin_and_the_cause(
    site: Path, installed: Installed, source: str, said: str
):
    declared = "Component('model', 'net', 'trainlattice_plugin_acme.model:Net')"
    fake_plugin(site, "acme", registration(declared), {"model.py": source})
    (registered,) = installed().find("model", "net")
    with pytest.raises(PluginError) as caught:
        _ = registered.target
    assert "model 'acme:net' (trainlattice-plugin-acme 0.1)" in str(caught.value)
    assert "trainlattice_plugin_acme.model:Net" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "No module named 'trainlattice_plugin_acme.model'"),
        ({"model.py": "class Other: ...\n"}, "has no attribute 'Net'"),
    ],
)
def test_a_target_that_does_not_exist_is_found_before_a_run_begins(
    site: Path, refused: Refused, files: dict[str, str], said: str
):
    declared = "Component('model', 'net', 'trainlattice_plugin_acme.model:Net')"
    fake_plugin(site, "acme", registration(declared), files)
    error = refused(config("net"))
    (found,) = error.diagnostics
    assert found.code == "broken-plugin"
    assert said in found.message
    assert found.mark.line == 2
    assert error.exit_code == 3


def test_a_target_that_only_running_code_defines_is_no_fault(site: Path, resolve: Resolve):
    declared = "Component('model', 'net', 'trainlattice_plugin_acme.model:Net')"
    fake_plugin(site, "acme", registration(declared), {"model.py": "globals()['Net'] = object\n"})
    assert resolve(config("net")).config.one("model").registered.target is object


def test_resolving_imports_options_and_no_target(site: Path, resolve: Resolve):
    declared = (
        "Component('model', 'net', 'trainlattice_plugin_acme.model:Net', "
        "options='trainlattice_plugin_acme.options:Net')"
    )
    files = {
        "model.py": "class Net: ...\nraise AssertionError\n",
        "options.py": OPTIONS + "class Net(Options):\n    pass\n",
    }
    fake_plugin(site, "acme", registration(declared), files)
    resolve(config("net"))
    assert "trainlattice_plugin_acme.options" in sys.modules
    assert "trainlattice_plugin_acme.model" not in sys.modules


# --- defaults and deprecation ---------------------------------------------------------------------

RIVAL = "Component('optimizer', 'rival', 'json:JSONDecoder', default_for='optimizer')"


def test_two_claims_to_a_silent_section_are_a_conflict_that_names_both(site: Path, refused: Refused):
    fake_plugin(site, "acme", registration(RIVAL))
    error = refused(config("mlp").replace("synthetic", "{name: synthetic, input_shape: [784]}"))
    (found,) = error.diagnostics
    assert found.code == "conflict"
    text = found.render()
    assert "default optimizer" in text
    assert "optimizers:adamw" in text
    assert "acme:rival   trainlattice-plugin-acme 0.1" in text


@pytest.mark.parametrize("name", ["rival", "adamw", "sgd"])
def test_a_named_component_settles_the_conflict_about_the_default(site: Path, resolve: Resolve, name: str):
    fake_plugin(site, "acme", registration(RIVAL, model("net")))
    chosen = resolve(config("net") + f"optimizer: {name}\n").config.one("optimizer")
    assert chosen.registered.component.name == name


def test_options_of_a_section_without_a_name_belong_to_the_default(resolve: Resolve):
    text = config("mlp").replace("synthetic", "{name: synthetic, input_shape: [784]}")
    assert resolve(text + "optimizer:\n  lr: 0.5\n").config.as_plain()["optimizer"]["lr"] == 0.5


def test_a_deprecated_component_warns_where_it_is_named_and_works(site: Path, resolve: Resolve):
    fake_plugin(site, "acme", registration(model("net", deprecated="since 0.3: use 'better_net'")))
    resolution = resolve(config("net"))
    (warning,) = resolution.warnings
    assert warning.level == "warning"
    assert "'acme:net' is deprecated: since 0.3: use 'better_net'" in warning.message
    assert (warning.mark.line, warning.mark.column) == (2, 9)


# --- modules of tests -----------------------------------------------------------------------------


def test_a_module_that_no_distribution_declares_can_be_added(site: Path):
    fake_plugin(site, "acme", registration(model("net")))
    import trainlattice_plugin_acme.plugin as module

    registry = Registry()
    assert registry.add_module(module, plugin_id="mine").broken is None
    assert [found.qualified for found in registry.find("model", "net")] == ["mine:net"]
    assert registry.add_module(module, plugin_id="again").broken is not None
