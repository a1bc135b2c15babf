"""What networks measured whole say of the costs that calls alone do not show."""

import numpy as np
import pandas as pd
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.gpu.specs import find_spec
from clockwatt.predict.composition.networks import Catalogue
from clockwatt.predict.composition.pipeline import COST_COLUMNS, HostOverheads, Overheads, PassOverheads
from clockwatt.predict.models.training_data import read_samples
from clockwatt.predict.whole_networks import (
    FEWEST_GROUPED,
    FEWEST_NETWORKS,
    OverheadEstimates,
    WholeNetworks,
    seen_overheads,
)
from clockwatt.schema.records import ACCUMULATION, FORWARD, INFERENCE, LOSS, OPTIMIZER, TRAINING, NetworkRow
from support import synthetic

POINT = "sm900"
MODULE_S, CALL_S, GAP_S, START_S = 3e-6, 1.5e-6, 0.4e-6, 40e-6
GROUPED_S = 2.5e-6
CALIBRATED = Overheads(
    inference=PassOverheads(HostOverheads(module_s=1.0, forward_call_s=3.0), gap_s=5.0),
    training=PassOverheads(HostOverheads(module_s=2.0, forward_call_s=4.0, backward_start_s=START_S), gap_s=6.0),
    power_idle_w=7.0,
    power_limit_w=100.0,
)
OPERATIONS = pd.DataFrame(
    {"time_device_corrected_s": [20e-6, 5e-6, 0.0],
     "time_host_corrected_s": [10e-6, 6e-6, 2e-6], "time_eager_corrected_s": [20e-6, 6e-6, 2e-6],
     "energy_dynamic_corrected_j": [1e-3, 1e-3, 0.0], "energy_corrected_j": [2e-3, 2e-3, np.nan]},
    index=["conv", "relu", "view"],
)[COST_COLUMNS]  # fmt: skip


class Networks:
    """Networks, and what passes of them that were measured whole take."""

    def __init__(self):
        self.catalogue = Catalogue({}, {}, pd.DataFrame())
        self.whole = []

    def add(
        self,
        name,
        pass_=INFERENCE,
        times=1,
        modules=10,
        host_factor=1.0,
        point=POINT,
        grouped=0,
        gap_s=GAP_S,
        **changes,
    ):
        """One whose pass is its calls, and what modules, forward calls and device calls add."""
        start_s, phases = 0.0, {"conv": FORWARD, "relu": FORWARD, "view": FORWARD}
        calls = [(name, phase) for name, phase in phases.items() for _ in range(times)]
        if pass_ == TRAINING:
            start_s = START_S
            calls += [("relu", LOSS), ("relu", ACCUMULATION), ("conv", OPTIMIZER)]
        frame = pd.DataFrame(calls, columns=["operation_id", "phase"])
        of_calls = OPERATIONS.loc[frame["operation_id"]]
        forward, works = frame["phase"].isin([FORWARD, LOSS]).sum(), (of_calls["time_device_corrected_s"] > 0).sum()
        host_s = of_calls["time_host_corrected_s"].sum() + MODULE_S * modules + CALL_S * forward + start_s
        device_s = of_calls["time_device_corrected_s"].sum() + gap_s * works
        self.catalogue.calls[name, pass_] = frame
        self.catalogue.networks[name, pass_] = NetworkRow(
            network_id=name, network=name, input_shape=[1], dtype="float32", pass_=pass_, calls=len(frame),
            module_calls=modules, backward_nodes=0, parameters=0, parameter_bytes=0, optimizer=None,
            grouped_convolutions=grouped,
        )  # fmt: skip
        self.whole.append({
            "subject_id": name, "pass": pass_, "point": point, "execution": "tf32", "time_host_corrected_s": host_s,
            "time_device_corrected_s": device_s, "time_eager_corrected_s": max(host_factor * host_s, device_s),
            "host_factor": host_factor, "host_steady": True, "repeatable": True,
            "energy_corrected_j": np.nan, "power_corrected_w": np.nan, **changes,
        })  # fmt: skip

    def several(self, count, pass_=INFERENCE):
        for number in range(count):
            self.add(f"net{number}", pass_, times=1 + number, modules=30 - 5 * (number % 4))
        return self

    def several_grouped(self, count, pass_=TRAINING):
        for number in range(count):
            self.add(f"grouped{number}", pass_, times=2 + number, modules=7 + 6 * number, grouped=3, gap_s=GROUPED_S)
        return self

    def seen(self):
        return seen_overheads(pd.DataFrame(self.whole), self.catalogue, lambda *_: OPERATIONS, {POINT: CALIBRATED})

    def costs(self, without=None):
        estimates = OverheadEstimates({POINT: CALIBRATED}, self.seen())
        return estimates.at(POINT) if without is None else estimates.without(without, POINT)


def told(costs, pass_=INFERENCE):
    own = costs.of(pass_)
    return own.host.module_s, own.host.forward_call_s, own.gap_of(grouped=False)


