from pathlib import Path

from clockwatt.figures.names import FIGURES

CAPTIONS = Path(__file__).parents[2] / "workflow" / "report"


def test_every_figure_has_a_caption_and_every_caption_a_figure():
    assert {path.stem for path in CAPTIONS.glob("*.rst")} == {*FIGURES, "campaign"}


def test_captions_say_something():
    for path in CAPTIONS.glob("*.rst"):
        assert len(path.read_text().split()) > 10, path
