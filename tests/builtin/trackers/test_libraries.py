"""tensorboard, wandb and mlflow: what they hold after a run, and that the run is the same without them."""

import json
import os
import random
import re
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.configs import write_tiny
from support.runs import assert_identical, checkpoint, records, run_dirs, tiny, train
from trainlattice import TrackedRun, Tracker, resume_run, run_from_file
from trainlattice.config.resolve import resolve_mapping
from trainlattice.diagnostics.errors import ConfigError, PluginError
from trainlattice_plugin_trackers.libraries import give_own_random, require_reachable
from trainlattice_plugin_trackers.mlflow_run import MlflowRun, allowed
from trainlattice_plugin_trackers.options import MlflowOptions, WandbOptions
from trainlattice_plugin_trackers.wandb_run import WandbRun

SHARED_RANDOM = ("urllib3.util.retry", "mlflow.utils.request_utils", "mlflow.utils.rest_utils")
"""Modules that draw the wait before a request is tried again."""

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # these libraries warn of each other
LIBRARIES = ("tensorboard", "wandb", "mlflow")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """No key of whoever runs the tests, and nothing left in their home."""
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def expected(run):
    """Every finite number of a run's records by ``type/name``: steps and values."""
    found = {}
    for record in records(run):
        for name, value in record.items() if record["type"] != "event" else ():
            if name not in ("schema", "time", "step") and type(value) in (int, float):
                found.setdefault(f"{record['type']}/{name}", []).append((record["step"], value))
    return found


PATTERNS = ("*.weight", "*.weigh?", "*.bia[rs]")
"""Names of numbers that hold what not every tracker takes."""


def by_pattern(tracker, directory):
    callbacks = [{"name": "grad_norm", "patterns": list(PATTERNS)}]
    config = {**tiny(), "callbacks": callbacks, "trackers": [{"name": tracker, "on_error": "fail"}]}
    run = train(config, directory).run_dir
    names = {name for name in expected(run) if name.startswith("batch/grad_norm/")}
    assert names == {f"batch/grad_norm/optimizer{pattern and '/' + pattern}" for pattern in ("", *PATTERNS)}
    return run


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_missing_is_named_with_its_pip_line(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PluginError) as caught:
        train({**tiny(), "callbacks": [], "trackers": [name]}, tmp_path)
    assert f"python -m pip install 'trainlattice-plugin-trackers[{name}]'" in str(caught.value)
    assert run_dirs(tmp_path) == []


@pytest.mark.parametrize("name", ["csv", *LIBRARIES])
def test_weights_and_random_states_are_those_of_a_run_without(tmp_path, name):
    if name != "csv":
        library(name)
    config = {**tiny(model={"dropout": 0.3}), "callbacks": []}
    ends = []
    for trackers in ([], [{"name": name, "on_error": "fail"}]):
        end = checkpoint(train({**config, "trackers": trackers}, tmp_path / str(len(trackers))).run_dir)
        end["config"] = end["components"] = None
        ends.append(end)
    assert_identical(*ends)


def test_tensorboard_has_every_number_over_steps(followed):
    library("tensorboard")
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = followed({"name": "tensorboard", "on_error": "fail"})
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    wanted = expected(run)
    assert set(events.Tags()["scalars"]) == set(wanted)
    assert "config/text_summary" in events.Tags()["tensors"]
    for name, values in wanted.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in values]


def test_mlflow_has_every_number_the_configuration_and_how_the_run_ended(tmp_path, followed):
    library("mlflow")
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    run = followed({"name": "mlflow", "on_error": "fail", "tags": {"team": "a"}})
    with sqlite3.connect(run / "mlflow.db") as database:

        def rows(query):
            return database.execute(query).fetchall()

        assert rows("select status, name from runs") == [("FINISHED", run.name)]
        assert ("tiny",) in rows("select name from experiments")
        metrics = {}
        for name, step, value in rows("select key, step, value from metrics order by step"):
            metrics.setdefault(name, []).append((step, value))
        params = dict(rows("select key, value from params"))
        tags = dict(rows("select key, value from tags"))
    database.close()
    assert metrics == expected(run)
    assert (params["model.name"], params["optimizer.lr"]) == ("models:mlp", "0.01")
    assert tags["team"] == "a"
    assert not (tmp_path / "mlruns").exists()


def test_tensorboard_takes_every_name_as_it_is(tmp_path):
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = by_pattern("tensorboard", tmp_path)
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(expected(run))