def test_what_a_pass_takes_beyond_its_calls():
    networks = Networks()
    networks.add("net", TRAINING, times=2, modules=10)
    row = networks.seen().iloc[0]
    assert (row["network"], row["pass"], row["point"]) == ("net", TRAINING, POINT)
    assert (row["modules"], row["forward_calls"], row["device_calls"]) == (10, 7, 7)
    assert row["host_overhead_s"] == pytest.approx(10 * MODULE_S + 7 * CALL_S + START_S)
    assert row["gap_s"] == pytest.approx(GAP_S)


@pytest.mark.parametrize("pass_", [INFERENCE, TRAINING])
def test_enough_networks_tell_what_they_add(pass_):
    costs = Networks().several(FEWEST_NETWORKS, pass_).costs()
    assert told(costs, pass_) == pytest.approx((MODULE_S, CALL_S, GAP_S))
    other = INFERENCE if pass_ == TRAINING else TRAINING
    assert told(costs, other) == told(CALIBRATED, other)
    assert (costs.training.host.backward_start_s, costs.power_idle_w) == (START_S, 7.0)


def test_fewer_networks_tell_nothing():
    assert Networks().several(FEWEST_NETWORKS - 1).costs() == CALIBRATED
    assert OverheadEstimates({POINT: CALIBRATED}, Networks().seen()).at(POINT) == CALIBRATED


def test_one_network_at_several_settings_counts_once():
    networks = Networks().several(FEWEST_NETWORKS - 1)
    networks.whole += [row | {"execution": "fp32"} for row in networks.whole]
    assert networks.costs() == CALIBRATED


def test_networks_at_another_operating_point_tell_nothing_of_this_one():
    networks = Networks().several(FEWEST_NETWORKS - 1)
    networks.add("elsewhere", point="sm1200")
    assert networks.costs() == CALIBRATED


def test_a_network_has_no_say_in_its_own_costs():
    networks = Networks().several(FEWEST_NETWORKS)
    networks.add(
        "odd", modules=90_000, time_host_corrected_s=9e-3, time_device_corrected_s=9e-3, time_eager_corrected_s=9e-3
    )
    assert told(networks.costs("odd")) == pytest.approx((MODULE_S, CALL_S, GAP_S))
    assert networks.costs().inference.host.module_s < MODULE_S / 3, "with it the costs are absurd"
    assert networks.costs("net0") != networks.costs()


def test_without_one_of_just_enough_networks_the_calibration_speaks():
    assert Networks().several(FEWEST_NETWORKS).costs("net0") == CALIBRATED


def test_networks_whose_host_time_is_not_believed_still_tell_of_the_device():
    networks = Networks().several(FEWEST_NETWORKS - 1)
    networks.add("waited", time_host_corrected_s=np.nan)
    row = networks.seen().set_index("network").loc["waited"]
    assert np.isnan(row["host_s"])
    assert np.isnan(row["host_overhead_s"])
    assert row["gap_s"] == pytest.approx(GAP_S)
    assert told(networks.costs()) == pytest.approx((1.0, 3.0, GAP_S))
    networks.add("believed", times=9, modules=4)
    assert told(networks.costs()) == pytest.approx((MODULE_S, CALL_S, GAP_S))


@pytest.mark.parametrize(("calls", "grouped"), [(4, True), (0, False), (None, False)])
def test_networks_with_grouped_convolutions_are_told_apart(calls, grouped):
    networks = Networks()
    networks.add("net", TRAINING, grouped=calls)
    assert networks.seen()["grouped"].tolist() == [grouped]


def test_networks_with_grouped_convolutions_tell_of_training_by_themselves():
    costs = Networks().several(FEWEST_NETWORKS, TRAINING).several_grouped(FEWEST_GROUPED).costs()
    assert costs.training.gap_s == pytest.approx(GAP_S)
    assert costs.training.grouped_gap_s == pytest.approx(GROUPED_S)
    assert (costs.training.host.module_s, costs.training.host.forward_call_s) == pytest.approx((MODULE_S, CALL_S))
    assert told(costs) == told(CALIBRATED)


def test_fewer_networks_with_grouped_convolutions_tell_nothing_of_their_own():
    networks = Networks().several(FEWEST_NETWORKS, TRAINING).several_grouped(FEWEST_GROUPED - 1)
    assert networks.costs().training.grouped_gap_s is None
    assert networks.costs().training.gap_s == pytest.approx(GAP_S), "nor of the others"
    networks.several_grouped(FEWEST_GROUPED)
    assert networks.costs("grouped0").training.grouped_gap_s is None
    assert networks.costs("net0").training.grouped_gap_s == pytest.approx(GROUPED_S)


def test_networks_with_grouped_convolutions_do_not_make_up_for_too_few_others_on_the_device():
    networks = Networks().several(FEWEST_NETWORKS - 1, TRAINING).several_grouped(FEWEST_NETWORKS)
    costs = networks.costs()
    assert costs.training.gap_s == CALIBRATED.training.gap_s
    assert costs.training.grouped_gap_s == pytest.approx(GROUPED_S)
    assert (costs.training.host.module_s, costs.training.host.forward_call_s) == pytest.approx((MODULE_S, CALL_S))


