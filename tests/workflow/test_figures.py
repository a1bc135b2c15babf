from pathlib import Path

from clockwatt.config.studies import StudiesConfig
from clockwatt.figures.names import QUESTIONS
from clockwatt.figures.reference import BEGIN, END, reference

ROOT = Path(__file__).parents[2]
CAPTIONS = ROOT / "workflow" / "report"


def test_every_figure_has_a_caption_and_every_caption_a_figure():
    studies = {f"study_{name}" for name in StudiesConfig.model_fields}
    captions = {path.stem for path in CAPTIONS.glob("*.rst")}
    assert captions - studies == {*QUESTIONS, "campaign"}
    rules = "".join(path.read_text() for path in (ROOT / "workflow" / "studies").glob("*.smk"))
    assert all(f"report/{name}.rst" in rules for name in captions & studies)


def test_captions_say_something():
    for path in CAPTIONS.glob("*.rst"):
        assert len(path.read_text().split()) > 10, path


def test_the_index_of_figures_is_up_to_date():
    page = (ROOT / "docs" / "reference" / "figures.md").read_text(encoding="utf-8")
    assert f"{BEGIN}\n\n{reference()}\n{END}" in page