def test_wandb_takes_every_name_as_it_is(tmp_path):
    library("wandb")
    run = by_pattern("wandb", tmp_path)
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    held = file.read_bytes()
    assert all(name.encode() in held for name in expected(run))


def test_mlflow_gets_every_number_under_a_name_that_it_takes(tmp_path):
    library("mlflow")
    run = by_pattern("mlflow", tmp_path)
    with sqlite3.connect(run / "mlflow.db") as database:
        found = {}
        for name, step, value in database.execute("select key, step, value from metrics order by step"):
            found.setdefault(name, []).append((step, value))
    database.close()
    wanted = expected(run)
    assert {name: found.get(name) for name in wanted if name == allowed(name)} == {
        name: values for name, values in wanted.items() if "*" not in name
    }
    changed = {allowed(f"batch/grad_norm/optimizer/{pattern}"): pattern for pattern in PATTERNS}
    assert len(changed) == 3
    for name, pattern in changed.items():
        assert re.fullmatch(r"batch/grad_norm/optimizer/_\.(weight|weigh_|bia_rs_)_[0-9a-f]{8}", name)
        assert found[name] == wanted[f"batch/grad_norm/optimizer/{pattern}"]
    assert len(found) == len(wanted)


def test_names_that_mlflow_refuses_stay_apart():
    library("mlflow")
    from mlflow.utils.validation import _validate_metric_name as takes

    refused = [
        "a*",
        "a?",
        "a:",
        "a[",
        "a//b",
        "a/./b",
        "a/../b",
        "a/",
        "/a",
        "a\n",
        "a\ud800",
        "a" * 251,
        "a" * 252,
    ]
    held = [allowed(name) for name in ("a_", "a/_/b", "batch/loss", "größe/a b-c.d", *refused)]
    assert held[:4] == ["a_", "a/_/b", "batch/loss", "größe/a b-c.d"]
    assert len(set(held)) == len(held)
    for name in held:
        takes(name)
        assert len(name) <= 250


def test_mlflow_is_told_what_it_continues(tmp_path):
    library("mlflow")
    store = f"sqlite:///{tmp_path / 'all.db'}"
    tracker = {"name": "mlflow", "tracking_uri": store, "experiment": "shared", "on_error": "fail"}
    first = train({**tiny(), "callbacks": [], "trackers": [tracker]}, tmp_path).run_dir
    second = resume_run(first, overrides=["trainer.epochs=3"]).run_dir
    with sqlite3.connect(tmp_path / "all.db") as database:
        query = "select value from tags where key = 'trainlattice.continues'"
        assert database.execute(query).fetchall() == [(str(first),)]
        assert database.execute("select count(*) from runs").fetchall() == [(2,)]
        query = "select min(step) from metrics where key = 'batch/loss' group by run_uuid order by 1"
        assert database.execute(query).fetchall() == [(1,), (7,)]
    database.close()
    assert not (second / "mlflow.db").exists()


def test_wandb_offline_writes_into_the_run_directory(tmp_path, capfd):
    library("wandb")
    tracker = {"name": "wandb", "on_error": "fail", "project": "my-project"}
    run = train({**tiny(), "callbacks": [], "trackers": [tracker]}, tmp_path).run_dir
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    held = file.read_bytes()
    for text in ("my-project", run.name, "models:mlp", *expected(run)):
        assert text.encode() in held
    for record in records(run, "batch"):
        assert repr(record["loss"]).encode() in held
    said = capfd.readouterr()
    assert "wandb" not in said.out + said.err


def problem(directory, tracker):
    path = write_tiny(directory)
    path.write_text(f"{path.read_text()}\ntrackers:\n  - {tracker}\n")
    with pytest.raises(ConfigError) as caught:
        run_from_file(path)
    assert run_dirs(directory) == []
    (found,) = caught.value.diagnostics
    return found


def test_wandb_online_without_a_key_is_refused_and_asks_for_none(tmp_path, monkeypatch):
    library("wandb")
    monkeypatch.setattr("sys.stdin", None)
    found = problem(tmp_path, "{name: wandb, mode: online}")
    assert found.path == "trackers.0.mode"
    assert "set WANDB_API_KEY or run `wandb login`" in found.message


