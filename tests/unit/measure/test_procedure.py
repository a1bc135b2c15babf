"""How blocks that are queued behind a blocking kernel are sized, on a virtual GPU."""

from pathlib import Path

from clockwatt.config import CampaignConfig, TelemetryConfig
from clockwatt.gpu.virtual.card import VirtualGpu
from clockwatt.measure.bench.interface import QueuedBlock, Subject, Workload
from clockwatt.measure.bench.virtual import VirtualBench
from clockwatt.measure.statistics import Estimate
from clockwatt.measure.steps import procedure, times
from clockwatt.measure.steps.conditions import Surroundings
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import MeasurementRow
from clockwatt.telemetry.logger import VirtualLogger, virtual_logger
from support.handmade import operation, write_catalogue


class RecordingBench(VirtualBench):
    """Remembers the blocks that were asked for; `fits` limits the calls that its launch queue takes."""

    def __init__(self, gpu: VirtualGpu, logger: VirtualLogger, catalogue: Path, fits: int) -> None:
        super().__init__(gpu, logger, 0, catalogue)
        self.fits = fits
        self.asked: list[int] = []

    def queued_block(self, workload: Workload, calls: int) -> QueuedBlock | None:
        self.asked.append(calls)
        return super().queued_block(workload, calls) if calls <= self.fits else None


def measured(
    tmp_path: Path, campaign: CampaignConfig, elements: int, fits: int, *, energy: bool = True
) -> tuple[MeasurementRow, list[int]]:
    row = operation(elements)
    write_catalogue(tmp_path, [row])
    gpu = VirtualGpu("a30", seed=0)
    subject = Subject("operation", row.operation_id, "inference", TF32, "float32", 0, device_work=True, energy=energy)
    result = MeasurementRow(
        kind="operation", subject_id=row.operation_id, pass_="inference", gpu="a30", point="default", execution=TF32,
        dtype="float32",
    )  # fmt: skip
    with virtual_logger(gpu, "s", tmp_path / "telemetry", TelemetryConfig()) as logger:
        bench = RecordingBench(gpu, logger, tmp_path, fits)
        procedure.measure(bench, subject, result, campaign.measurement, Surroundings())
    return result, bench.asked


def test_blocks_of_a_short_call_are_as_long_as_the_limit_allows(tmp_path, campaign) -> None:
    row, asked = measured(tmp_path, campaign, 256, fits=1000)
    assert asked[0] == 1
    assert set(asked[1:]) == {times._MAX_CALLS}
    assert row.time_device_s is not None
    assert row.flags == []


def test_blocks_of_a_long_call_are_never_longer_than_needed(tmp_path, campaign) -> None:
    row, asked = measured(tmp_path, campaign, 10**9, fits=1000)
    assert row.time_device_s is not None
    assert row.time_device_s > times.FULL.queued.block_s / 2
    assert set(asked) == {1}


def test_blocks_shrink_until_the_launch_queue_holds_them(tmp_path, campaign) -> None:
    row, asked = measured(tmp_path, campaign, 256, fits=10)
    assert asked[:5] == [1, 64, 32, 16, 8]
    assert set(asked[5:]) == {8}
    assert row.time_device_s is not None


def test_a_call_that_cannot_be_queued_says_so_and_is_still_timed_eagerly(tmp_path, campaign) -> None:
    row, asked = measured(tmp_path, campaign, 256, fits=0)
    assert asked == [1]
    assert row.flags == ["not_queueable"]
    assert row.time_device_s is None
    assert row.time_eager_s is not None


def estimate(relative_error: float):
    return lambda: Estimate(2.0, 2.0 * relative_error, 5)


def test_blocks_are_taken_until_all_times_are_precise_within_a_budget() -> None:
    rule = times.BlocksRule(fewest=3, most=40, budget_s=0.1, block_s=0.01)
    precise, rough, unknown = (estimate(0.004), 0.005), (estimate(0.006), 0.005), (lambda: None, 0.005)
    assert not rule.enough(2, 9.0, precise), "a few are always taken"
    assert rule.enough(3, 0.0, precise, precise)
    assert not rule.enough(3, 0.0, precise, rough)
    assert not rule.enough(39, 0.09, precise, unknown)
    assert rule.enough(40, 0.0, rough)
    assert rule.enough(3, 0.1, rough)


def test_time_alone_asks_for_no_more_blocks_than_needed(tmp_path, campaign) -> None:
    row, asked = measured(tmp_path, campaign, 10**9, fits=1000, energy=False)
    assert asked == [1, 1, 1], "the trial of a long call is a block"
    assert (row.quantities, row.time_device_method, row.energy_j) == (["time"], "queued", None)
