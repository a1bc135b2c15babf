"""Train and test a small classifier of images with workers that load them: the loss is read at each step."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import clockwatt
from clockwatt.studies.workloads.classifier import LEARNING_RATE, MOMENTUM, SIDE, network, scaled
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images with labels; a worker scales each image when it is taken."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return scaled(self.images[place]), self.labels[place]


def run(session: Session) -> Figures:
    """Run all epochs from random weights, then the test."""
    model = network(session.size("classes")).to(session.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    loader, losses = _loader(session, "images", "labels"), []
    for epoch in range(session.size("epochs")):
        with clockwatt.phase("epoch", epoch):
            for images, labels in session.steps(loader):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images.to(session.device)), labels.to(session.device))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        if session.time_is_up:
            break
    return {"mean_loss": sum(losses) / len(losses), "accuracy": _accuracy(session, model)}


def _accuracy(session: Session, model: nn.Module) -> float:
    """Return the share of test images whose class is right; where the time is up, of the first of them."""
    right, seen = 0, 0
    with clockwatt.phase("test"), torch.no_grad():
        for images, labels in session.steps(_loader(session, "test_images", "test_labels")):
            chosen = model(images.to(session.device)).argmax(1)
            right += int((chosen == labels.to(session.device)).sum())
            seen += len(labels)
    return right / seen


def _loader(session: Session, images: str, labels: str) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    size = session.size
    pictures = session.array(images, lambda: session.indices(0, 256, size(images), 3, SIDE, SIDE).to(torch.uint8))
    classes = session.array(labels, lambda: session.indices(0, size("classes"), len(pictures)))
    return DataLoader(
        Images(pictures, classes), batch_size=size("batch"), shuffle=images == "images", num_workers=size("workers"),
        generator=session.generator,
    )  # fmt: skip


WORKLOAD = Workload(
    name="classifier_original", title="Training and test of a small classifier with loading workers, as in the study.",
    sizes=(
        Size("images", 50_000, "to train on"),
        Size("test_images", 10_000, "to test on"),
        Size("epochs", 2, "over all images", scaled=False),
        Size("batch", 4, "images of a step", scaled=False),
        Size("workers", 2, "processes that load images", scaled=False, least=0),
        Size("classes", 10, "of images", scaled=False, least=2),
    ),
    arrays=(
        Array("images", ("images", 3, SIDE, SIDE), "image"),
        Array("labels", ("images",), "index", below="classes"),
        Array("test_images", ("test_images", 3, SIDE, SIDE), "image"),
        Array("test_labels", ("test_images",), "index", below="classes"),
    ),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
