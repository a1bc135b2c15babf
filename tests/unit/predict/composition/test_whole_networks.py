"""Networks measured whole: what of them can be repeated, and on what host they are composed."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clockwatt.dataset.build import build_dataset
from clockwatt.io import files
from clockwatt.predict.composition.networks import (
    FEWEST_PASSES,
    MEASURED,
    VALIDATION_SCHEMA,
    Catalogue,
    compositions,
    whole_networks,
)
from clockwatt.predict.composition.pipeline import COST_COLUMNS, HostOverheads, Overheads, PassOverheads
from clockwatt.predict.models.training_data import read_samples
from clockwatt.predict.whole_networks import WholeNetworks
from clockwatt.schema import layout, records, tables
from clockwatt.schema.flags import Flag
from clockwatt.schema.records import FORWARD, INFERENCE, NetworkRow
from support import synthetic

UNSTEADY = [Flag.HOST_UNSTEADY]
EAGER, HOST, DEVICE = "time_eager_corrected_s", "time_host_corrected_s", "time_device_corrected_s"
POWER, ENERGY = "power_corrected_w", "energy_corrected_j"
MEDIANS = {EAGER: 1.0, HOST: 0.2, DEVICE: 1.0, POWER: 100.0, ENERGY: 100.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    settings = synthetic.campaign(clocks=[900], networks=3, passes=["inference"])
    made = synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), settings)
    build_dataset(made.config, made.measurements, made.catalogue, made.dataset)
    return made


@pytest.fixture
def whole(made, tmp_path):
    """Networks of a dataset of which some rows were changed, by row; others take as long on the device as in all."""

    def read(*changes, again=()):
        rows = pq.read_table(made.dataset / layout.NETWORKS_FILE, schema=tables.NETWORKS_SCHEMA).to_pylist()
        taken = {DEVICE: EAGER, HOST: EAGER, "time_host_s": "time_eager_s"}
        rows = [row | {name: row[other] for name, other in taken.items()} for row in rows if row["gpu"] == "a30"]
        rows += [rows[number] | {"repetition": 1} | changed for number, changed in again]
        rows = [row | dict(changes).get(number, {}) for number, row in enumerate(rows)]
        files.write_table(pa.Table.from_pylist(rows, schema=tables.NETWORKS_SCHEMA), tmp_path / layout.NETWORKS_FILE)
        found, left_out = whole_networks(tmp_path, "a30")
        return found.set_index("subject_id").loc[[row["subject_id"] for row in rows[:3]]], left_out

    return read


def test_all_networks_of_steady_hosts_are_repeatable_whoever_paces_them(whole):
    found, left_out = whole((0, {DEVICE: None}), (1, {DEVICE: 1.0, EAGER: 9.0}))
    assert found["host_steady"].tolist() == found["repeatable"].tolist() == [True] * 3
    assert left_out == 0


@pytest.mark.parametrize(
    ("device_s", "repeatable"),
    [(1.0, True), (1.1, True), (0.96, True), (0.94, False), (0.3, False), (None, False)],
)
def test_what_an_unsteady_host_paces_cannot_be_repeated(whole, device_s, repeatable):
    found, left_out = whole((1, {"flags": UNSTEADY, EAGER: 1.0, DEVICE: device_s}))
    assert found["host_steady"].tolist() == [True, False, True]
    assert found["repeatable"].tolist() == [True, repeatable, True]
    assert left_out == (0 if repeatable else 1)


@pytest.mark.parametrize(("power_w", "repeatable"), [(290.0, True), (280.0, False)])
def test_a_pass_at_the_power_limit_is_paced_by_the_device(whole, power_w, repeatable):
    slowed = {EAGER: 1.2, DEVICE: 1.0, "power_w": power_w, "power_limit_w": 300.0}
    found, _ = whole((1, {"flags": UNSTEADY} | slowed))
    assert found["repeatable"].iloc[1] == repeatable


def test_what_cannot_be_repeated_still_tells_its_device_time(whole):
    found, _ = whole((1, {"flags": UNSTEADY, EAGER: 5.0, DEVICE: 2.0}))
    assert found[DEVICE].iloc[1] == 2.0


def test_of_repetitions_those_on_steady_hosts_count(whole):
    alone, _ = whole()
    found, left_out = whole(again=[(0, {"flags": UNSTEADY, EAGER: 9.0, DEVICE: 9.0})])
    assert found["host_steady"].all()
    assert found["repeatable"].all()
    assert found[EAGER].tolist() == alone[EAGER].tolist()
    assert left_out == 1


def test_of_repetitions_those_with_energy_count(whole):
    alone, _ = whole((0, {"flags": UNSTEADY}))
    found, left_out = whole((0, {"flags": UNSTEADY}), again=[(0, {"power_w": None, EAGER: 9.0, HOST: 9.0})])
    assert found[EAGER].tolist() == alone[EAGER].tolist()
    assert left_out == 1
    found, _ = whole((0, {"power_w": None}), again=[(0, {"power_w": None, EAGER: 9.0, "flags": UNSTEADY})])
    assert found[EAGER].tolist() == alone[EAGER].tolist(), "where none has it, that on a steady host"


def test_without_a_steady_host_those_that_the_device_paced_count(whole):
    paced, waiting = ({"flags": UNSTEADY, EAGER: 4.0, DEVICE: device_s} for device_s in (4.0, 1.0))
    found, left_out = whole((0, waiting), again=[(0, paced), (0, waiting)])
    assert found[["host_steady", "repeatable"]].iloc[0].tolist() == [False, True]
    assert found[DEVICE].iloc[0] == 4.0
    assert left_out == 2


def test_rows_that_no_composition_can_be_held_against_are_counted(whole):
    _, left_out = whole(
        (0, {"flags": UNSTEADY, DEVICE: 1e-9}),
        again=[
            (1, {"flags": ["interrupted"]}),
            (1, {"flags": ["hardware_throttled", Flag.HOST_UNSTEADY], DEVICE: 1e-9}),
            (2, {"status": records.FAILED, EAGER: None}),
            (2, {}),
            (2, {"flags": ["card_differs"]}),
        ],
    )
    assert left_out == 4


def test_levelled_times_say_who_paces(whole):
    slow = {"time_device_s": 1.0, "time_eager_s": 9.0, EAGER: 1.0, DEVICE: 1.0}
    found, _ = whole((1, {"flags": UNSTEADY} | slow))
    assert found["repeatable"].iloc[1]


def test_host_times_are_of_steady_hosts_that_did_not_wait_for_the_device(whole):
    waited = {"time_host_s": 1.11, "time_eager_s": 1.0}
    found, _ = whole((0, waited), (1, {"flags": UNSTEADY}))
    assert found[HOST].isna().tolist() == [True, True, False]
    found, _ = whole((0, waited), (1, {"time_host_s": 1.09, "time_eager_s": 1.0}), again=[(0, {HOST: 0.5})])
    assert found[HOST].iloc[0] == 0.5, "the other repetition"
    assert found[HOST].notna().all()


def test_passes_that_were_issued_in_parts_tell_no_host_time(whole):
    found, left_out = whole(
        (0, {"time_device_method": records.IN_SEGMENTS}), (1, {"time_device_method": records.AT_ONCE})
    )
    assert found[HOST].isna().tolist() == [True, False, False]
    assert found[DEVICE].notna().all()
    assert left_out == 0


@pytest.fixture
def levels(made, tmp_path):
    """What each session's passes took the host over what they are composed to, of a dataset whose rows were changed."""

    def read(change):
        rows = pd.read_parquet(made.dataset / layout.NETWORKS_FILE)
        rows = rows[rows["gpu"] == "a30"]
        first = rows.assign(session_id="first", time_host_s=rows["time_eager_s"], time_eager_s=10.0)
        rows = pd.concat([first, change(first.assign(session_id="second"))])
        table = pa.Table.from_pandas(rows, tables.NETWORKS_SCHEMA, preserve_index=False)
        files.write_table(table, tmp_path / layout.NETWORKS_FILE)
        samples = read_samples(made.dataset, "a30")
        networks = WholeNetworks.read(made.dataset, "a30", samples, Catalogue.read(made.catalogue))
        return networks.host_levels(tmp_path)

    return read


