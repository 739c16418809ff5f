"""Faults of components that are seen without importing them: in source text only, and never by guessing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from support.distributions import fake_plugin, registration
from trainlattice.plugin.inspection import static_problems
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]

SOUND_OPTIONS = "from trainlattice import Options\n\n\nclass Net(Options):\n    width: int = 1\n"
SOUND_TARGET = "class Net:\n    pass\n"
numbers = count()  # plugins of one test need names of their own


def problems(
    site: Path,
    installed: Installed,
    *,
    target: str = SOUND_TARGET,
    options: str = SOUND_OPTIONS,
    kind: str = "model",
) -> str:
    """What is said of one component with these two modules, each ending the process if it is imported."""
    name = f"seen{next(numbers)}"
    package = f"trainlattice_plugin_{name}"
    declared = f"Component({kind!r}, 'net', '{package}.target:Net', options='{package}.options:Net')"
    files = {
        "target.py": f"{target}\nraise AssertionError('imported')\n",
        "options.py": f"{options}\nraise AssertionError('imported')\n",
    }
    fake_plugin(site, name, registration(declared), files)
    (registered,) = [r for r in installed().find(kind, "net") if r.plugin.id == name]
    return "\n".join(static_problems(registered))


@pytest.mark.parametrize(
    "target",
    [
        SOUND_TARGET,
        "def Net(options): ...\n",
        "async def Net(options): ...\n",
        "Net = None\n",
        "Net: type = object\n",
        "from elsewhere import Net\n",
        "from elsewhere import Thing as Net\n",
        "from elsewhere import *\n",
        "try:\n    from elsewhere import Net\nexcept ImportError:\n    Net = None\n",
        "if True:\n    class Net: ...\nelse:\n    pass\n",
        "for Net in (1, 2):\n    pass\n",
        "with open('x') as Net:\n    pass\n",
        "(Other, Net) = 1, 2\n",
        "def __getattr__(name): ...\n",
        "this is no Python\n",
    ],
)
def test_a_target_that_may_exist_passes(site: Path, installed: Installed, target: str):
    assert problems(site, installed, target=target) == ""


@pytest.mark.parametrize(
    "target", ["", "class Other:\n    Net = 1\n", "def other():\n    Net = 1\n", "print('Net')\n"]
)
def test_a_target_that_its_module_does_not_define_is_named(site: Path, installed: Installed, target: str):
    said = problems(site, installed, target=target)
    assert "the target of model 'net' does not exist" in said
    assert "defines no 'Net'" in said
    assert "target.py" in said


@pytest.mark.parametrize(
    ("reference", "module"),
    [("nowhere_to_be_found:Net", "nowhere_to_be_found"), ("json.nowhere:Net", "json.nowhere")],
)
def test_a_module_that_does_not_exist_is_named(site: Path, installed: Installed, reference: str, module: str):
    name = f"seen{next(numbers)}"
    fake_plugin(site, name, registration(f"Component('model', 'net', {reference!r})"))
    (registered,) = [r for r in installed().find("model", "net") if r.plugin.id == name]
    assert static_problems(registered) == [
        f"the target of model 'net' does not exist: there is no module {module}"
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "the options of model 'net' does not exist"),
        ("class Net:\n    width: int = 1\n", "no subclass of trainlattice.Options"),
        ("from dataclasses import dataclass\n@dataclass\nclass Net:\n    width: int = 1\n", "no subclass"),
        ("def Net():\n    ...\n", "are a function and no Options class"),
        (SOUND_OPTIONS + "    name: str = 'x'\n", "declare 'name', a reserved key"),
        (SOUND_OPTIONS + "    inputs: int = 1\n", "declare 'inputs', a reserved key"),
    ],
)
def test_options_that_no_configuration_could_use_are_named(
    site: Path, installed: Installed, options: str, said: str
):
    assert said in problems(site, installed, options=options)


def test_a_key_is_reserved_for_the_kinds_that_have_it(site: Path, installed: Installed):
    options = SOUND_OPTIONS + "    batch_size: int = 1\n"
    assert problems(site, installed, options=options) == ""
    assert "'batch_size'" in problems(site, installed, options=options, kind="dataset")


def test_the_built_in_components_are_without_fault(installed: Installed):
    assert [fault for registered in installed().components() for fault in static_problems(registered)] == []


def test_a_package_of_compiled_code_passes(site: Path, installed: Installed):
    name = f"seen{next(numbers)}"
    fake_plugin(site, name, registration(f"Component('model', 'net', 'trainlattice_plugin_{name}.fast:Net')"))
    (site / f"trainlattice_plugin_{name}" / "fast.cpython-313-x86_64-linux-gnu.so").touch()
    (registered,) = [r for r in installed().find("model", "net") if r.plugin.id == name]
    assert static_problems(registered) == []
