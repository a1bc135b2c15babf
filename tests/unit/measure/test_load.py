"""Loads on virtual GPUs: warm-up until steady, windows, flags, calibration."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clockwatt.config import CampaignConfig, MeasurementConfig, OperatingPoint, TelemetryConfig
from clockwatt.gpu.interface import NotSupportedError
from clockwatt.gpu.sensing.sensors import COUNTER, SensorTraits
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.bench.interface import under_load
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.calibrate import calibration
from clockwatt.measure.calibrate.calibration import Calibration
from clockwatt.measure.calibrate.run import calibrate, deviation_from
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import conditions
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.measure.steps.load import LoadRun, is_power_limited, run_under_load
from clockwatt.measure.steps.rest import rest
from clockwatt.schema.costs import TIME_EAGER
from clockwatt.schema.execution import TF32
from clockwatt.schema.quantities import CalibrationQuantity
from clockwatt.schema.records import MeasurementRow, TelemetryRow
from clockwatt.telemetry.logger import virtual_logger
from support.handmade import operation, write_catalogue

QUICK = MeasurementConfig()


def row() -> MeasurementRow:
    return MeasurementRow(
        kind="operation", subject_id="x", pass_="inference", gpu="g", point="default", execution=TF32, dtype="float32"
    )


def loaded(
    folder: Path, config: MeasurementConfig, model: str = "a100", *, at_limit: bool = False
) -> tuple[LoadRun, float]:
    """A run of an operation after a rest, and the power of the card under that load in W."""
    from clockwatt.measure.session import anchor_subject

    heavy = operation(10**7, function="torch.nn.functional.linear", flops=10**11) if at_limit else operation(10**7)
    write_catalogue(folder, [heavy])
    gpu = VirtualGpu(model, seed=0)
    with virtual_logger(gpu, "s", folder / "telemetry", TelemetryConfig()) as logger:
        bench = VirtualBench(gpu, logger, 0, folder)
        with bench.open(anchor_subject(heavy.operation_id, execution=TF32)) as workload:
            bench.idle(3.0)
            run = run_under_load(bench, workload, config, {}, None)
            with under_load(bench, workload) as wait:
                wait(0.2)
                begun_j = gpu.energy_counter_j()
                wait(20.0)
                power_w = (gpu.energy_counter_j() - begun_j) / 20.0
    return run, power_w


@pytest.mark.parametrize("model", ["v100", "rtx3090", "a100-sxm4-40gb", "h200"])
def test_the_transient_lies_before_the_window(tmp_path: Path, model: str) -> None:
    run, _ = loaded(tmp_path, QUICK, model)
    assert run.steady
    assert QUICK.warm_up_min_s <= (run.window.start_ns - run.begun_ns) / 1e9 < QUICK.warm_up_max_s
    assert run.begun_ns < run.window.steady_ns <= run.window.start_ns
    assert QUICK.window_min_s <= run.window.seconds < QUICK.window_min_s + 0.3
    assert run.stopped_by == "precision"


def test_a_warm_up_that_is_cut_short_is_flagged(tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, MeasurementConfig(warm_up_min_s=0, warm_up_max_s=0.02))
    assert not run.steady
    assert run.window.steady_ns == run.window.start_ns  # no average may reach back
    result = row()
    conditions.put_conditions(result, run, Surroundings())
    assert "not_stationary" in result.flags


def test_at_the_power_limit_whole_periods_of_the_limiter_are_measured(tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, QUICK, "v100", at_limit=True)
    assert is_power_limited(run.telemetry)
    assert run.steady
    assert run.stopped_by == "limiter_period"
    assert run.window.seconds == pytest.approx(1.0, abs=0.05)
    result = row()
    conditions.put_conditions(result, run, Surroundings())
    assert conditions.pace_of(result) == calibration.POWER_LIMIT
    assert result.flags == []


def test_what_cannot_be_precise_ends_at_the_longest_window(tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, MeasurementConfig(precision=1e-9, window_max_s=0.9))
    assert run.stopped_by == "max_duration"
    assert run.window.seconds == pytest.approx(0.9, abs=0.1)


def test_an_interruption_and_a_warming_card_are_flagged(tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, QUICK)
    undisturbed, disturbed = row(), row()
    conditions.put_conditions(undisturbed, run, Surroundings())
    assert undisturbed.flags == []
    run.block_times_s[3] += 2.0 / run.calls
    last = run.telemetry[-1]
    run.telemetry += [
        TelemetryRow(session_id="s", lane="slow", time_us=last.time_us, monotonic_ns=last.monotonic_ns, temperature_c=c)
        for c in (40.0, 55.0)
    ]
    conditions.put_conditions(disturbed, run, Surroundings())
    assert {"interrupted", "temperature_drift"} <= set(disturbed.flags)


def test_errors_hold_what_one_measurement_differs_from_the_next(tmp_path: Path) -> None:
    run, power_w = loaded(tmp_path, QUICK)
    alone, with_history = row(), row()
    conditions.put_power(alone, run, Surroundings())
    known = Calibration(repeatability={(CalibrationQuantity.POWER_REPEATABILITY, calibration.DEVICE): 0.05})
    conditions.put_power(with_history, run, Surroundings(calibration=known))
    assert alone.power_w == pytest.approx(power_w, rel=0.02)
    assert alone.power_standard_error_w < 0.02 * alone.power_w
    assert with_history.power_standard_error_w == pytest.approx(0.05 * alone.power_w, rel=0.1)


def test_power_of_what_the_host_paces_follows_its_pace(tmp_path: Path) -> None:
    run, _ = loaded(tmp_path, QUICK)
    known = Calibration(repeatability={(CalibrationQuantity.TIME_REPEATABILITY, calibration.HOST): 0.05})
    paced = row()
    paced.time_host_s, paced.time_device_s = 2e-5, 1e-5
    conditions.put_power(paced, run, Surroundings(Estimate(30.0, 0.1, 10), known))
    assert paced.power_w is not None
    assert paced.power_standard_error_w == pytest.approx(0.05 * (paced.power_w - 30.0), rel=0.1)


def test_repeatability_is_what_errors_do_not_explain() -> None:
    def timed(time_s: float, error: float) -> MeasurementRow:
        measured = row()
        measured.time_eager_s, measured.time_eager_standard_error_s = time_s, error * time_s
        return measured

    sustained = {"x": timed(1.0, 0.001)}
    unexplained = deviation_from(sustained, [timed(time_s, 0.001) for time_s in (1.1, 1.1, 0.9)], TIME_EAGER)
    explained = deviation_from(sustained, [timed(time_s, 0.2) for time_s in (1.1, 1.1, 0.9)], TIME_EAGER)
    assert unexplained is not None
    # 0.1, widened by Student's t of one degree of freedom: one operation says little about others
    assert unexplained.value == pytest.approx(0.1 * 12.706 / 1.96, rel=0.01)
    assert explained is not None
    assert explained.value == 0
    assert deviation_from({}, [timed(1.0, 0.1)], TIME_EAGER) is None


def test_a_calibration_says_what_measuring_needs(campaign: CampaignConfig, catalogue: Path, tmp_path: Path) -> None:
    file = tmp_path / "calibration.parquet"
    calibrate(campaign, label="a30", point=OperatingPoint.parse("default"), catalogue_dir=catalogue, output=file)
    read = calibration.read(file)
    assert read.sensors[COUNTER].period_s == pytest.approx(0.1, rel=1e-3)
    # a single anchor is paced by the host there, which Student's t widens by 6.5
    assert 0 <= read.error_between(CalibrationQuantity.POWER_REPEATABILITY, calibration.HOST) < 0.15
    assert 0 <= read.error_between(CalibrationQuantity.TIME_REPEATABILITY, calibration.DEVICE) < 0.01
    assert Calibration().error_between(CalibrationQuantity.TIME_REPEATABILITY, calibration.DEVICE) == 0
    assert isinstance(read.sensors[COUNTER], SensorTraits)
    rows = pq.read_table(file).to_pandas()
    rows = rows[rows["quantity"] == CalibrationQuantity.POWER_TRANSIENT]
    before = rows[rows["x"].between(-0.25, -0.05) & rows["subject"].str.endswith("-ring")]
    names = before["subject"].str.extract(r"^([a-z]+)\d+-")[0]
    power_w = before.groupby(names)["value"].median()
    assert power_w["unrested"] > 2 * power_w["run"], "without a rest the load before it is seen"


def test_a_card_cools_down_before_it_is_measured_but_not_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = operation(10**7, function="torch.nn.functional.linear", flops=10**12)
    write_catalogue(tmp_path, [heavy])
    gpu = VirtualGpu("a30", seed=0)
    with virtual_logger(gpu, "s", tmp_path / "telemetry", TelemetryConfig()) as logger:
        bench = VirtualBench(gpu, logger, 0, tmp_path)
        from clockwatt.measure.session import anchor_subject

        with bench.open(anchor_subject(heavy.operation_id, execution=TF32)) as workload:
            run_under_load(bench, workload, MeasurementConfig(window_min_s=60, window_max_s=60), {}, None)
        hot_c = gpu.temperature_c()
        assert not rest(bench, 1.0, 2.0)
        assert "still at" in capsys.readouterr().err
        target_c = gpu.temperature_c() - 3
        assert rest(bench, target_c, 600.0)
        assert gpu.temperature_c() <= target_c < hot_c
        assert "cooling down" in capsys.readouterr().err

        def blind() -> float:
            raise NotSupportedError("temperature")

        monkeypatch.setattr(gpu, "temperature_c", blind)
        assert not rest(bench, 30.0, 10.0)
