"""What telemetry says of a run, on readings made by hand."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.cli.printing import quantity, with_ends
from clockwatt.schema.records import TELEMETRY_SCHEMA
from clockwatt.telemetry.recording.gpu_summary import of_gpu
from clockwatt.telemetry.recording.layout import Record, RecordedGpu
from clockwatt.telemetry.recording.summary import _over_runs


def telemetry(time_s: np.ndarray, **columns: object) -> pd.DataFrame:
    rows = pd.DataFrame({"time_s": time_s, "lane": "ring", **columns})
    return rows.reindex(columns=["time_s", *TELEMETRY_SCHEMA.names])


def test_energy_of_a_run_whose_readings_have_a_gap_is_null() -> None:
    time_s = np.arange(-1, 11, 0.02)
    whole = telemetry(time_s, power_sample_w=100.0, energy_counter_j=100 * np.floor(time_s / 0.1) * 0.1)
    told = of_gpu(whole, 10.0, None)
    assert told["energy_integrated_j"] == pytest.approx(1000)
    assert told["power_mean_w"] == pytest.approx(100)
    # the logger stood still for 3 s: the counter went on, and what the power was nobody knows
    told = of_gpu(whole[(time_s < 4) | (time_s > 7)], 10.0, None)
    assert told["energy_integrated_j"] is None
    assert told["power_mean_w"] is None
    assert told["energy_counter_j"] == pytest.approx(1000, rel=0.02)


def test_runs_are_averaged_by_one_way_to_know_their_energy() -> None:
    gpu = RecordedGpu(uuid="GPU-1", name="any", virtual=False, computed_on=True)
    record = Record(
        name="x", command=["x"], folder="/", host="h", point="default", repeat=3, recorder=1, gpus=[gpu], versions={}
    )
    energies = [(None, 100.0), (220.0, 110.0), (None, 120.0)]
    runs = [
        {"time_s": 1.0, "gpus": {"GPU-1": {"energy_counter_j": counted, "energy_integrated_j": integrated}}}
        for counted, integrated in energies
    ]
    told = _over_runs(record, runs)["GPU-1"]["energy_j"]
    assert (told["mean"], told["runs"]) == (110.0, 3)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(1171.1, "J", "1.17 kJ"), (5.62e6, "J", "5.62 MJ"), (999.6, "J", "1 kJ"), (12.08, "s", "12.1 s"),
     (12345.6, "s", "12,346 s"), (999.6, "s", "1,000 s"), (0.0042, "s", "4.2 ms"), (0.0, "J", "0 J"),
     (-1500, "J", "\N{MINUS SIGN}1.5 kJ"), (None, "J", "–")],
)  # fmt: skip
def test_quantities_are_read_without_powers_of_ten(value: float | None, unit: str, shown: str) -> None:
    assert quantity(value, unit).replace("-", "\N{MINUS SIGN}") == shown


def test_an_interval_has_the_unit_of_its_value() -> None:
    assert with_ends(2260.0, (1420.0, 3600.0), "s") == "2,260 s (1420–3600)"
    assert with_ends(1380.0, (1050.0, 1830.0), "J") == "1.38 kJ (1.05–1.83)"
