"""The progress bar: on a terminal only."""

import os
import pty
import subprocess
import sys

import pytest

from support.cli import modules_after
from support.configs import write_tiny
from support.runs import tiny, train
from trainlattice import Callback
from trainlattice_plugin_callbacks.options import ProgressOptions
from trainlattice_plugin_callbacks.progress import build

pytestmark = pytest.mark.torch


def on_a_terminal(arguments, cwd):
    """Exit code of a command and all that it wrote to a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "trainlattice", *arguments],
        cwd=cwd,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not block:
            break
        written += block
    os.close(ours)
    return process.wait(timeout=60), written.decode("utf-8", "replace")


def test_nothing_is_drawn_where_output_is_piped():
    """pytest captures the output."""
    assert type(build(ProgressOptions())) is Callback


def test_rich_is_not_even_imported_where_output_is_piped(tmp_path):
    write_tiny(tmp_path)
    modules = modules_after(
        "from trainlattice import run_from_file\nrun_from_file('tiny.yaml')", cwd=tmp_path
    )
    assert "torch" in modules
    assert "rich" not in modules


def test_on_a_terminal_the_bar_shows_steps_and_the_lines_of_steps_give_way(tmp_path):
    write_tiny(tmp_path)
    code, written = on_a_terminal(["train", "tiny.yaml"], tmp_path)
    assert code == 0
    assert "━" in written
    assert "epoch 1/2" in written
    assert "3/3" in written
    lines = [line.strip("\r") for line in written.split("\n")]
    assert any("train_loss" in line and "val_loss" in line for line in lines)
    assert not any("step 1  loss" in line for line in lines)
    assert "Run finished: " in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h")  # the cursor comes back


def test_piped_output_has_a_line_for_each_record_and_no_escape_codes(tmp_path, capsys):
    train(tiny(), tmp_path)
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if line.startswith("epoch ")]) == 8
    assert "\x1b" not in out


def test_the_bar_can_be_left_out(tmp_path):
    assert train({**tiny(), "callbacks": []}, tmp_path).status == "finished"
