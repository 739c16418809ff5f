"""Registering one plugin: what its hooks must be and return, and what is said of one that is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.distributions import fake_distribution, fake_plugin, registration
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]

HEAD = "from trainlattice.plugin import Component, Kind, hookimpl\n"
MODEL = "Component('model', 'net', 'acme_code:Net')"


def only(registry: Registry, plugin_id: str) -> Plugin:
    (plugin,) = registry.called(plugin_id)
    return plugin


def cause_of(installed: Installed, plugin_id: str = "acme") -> str:
    broken = only(installed(), plugin_id).broken
    assert broken is not None, "the plugin counts as sound"
    return broken


# --- hooks ----------------------------------------------------------------------------------------


def test_a_misspelt_hook_breaks_the_plugin_and_the_right_name_is_suggested(site: Path, installed: Installed):
    fake_plugin(site, "acme", HEAD + "@hookimpl\ndef trainlattice_component():\n    return []\n")
    cause = cause_of(installed)
    assert "trainlattice_component is no hook" in cause
    assert "did you mean 'trainlattice_components'?" in cause


def test_a_hook_that_is_not_marked_as_one_breaks_the_plugin(site: Path, installed: Installed):
    fake_plugin(site, "acme", HEAD + f"def trainlattice_components():\n    return [{MODEL}]\n")
    cause = cause_of(installed)
    assert "trainlattice_components" in cause
    assert "hookimpl" in cause


def test_a_hook_that_asks_for_an_unknown_argument_breaks_the_plugin(site: Path, installed: Installed):
    fake_plugin(site, "acme", HEAD + "@hookimpl\ndef trainlattice_components(config):\n    return []\n")
    cause = cause_of(installed)
    assert "trainlattice_components" in cause
    assert "config" in cause
    assert "\n" not in cause


def test_a_hook_may_leave_out_arguments(site: Path, installed: Installed):
    fake_plugin(site, "acme", HEAD + "@hookimpl\ndef trainlattice_run_finished(outcome):\n    pass\n")
    assert only(installed(), "acme").broken is None


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("'net'", "trainlattice_components returned 'net', expected a list of Component"),
        ("3", "trainlattice_components returned 3, expected a list of Component"),
        ("None", "trainlattice_components returned None, expected a list of Component"),
        ("[3]", "returned 3 in its list, expected Component"),
        ("['net']", "returned 'net' in its list, expected Component"),
        (f"[{MODEL}, None]", "returned None in its list, expected Component"),
        ("{'net': 3}", "returned 'net' in its list, expected Component"),
        ("[Kind('net', 'net')]", "expected Component"),
        (MODEL, "expected a list of Component"),
    ],
)
def test_a_hook_that_returns_anything_but_declarations_breaks_the_plugin(
    site: Path, installed: Installed, returned: str, said: str
):
    fake_plugin(site, "acme", HEAD + f"@hookimpl\ndef trainlattice_components():\n    return {returned}\n")
    assert said in cause_of(installed)


def test_a_hook_that_raises_breaks_the_plugin_and_the_line_is_shown(site: Path, installed: Installed):
    fake_plugin(site, "acme", HEAD + "@hookimpl\ndef trainlattice_components():\n    return [1 / 0]\n")
    cause = cause_of(installed)
    assert cause.startswith("ZeroDivisionError: division by zero")
    assert cause.endswith(f"({site}/trainlattice_plugin_acme/plugin.py:4)")


def test_a_hook_that_raises_halfway_through_its_declarations_provides_none(site: Path, installed: Installed):
    source = f"@hookimpl\ndef trainlattice_components():\n    yield {MODEL}\n    raise SystemExit(3)\n"
    fake_plugin(site, "acme", HEAD + source)
    registry = installed()
    assert only(registry, "acme").broken.startswith("SystemExit: 3")
    assert registry.find("model", "net") == []


def test_a_broken_plugin_hears_of_no_run(site: Path, installed: Installed):
    source = "@hookimpl\ndef trainlattice_run_created(run):\n    raise RuntimeError\n"
    source += "@hookimpl\ndef trainlattice_components():\n    return 3\n"
    fake_plugin(site, "acme", HEAD + source)
    registry = installed()
    hooks = registry.hooks_of(registry.called("acme")).hook
    assert hooks.trainlattice_run_created.get_hookimpls() == []


# --- import ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libfoo.so: undefined symbol')", "ImportError: libfoo.so: undefined symbol"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import sys\nsys.exit()", "SystemExit"),
        (
            "class Odd(BaseException):\n    pass\nraise Odd('not even an Exception')",
            "Odd: not even an Exception",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise AssertionError", "AssertionError"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("def f():\n    f()\nf()", "RecursionError"),
    ],
)
def test_whatever_a_module_raises_while_it_is_imported_breaks_only_its_plugin(
    site: Path, installed: Installed, source: str, said: str
):
    fake_plugin(site, "acme", source)
    fake_plugin(site, "sound", registration(MODEL))
    registry = installed()
    assert only(registry, "acme").broken.startswith(said)
    assert "plugin.py:" in only(registry, "acme").broken
    assert only(registry, "sound").broken is None
    assert [found.qualified for found in registry.find("model", "net")] == ["sound:net"]


def test_the_error_of_a_registration_module_may_even_be_unprintable(site: Path, installed: Installed):
    fake_plugin(site, "acme", "class Mute(Exception):\n    def __str__(self):\n        1 / 0\nraise Mute\n")
    assert cause_of(installed).startswith("Mute")


def test_a_syntax_error_is_shown_with_its_line(site: Path, installed: Installed):
    fake_plugin(site, "acme", "x = 1\ndef broken(:\n")
    cause = cause_of(installed)
    assert cause.startswith("SyntaxError")
    assert f"({site}/trainlattice_plugin_acme/plugin.py:2)" in cause


def test_a_missing_dependency_is_named_with_the_pip_line(site: Path, installed: Installed):
    fake_plugin(site, "acme", "import nowhere_to_be_found.deep\n")
    cause = cause_of(installed)
    assert "No module named 'nowhere_to_be_found'" in cause
    assert "python -m pip install nowhere_to_be_found" in cause
    assert "force-reinstall" not in cause


def test_a_missing_registration_module_advises_to_reinstall(site: Path, installed: Installed):
    fake_distribution(
        site, "trainlattice-plugin-acme", entry_points={"trainlattice.plugins": {"acme": "acme_gone.plugin"}}
    )
    cause = cause_of(installed)
    assert "No module named 'acme_gone'" in cause
    assert "python -m pip install --force-reinstall --no-deps trainlattice-plugin-acme" in cause


def test_a_renamed_registration_module_advises_to_reinstall(site: Path, installed: Installed):
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {"acme": "acme_package.old_name"}},
        files={"acme_package/plugin.py": ""},
    )
    assert "--force-reinstall --no-deps acme-dist" in cause_of(installed)


def test_the_users_own_interrupt_is_no_fault_of_a_plugin(site: Path, installed: Installed):
    fake_plugin(site, "acme", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        installed()


# --- entry points ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Acme", "acme-two", "2acme", "äcme", "acme.two"])
def test_an_entry_point_name_that_no_yaml_could_say_breaks_the_plugin(
    site: Path, installed: Installed, name: str
):
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {name: "acme_package.plugin"}},
        files={"acme_package/plugin.py": "raise AssertionError('imported')"},
    )
    cause = cause_of(installed, name)
    assert repr(name) in cause
    assert "lower-case letters, digits and underscores" in cause
    assert "imported" not in cause


@pytest.mark.parametrize("name", ["core", "local"])
def test_no_plugin_takes_a_name_that_stands_for_what_is_no_plugin(
    site: Path, installed: Installed, name: str
):
    fake_plugin(site, name, registration(MODEL))
    stranger = next(p for p in installed().called(f"trainlattice-plugin-{name}"))
    assert stranger.broken == f"the entry point name {name!r} is reserved"


def test_an_entry_point_may_name_an_object_with_hooks(site: Path, installed: Installed):
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {"acme": "acme_package.plugin:Hooks.instance"}},
        files={
            "acme_package/plugin.py": HEAD
            + f"class Hooks:\n    @hookimpl\n    def trainlattice_components(self):\n        return [{MODEL}]\n"
            + "Hooks.instance = Hooks()\n"
        },
    )
    registry = installed()
    assert only(registry, "acme").broken is None
    assert [found.qualified for found in registry.find("model", "net")] == ["acme:net"]


def test_an_object_that_raises_when_it_is_looked_at_breaks_its_plugin(site: Path, installed: Installed):
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {"acme": "acme_package.plugin:hooks"}},
        files={
            "acme_package/plugin.py": "class Hooks:\n"
            "    @property\n    def trainlattice_components(self):\n        raise RuntimeError('not today')\n"
            "hooks = Hooks()\n"
        },
    )
    assert "RuntimeError: not today" in cause_of(installed)


def test_an_entry_point_to_a_missing_attribute_is_named(site: Path, installed: Installed):
    fake_distribution(
        site,
        "acme-dist",
        entry_points={"trainlattice.plugins": {"acme": "acme_package.plugin:hooks"}},
        files={"acme_package/plugin.py": ""},
    )
    assert "has no attribute 'hooks'" in cause_of(installed)


def test_two_entry_points_to_one_module_are_one_plugin_and_one_named_fault(site: Path, installed: Installed):
    """A distribution that was renamed and whose old name is still installed."""
    fake_plugin(site, "acme", registration(MODEL))
    fake_distribution(
        site, "old-name", entry_points={"trainlattice.plugins": {"zebra": "trainlattice_plugin_acme.plugin"}}
    )
    registry = installed()
    assert only(registry, "acme").broken is None
    assert "trainlattice-plugin-acme" in only(registry, "zebra").broken
    assert [found.qualified for found in registry.find("model", "net")] == ["acme:net"]


def test_one_distribution_that_declares_one_plugin_twice_works_once(site: Path, installed: Installed):
    fake_plugin(site, "acme", registration(MODEL))
    entry_points = next(site.glob("*.dist-info")) / "entry_points.txt"
    entry_points.write_text(entry_points.read_text() + "acme = trainlattice_plugin_acme.plugin\n")
    assert [found.qualified for found in installed().find("model", "net")] == ["acme:net"]


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("Component('model', 'Net', 'a.b:C')", "model 'Net': a name has lower-case letters"),
        ("Component('model', 'my-net', 'a.b:C')", "'my-net'"),
        ("Component('model', '', 'a.b:C')", "a name has lower-case letters"),
        ("Component('model', 7, 'a.b:C')", "component name 7 is not a string"),
        ("Component(None, 'net', 'a.b:C')", "component kind None is not a string"),
        ("Component('modell', 'net', 'a.b:C')", "unknown kind 'modell'; did you mean 'model'?"),
        (
            "Component('model', 'net', 'a.b.C')",
            "target 'a.b.C' is not of the form 'package.module:attribute'",
        ),
        ("Component('model', 'net', 'a.b:')", "target 'a.b:' is not of the form"),
        ("Component('model', 'net', 'a.b:C(1)')", "is not of the form"),
        ("Component('model', 'net', dict)", "target <class 'dict'> is not a string"),
        ("Component('model', 'net', 'a.b:C', options='a.b')", "options 'a.b' is not of the form"),
        ("Component('model', 'net', 'a.b:C', options=dict)", "options <class 'dict'> is not of the form"),
        ("Component('model', 'net', 'a.b:C', summary=3)", "summary 3 is not a string"),
        ("Component('model', 'net', 'a.b:C', deprecated=True)", "deprecated True is not a string"),
        ("Component('model', 'net', 'a.b:C', default_for='loss')", "cannot be the default for 'loss'"),
        (f"{MODEL}, {MODEL}", "model 'net' is declared twice"),
    ],
)
def test_a_declaration_that_is_not_valid_breaks_the_plugin(
    site: Path, installed: Installed, declared: str, said: str
):
    fake_plugin(site, "acme", registration(declared))
    assert said in cause_of(installed)


def test_one_invalid_declaration_takes_back_all_of_a_plugin(site: Path, installed: Installed):
    fake_plugin(site, "acme", registration(MODEL, "Component('model', 'Net', 'a.b:C')"))
    registry = installed()
    assert only(registry, "acme").broken
    assert registry.find("model", "net") == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("Kind('Robot', 'robot')", "kind name 'Robot'"),
        ("Kind('robot', 'the robot')", "kind section 'the robot'"),
        ("Kind('robot', 'robot', form='many')", "form is 'one' or 'list', not 'many'"),
        ("Kind('robot', 'trainer')", "section 'trainer'"),
        ("Kind('robot', 'plugins')", "section 'plugins'"),
        ("Kind('robot', 'experiment')", "section 'experiment'"),
        ("Kind('robot', 'extends')", "section 'extends'"),
        ("Kind('robot', 'robot', settings='RobotSettings')", "settings 'RobotSettings'"),
        ("Kind('robot', 'robot', reserved=['speed'])", "reserved ['speed']"),
        ("Kind('robot', 'robot', arguments='options')", "arguments 'options'"),
        ("'robot'", "expected Kind"),
    ],
)
def test_a_kind_that_is_not_valid_breaks_the_plugin(
    site: Path, installed: Installed, declared: str, said: str
):
    fake_plugin(site, "acme", registration(kinds=[declared]))
    registry = installed()
    assert said in only(registry, "acme").broken
    assert "robot" not in registry.kinds
