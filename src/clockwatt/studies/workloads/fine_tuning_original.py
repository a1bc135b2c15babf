"""Fine-tuning of a DistilBERT encoder to find answers in paragraphs, on data of the shape of SQuAD, with AdamW."""

from __future__ import annotations

import sys

import torch
from torch import nn

from clockwatt.studies.workloads.encoder import HEAD_WIDTH, PADDING
from clockwatt.studies.workloads.fine_tuning import LEARNING_RATE
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.question_answering import QuestionAnswering
from clockwatt.studies.workloads.session import Figures, Session, Workload, main
from clockwatt.studies.workloads.training import train_classifier

SHARE_OF_QUESTION = 1 / 16
"""Of the longest text; answers lie behind it. SQuAD's questions have a dozen words."""


def answer_loss(scores: tuple[torch.Tensor, torch.Tensor], ends: torch.Tensor) -> torch.Tensor:
    """Return the mean of the cross entropies of first and last token.

    Parameters
    ----------
    scores
        As first and as last token, each of shape (batch, length).
    ends
        First and last token of the answers, shape (batch, 2).
    """
    first, last = (nn.functional.cross_entropy(each, wanted) for each, wanted in zip(scores, ends.T, strict=True))
    return (first + last) / 2


def _padded_texts(session: Session) -> torch.Tensor:
    """Return random tokens, padded after a quarter to all of the longest text; shape (texts, tokens)."""
    texts, longest = session.size("texts"), session.size("tokens")
    tokens = session.indices(1, session.size("vocabulary"), texts, longest)
    lengths = session.indices(longest // 4, longest + 1, texts)
    return tokens.masked_fill(torch.arange(longest) >= lengths[:, None], PADDING)


def _answers(session: Session, tokens: torch.Tensor) -> torch.Tensor:
    """Return first and last token of an answer within each text, behind its question; shape (texts, 2)."""
    lengths = (tokens != PADDING).sum(1)
    question = int(tokens.shape[1] * SHARE_OF_QUESTION)
    places = question + (session.uniform(0, 1, len(tokens), 2) * (lengths - question)[:, None]).long()
    return places.sort(1).values


def run(session: Session) -> Figures:
    """Run all epochs, from random weights."""
    size = session.size
    tokens = session.array("tokens", lambda: _padded_texts(session))
    ends = session.array("ends", lambda: _answers(session, tokens))
    model = QuestionAnswering(
        vocabulary=size("vocabulary"), positions=tokens.shape[1], hidden=size("hidden"), layers=size("layers")
    ).to(session.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = train_classifier(session, model, optimizer, tokens, ends, loss_of=answer_loss)
    return {"first_loss": float(losses[0]), "last_loss": float(losses[-1])}


WORKLOAD = Workload(
    name="fine_tuning_original", title="Fine-tuning of a DistilBERT encoder for question answering, as in the study.",
    sizes=(
        Size("texts", 87_599, "questions with paragraphs, as in the training set of SQuAD"),
        Size("epochs", 1, "over all texts", scaled=False),
        Size("tokens", 512, "of a text", least=16, most=512),
        Size("batch", 16, "texts of a step", scaled=False),
        Size("vocabulary", 30_522, "number of tokens", least=100),
        Size("hidden", 768, "width of the encoder", least=HEAD_WIDTH, multiple=HEAD_WIDTH),
        Size("layers", 6, "of the encoder"),
    ),
    arrays=(
        Array("tokens", ("texts", "tokens"), "index", below="vocabulary"),
        Array("ends", ("texts", 2), "index", below="tokens"),
    ),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
