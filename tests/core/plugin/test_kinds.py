"""Plugins that extend the configuration itself: new kinds with sections of their own, and modes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.distributions import fake_plugin, registration
from trainlattice.config.resolve import Resolution
from trainlattice.contracts.kind import CORE_SECTION_NAMES
from trainlattice.contracts.settings import CORE_SECTIONS
from trainlattice.diagnostics.errors import ConfigError, PluginError
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]
Resolve = Callable[..., Resolution]
Refused = Callable[..., ConfigError]

MODEL = "Component('model', 'net', 'json:JSONDecoder')"
BASE = "model: net\ndataset: synthetic\n"

MODES = """
from trainlattice.contracts.options import Options
from trainlattice.contracts.records import ModeContract


class Duel(Options):
    rounds: int = 1

    def contract(self):
        return ModeContract(
            required=("model", "dataset"),
            optional=("optimizer",),
            roles={"model": ("generator", "discriminator"), "optimizer": ("generator", "discriminator")},
        )


class Act(Options):
    def contract(self):
        return ModeContract(required=("robot",), optional=("optimizer",))
"""


def install_robots(site: Path, kind: str = "Kind('robot', 'robot', summary='what acts')") -> None:
    """The plugin ``robots`` brings the kind, the plugin ``arms`` a component of it: before it by name."""
    fake_plugin(
        site, "robots", registration("Component('robot', 'cart', 'json:JSONDecoder')", MODEL, kinds=[kind])
    )
    fake_plugin(site, "arms", registration("Component('robot', 'arm', 'json:JSONDecoder')"))


def install_modes(site: Path) -> None:
    package = "trainlattice_plugin_modes"
    declared = [
        f"Component('mode', {name!r}, 'json:JSONDecoder', options='{package}.options:{name.title()}')"
        for name in ("duel", "act")
    ]
    fake_plugin(site, "modes", registration(*declared, MODEL), {"options.py": MODES})


def test_the_sections_of_core_are_those_that_no_kind_may_claim():
    assert {*CORE_SECTIONS, "extends"} == CORE_SECTION_NAMES


# --- kinds ----------------------------------------------------------------------------------------


def test_a_plugin_can_provide_components_of_a_kind_that_another_brings(site: Path, installed: Installed):
    install_robots(site)
    registry = installed()
    assert [r.qualified for r in registry.components("robot")] == ["arms:arm", "robots:cart"]
    assert registry.kinds["robot"].section == "robot"
    assert registry.broken() == []


def test_a_section_that_the_mode_does_not_read_is_an_error(site: Path, refused: Refused):
    install_robots(site)
    (found,) = refused(BASE + "robot: arm\n").diagnostics
    assert found.code == "unused-section"
    assert "does not read the section 'robot'" in found.message
    assert (found.mark.line, found.mark.column) == (3, 1)


def test_a_section_of_a_kind_that_nobody_brings_is_unknown(refused: Refused):
    assert any(d.code == "unknown-section" for d in refused("robot: arm\n").diagnostics)


def test_a_mode_reads_the_section_of_a_kind_of_another_plugin(site: Path, resolve: Resolve, refused: Refused):
    install_robots(site)
    install_modes(site)
    resolved = resolve("mode: act\nrobot: arm\n").config
    assert resolved.one("robot").name == "arms:arm"
    assert resolved.one("mode").name == "modes:act"
    assert resolved.one("optimizer").name == "optimizers:adamw"  # read, and silent
    assert resolved.one("loss") is None  # not read, so its default has no business here
    codes = {(d.code, d.path) for d in refused("mode: act\nmodel: mlp\n").diagnostics}
    assert codes == {("missing-section", "robot"), ("unused-section", "model")}


def test_a_misspelt_component_of_a_new_kind_is_suggested(site: Path, refused: Refused):
    install_robots(site)
    install_modes(site)
    text = str(refused("mode: act\nrobot: arn\n"))
    assert "no robot is named 'arn'" in text
    assert "did you mean 'arm'?" in text


def test_a_kind_of_every_mode_stands_beside_any(site: Path, resolve: Resolve):
    install_robots(site, "Kind('robot', 'robots', form='list', every_mode=True)")
    resolved = resolve("model: net\ndataset: synthetic\nrobots: [arm, cart]\n").config
    assert [component.name for component in resolved.many("robots")] == ["arms:arm", "robots:cart"]
    assert resolved.as_plain()["robots"] == [{"name": "arms:arm"}, {"name": "robots:cart"}]


def test_a_kind_has_keys_beside_the_options_of_its_components(site: Path, resolve: Resolve, refused: Refused):
    package = "trainlattice_plugin_robots"
    options = (
        "from trainlattice.contracts.options import Options\n"
        "class Beside(Options):\n    speed: int = 1\n"
        "class Arm(Options):\n    joints: int = 6\n"
        "class Greedy(Options):\n    speed: int = 1\n"
    )
    kind = f"Kind('robot', 'robot', settings='{package}.options:Beside', every_mode=True)"
    declared = [
        f"Component('robot', {name!r}, 'json:JSONDecoder', options='{package}.options:{name.title()}')"
        for name in ("arm", "greedy")
    ]
    fake_plugin(site, "robots", registration(*declared, MODEL, kinds=[kind]), {"options.py": options})
    arm = resolve(BASE + "robot: {name: arm, joints: 7, speed: 3}\n").config.one("robot")
    assert (arm.options.joints, arm.settings.speed) == (7, 3)
    assert arm.as_plain() == {"name": "robots:arm", "speed": 3, "joints": 7}
    assert "declare 'speed', which core reserves" in str(refused(BASE + "robot: greedy\n"))


@pytest.mark.parametrize("settings", ["nowhere_to_be_found:Beside", "json:nothing", "json:JSONDecoder"])
def test_settings_of_a_kind_that_do_not_exist_are_a_plugins_fault_and_only_on_use(
    site: Path, resolve: Resolve, refused: Refused, settings: str
):
    install_robots(site, f"Kind('robot', 'robot', settings={settings!r}, every_mode=True)")
    resolve(BASE)
    assert [d.code for d in refused(BASE + "epoch: 3\n").diagnostics] == ["unknown-section"]
    error = refused(BASE + "robot: arm\n")
    assert error.exit_code == 3
    assert settings in str(error)


@pytest.mark.parametrize("clash", ["Kind('robot', 'machine')", "Kind('machine', 'robot')"])
def test_the_second_plugin_that_brings_a_kind_is_told_so_and_stays_usable(
    site: Path, installed: Installed, clash: str
):
    install_robots(site)
    fake_plugin(site, "second", registration(MODEL.replace("net", "spare"), kinds=[clash]))
    registry = installed()
    (second,) = registry.called("second")
    assert second.broken is None
    (warning,) = second.warnings
    assert "is left out" in warning
    assert "'robot'" in warning
    assert registry.find("model", "spare")


@pytest.mark.parametrize("clash", ["Kind('model', 'network')", "Kind('network', 'model')"])
def test_no_kind_takes_the_place_of_a_kind_of_core(site: Path, installed: Installed, clash: str):
    fake_plugin(site, "acme", registration(kinds=[clash]))
    registry = installed()
    assert registry.kinds["model"].section == "model"
    assert registry.kind_of_section("model").name == "model"
    assert "network" not in registry.kinds
    (plugin,) = registry.called("acme")
    assert "is left out" in plugin.warnings[0]


# --- modes ----------------------------------------------------------------------------------------

DUEL = """\
mode: {name: duel, rounds: 2}
dataset: synthetic
model:
  generator: net
  discriminator: {name: mlp, input_dim: 784}
