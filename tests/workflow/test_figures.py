from pathlib import Path

from clockwatt.figures.names import QUESTIONS
from clockwatt.figures.reference import with_reference

ROOT = Path(__file__).parents[2]
CAPTIONS = ROOT / "workflow" / "report"


def test_every_figure_has_a_caption_and_every_caption_a_figure():
    assert {path.stem for path in CAPTIONS.glob("*.rst")} == {*QUESTIONS, "campaign"}


def test_captions_say_something():
    for path in CAPTIONS.glob("*.rst"):
        assert len(path.read_text().split()) > 10, path


def test_the_index_of_figures_is_up_to_date():
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert page == with_reference(page)
