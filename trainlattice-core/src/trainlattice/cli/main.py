"""The command line: which commands there are. Each command's file is imported when it is invoked."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, TextIO

import click

from trainlattice.diagnostics.errors import exit_code_of
from trainlattice.training.signals import save_requests_answered
from trainlattice.version import __version__

# Name -> file that holds the command, and its line in --help: help imports none of them.
COMMANDS = {
    "train": ("trainlattice.cli.train", "Train what a configuration file says."),
    "resume": ("trainlattice.cli.resume", "Continue a run from its last checkpoint."),
    "evaluate": ("trainlattice.cli.evaluate", "Compute the metrics of a checkpoint."),
    "runs": ("trainlattice.cli.runs", "List, show, compare and reproduce runs."),
    "checkpoint": ("trainlattice.cli.checkpoint", "List, verify and inspect checkpoints."),
    "validate": ("trainlattice.cli.validate", "Check a configuration file; create nothing."),
    "plugins": ("trainlattice.cli.plugins", "List plugins and explain their components."),
    "schema": ("trainlattice.cli.schema", "Write the JSON Schema of configuration files."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is invoked.

    Commands of plugins come from the entry point group ``trainlattice.commands``; listing them reads
    metadata only.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *(name for name in sorted(_plugin_commands()) if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            found: click.Command = getattr(import_module(COMMANDS[name][0]), name)
            return found
        declared = _plugin_commands().get(name)
        return _load_plugin_command(name, declared) if declared else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        plugins = {name: found for name, found in _plugin_commands().items() if name not in COMMANDS}
        if plugins:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(
                    [(name, f"from {found[0].distribution_name}") for name, found in sorted(plugins.items())]
                )


def _plugin_commands() -> dict[str, list[Any]]:
    from trainlattice.plugin.discovery import COMMAND_GROUP, declarations

    found: dict[str, list[Any]] = {}
    for declaration in declarations(COMMAND_GROUP):
        found.setdefault(declaration.name, []).append(declaration)
    return found


def _load_plugin_command(name: str, declared: list[Any]) -> click.Command:
    from trainlattice.diagnostics.errors import PluginError
    from trainlattice.plugin.registration import cause

    if len(declared) > 1:
        names = " and ".join(f"{d.distribution_name} {d.version}" for d in declared)
        raise PluginError(f"the command {name!r} is provided by {names}; uninstall one of them")
    module, _, attribute = declared[0].value.partition(":")
    try:
        command = getattr(import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(
            f"the command {name!r} of {declared[0].distribution_name} cannot be imported: {cause(error)}"
        ) from error
    if not isinstance(command, click.Command):
        raise PluginError(f"the command {name!r} of {declared[0].distribution_name} is no click command")
    return command


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: trainlattice train configs/digits_cnn.yaml --set trainer.epochs=5",
)
@click.version_option(__version__, prog_name="trainlattice")
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
def cli(traceback: bool) -> None:
    """Train PyTorch models from one strictly validated YAML file."""


def main() -> None:
    """Runs the command line and exits with the code of what happened (see docs/exit-codes.md)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the locale cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    with save_requests_answered():
        code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            _discard(stream)  # else the interpreter tries again when it ends, and exits with 120
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs a command line; its exit code."""
    show_traceback = "--traceback" in arguments
    try:
        os.getcwd()
    except FileNotFoundError:
        _tell("error: the current directory was deleted; change to one that exists")
        return 2
    try:
        code = cli.main(arguments, prog_name="trainlattice", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, EOFError):  # from a component; click takes it for Ctrl-D at a prompt
            return _report(abort.__cause__, show_traceback)
        _tell("interrupted")
        return 130
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        _tell("interrupted")
        return exit_code_of(interrupt)
    except SystemExit as end:  # SIGTERM, after the checkpoint was written
        return exit_code_of(end)
    except BrokenPipeError:
        # The reader of our output is gone. What is on disk stays; the interpreter must not complain again.
        _discard(sys.stdout)
        return 1
    except Exception as error:
        return _report(error, show_traceback)


def _discard(stream: TextIO) -> None:
    """Sends what a stream still holds nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(text: str) -> None:
    """On stderr; where that is full or closed, the exit code has to do."""
    with suppress(OSError, ValueError):
        click.echo(text, err=True, color=True)


def _report(error: Exception, show_traceback: bool) -> int:
    from trainlattice.diagnostics.diagnostic import wants_color
    from trainlattice.diagnostics.errors import TrainLatticeError

    if isinstance(error, TrainLatticeError):
        if show_traceback:
            sys.excepthook(type(error), error, error.__traceback__)
        _tell(error.render(color=wants_color(sys.stderr)))
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _tell(f"error: {error}: no space is left for the output")
        return 1
    sys.excepthook(type(error), error, error.__traceback__)  # ours or a plugin's: its author needs this
    return 1
