"""Training of a classifier: what the workloads that train have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import clockwatt
from clockwatt.studies.workloads.session import Session


def train_classifier(
    session: Session,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    examples: torch.Tensor,
    labels: torch.Tensor,
    prepared: Callable[[torch.Tensor], torch.Tensor] = lambda batch: batch,
    loss_of: Callable[[Any, torch.Tensor], torch.Tensor] = nn.functional.cross_entropy,
) -> list[torch.Tensor]:
    """Train for the session's `epochs`, each in an order of its own, until they or the session's time are over.

    Parameters
    ----------
    session
        With the sizes `epochs` and `batch`.
    model, optimizer
        On the session's device.
    examples, labels
        On the host; both of length n.
    prepared
        What is done with a batch on the device before the model takes it.
    loss_of
        The loss of the model's output and the labels of a batch.

    Returns
    -------
    list of torch.Tensor
        The loss of each step, on the device.
    """
    losses: list[torch.Tensor] = []
    for epoch in range(session.size("epochs")):
        with clockwatt.phase("epoch", epoch):
            order = torch.randperm(len(examples), generator=session.generator)
            for chosen in session.steps(order.split(session.size("batch"))):
                batch, wanted = examples[chosen].to(session.device), labels[chosen].to(session.device)
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(model(prepared(batch)), wanted)
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        if session.time_is_up:
            break
    return losses