def test_in_inference_grouped_convolutions_are_like_all_others():
    networks = Networks().several(1).several_grouped(FEWEST_NETWORKS - 1, INFERENCE)
    assert told(networks.costs()) == pytest.approx((MODULE_S, CALL_S, GROUPED_S))
    assert networks.costs().training.grouped_gap_s is None


def test_grouped_convolutions_at_another_operating_point_tell_nothing_of_this_one():
    networks = Networks().several_grouped(FEWEST_GROUPED)
    networks.whole[0]["point"] = "sm1200"
    assert networks.costs().training.grouped_gap_s is None


def test_a_network_with_an_unknown_call_is_passed_over():
    networks = Networks().several(FEWEST_NETWORKS)
    networks.add("strange", time_host_corrected_s=9.0, time_device_corrected_s=9.0, time_eager_corrected_s=9.0)
    networks.catalogue.calls["strange", INFERENCE].loc[0, "operation_id"] = "unknown"
    assert "strange" not in set(networks.seen()["network"])
    assert told(networks.costs()) == pytest.approx((MODULE_S, CALL_S, GAP_S))


def test_a_network_that_has_left_the_catalogue_is_passed_over():
    networks = Networks().several(2)
    del networks.catalogue.calls["net0", INFERENCE]
    assert networks.seen()["network"].tolist() == ["net1"]


def test_networks_on_slow_hosts_tell_of_the_median_host():
    networks = Networks()
    for number in range(FEWEST_NETWORKS):
        networks.add(f"net{number}", times=1 + number, modules=30 - 5 * (number % 4), host_factor=1 + 0.1 * number)
    assert told(networks.costs()) == pytest.approx((MODULE_S, CALL_S, GAP_S))


def test_no_cost_is_below_zero():
    networks = Networks().several(FEWEST_NETWORKS)
    networks.several_grouped(FEWEST_GROUPED)
    for row in networks.whole:
        for name in ("time_host_corrected_s", "time_device_corrected_s"):
            row[name] /= 9
    assert told(networks.costs()) == (0.0, 0.0, 0.0)
    assert networks.costs().training.grouped_gap_s == 0.0


def test_costs_of_a_dataset_have_the_idle_power_and_the_limit_of_every_operating_point(tmp_path):
    made = synthetic.write_campaign(
        tmp_path, synthetic.campaign(clocks=["default", 900], networks=2, passes=["inference"])
    )
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    samples, catalogue = read_samples(made.dataset, "a30"), Catalogue.read(made.catalogue)
    estimates = WholeNetworks.read(made.dataset, "a30", samples, catalogue).overheads
    assert list(estimates.calibrated) == ["default", "sm900"]
    for point in estimates.calibrated:
        costs = estimates.at(point)
        assert costs.power_limit_w == find_spec("a30").power_w.default
        assert costs.power_idle_w == synthetic.IDLE_W
        assert costs.inference.host.module_s == synthetic.PER_MODULE_S
    assert len(estimates.seen) == 4
    assert estimates.seen["host_s"].isna().all(), "these networks have no host time"


def test_networks_need_less_dynamic_energy_than_their_operations_alone():
    networks = Networks().several(FEWEST_NETWORKS)
    for row, times in zip(networks.whole, range(1, FEWEST_NETWORKS + 1), strict=True):
        of_calls_j, calls_s = times * 2e-3, times * 25e-6
        dynamic_j = 0.95 * of_calls_j * row["time_device_corrected_s"] / calls_s
        row |= {"energy_corrected_j": dynamic_j + 7.0 * row["time_eager_corrected_s"], "power_corrected_w": 90.0}
    assert networks.costs().inference.dynamic_factor == pytest.approx(0.95)
    assert networks.costs().training.dynamic_factor is None
    for row in networks.whole:
        row["power_corrected_w"] = 99.0
    assert networks.costs().inference.dynamic_factor is None, "the power limit lowers the clock"


def test_overheads_of_another_gpu_stand_in_for_unknown_ones():
    lent = OverheadEstimates({POINT: CALIBRATED}, Networks().several(FEWEST_NETWORKS).seen())
    own = OverheadEstimates({POINT: Overheads(power_idle_w=9.0), "sm1": Overheads()}, Networks().seen())
    completed = own.completed(lent)
    assert told(completed.at(POINT)) == told(lent.at(POINT))
    assert (completed.at(POINT).power_idle_w, completed.at(POINT).training) == (9.0, CALIBRATED.training)
    assert completed.at("sm1") == Overheads()
    slower, host = own.completed(lent, 2.0).at(POINT).training.host, CALIBRATED.training.host
    assert slower == host.scaled(2.0)
    enough = OverheadEstimates({POINT: Overheads()}, Networks().several(FEWEST_NETWORKS).seen()).completed(lent)
    assert told(enough.at(POINT)) == pytest.approx((MODULE_S, CALL_S, GAP_S)), "its own networks come first"
    assert enough.at(POINT).training == CALIBRATED.training
