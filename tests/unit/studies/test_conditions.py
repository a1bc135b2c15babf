"""Programs of the survey beside one another: the virtual rule recovered, real processes timed, bad files named."""

import os

import pandas as pd
import pytest

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import CONDITION_PROGRAMS
from clockwatt.errors import ClockwattError, ConfigError, DataFileError
from clockwatt.gpu.virtual.model import NEIGHBOUR_SLOWDOWN
from clockwatt.studies.survey import conditions, interference
from clockwatt.studies.survey.conditions import Running


def campaign(*names: str) -> config.CampaignConfig:
    """Return a campaign with conditions on two nodes of three cards."""
    survey = {"gpus": {"h200": {"n1": 3, "n2": 3}}, "conditions": list(names), "seconds": 0.2}
    networks = [{"name": "resnet18", "input": [1, 3, 64, 64]}]
    gpus = {"h200": {"device": "virtual:h200"}}
    return config.parse({"campaign": "c", "gpus": gpus, "networks": networks, "studies": {"survey": survey}})


def test_the_matrix_recovers_the_rule_of_virtual_cards(tmp_path, capsys):
    asked = campaign("together", "shared")
    nodes = asked.studies.study_survey().shared_nodes("h200")
    assert len(nodes) == 6
    for node, repetition in nodes:
        conditions.measure(asked, "h200", node, repetition, tmp_path / f"conditions/{node}-{repetition}.csv")
    command = ["study-interference", str(tmp_path / "conditions"), "--output", str(tmp_path)]
    app(command, prog_name="clockwatt", standalone_mode=False)
    assert "sgemm beside sgemm, time slicing: " in capsys.readouterr().out
    table = pd.read_csv(tmp_path / interference.INTERFERENCE_FILE, keep_default_na=False)
    pairs = table[table["test"] != ""].set_index(["base", "test"])
    assert len(pairs) == len(CONDITION_PROGRAMS) ** 2
    assert (pairs["repetitions"] == 6).all()
    for (base, test), wanted in {("sgemm", "dlrm"): 1.4, ("dlrm", "sgemm"): 1.4, ("dlrm", "dlrm"): 1.0}.items():
        assert pairs.loc[base, test]["slowdown"] == pytest.approx(wanted, abs=0.005)
    together = table[table["condition"] == conditions.TOGETHER].set_index("cards")
    assert list(together.index) == [2, 3]
    assert together["low"][3] < 1 + 2 * NEIGHBOUR_SLOWDOWN < together["high"][3]
    assert (tmp_path / "figures/interference.png").stat().st_size > 10_000


def test_real_programs_are_timed_beside_one_another():
    study = campaign("shared").studies.study_survey()
    timer = conditions.processes([os.environ], study, scale=0.002)
    steps = timer([Running("sgemm", 0), Running("dlrm", 0)])
    assert len(steps) == 2
    assert all(0 < step_s < 5 for step_s in steps)


def test_a_program_that_fails_is_named():
    timer = conditions.processes([os.environ], campaign().studies.study_survey())
    with pytest.raises(ClockwattError, match="nothing on card 0 ended with status 2"):
        timer([Running("nothing", 0)])


def test_a_condition_stands_once():
    with pytest.raises(ConfigError, match="conditions"):
        campaign("shared", "shared")
    assert campaign().studies.study_survey().shared_nodes("h200") == []


@pytest.mark.parametrize(
    ("text", "says"), [("", "cannot be read"), ("a,b\n1,2\n", "lacks base"), (None, "cannot be read")]
)
def test_what_is_no_measurement_of_conditions_is_named(tmp_path, text, says):
    if text is not None:
        (tmp_path / "n1-1.csv").write_text(text)
    with pytest.raises(DataFileError, match=says):
        interference.read([tmp_path / "n1-1.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFileError, match="no measurements of conditions"):
        interference.read([tmp_path / "empty"])
