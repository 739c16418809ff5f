"""Whether the process of a run still lives."""

import json
import os
import subprocess
import sys

import pytest

from trainlattice.runs.manifest import status_of
from trainlattice.runs.process import is_alive, this_process

DESCRIBE = (
    "import json; from trainlattice.runs.process import this_process; print(json.dumps(this_process()))"
)


def ended_process():
    done = subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_this_process_lives():
    assert is_alive(this_process()) is True


def test_a_process_that_ended_does_not():
    assert is_alive(ended_process()) is False


def test_a_process_that_nobody_waited_for_does_not():
    process = subprocess.Popen([sys.executable, "-c", DESCRIBE], stdout=subprocess.PIPE, text=True)
    described = json.loads(process.stdout.read())
    process.stdout.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is over, and stays a zombie
    assert is_alive(described) is False
    process.wait()


@pytest.mark.parametrize("other", [{"started": 1}, {"boot_id": "another"}, {"pid": 2**22 + 1}])
def test_another_process_of_the_same_number_is_not_the_same(other):
    assert is_alive({**this_process(), **other}) is False


@pytest.mark.parametrize(
    "other",
    [
        {"host": "elsewhere"},
        {"pid": None},
        {"pid": "1"},
        {"pid": -1},
        pytest.param(
            {"pid_namespace": 1},
            marks=pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="there is but one"),
        ),
    ],
)
def test_what_cannot_be_checked_is_unknown(other):
    assert is_alive({**this_process(), **other}) == "unknown"


def test_a_run_under_way_whose_process_is_gone_was_killed():
    for said in ("created", "running"):
        assert status_of({"status": said, "process": ended_process()}).name == "killed"
        assert status_of({"status": said, "process": this_process()}) == (said, "")


@pytest.mark.parametrize("said", ["finished", "failed", "interrupted"])
def test_a_run_that_ended_is_what_its_manifest_says(said):
    assert status_of({"status": said, "process": ended_process()}) == (said, "")


def test_a_run_on_another_host_cannot_be_checked_from_here():
    status = status_of({"status": "running", "process": {**this_process(), "host": "elsewhere"}})
    assert status.name == "running"
    assert "'elsewhere'" in status.note
    assert "cannot be checked from here" in status.note


def test_a_run_in_a_container_on_this_host_cannot_be_checked_from_here():
    """It is over, and its number may be that of any process here."""
    command = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--mount-proc"]
    try:
        done = subprocess.run([*command, sys.executable, "-c", DESCRIBE], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode:
        pytest.skip(f"no other namespace can be made here: {done.stderr}")
    process = json.loads(done.stdout)
    assert process["pid"] == 1
    assert process["boot_id"] == this_process()["boot_id"]
    assert is_alive(process) == "unknown"
    status = status_of({"status": "running", "process": process})
    assert status.name == "running"
    assert "cannot be checked from here" in status.note


def test_a_process_that_named_no_namespace_is_checked_as_before():
    """By an earlier version."""
    for process, alive in ((this_process(), True), (ended_process(), False)):
        del process["pid_namespace"]
        assert is_alive(process) is alive


def test_a_manifest_without_a_process_is_taken_at_its_word():
    status = status_of({"status": "running", "pid": 1})
    assert status.name == "running"
    assert "cannot be checked" in status.note