def test_the_level_of_a_host_is_what_passes_took_over_what_they_are_composed_to(levels):
    found = levels(lambda rows: rows.assign(time_host_s=2.0 * rows["time_host_s"]))
    assert found["second"]["inference"] == pytest.approx(2 * found["first"]["inference"])
    assert 0.9 < found["first"]["inference"] < 1.1
    unsteady = levels(lambda rows: rows.assign(flags=[UNSTEADY] * len(rows)))
    assert unsteady["second"] == unsteady["first"]


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.iloc[: FEWEST_PASSES - 1],
        lambda rows: rows.assign(time_eager_s=rows["time_host_s"] / 1.2),
        lambda rows: rows.assign(time_device_method=records.IN_SEGMENTS),
    ],
    ids=["few", "waited for the device", "in parts"],
)
def test_passes_too_few_that_waited_or_were_issued_in_parts_tell_no_level(levels, change):
    assert set(levels(change)) == {"first"}


OPERATIONS = pd.DataFrame(
    {DEVICE: [0.2, 0.1], HOST: [0.3, 0.4], EAGER: [0.3, 0.4],
     "energy_dynamic_corrected_j": [1.0, 1.0], ENERGY: [2.0, 2.0]},
    index=["conv", "relu"],
)[COST_COLUMNS]  # fmt: skip
POINT = Overheads(PassOverheads(HostOverheads(module_s=0.5, forward_call_s=0.05), gap_s=0.01), power_idle_w=10.0)
DEVICE_S, HOST_S = 0.2 + 0.1 + 2 * 0.01, 0.3 + 0.4 + 0.5 + 2 * 0.05


