"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# What people write -> what the field's shorter name is. Used only where the right side is a legal key.
ALIASES = {
    "learning_rate": ("lr",),
    "learningrate": ("lr",),
    "wd": ("weight_decay",),
    "l2": ("weight_decay",),
    "bs": ("batch_size",),
    "batch": ("batch_size",),
    "workers": ("num_workers",),
    "n_workers": ("num_workers",),
    "max_epoch": ("epochs",),
    "max_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "grad_clip": ("max_grad_norm",),
    "gradient_clip_val": ("max_grad_norm",),
    "clip_grad_norm": ("max_grad_norm",),
    "accumulate_grad_batches": ("accumulate",),
    "gradient_accumulation_steps": ("accumulate",),
    "grad_accumulation": ("accumulate",),
    "check_val_every_n_epoch": ("validate_every",),
    "log_every_n_steps": ("log_every",),
    "warmup": ("warmup_steps",),
    "train": ("trainer",),
    "training": ("trainer",),
    "data": ("dataset",),
    "optim": ("optimizer",),
    "criterion": ("loss",),
    "lr_scheduler": ("scheduler",),
    "type": ("name",),
    "_target_": ("name",),
    "class_path": ("name",),
    "classes": ("num_classes",),
    "n_classes": ("num_classes",),
    "hidden": ("hidden_dims",),
    "mixed_precision": ("precision",),
}


def closest(word: str, legal: Iterable[str]) -> str | None:
    """The legal name that was probably meant, or None."""
    names = list(legal)
    folded = word.replace("-", "_").replace(" ", "_").lower()
    for alias in ALIASES.get(folded, ()):
        if alias in names:
            return alias
    by_folded = {name.lower(): name for name in reversed(names)}
    matches = get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, legal: Iterable[str]) -> str | None:
    """``did you mean 'dropout'?`` or None."""
    match = closest(word, legal)
    return f"did you mean {match!r}?" if match else None
