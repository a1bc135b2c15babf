"""Temperature models within a campaign: fitted to what the study of power limits recorded."""

import json

import pandas as pd
import pytest

from clockwatt import config
from clockwatt.errors import ClockwattError, ConfigError
from clockwatt.studies.power.measure import measure_study
from clockwatt.studies.thermal import stage
from clockwatt.studies.thermal.names import FIGURES
from clockwatt.workflow.plan_studies import plan_studies
from support.power_study import campaign as power_campaign


def campaign(**thermal):
    asked = power_campaign(gpus={"a30": {"power_limits_w": [100, 165]}}, networks=["ecg_resnet", "dense_512"], epochs=8)
    found = asked.model_dump(mode="json", exclude_defaults=True)
    found["studies"]["thermal"] = {"models": ["rc"], "horizons_s": [1, 2]} | thermal
    return config.parse(found)


def test_models_are_fitted_to_the_records_and_held_out_by_network(tmp_path):
    asked = campaign()
    measure_study(asked, "a30", tmp_path / "studies" / "power" / "a30")
    for _ in range(2):  # what an earlier fit left is no hindrance
        result = stage.run(asked, "a30", tmp_path)
    assert {trace.workload for trace in result.traces} == {"ecg_resnet", "dense_512"}
    folder = tmp_path / "studies" / "thermal" / "a30"
    assert set(json.loads((folder / "fit" / "thermal.json").read_text())["models"]) == {"rc"}
    assert set(pd.read_csv(folder / "fit" / "scores.csv")["split"]) == {"rows", "run", "workload"}
    forecast = pd.read_csv(folder / "figures" / "forecast.csv")
    assert forecast.groupby(["model", "load"]).size().min() > 1
    assert forecast["forecast_c"].between(20, 120).all()
    assert all((folder / "figures" / f"{name}.png").stat().st_size for name in FIGURES)


def test_a_gpu_without_records_is_named(tmp_path):
    with pytest.raises(ClockwattError, match=r"a30 is recorded .*studies/power/a30/records"):
        stage.run(campaign(), "a30", tmp_path)


def test_a_campaign_that_records_nothing_has_no_temperature_to_fit():
    given = power_campaign().model_dump(mode="json", exclude_defaults=True)
    with pytest.raises(ConfigError, match=r"studies.*power or workloads"):
        config.parse(given | {"studies": {"thermal": {}}})
    with pytest.raises(ConfigError, match="no GPU is labelled 'h100'"):
        campaign(gpus=["h100"])
    with pytest.raises(ConfigError, match=r"studies.thermal: is not in the campaign"):
        power_campaign().studies.study_thermal()


def test_its_job_is_counted_and_records_nothing_itself(tmp_path):
    asked = campaign().model_copy(update={"results_dir": str(tmp_path)})
    _, thermal = plan_studies(asked)
    assert (thermal.study, thermal.programs, thermal.jobs) == ("study_thermal", 0, 1)