"""


def test_a_mode_names_components_by_role(site: Path, resolve: Resolve):
    install_modes(site)
    config = resolve(DUEL).config
    assert {role: c.name for role, c in config.sections["model"].items()} == {
        "generator": "modes:net",
        "discriminator": "models:mlp",
    }
    plain = config.as_plain()
    assert plain["model"]["generator"] == {"name": "modes:net", "inputs": None}
    assert plain["mode"] == {"name": "modes:duel", "rounds": 2}


def test_a_silent_section_with_roles_has_its_default_in_every_role(site: Path, resolve: Resolve):
    install_modes(site)
    optimizers = resolve(DUEL).config.sections["optimizer"]
    assert {role: c.name for role, c in optimizers.items()} == {
        "generator": "optimizers:adamw",
        "discriminator": "optimizers:adamw",
    }
    named = resolve(DUEL + "optimizer:\n  discriminator: sgd\n").config.sections["optimizer"]
    assert {role: c.name for role, c in named.items()} == {
        "generator": "optimizers:adamw",
        "discriminator": "optimizers:sgd",
    }


@pytest.mark.parametrize("absent", ["  generator: net\n", "  generator:\n"])
def test_a_role_without_a_component_is_missing(site: Path, refused: Refused, absent: str):
    install_modes(site)
    replacement = "" if "net" in absent else absent
    (found,) = refused(DUEL.replace("  generator: net\n", replacement)).diagnostics
    assert found.path == "model.generator"
    assert "'generator'" in found.message
    assert found.mark.line == 3


def test_one_component_where_roles_are_expected_is_told_the_roles(site: Path, refused: Refused):
    install_modes(site)
    text = str(refused("mode: duel\ndataset: synthetic\nmodel: net\n"))
    assert "generator, discriminator" in text


def test_an_unknown_role_is_told_the_roles(site: Path, refused: Refused):
    install_modes(site)
    text = str(refused(DUEL.replace("generator: net", "generater: net")))
    assert "generator, discriminator" in text


def test_sections_that_a_mode_requires_are_missing_and_others_unused(site: Path, refused: Refused):
    install_modes(site)
    found = {(d.code, d.path) for d in refused("mode: duel\nloss: mse\n").diagnostics}
    assert found == {
        ("missing-section", "model"),
        ("missing-section", "dataset"),
        ("unused-section", "loss"),
    }


def test_the_callbacks_of_a_configuration_are_for_every_mode(site: Path, resolve: Resolve):
    install_robots(site)
    install_modes(site)
    resolved = resolve("mode: act\nrobot: arm\ncallbacks: [progress]\n").config
    assert [c.name for c in resolved.many("callbacks")] == ["callbacks:progress"]


def test_an_unknown_mode_is_the_only_mistake_that_is_shown(site: Path, refused: Refused):
    install_modes(site)
    (found,) = refused(DUEL.replace("duel", "dual").replace(", rounds: 2", "")).diagnostics
    assert found.path == "mode.name"
    assert found.suggestion == "did you mean 'duel'?"


def test_a_mode_whose_contract_raises_is_a_plugins_fault(site: Path, resolve: Resolve):
    source = MODES + "\n\nclass Odd(Options):\n    def contract(self):\n        raise KeyError('robot')\n"
    declared = "Component('mode', 'odd', 'json:JSONDecoder', options='trainlattice_plugin_odd.options:Odd')"
    fake_plugin(site, "odd", registration(declared), {"options.py": source})
    with pytest.raises(PluginError, match=r"mode 'odd:odd' \(trainlattice-plugin-odd 0.1\)"):
        resolve("mode: odd\n")


def test_a_mode_that_claims_to_be_the_default_conflicts_with_the_one_of_core(
    site: Path, resolve: Resolve, refused: Refused
):
    declared = "Component('mode', 'mine', 'json:JSONDecoder', default_for='mode')"
    fake_plugin(site, "acme", registration(declared, MODEL))
    text = str(refused(BASE))
    assert "default mode" in text
    assert "acme:mine" in text
    assert "core:supervised" in text
    assert resolve(BASE + "mode: supervised\n").config.one("mode").name == "core:supervised"
