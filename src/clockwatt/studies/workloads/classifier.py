"""Train a small convolutional classifier of images of CIFAR's shape: its small batches make it host-bound."""

from __future__ import annotations

import sys

import torch
from torch import nn

from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main
from clockwatt.studies.workloads.training import train_classifier

SIDE = 32
LEARNING_RATE, MOMENTUM = 1e-3, 0.9


def network(classes: int) -> nn.Module:
    """Build two convolutions of 5 × 5 with pooling and three dense layers, after LeNet-5."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes),
    )  # fmt: skip


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Convert bytes to numbers from −1 to 1."""
    return images.float() / 127.5 - 1


def run(session: Session) -> Figures:
    """Run all epochs, from random weights."""
    size = session.size
    images = session.array("images", lambda: session.indices(0, 256, size("images"), 3, SIDE, SIDE).to(torch.uint8))
    labels = session.array("labels", lambda: session.indices(0, size("classes"), len(images)))
    model = network(size("classes")).to(session.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses = train_classifier(session, model, optimizer, images, labels, scaled)
    tenth = max(1, len(losses) // 10)
    return {
        "loss_of_first_tenth": float(torch.stack(losses[:tenth]).mean()),
        "loss_of_last_tenth": float(torch.stack(losses[-tenth:]).mean()),
    }


WORKLOAD = Workload(
    name="classifier", title="Training of a small convolutional classifier on images of CIFAR-10's shape.",
    sizes=(
        Size("images", 50_000, "to train on"),
        Size("epochs", 2, "over all images", scaled=False),
        Size("batch", 4, "images of a step", scaled=False),
        Size("classes", 10, "of images", scaled=False, least=2),
    ),
    arrays=(
        Array("images", ("images", 3, SIDE, SIDE), "image"),
        Array("labels", ("images",), "index", below="classes"),
    ),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
