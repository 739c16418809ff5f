"""Compilation, and failures of torch that have an exit code of their own."""

import pytest
import torch

from support.runs import manifest, records, run_dirs, tiny, train, weights
from trainlattice import Callback
from trainlattice.diagnostics.errors import CompileError, OutOfMemoryError
from trainlattice.training.failures import translated

pytestmark = pytest.mark.torch
DROPOUT = {"name": "mlp", "input_dim": 4, "hidden_dims": [8], "num_classes": 3, "dropout": 0.5}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def broken_backend():
    """A backend that exists and fails when it compiles."""

    def breaks(graph, example_inputs):
        raise ValueError("no kernel for this graph")

    torch._dynamo.register_backend(breaks, name="breaks")
    yield "breaks"
    torch._dynamo.backends.registry._BACKENDS.pop("breaks")
    torch._dynamo.backends.registry._COMPILER_FNS.pop("breaks")


def test_a_backend_that_does_not_exist_exits_with_11_before_a_run_exists(tmp_path):
    with pytest.raises(CompileError, match=r"the model could not be compiled: .*nonsense") as raised:
        train(tiny(trainer={"compile": {"backend": "nonsense"}}), tmp_path)
    assert raised.value.exit_code == 11
    assert "without trainer.compile it runs as it is" in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_a_backend_that_fails_in_the_first_step_exits_with_11_and_the_run_has_failed(
    tmp_path, broken_backend
):
    with pytest.raises(CompileError, match="no kernel for this graph") as raised:
        train(tiny(trainer={"compile": {"backend": broken_backend}}), tmp_path)
    assert raised.value.exit_code == 11
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["status"] == "failed"
    assert manifest(run)["error"]["type"] == "CompileError"
    assert records(run)[-1]["status"] == "failed"


def test_the_eager_backend_trains_bit_identically_to_no_compile(tmp_path):
    plain, compiled = (
        train(tiny(model=DROPOUT, trainer={"epochs": 3, "compile": settings}), tmp_path).run_dir
        for settings in (None, {"backend": "eager"})
    )
    assert list(weights(plain)) == list(weights(compiled))
    for one, other in zip(weights(plain).values(), weights(compiled).values(), strict=True):
        assert torch.equal(one, other)
    for kind, names in (("batch", ["loss"]), ("epoch", ["train_loss", "val_loss", "val_accuracy"])):
        for one, other in zip(records(plain, kind), records(compiled, kind), strict=True):
            assert [one[name] for name in names] == [other[name] for name in names]


def test_the_eager_backend_really_compiles(tmp_path):
    compiled = []

    class Keep(Callback):
        def on_run_start(self, trainer):
            compiled.append(trainer.parts.models["model"]._compiled_call_impl)

    for settings in (None, {"backend": "eager"}):
        train(tiny(trainer={"compile": settings}), tmp_path, extra_callbacks=[Keep()])
    assert [call is not None for call in compiled] == [False, True]


def test_too_little_memory_exits_with_10_and_says_what_needs_less(tmp_path):
    class RunsOut(Callback):
        def on_step_end(self, trainer):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has ...")

    with pytest.raises(OutOfMemoryError) as raised:
        train(tiny(), tmp_path, extra_callbacks=[RunsOut()])
    assert raised.value.exit_code == 10
    first, second = str(raised.value).splitlines()
    assert first == "CUDA out of memory. Tried to allocate 2.00 GiB."
    assert "dataset.batch_size" in second
    assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)
    (run,) = run_dirs(tmp_path)
    assert manifest(run)["error"]["type"] == "OutOfMemoryError"


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2"), ValueError("x"), KeyboardInterrupt()])
def test_any_other_error_stays_what_it_is(error):
    assert translated(error) is None
