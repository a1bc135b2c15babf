"""Fine-tuning of a DistilBERT encoder as a classifier of texts, with AdamW."""

from __future__ import annotations

import sys

import torch
from torch import nn

from clockwatt.studies.workloads.encoder import HEAD_WIDTH, Encoder
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main
from clockwatt.studies.workloads.training import train_classifier

LEARNING_RATE = 5e-5


class TextClassifier(nn.Module):
    """DistilBERT's classifier: the first token's vector through a hidden layer; parameters as of `Encoder`."""

    def __init__(self, *, vocabulary: int, positions: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.encoder = Encoder(vocabulary=vocabulary, positions=positions, hidden=hidden, layers=layers)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, classes))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map token ids of shape (batch, length) to scores of shape (batch, classes)."""
        scores: torch.Tensor = self.head(self.encoder(tokens)[:, 0])
        return scores


def run(session: Session) -> Figures:
    """Run all epochs, from random weights."""
    size = session.size
    tokens = session.array("tokens", lambda: session.indices(1, size("vocabulary"), size("texts"), size("tokens")))
    labels = session.array("labels", lambda: session.indices(0, size("classes"), len(tokens)))
    model = TextClassifier(
        vocabulary=size("vocabulary"), positions=tokens.shape[1], hidden=size("hidden"), layers=size("layers"),
        classes=size("classes"),
    ).to(session.device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = train_classifier(session, model, optimizer, tokens, labels)
    return {"first_loss": float(losses[0]), "last_loss": float(losses[-1])}


WORKLOAD = Workload(
    name="fine_tuning", title="Fine-tuning of a DistilBERT encoder with random weights as a classifier of texts.",
    sizes=(
        Size("texts", 25_000, "to train on, as in the reviews of IMDb"),
        Size("epochs", 3, "over all texts", scaled=False),
        Size("tokens", 512, "of a text", least=8, most=512),
        Size("batch", 16, "texts of a step", scaled=False),
        Size("classes", 2, "of texts", scaled=False, least=2),
        Size("vocabulary", 30_522, "number of tokens", least=100),
        Size("hidden", 768, "width of the encoder", least=HEAD_WIDTH, multiple=HEAD_WIDTH),
        Size("layers", 6, "of the encoder"),
    ),
    arrays=(
        Array("tokens", ("texts", "tokens"), "index", below="vocabulary"),
        Array("labels", ("texts",), "index", below="classes"),
    ),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
