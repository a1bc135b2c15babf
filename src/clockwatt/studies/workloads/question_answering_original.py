"""Five questions on a paragraph, answered one by one by a BERT encoder: small inputs, and a host that splits words."""

from __future__ import annotations

import sys

import torch

from clockwatt.studies.workloads.encoder import HEAD_WIDTH
from clockwatt.studies.workloads.inputs import Size
from clockwatt.studies.workloads.question_answering import QuestionAnswering, best_spans
from clockwatt.studies.workloads.session import Figures, Session, Workload, main
from clockwatt.studies.workloads.word_pieces import WordPieces

PARAGRAPH = (
    "A graphics processor turns electrical power into heat. Its cooler carries the heat to the air of the machine, and "
    "the air of the machine carries it to the outside. Within a second of a load the chip becomes warmer by several "
    "degrees, since the silicon stores little heat. The cooler stores much more, so that the temperature goes on "
    "rising for minutes. Above a limit that the driver sets, the clock is lowered until the power falls. Fans, the "
    "neighbouring cards and the processors of the host change the temperature of the air, and with it that of the chip."
)
QUESTIONS = (
    "What does a graphics processor turn into heat?",
    "Where does the cooler carry the heat?",
    "Why does the chip become warmer within a second?",
    "What is lowered above a limit?",
    "What changes the temperature of the air?",
)


def run(session: Session) -> Figures:
    """Ask all rounds of questions; each answer is read before the next question is asked."""
    size = session.size
    pieces = WordPieces([PARAGRAPH, *QUESTIONS])
    asked = [QUESTIONS[number % len(QUESTIONS)] for number in range(size("rounds") * len(QUESTIONS))]
    longest = max(len(pieces.encode(question, PARAGRAPH)) for question in QUESTIONS)
    model = QuestionAnswering(
        vocabulary=max(size("vocabulary"), len(pieces)), positions=longest, hidden=size("hidden"), layers=size("layers")
    )
    model = model.to(session.device).eval()
    words = 0
    answered = 0
    with torch.inference_mode():
        for question in session.steps(asked):
            ids = pieces.encode(question, PARAGRAPH)
            first, last = model(torch.tensor([ids], device=session.device))
            ((begin, end),) = best_spans(first, last, size("answer")).tolist()
            words += len(pieces.decode(ids[begin : end + 1]).split())
            answered += 1
    return {"questions": answered, "words_per_answer": words / answered}


WORKLOAD = Workload(
    name="question_answering_original", title="Five questions answered one by one, from their words, as in the study.",
    sizes=(
        Size("rounds", 1, "of the five questions", scaled=False),
        Size("answer", 30, "longest answer in tokens", scaled=False),
        Size("vocabulary", 30_522, "number of tokens", least=100),
        Size("hidden", 768, "width of the encoder", least=HEAD_WIDTH, multiple=HEAD_WIDTH),
        Size("layers", 12, "of the encoder"),
    ),
    arrays=(),
    run=run,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(WORKLOAD))
