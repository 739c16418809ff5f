"""Components without packaging: decorators in files that a configuration names, and in imported modules."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from support.configs import TINY, write_tiny
from trainlattice.config.resolve import Resolution
from trainlattice.diagnostics.errors import ConfigError

Resolve = Callable[..., Resolution]
Refused = Callable[..., ConfigError]

NET = '''\
from __future__ import annotations

from trainlattice import Options, register_model


class NetOptions(Options):
    width: int = 3


@register_model("net", options=NetOptions)
class Net:
    """A net of one's own.

    More about it.
    """
'''
CONFIG = "model: net\ndataset: synthetic\n"


@pytest.fixture
def net_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_components.py"
    path.write_text(NET)
    return path


def python(program: str, cwd: Path) -> str:
    """Standard output of a program, code or a file, in a fresh interpreter."""
    arguments = [program] if program.endswith(".py") else ["-c", program]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["net", "local:net"])
def test_a_file_given_on_the_command_line_provides_its_components(
    resolve: Resolve, net_file: Path, name: str
):
    text = f"model: {{name: '{name}', width: 7}}\ndataset: synthetic\n"
    config = resolve(text, local_files=[net_file]).config
    model = config.one("model")
    assert model.name == "local:net"
    assert model.options.width == 7
    assert model.registered.component.summary == "A net of one's own."
    assert model.registered.target.__name__ == "Net"
    assert config.plugins.local == (str(net_file),)


def test_a_file_named_in_the_configuration_is_relative_to_it(
    resolve: Resolve, net_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = resolve(CONFIG + "plugins:\n  local: [my_components.py]\n").config
    assert config.one("model").name == "local:net"
    assert config.as_plain()["plugins"]["local"] == [str(net_file)]


def test_a_file_given_on_the_command_line_is_relative_to_the_current_directory(
    resolve: Resolve, net_file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(net_file.parent)
    assert resolve(CONFIG, local_files=["my_components.py"]).config.plugins.local == (str(net_file),)


def test_a_file_that_is_named_twice_is_executed_once(resolve: Resolve, net_file: Path):
    counter = net_file.with_name("count")
    net_file.write_text(NET + f"\nwith open({str(counter)!r}, 'a') as count:\n    count.write('x')\n")
    config = resolve(CONFIG + "plugins:\n  local: [my_components.py]\n", local_files=[net_file]).config
    assert config.plugins.local == (str(net_file),)
    assert counter.read_text() == "x"


def test_a_file_that_was_edited_is_executed_again(resolve: Resolve, net_file: Path):
    assert resolve(CONFIG, local_files=[net_file]).config.one("model").options.width == 3
    net_file.write_text(NET.replace("width: int = 3", "width: int = 4"))
    assert resolve(CONFIG, local_files=[net_file]).config.one("model").options.width == 4


@pytest.mark.parametrize("name", ["my components=1 é #x.py", "-best.py", "two.dots.py", "[x].py"])
def test_a_file_may_have_any_name(resolve: Resolve, net_file: Path, name: str):
    odd = net_file.rename(net_file.with_name(name))
    assert resolve(CONFIG, local_files=[odd]).config.one("model").name == "local:net"
    assert resolve(CONFIG + f"plugins:\n  local: ['{name}']\n").config.one("model").name == "local:net"


KINDS = ("model", "dataset", "loss", "optimizer", "scheduler", "callback")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_core_has_a_decorator(resolve: Resolve, tmp_path: Path, kind: str):
    source = f"from trainlattice import register_{kind}\n\n\n@register_{kind}('mine', summary='my own')\n"
    (tmp_path / "mine.py").write_text(source + "def build(options):\n    ...\n")
    resolution = resolve(
        "model: mlp\ndataset: {name: synthetic, input_shape: [784]}\n", local_files=[tmp_path / "mine.py"]
    )
    (found,) = resolution.registry.find(kind, "mine")
    assert found.qualified == "local:mine"
    assert found.component.summary == "my own"
    assert found.target.__name__ == "build"


def test_register_takes_the_kind_as_an_argument(resolve: Resolve, tmp_path: Path):
    source = (
        "from trainlattice import register\n\n\n@register('mode', 'mine')\ndef build(options, parts): ...\n"
    )
    (tmp_path / "mine.py").write_text(source)
    config = resolve("mode: mine\n", local_files=[tmp_path / "mine.py"]).config
    assert config.one("mode").name == "local:mine"


@pytest.mark.parametrize("target", ["lambda options: None", "functools.partial(print, end='')", "Ready()"])
def test_anything_that_can_be_called_is_a_target(resolve: Resolve, net_file: Path, target: str):
    source = "import functools\nfrom trainlattice import register_model\n\n\n"
    source += "class Ready:\n    def __call__(self, options):\n        pass\n\n\n"
    net_file.write_text(source + f"register_model('net')({target})\n")
    assert callable(resolve(CONFIG, local_files=[net_file]).config.one("model").registered.target)


def test_a_component_declared_without_options_takes_none(refused: Refused, net_file: Path):
    net_file.write_text(NET.replace(", options=NetOptions", ""))
    text = str(refused("model: {name: net, width: 3}\ndataset: synthetic\n", local_files=[net_file]))
    assert "unknown option 'width' for model 'local:net'" in text


# --- files with faults ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("def broken(:\n", "SyntaxError"),
        ("class Odd(BaseException):\n    pass\nraise Odd('odd')\n", "Odd: odd"),
        (NET.replace('"net"', '"Net"'), "model 'Net': a name has lower-case letters"),
        (
            NET.replace('register_model("net"', 'register("modell", "net"').replace(
                ", register_model", ", register"
            ),
            "unknown kind 'modell'",
        ),
        (
            NET + NET.partition("@register")[1] + NET.partition("@register")[2],
            "model 'net' is declared twice",
        ),
    ],
)
def test_a_file_with_a_fault_is_shown_at_the_line_that_names_it(
    refused: Refused, net_file: Path, source: str, said: str
):
    net_file.write_text(source)
    error = refused("dataset: synthetic\nmodel: mlp\nplugins:\n  local:\n    - my_components.py\n")
    found = next(d for d in error.diagnostics if d.code == "broken-plugin")
    assert (found.mark.line, found.mark.column) == (5, 7)
    assert found.path == "plugins.local.0"
    assert said in found.message
    assert str(net_file) in found.message


def test_a_file_with_a_fault_on_the_command_line_is_a_plugins_fault(refused: Refused, net_file: Path):
    net_file.write_text("1 / 0\n")
    text = "model: mlp\ndataset: {name: synthetic, input_shape: [784]}\n"
    error = refused(text, local_files=[net_file])
    (found,) = error.diagnostics
    assert str(found.mark).startswith("command line:1:1")
    assert f"ZeroDivisionError: division by zero ({net_file}:1)" in found.message
    assert error.exit_code == 3


@pytest.mark.parametrize("name", ["absent.py", "a_directory", "components.txt"])
def test_what_is_no_python_file_is_refused(refused: Refused, tmp_path: Path, name: str):
    (tmp_path / "a_directory").mkdir()
    (tmp_path / "components.txt").write_text(NET)
    error = refused("model: mlp\ndataset: synthetic\n", local_files=[tmp_path / name])
    found = next(d for d in error.diagnostics if d.code == "broken-plugin")
    assert name in found.message


def test_options_that_are_no_options_class_are_named_with_the_file(refused: Refused, net_file: Path):
    net_file.write_text(NET.replace("(Options)", ""))
    error = refused(CONFIG, local_files=[net_file])
    assert "no subclass of trainlattice.Options" in str(error)
    assert str(net_file) in str(error)


def test_a_local_component_with_the_name_of_a_built_in_conflicts_with_it(
    resolve: Resolve, refused: Refused, net_file: Path
):
    net_file.write_text(NET.replace('"net"', '"mlp"'))
    text = str(refused(CONFIG.replace("net", "mlp"), local_files=[net_file]))
    assert f"local:mlp   local ({net_file})" in text
    assert "models:mlp   trainlattice-plugin-models" in text
    resolved = resolve(CONFIG.replace("net", "'local:mlp'"), local_files=[net_file]).config
    assert resolved.one("model").name == "local:mlp"


def test_two_files_with_one_component_conflict_and_both_are_shown(refused: Refused, net_file: Path):
    other = net_file.with_name("other.py")
    other.write_text(NET)
    text = str(refused(CONFIG, local_files=[net_file, other]))
    assert str(net_file) in text
    assert str(other) in text


# --- imported modules -----------------------------------------------------------------------------

RESOLVE = "from trainlattice import resolve_file\nmodel = resolve_file('my.yaml').config.one('model')\n"


@pytest.fixture
def project(tmp_path: Path, net_file: Path) -> Path:
    (tmp_path / "my.yaml").write_text(CONFIG)
    return tmp_path


def test_importing_a_module_registers_its_components(project: Path):
    code = f"import my_components\n{RESOLVE}print(model.name, model.registered.target is my_components.Net)\n"
    assert python(code, project) == "local:net True\n"


def test_importing_a_module_again_replaces_its_components(project: Path):
    code = (
        "import importlib, my_components\nold = my_components.Net\nimportlib.reload(my_components)\n"
        f"{RESOLVE}print(model.registered.target is my_components.Net, my_components.Net is old)\n"
    )
    assert python(code, project) == "True False\n"


def test_a_module_that_is_imported_and_named_as_a_file_counts_once(project: Path):
    with (project / "my.yaml").open("a") as config:
        config.write("plugins: {local: [my_components.py]}\n")
    assert python(f"import my_components\n{RESOLVE}print(model.name)\n", project) == "local:net\n"


def test_components_of_a_program_itself_are_registered(project: Path):
    (project / "program.py").write_text(NET + f"\n\n{RESOLVE}print(model.name, model.registered.plugin)\n")
    assert python("program.py", project) == f"local:net local ({project / 'program.py'})\n"


def test_a_program_that_is_also_imported_declares_its_components_once(project: Path):
    main = f"import program\n{RESOLVE}print(model.name, model.registered.target is program.Net)\n"
    source = f"{NET}\n\nif __name__ == '__main__':\n{indent(main, '    ')}"
    (project / "program.py").write_text(source)
    assert python("program.py", project) == "local:net True\n"


def test_an_imported_component_with_a_fault_does_not_hide_its_neighbours(project: Path):
    with (project / "my_components.py").open("a") as file:
        file.write('\n\n@register_model("Capital")\nclass Capital: ...\n')
    code = f"import my_components\n{RESOLVE}print(model.name)\n"
    assert python(code, project) == "local:net\n"


def test_decorating_costs_no_torch(project: Path):
    code = "import my_components, sys\nprint('torch' in sys.modules, 'numpy' in sys.modules)\n"
    assert python(code, project) == "False False\n"


# --- what is recorded -----------------------------------------------------------------------------


def test_the_provenance_of_a_local_file_is_its_path_and_digest(resolve: Resolve, net_file: Path):
    plugin = resolve(CONFIG, local_files=[net_file]).config.one("model").registered.plugin
    assert plugin.source == "local"
    assert plugin.provenance.as_json() == {
        "source": "local",
        "path": str(net_file),
        "sha256": hashlib.sha256(NET.encode()).hexdigest(),
    }


@pytest.mark.torch
def test_an_imported_model_trains_and_its_file_is_recorded(tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "my_model.py").write_text(
        "from torch import nn\n\nfrom trainlattice import Options, register_model\n\n\n"
        "class LogisticOptions(Options):\n    input_dim: int\n    num_classes: int = 2\n\n\n"
        '@register_model("logistic", options=LogisticOptions)\n'
        "class Logistic(nn.Module):\n"
        "    def __init__(self, options):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(options.input_dim, options.num_classes)\n\n"
        "    def forward(self, x):\n"
        "        return self.linear(x)\n"
    )
    model = "name: logistic\n  input_dim: 4\n  num_classes: 3"
    write_tiny(
        tmp_path, TINY.replace("name: mlp\n  input_dim: 4\n  hidden_dims: [8]\n  num_classes: 3", model)
    )
    program = (
        "from pathlib import Path\nimport my_model\nfrom trainlattice import run_from_file\n"
        "print(run_from_file(Path('tiny.yaml'), command='python my_experiment.py').run_dir)\n"
    )
    run = Path(python(program, tmp_path).splitlines()[-1])
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["command"] == "python my_experiment.py"
    assert manifest["model_source"] == {"module": "my_model:Logistic", "file": str(tmp_path / "my_model.py")}
    local = next(plugin for plugin in manifest["plugins"] if plugin["id"] == "local")
    assert local["sha256"] == hashlib.sha256((tmp_path / "my_model.py").read_bytes()).hexdigest()
