"""Question answering by a BERT encoder: inference on questions with their paragraphs, batch after batch."""

from __future__ import annotations

import sys

import torch
from torch import nn

from clockwatt.studies.workloads.encoder import HEAD_WIDTH, PADDING, Encoder
from clockwatt.studies.workloads.inputs import Array, Size
from clockwatt.studies.workloads.session import Figures, Session, Workload, main


class QuestionAnswering(nn.Module):
    """An encoder that scores each token as the first and the last of the answer; parameters as of `Encoder`."""

    def __init__(self, *, vocabulary: int, positions: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.encoder = Encoder(vocabulary=vocabulary, positions=positions, hidden=hidden, layers=layers)
        self.ends = nn.Linear(hidden, 2)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids of shape (batch, length) to scores as first and as last token, each of shape (batch, length)."""
        scores = self.ends(self.encoder(tokens)).masked_fill((tokens == PADDING)[..., None], -torch.inf)
        first, last = scores.unbind(-1)
        return first, last


def best_spans(first: torch.Tensor, last: torch.Tensor, longest: int) -> torch.Tensor:
    """Return the answers with the highest sum of scores, of at most `longest` tokens.

    Parameters
    ----------
    first, last
        Scores of shape (batch, length).
    longest
        Most tokens of an answer.

    Returns
    -------
    torch.Tensor
        First and last token of each, shape (batch, 2).
    """
    length = first.shape[1]
    allowed = torch.ones(length, length, dtype=torch.bool, device=first.device).triu().tril(longest - 1)
    sums = (first[:, :, None] + last[:, None, :]).masked_fill(~allowed, -torch.inf)
    best = sums.flatten(1).argmax(1)
    return torch.stack((best // length, best % length), 1)


def run(session: Session) -> Figures:
    """Answer all questions once."""
    size = session.size
    tokens = session.array("tokens", lambda: session.indices(1, size("vocabulary"), size("questions"), size("tokens")))
    model = QuestionAnswering(
        vocabulary=size("vocabulary"), positions=tokens.shape[1], hidden=size("hidden"), layers=size("layers")
    )
    model = model.to(session.device).eval()
    answered, words = 0, 0
    with torch.inference_mode():
        for batch in session.steps(tokens.split(size("batch"))):
            first, last = model(batch.to(session.device))
            spans = best_spans(first, last, size("answer"))
            answered += len(spans)
            words += int((spans[:, 1] - spans[:, 0] + 1).sum())
    return {"questions": answered, "tokens_per_answer": words / answered}


WORKLOAD = Workload(
    name="question_answering", title="Question answering by a BERT encoder with random weights: inference.",
    sizes=(
        Size("questions", 10_570, "that are answered, as in the development set of SQuAD"),
        Size("tokens", 384, "of a question with its paragraph", least=8, most=512),
        Size("batch", 32, "questions at a time", scaled=False),
        Size("answer", 30, "longest answer in tokens", scaled=False),
        Size("vocabulary", 30_522, "number of tokens", least=100),
        Size("hidden", 768, "width of the encoder", least=HEAD_WIDTH, multiple=HEAD_WIDTH),
        Size("layers", 12, "of the encoder"),
    ),
    arrays=(Array("tokens", ("questions", "tokens"), "index", below="vocabulary"),),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
