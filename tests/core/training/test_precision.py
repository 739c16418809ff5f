"""Number formats of forward passes."""

import pytest
import torch
from torch import nn

from support.runs import tiny, train, weights
from trainlattice import register_model
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.training.precision import grad_scaler

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
SEEN = []


@register_model("dtype_probe")
class DtypeProbe(nn.Module):
    """Notes the type of what its layer computes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        if y.device.type != "meta":
            SEEN.append((self.training, y.dtype))
        return y


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_training_and_validation_compute_in_the_format_and_weights_stay_float32(tmp_path, precision, dtype):
    SEEN.clear()
    config = tiny(model={"name": "dtype_probe"}, trainer={"precision": precision, "epochs": 1})
    run = train(config, tmp_path).run_dir
    assert set(SEEN) == {(True, dtype), (False, dtype)}
    assert {tensor.dtype for tensor in weights(run).values()} == {torch.float32}


def test_only_fp16_has_a_scaler():
    assert grad_scaler("fp32", CPU) is None
    assert grad_scaler("bf16", CPU) is None
    assert isinstance(grad_scaler("fp16", CPU), torch.amp.GradScaler)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_fp16_without_cuda_is_refused_before_a_run_exists(tmp_path, device):
    with pytest.raises(ConfigError, match="fp16 needs a CUDA device") as raised:
        train(tiny(trainer={"precision": "fp16", "device": device}), tmp_path)
    assert raised.value.diagnostics[0].path == "trainer.precision"
    assert not (tmp_path / "runs").exists()
