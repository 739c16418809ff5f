"""The names of checkpoint files, and what each is for. Torch-free."""

from __future__ import annotations

import re
from typing import Literal

Purpose = Literal["last", "best", "numbered", "emergency", "nonfinite", "other"]

LAST, BEST, EMERGENCY, NOT_FINITE = "last.pt", "best.pt", "emergency.pt", "nonfinite.pt"
_PURPOSES: dict[str, Purpose] = {
    LAST: "last",
    BEST: "best",
    EMERGENCY: "emergency",
    NOT_FINITE: "nonfinite",
}
_NUMBERED = re.compile(r"(?:epoch-(?P<epoch>\d+)|step-(?P<step>\d+))\.pt", re.ASCII)


def step_name(step: int) -> str:
    return f"step-{step:08d}.pt"


def epoch_name(epoch: int) -> str:
    return f"epoch-{epoch:04d}.pt"


def step_in(name: str) -> int | None:
    """Of ``step-N.pt`` the N; None for any other name."""
    return _number(name, "step")


def epoch_in(name: str) -> int | None:
    """Of ``epoch-N.pt`` the N; None for any other name."""
    return _number(name, "epoch")


def purpose_of(name: str) -> Purpose:
    """What a file is for, by its name."""
    return "numbered" if _NUMBERED.fullmatch(name) else _PURPOSES.get(name, "other")


def _number(name: str, unit: str) -> int | None:
    found = _NUMBERED.fullmatch(name)
    return None if found is None or found[unit] is None else int(found[unit])
