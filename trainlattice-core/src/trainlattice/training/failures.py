"""Failures with an exit code of their own, and exceptions of components that would pass for something else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from trainlattice.diagnostics.errors import (
    CompileError,
    Interruption,
    OutOfMemoryError,
    TrainLatticeError,
    exit_code_of,
)


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    :param error: that the user is told of, if one ended it.
    """

    status: Literal["finished", "interrupted", "failed"]
    exit_code: int
    error: BaseException | None

    @classmethod
    def of(cls, raised: BaseException | None) -> Ending:
        if raised is None:
            return cls("finished", 0, None)
        error = translated(raised) or raised
        interrupted = isinstance(error, (KeyboardInterrupt, Interruption))
        return cls("interrupted" if interrupted else "failed", exit_code_of(error), error)


def translated(error: BaseException) -> TrainLatticeError | None:
    """What a failure means to the user where its type misleads; None for any other error."""
    if isinstance(error, Interruption):
        return None
    if isinstance(error, (SystemExit, GeneratorExit)):
        return TrainLatticeError(f"a component ended the program: {type(error).__name__}({error})")
    if isinstance(error, BrokenPipeError) or type(error).__module__.startswith("click."):
        # These would be taken for a closed terminal, or for a wish of the command line.
        return TrainLatticeError(f"a component raised {type(error).__name__}: {error}")
    if isinstance(error, torch.OutOfMemoryError):
        return OutOfMemoryError(
            f"{_first_line(error)}\n  a smaller dataset.batch_size with trainer.accumulate needs less memory"
        )
    if isinstance(error, RuntimeError) and "_fused_" in str(error) and "sparse gradients" in str(error):
        return TrainLatticeError(
            f"{_first_line(error)}: optimizer.implementation: loop does, and so does foreach"
        )
    if isinstance(error, RuntimeError) and "sparse" in str(error).lower() and "Sparse" in str(error):
        return TrainLatticeError(
            f"{_first_line(error)}\n  sparse gradients go with sgd, optimizer.implementation foreach or loop, and "
            "without trainer.max_grad_norm"
        )
    if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
        return TrainLatticeError(
            f"{_first_line(error)}\n  batch norm cannot train on a batch of one sample; dataset.drop_last: true "
            "leaves out a last batch that is not full"
        )
    homes = {cls.__module__ for cls in type(error).__mro__}
    if any(home.startswith(("torch._dynamo", "torch._inductor")) for home in homes):
        return CompileError(
            f"the model could not be compiled: {_first_line(error)}\n"
            "  without trainer.compile it runs as it is; --traceback shows where"
        )
    return None


def _first_line(error: BaseException) -> str:
    """The first line, and the next one where it only announces it (``backend='inductor' raised:``)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
