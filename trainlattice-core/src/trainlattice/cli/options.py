"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change one value of the configuration, such as optimizer.lr=3e-4. May be given many times.",
)
plugin_option = click.option(
    "--plugin",
    "local_files",
    metavar="FILE",
    multiple=True,
    help="A Python file with components of your own. May be given many times.",
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Show debug messages.")
traceback_option = click.option(
    "--traceback", is_flag=True, expose_value=False, help="Show the Python traceback of an error."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


@contextmanager
def json_alone_on_stdout(as_json: bool) -> Iterator[None]:
    """Whatever a plugin prints while it is read goes to stderr where stdout is for JSON."""
    if not as_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def training_options(command: F) -> F:
    """Those of every command that trains."""
    for option in (traceback_option, verbose_option, plugin_option, set_option):
        command = option(command)
    return command
