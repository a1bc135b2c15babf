"""Programs of the survey beside one another: the virtual rule recovered, real processes timed, bad files named."""

import contextlib
import os
import signal
import threading

import numpy as np
import pandas as pd
import psutil
import pytest

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import CONDITION_PROGRAMS
from clockwatt.errors import ClockwattError, ConfigError, DataFileError
from clockwatt.gpu.interface import GpuNotFoundError, InstalledGpu
from clockwatt.gpu.virtual.model import NEIGHBOUR_SLOWDOWN
from clockwatt.studies.survey import conditions, interference
from clockwatt.studies.survey.conditions import Running
from support.processes import command_of

HEAD = ",".join(interference.COLUMNS)


def campaign(*names: str) -> config.CampaignConfig:
    """Return a campaign with conditions on two nodes of three cards."""
    survey = {"gpus": {"h200": {"n1": 3, "n2": 3}}, "conditions": list(names), "seconds": 0.2}
    networks = [{"name": "resnet18", "input": [1, 3, 64, 64]}]
    gpus = {"h200": {"device": "virtual:h200"}}
    return config.parse({"campaign": "c", "gpus": gpus, "networks": networks, "studies": {"survey": survey}})


def test_the_matrix_recovers_the_rule_of_virtual_cards(tmp_path, capsys):
    asked = campaign("together", "shared")
    study = asked.studies.study_survey()
    nodes = study.shared_nodes("h200")
    assert (len(nodes), len(study.cards("h200"))) == (6, 6)
    few = study.model_copy(update={"gpus": {"h200": {"n1": 3}}})
    assert not few.cards("h200"), "three cards are too few to compare"
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
    sgemm, dlrm = Running("sgemm", 0), Running("dlrm", 0)
    asked = [[sgemm, dlrm], [dlrm, dlrm], [sgemm]]
    with conditions.processes([os.environ], asked, 0.2, scale=0.002) as timer:
        started = children()
        assert len(started) == 3  # the pair of DLRMs needs two, and nothing starts later
        steps = [timer(running) for running in asked[:2]]
        before = worked_s(started)
        steps.append(timer([sgemm]))
        assert children() == started
        *waited_s, busy_s = sorted(np.subtract(worked_s(started), before))
        assert max(waited_s) < 0.1 * busy_s
    assert [len(found) for found in steps] == [2, 2, 1]
    assert all(0 < step_s < 5 for found in steps for step_s in found)
    assert children() == []


def test_a_program_that_fails_is_named_and_others_end(ready):
    asked = [[Running("sgemm", 0), Running("nothing", 0)]]
    with (
        pytest.raises(ClockwattError, match="nothing on card 0 ended with status 2"),
        conditions.processes([os.environ], asked, 0.2, scale=0.002),
    ):
        pass
    assert children() == []


def test_a_program_that_ends_while_it_is_timed_is_named(ready):
    sgemm = Running("sgemm", 0)
    with conditions.processes([os.environ], [[sgemm]], 60, scale=0.002) as timer:
        (number,) = children()
        threading.Timer(1, os.kill, [number, signal.SIGKILL]).start()
        with pytest.raises(ClockwattError, match="sgemm on card 0 ended with status -9"):
            timer([sgemm])


def worked_s(numbers: list[int]) -> list[float]:
    """Return how long processes have kept a processor busy."""
    return [sum(psutil.Process(number).cpu_times()[:2]) for number in numbers]


def children() -> list[int]:
    """Return the numbers of the programs that run."""
    named = ((child.pid, command_of(child)) for child in psutil.Process().children())
    return sorted(number for number, words in named if "clockwatt.studies.survey.programs" in words)


@pytest.mark.parametrize(("gpu", "node"), [("h200", "n3"), ("a30", "n1")])
def test_a_node_that_the_survey_lacks_is_named(tmp_path, gpu, node):
    asked = campaign("shared")
    asked.gpus["a30"] = asked.gpus["h200"]
    with pytest.raises(ConfigError, match=f"no node '{node}' of GPU '{gpu}'; it has "):
        conditions.measure(asked, gpu, node, 1, tmp_path / "n.csv")


def test_a_card_that_is_not_here_is_left_out(tmp_path, monkeypatch, capsys):
    asked, used = campaign("together"), []
    asked.gpus["h200"] = asked.gpus["h200"].model_copy(update={"device": "NVIDIA H200"})

    def card_at(device: str, node: str, index: int) -> InstalledGpu:
        if index not in here:
            raise GpuNotFoundError(f"card {index} is not here")
        return InstalledGpu("nvidia", f"GPU-{index}", device)

    @contextlib.contextmanager
    def processes(environments, asked, seconds):
        used.extend(environment["CUDA_VISIBLE_DEVICES"] for environment in environments)
        yield lambda running: [1.0] * len(running)

    monkeypatch.setattr(conditions, "card_at", card_at)
    monkeypatch.setattr(conditions, "processes", processes)
    here = {0, 1}
    conditions.measure(asked, "h200", "n1", 1, tmp_path / "n.csv")
    assert used == ["GPU-0", "GPU-1"]
    assert interference.slowdowns(interference.read([tmp_path]))["cards"].max() == 2
    assert "card 2 is not here" in capsys.readouterr().err
    here = set()
    with pytest.raises(ClockwattError, match="card 2 is not here"):
        conditions.measure(asked, "h200", "n1", 1, tmp_path / "n.csv")


def test_one_repetition_has_no_interval(tmp_path, capsys):
    conditions.measure(campaign("shared"), "h200", "n1", 1, tmp_path / "n1-1.csv")
    command = ["study-interference", str(tmp_path), str(tmp_path / "n1-1.csv"), "--output", str(tmp_path)]
    app(command, prog_name="clockwatt", standalone_mode=False)
    said = capsys.readouterr().out
    assert "(one repetition)" in said
    assert "nan" not in said


def test_the_order_differs_between_repetitions(tmp_path):
    orders = []
    for repetition in (1, 2):
        conditions.measure(campaign("shared"), "h200", "n1", repetition, tmp_path / "n.csv")
        orders.append(list(pd.read_csv(tmp_path / "n.csv")["condition"]))
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_rows_without_their_time_alone_are_named(tmp_path):
    conditions.measure(campaign("together"), "h200", "n1", 1, tmp_path / "n1-1.csv")
    rows = interference.read([tmp_path])
    assert (rows["condition"] == "alone").sum() == len(CONDITION_PROGRAMS) + 2  # SGEMM on each card
    with pytest.raises(DataFileError, match="sgemm was not timed alone on card 1 of n1 in repetition 1"):
        interference.slowdowns(rows[(rows["condition"] != "alone") | (rows["card"] == 0)])
    (tmp_path / "copy.csv").write_bytes((tmp_path / "n1-1.csv").read_bytes())
    with pytest.raises(DataFileError, match="repetition 1 of n1 is in two files"):
        interference.read([tmp_path])


def test_a_condition_stands_once():
    with pytest.raises(ConfigError, match="conditions"):
        campaign("shared", "shared")
    assert campaign().studies.study_survey().shared_nodes("h200") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("a,b\n1,2\n", "lacks base"),
        (f"{HEAD}\nn1,1,alone,0,sgemm,,1,soon\n", "must contain positive numbers"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_measurement_of_conditions_is_named(tmp_path, text, says):
    if text is not None:
        (tmp_path / "n1-1.csv").write_text(text)
    with pytest.raises(DataFileError, match=says):
        interference.read([tmp_path / "n1-1.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFileError, match="no measurements of conditions"):
        interference.read([tmp_path / "empty"])
