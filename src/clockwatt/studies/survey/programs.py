"""Run one program on one GPU, step after step, and time its steps on request.

    python -m clockwatt.studies.survey.programs sgemm --seconds 5

It prints `ready` when it is warm and waits for a line. Then it times its steps, prints their mean in seconds, and goes
on until the next line, so that programs beside it are disturbed to their end. Then it is ready again. The end of its
input ends it.
"""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Callable

import torch

from clockwatt.config import CONDITION_PROGRAMS
from clockwatt.studies.survey.measured_programs import NETWORKS

_TABLES, _BATCH, _SUMMED = NETWORKS["dlrm"]["input"]
_ROWS = NETWORKS["dlrm"]["input_below"]
_WARM_STEPS = 3
_WARM_S = 0.5
"""How long it runs before its steps are timed: a card that idled raises its clock first."""


class Dlrm(torch.nn.Module):
    """A recommender: tables of embeddings, four of each summed, and a perceptron of three layers.

    Parameters
    ----------
    rows
        Rows of each table.
    """

    def __init__(self, rows: int = _ROWS) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, 64, mode="sum") for _ in range(_TABLES))
        self.top = torch.nn.Sequential(
            torch.nn.Linear(_TABLES * 64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU(),
            torch.nn.Linear(256, 1),
        )  # fmt: skip

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, 1) for indices of shape (tables, batch, 4)."""
        sums = [table(own) for table, own in zip(self.tables, indices, strict=True)]
        scores: torch.Tensor = self.top(torch.cat(sums, dim=1))
        return scores


def step_of(name: str, device: str, scale: float) -> Callable[[], object]:
    """Return what a program does in each step.

    Parameters
    ----------
    name
        One of `CONDITION_PROGRAMS`.
    device
        Where it computes.
    scale
        Factor of its size; 1 for a GPU.
    """
    torch.manual_seed(0)
    if name == "sgemm":
        size = max(1, round(8192 * scale))
        a, b = torch.randn(2, size, size, device=device)
        return lambda: a @ b
    if name == "dlrm":
        batch, rows = max(2, round(_BATCH * scale)), max(2, round(_ROWS * scale))
        recommender = Dlrm(rows).to(device)
        indices = torch.randint(rows, (_TABLES, batch, _SUMMED), device=device)
        return lambda: recommender(indices)
    if name == "bert":
        from clockwatt.operations.transformer_networks import bert_base

        bert, (batch, length) = bert_base().to(device).eval(), NETWORKS["bert"]["input"]
        tokens = torch.randint(NETWORKS["bert"]["input_below"], (max(1, round(batch * scale)), length)).to(device)
        return lambda: bert(tokens)
    from clockwatt.operations.constructors import torchvision_models

    network = torchvision_models().resnet50().to(device).eval()
    batch, *image = NETWORKS["resnet50"]["input"]
    images = torch.randn(max(1, round(batch * scale)), *image, device=device)
    return lambda: network(images)


def main() -> None:
    """Run the program that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONDITION_PROGRAMS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    step = step_of(options.name, device, options.scale)

    def advance() -> None:
        step()
        if device == "cuda":
            torch.cuda.synchronize()

    with torch.inference_mode():
        for _ in range(_WARM_STEPS):
            advance()
        print("ready", flush=True)
        while sys.stdin.readline():
            _mean_s(advance, _WARM_S)
            print(_mean_s(advance, options.seconds), flush=True)
            while not select.select([sys.stdin], [], [], 0)[0]:
                advance()
            sys.stdin.readline()
            print("ready", flush=True)


def _mean_s(advance: Callable[[], None], seconds: float) -> float:
    """Return the mean time of steps; the median would hide those that wait for another program's turn."""
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or not count:
        advance()
        count += 1
    return spent / count


if __name__ == "__main__":
    main()
