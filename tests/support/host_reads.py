"""At which steps a run waits for the device: asks for the value of a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainlattice import Callback
from trainlattice.training.supervised import Supervised


class Reads(Callback):
    """At which steps a tensor's value reached the host during training."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.steps: list[int] = []
        self.phase = ""

    def on_run_start(self, trainer: Any) -> None:
        reads = self

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func is torch.ops.aten._local_scalar_dense.default:
                    reads.seen(trainer)
                return func(*args, **(kwargs or {}))

        weigh = Supervised.weight

        def weight(mode: Supervised, container: Any) -> float:  # of a batch that is still on the host
            phase, reads.phase = reads.phase, ""
            counted = weigh(mode, container)
            reads.phase = phase
            return counted

        self.monkeypatch.setattr(Supervised, "weight", weight)
        to_list = torch.Tensor.tolist

        def tolist(tensor: torch.Tensor) -> Any:  # reads memory without an operator
            reads.seen(trainer)
            return to_list(tensor)

        self.monkeypatch.setattr(torch.Tensor, "tolist", tolist)
        self.watch = Watch()
        self.watch.__enter__()

    def seen(self, trainer: Any) -> None:
        if self.phase == "train":
            self.steps.append(trainer.state.global_step)

    def on_phase_start(self, trainer: Any, phase: str) -> None:
        self.phase = phase

    def on_phase_end(self, trainer: Any, phase: str) -> None:
        self.phase = ""

    def finalize(self, trainer: Any, error: BaseException | None) -> None:
        self.watch.__exit__(None, None, None)