@pytest.mark.parametrize(
    "tracker",
    [
        {"name": "wandb", "mode": "online"},
        {"name": "mlflow", "tracking_uri": "http://127.0.0.1:9"},
    ],
)
def test_a_server_that_cannot_be_reached_is_told_of_before_the_first_step(tmp_path, monkeypatch, tracker):
    library(tracker["name"])
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    run = train({**tiny(), "callbacks": [], "trackers": [tracker]}, tmp_path).run_dir
    first = records(run)[0]
    assert (first["event"], first["step"]) == ("warning", 0)
    assert "http://127.0.0.1:9 cannot be reached" in first["message"]
    assert first["message"].startswith(f"tracker '{tracker['name']}' could not start")


def test_a_port_that_answers_can_be_reached():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        require_reachable(f"http://127.0.0.1:{server.getsockname()[1]}/x")
    require_reachable("databricks")  # nothing is known of it


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("http://host:5000", "http://host:5000"),
        ("sqlite:////data/a.db", "sqlite:////data/a.db"),
        ("sqlite:///a.db", "sqlite:///{cwd}/a.db"),
    ],
)
def test_a_store_is_absolute_so_that_a_run_resumes_from_anywhere(given, held):
    config = {**tiny(), "trackers": [{"name": "mlflow", "tracking_uri": given}]}
    tracker = resolve_mapping(config).config.as_plain()["trackers"][0]
    assert tracker["tracking_uri"] == held.format(cwd=os.getcwd())


def test_a_store_that_is_no_uri_is_refused(tmp_path):
    found = problem(tmp_path, "{name: mlflow, tracking_uri: localhost}")
    assert found.path == "trackers.0.tracking_uri"
    assert "expected a URI" in found.message


def test_a_library_draws_from_a_generator_of_its_own(monkeypatch):
    import types

    module = types.ModuleType("some_library.retry")
    module.random = random
    monkeypatch.setitem(sys.modules, module.__name__, module)
    give_own_random("some_library")
    before = random.getstate()
    assert 0.0 <= module.random.random() < 1.0
    assert module.random.choice([3]) == 3
    assert random.getstate() == before


INFO = {"run_id": "r", "run_uuid": "r", "experiment_id": "0", "status": "RUNNING", "start_time": 0}
ANSWERS = {
    "get-by-name": {"experiment": {"experiment_id": "0", "name": "x"}},
    "create": {"run": {"info": INFO, "data": {}}},
    "update": {"run_info": INFO},
}


class Busy(BaseHTTPRequestHandler):
    """What a server of MLflow answers. The first requests for some paths find it busy."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0].rpartition("/")[2]
        self.server.asked.append(path)
        busy = path in self.server.busy and self.server.asked.count(path) <= 2
        body = b"" if busy else json.dumps(ANSWERS.get(path, {})).encode()
        self.send_response(503 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *parts):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server of this process, and libraries that draw from Python's generator, as after their import."""
    for name, value in (("FACTOR", "0"), ("JITTER", "0.01")):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_BACKOFF_{name}", value)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in SHARED_RANDOM:
        if name in sys.modules:
            monkeypatch.setattr(sys.modules[name], "random", random)
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        server.asked, server.busy = [], ()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_a_busy_server_of_mlflow_changes_no_random_state(tmp_path, server):
    library("mlflow")
    server.busy = ("log-batch", "get-by-name", "update")
    tracker = MlflowRun(MlflowOptions(tracking_uri=f"http://127.0.0.1:{server.server_address[1]}"))
    before = random.getstate()
    tracker.start(TrackedRun("mlflow", tmp_path, "x", 0, {}))
    tracker.log({"type": "batch", "time": 1.5, "step": 1, "loss": 0.5})
    tracker.flush()
    tracker.finish("finished", None)
    assert {path: server.asked.count(path) for path in server.busy} == dict.fromkeys(server.busy, 3)
    assert random.getstate() == before


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_requests_of_a_library_draw_from_a_generator_of_their_own(server, name):
    library(name)
    urllib3 = pytest.importorskip("urllib3", minversion="2", reason="urllib3 >= 2 is not installed")
    tracker = WandbRun(WandbOptions()) if name == "wandb" else MlflowRun(MlflowOptions())
    assert isinstance(tracker, Tracker)
    server.busy = ("graphql",)
    before = random.getstate()
    retry = urllib3.Retry(3, backoff_jitter=0.01, status_forcelist=[503])
    with urllib3.PoolManager(retries=retry) as pool:
        assert pool.request("GET", f"http://127.0.0.1:{server.server_address[1]}/graphql").status == 200
    assert server.asked == ["graphql"] * 3
    assert random.getstate() == before
