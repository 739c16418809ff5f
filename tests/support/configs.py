"""A small configuration of built-in components that trains in a moment."""

from __future__ import annotations

from pathlib import Path

TINY = """\
experiment:
  name: tiny
  runs_dir: runs

model:
  name: mlp
  input_dim: 4
  hidden_dims: [8]
  num_classes: 3

dataset:
  name: synthetic
  batch_size: 8
  samples: 20
  val_samples: 10
  input_shape: [4]
  num_classes: 3

optimizer:
  lr: 0.01

trainer:
  epochs: 2
  log_every: 1
"""


def write_tiny(directory: Path, text: str = TINY, name: str = "tiny.yaml") -> Path:
    """The configuration as a file."""
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path
