"""Training loops as one writes them by hand, in plain torch. What TrainLattice trains must equal them bit for bit.

They share with it what a person would take over: the seeding points (before the model is built, before step 0),
the order of samples, and the optimizer's implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from trainlattice.data.order import epoch_order


def train(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    rate: Callable[[int], float] | None,
    *,
    epochs: int,
    batch_size: int,
    accumulate: int,
    clip: float | None,
    bf16: bool,
    seed: int,
) -> list[float]:
    """Trains in place; the loss of each step."""
    inputs, targets = data
    torch.manual_seed(seed)
    model.train()
    losses, step = [], 0
    for epoch in range(epochs):
        batches = epoch_order(len(inputs), seed=seed, epoch=epoch).split(batch_size)
        for start in range(0, len(batches), accumulate):
            window = batches[start : start + accumulate]
            samples = sum(len(indices) for indices in window)
            if rate is not None:
                optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.zero_grad()
            total = 0.0
            for indices in window:
                with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
                    loss = loss_of(model(inputs[indices]), targets[indices])
                share = len(indices) / samples
                (loss if share == 1.0 else loss * share).backward()
                total += loss.item() * len(indices)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(total / samples)
            step += 1
    return losses
