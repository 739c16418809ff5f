"""Whole runs from the command line: how they end, what they leave, how they go on."""

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny
from support.runs import InterruptAfter, assert_identical, checkpoint, digests, manifest, records, run_dirs
from trainlattice import run_from_file
from trainlattice.cli.main import run

pytestmark = pytest.mark.torch
FOUR_EPOCHS = TINY.replace("epochs: 2", "epochs: 4")


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def with_callback(directory, body):
    """The tiny configuration with a local callback."""
    (directory / "mine.py").write_text(
        "import os, resource, signal\n"
        "from trainlattice import Callback, register_callback\n"
        "@register_callback('mine_e2e')\n"
        "class Mine(Callback):\n"
        f"    def on_step_end(self, trainer):\n        {body}\n",
        encoding="utf-8",
    )
    text = FOUR_EPOCHS + "callbacks:\n  - name: mine_e2e\nplugins:\n  local: [mine.py]\n"
    return str(write_tiny(directory, text))


def test_a_run_that_another_process_resumes_ends_bit_identical(tmp_path):
    path = write_tiny(tmp_path, FOUR_EPOCHS)
    whole = run_from_file(path).run_dir
    with pytest.raises(KeyboardInterrupt):
        run_from_file(path, extra_callbacks=[InterruptAfter(2)])
    first = run_dirs(tmp_path)[-1]
    before = digests(first)
    done = run_cli("resume", first, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    second = run_dirs(tmp_path)[-1]
    assert_identical(checkpoint(whole), checkpoint(second))
    assert digests(first) == before
    assert f"Run finished: runs/{second.name}" in done.stdout


def test_a_failed_write_ends_the_run_with_a_message_and_leaves_the_checkpoints(tmp_path):
    """From the second epoch on, no file may grow beyond 10,000 bytes: a checkpoint is larger."""
    config = with_callback(
        tmp_path,
        "trainer.state.global_step == 5 and resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))",
    )
    done = run_cli("train", config, cwd=tmp_path)
    (made,) = run_dirs(tmp_path)
    assert done.returncode == 1
    assert "last.pt could not be written: File too large; earlier checkpoints are as they were" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(digests(made / "checkpoints")) == ["best.pt", "index.json", "last.pt"]
    assert checkpoint(made)["trainer"]["epoch"] == 1
    assert manifest(made)["status"] == "failed"
    assert len(records(made, "epoch")) == 2


def test_an_interrupt_gives_130_and_the_run_goes_on_from_its_last_epoch(tmp_path, capsys):
    config = with_callback(tmp_path, "trainer.state.global_step == 7 and signal.raise_signal(signal.SIGINT)")
    assert run(["train", config]) == 130
    (made,) = run_dirs(tmp_path)
    assert manifest(made)["status"] == "interrupted"
    assert "Traceback" not in capsys.readouterr().err
    assert run(["train", config, "--resume", str(made), "--set", "callbacks=[]"]) == 0
    assert checkpoint(run_dirs(tmp_path)[-1])["trainer"]["epoch"] == 4


def test_a_loss_that_is_not_finite_gives_12_and_a_message(tmp_path, capsys):
    path = str(write_tiny(tmp_path))
    assert run(["train", path, "--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e30"]) == 12
    err = capsys.readouterr().err
    assert "error: the loss or a gradient of step 2 is not finite" in err
    assert "Traceback" not in err


def test_an_exception_in_a_callback_gives_1_and_its_traceback(tmp_path, capsys):
    config = with_callback(tmp_path, "raise ValueError('mine is broken')")
    assert run(["train", config]) == 1
    err = capsys.readouterr().err
    assert "ValueError: mine is broken" in err
    assert "mine.py" in err


def test_a_finished_run_has_nothing_to_resume_and_says_how_to_go_on(tmp_path, capsys):
    path = str(write_tiny(tmp_path))
    assert run(["train", path]) == 0
    (made,) = run_dirs(tmp_path)
    capsys.readouterr()
    assert run(["resume", str(made)]) == 0
    assert "nothing is left to train; --set trainer.epochs=4 trains on" in capsys.readouterr().out
    assert run_dirs(tmp_path) == [made]


def test_the_summary_says_what_was_best_and_where_and_how_to_go_on(tmp_path, capsys):
    path = str(write_tiny(tmp_path))
    assert run(["train", path, "--set", "experiment.name=a b"]) == 0
    (made,) = run_dirs(tmp_path)
    out = capsys.readouterr().out
    best = manifest(made)
    assert f"best     val_loss {best['best_metric']:.6g} at epoch {best['best_epoch']}" in out
    assert "6 optimizer steps" in out
    assert f"trainlattice resume 'runs/{made.name}' --set trainer.epochs=4" in out