def composed(*networks, costs=OPERATIONS):
    """Networks of two calls each, composed, by name; `networks` say what is special about how each was measured."""
    rows, catalogue = [], Catalogue({}, {}, pd.DataFrame())
    for number, changes in enumerate(networks):
        key = f"net{number}", INFERENCE
        rows.append({
            "subject_id": key[0], "pass": INFERENCE, "point": "default", "execution": "tf32", **MEDIANS,
            "host_factor": 1.0, "host_steady": True, "repeatable": True, **changes,
        })  # fmt: skip
        catalogue.calls[key] = pd.DataFrame({"operation_id": ["conv", "relu"], "phase": FORWARD})
        catalogue.networks[key] = NetworkRow(
            network_id=key[0], network=key[0], input_shape=[1], dtype="float32", pass_=INFERENCE, calls=2,
            module_calls=1, backward_nodes=0, parameters=0, parameter_bytes=0, optimizer=None,
        )  # fmt: skip
    found = compositions(pd.DataFrame(rows), catalogue, lambda *_: POINT, MEASURED, lambda *_: costs)
    return found.set_index("network")


def test_networks_are_composed_on_the_host_on_which_they_were_measured():
    found = composed({}, {"host_factor": 2.0})
    assert found["host_s"].tolist() == pytest.approx([HOST_S, 2 * HOST_S])
    assert found["time_s"].tolist() == pytest.approx([HOST_S, 2 * HOST_S])


def test_networks_that_cannot_be_repeated_are_held_against_nothing():
    found = composed({}, {"host_steady": False, "repeatable": False}, {})
    assert found.index.tolist() == ["net0", "net2"]
    assert composed({"host_steady": False, "repeatable": False}).empty


def test_where_the_host_is_not_known_a_repeatable_network_is_composed_for_one_that_keeps_up():
    found = composed({"host_steady": False, "host_factor": 1.7}).loc["net0"]
    assert found[["host_s", "latency_s"]].isna().all(), "neither is known without the host"
    assert found["time_s"] == found["device_s"] == pytest.approx(DEVICE_S), "what the device adds stays"
    assert found["calls_without_cost"] == 0
    assert found["energy_j"] == pytest.approx(2.0 * DEVICE_S / 0.3 + 10.0 * DEVICE_S)


def test_what_is_not_known_of_an_unknown_host_is_null_beside_what_is_known_of_others():
    rows = composed({"host_steady": False}, {}).reset_index().assign(gpu="a30", gpu_name="A30", virtual=True)
    table = pa.Table.from_pandas(rows, schema=VALIDATION_SCHEMA, preserve_index=False)
    assert table["host_s"].to_pylist() == [None, pytest.approx(HOST_S)]
    assert table["latency_s"].to_pylist()[0] is None
    assert table["latency_s"].to_pylist()[1] >= HOST_S


def test_a_call_of_unknown_cost_is_counted_on_an_unknown_host_too():
    unknown = OPERATIONS.assign(time_host_corrected_s=[0.3, np.nan])
    assert composed({"host_steady": False}, costs=unknown)["calls_without_cost"].tolist() == [1]


def test_a_catalogue_of_before_grouped_convolutions_were_counted_is_read(made, tmp_path):
    for name in ("operations", "calls", "networks"):
        table = pq.read_table(made.catalogue / f"{name}.parquet")
        kept = [column for column in table.column_names if column != "grouped_convolutions"]
        pq.write_table(table.select(kept), tmp_path / f"{name}.parquet")
    assert "grouped_convolutions" not in pq.read_schema(tmp_path / "networks.parquet").names
    networks = Catalogue.read(tmp_path).networks
    assert len(networks) == 3
    assert {network.grouped_convolutions for network in networks.values()} == {None}
    build_dataset(made.config, made.measurements, tmp_path, tmp_path / "dataset")
    assert len(whole_networks(tmp_path / "dataset", "a30")[0]) == 3
