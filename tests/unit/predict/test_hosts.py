"""Hosts: a profile made on a virtual GPU, what an answer makes of it, and the span of those seen."""

import json
import math
import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from clockwatt import config
from clockwatt.config import NetworkConfig, OperatingPoint
from clockwatt.errors import ClockwattError, DataFileError
from clockwatt.measure.bench import virtual
from clockwatt.measure.calibrate import host as host_stage
from clockwatt.measure.calibrate.host import measure_host
from clockwatt.predict import answerer as answers
from clockwatt.predict.api import load
from clockwatt.predict.evaluation.errors import NORMAL_90
from clockwatt.predict.features import CATALOGUE_COLUMNS
from clockwatt.predict.hosts import HostAnswer, HostProfile, HostsSeen, Session, different_hosts, profile_of
from clockwatt.predict.request import Request
from clockwatt.schema import layout
from clockwatt.schema.execution import TF32
from clockwatt.schema.records import HOST_LEFT_OUT
from support.scaled_host import ScaledHost

NETWORKS = [
    NetworkConfig(name=f"support.small_networks:{name}", input=[8, 16])
    for name in ("deep", "wide", "normalised", "Functional")
]
CONFIG = {"campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}, "networks": [{"name": "x", "input": [8, 8]}]}
POINT = "sm900"


@pytest.fixture(scope="module")
def profile():
    """Of a virtual GPU's host, with time enough on a busy machine too."""
    with mock.patch.object(host_stage, "SECONDS", math.inf):
        found = measure_host(config.parse(CONFIG), label="a30", point=OperatingPoint(), networks=NETWORKS)
    return profile_of("node1", found.rows, found.operations, found.seconds)


@pytest.fixture
def predictors(made, tmp_path):
    """Predictors of the synthetic campaign, which may be changed."""
    shutil.copytree(made.predictors, tmp_path / "predictors")
    return load(tmp_path / "predictors", catalogue_dir=made.catalogue)


@pytest.fixture
def traced(predictors):
    return predictors.traced(Request.of(network="net24", inputs=("8,3,64,64",)), "inference")


@pytest.fixture
def slower(predictors, traced):
    """Writes the profile of a host on which everything costs so many times what it costs the median host.

    The logarithm of the cost of single calls deviates from it by `spread`, with the median kept.
    """

    def write(factor, spread=0.0):
        model = predictors.models["a30"]
        host_s = model.predict(traced.operations, "inference", POINT, execution=TF32)[
            "time_host_corrected_s"
        ].to_numpy()
        rows = traced.operations[[*CATALOGUE_COLUMNS, "device_work"]].assign(host_s=factor * host_s)
        rows = rows[rows["host_s"] > 0]
        rows = rows[: len(rows) // 3 * 3]
        away = np.resize([-1.0, 0.0, 1.0], len(rows))
        rows["host_s"] *= np.exp(spread * away / np.std(away))
        rows["pass"] = "inference"
        HostProfile(
            name="node2", host="node2", cpu_model=None, gpu_name="virtual A30", point=POINT, execution=TF32,
            virtual=True, torch_version=None, measured_us=0, seconds=1.0,
            operations=json.loads(rows.to_json(orient="records", double_precision=15)),
        ).write(predictors.predictors_dir)  # fmt: skip

    return write


def ask(predictors, traced, host=None):
    return predictors.answer(traced, gpu="a30", point=POINT, host=host)


def test_a_profile_has_a_few_operations_of_every_class_and_pass(profile) -> None:
    counts = pd.DataFrame(profile.operations).groupby(["pass", "operation_class"]).size()
    assert counts.max() <= host_stage._PER_CLASS
    assert set(counts["training"].index) >= {"linear", "relu", "gelu", "layer_norm", "SGD"}
    assert set(counts["inference"].index) >= {"linear", "relu", "gelu", "layer_norm"}
    assert profile.seconds > 0
    linear = [row["host_s"] for row in profile.operations if row["operation_class"] == "linear"]
    assert min(linear) > virtual._HOST_FORWARD_S


def test_a_profile_is_read_as_it_was_written(profile, tmp_path) -> None:
    assert json.loads(profile.write(tmp_path).read_text())["name"] == "node1"
    assert HostProfile.read(tmp_path, "node1") == profile


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("node3", None, "known: none"),
        ("node3", "{}", "not a profile of a host"),
        ("node3", "[", "not a profile of a host"),
        ("../node3", None, "letters, digits"),
    ],
)
def test_a_profile_that_is_none_is_told_so(tmp_path, name, content, said) -> None:
    if content is not None:
        (tmp_path / "hosts").mkdir()
        (tmp_path / "hosts" / "node3.json").write_text(content)
    with pytest.raises(ClockwattError, match=said):
        HostProfile.read(tmp_path, name)


def test_a_host_twice_as_slow_needs_twice_the_time(predictors, traced, slower) -> None:
    slower(2.0)
    median, named = ask(predictors, traced), ask(predictors, traced, "node2")
    assert named.expected.host_s == pytest.approx(2 * median.expected.host_s, rel=1e-6)
    assert named.expected.device_s == median.expected.device_s
    assert named.host.factor == pytest.approx(2.0)
    assert (named.host.name, median.host.name) == ("node2", None)


def test_what_paces_and_what_a_graph_saves(predictors, traced, slower) -> None:
    slower(50.0)
    answer = ask(predictors, traced, "node2")
    assert answer.host.paced_by == "host"
    assert answer.host.graph_time_s == pytest.approx(answer.expected.device_s)
    assert answer.host.graph_saves_s == pytest.approx(answer.expected.time_s - answer.expected.device_s)
    slower(0.001)
    assert ask(predictors, traced, "node2").host.paced_by == "device"
    assert ask(predictors, traced, "node2").host.graph_saves_s == 0


def test_the_interval_of_a_host_that_varied_is_wider(predictors, traced, slower) -> None:
    model = predictors.model("a30")
    scaled = answers.predict_network(model, traced, POINT, host=ScaledHost("node2", 50.0))
    slower(50.0, spread=0.2)
    varied = ask(predictors, traced, "node2")
    assert varied.expected.time_s == pytest.approx(scaled.expected.time_s)
    errors, of_host = model.description.passes["inference"].errors, 0.2 * NORMAL_90
    ends = zip(("lower", "upper"), scaled.intervals["time_s"], varied.intervals["time_s"], strict=True)
    for name, steady, end in ends:
        away, further, widest = (
            math.log(one)
            for one in (steady / scaled.expected.time_s, end / scaled.expected.time_s, getattr(errors.host, name))
        )
        composed = errors.composition_host * widest
        assert further**2 == pytest.approx(away**2 - composed**2 + of_host**2), "independent errors, none of them twice"


def test_without_a_host_whole_networks_tell_the_median_host_where_enough_sessions_have_any(predictors, traced) -> None:
    before = ask(predictors, traced)
    path = predictors.predictors_dir / "a30" / layout.HOSTS_SEEN_FILE

    def answer(levels):
        sessions = [
            {"host": "n1", "cpu_model": None, "factor": 1.0, "passes": {} if level is None else {"inference": level}}
            for level in levels
        ]
        path.write_text(json.dumps({"sessions": sessions}))
        return ask(load(predictors.predictors_dir, catalogue_dir=predictors.catalogue_dir), traced)

    alone = answer([None])
    found = answer([1.2, None, 1.5, 1.8, None])
    assert found.expected.host_s == pytest.approx(1.5 * alone.expected.host_s)
    assert found.expected.device_s == before.expected.device_s
    assert (found.host.sessions, found.host.factor) == (3, 1.0)
    assert (found.host.low, found.host.high) == pytest.approx((1.23 / 1.5, 1.77 / 1.5))
    assert answer([1.2, 1.8, None]).expected == alone.expected


def test_a_list_of_operations_is_told_for_the_median_of_all_hosts(predictors, traced) -> None:
    listed = replace(traced, is_network=False)
    path = predictors.predictors_dir / "a30" / layout.HOSTS_SEEN_FILE
    found = []
    for level in (1.0, 1.5):
        sessions = [
            {
                "host": f"n{number}",
                "cpu_model": None,
                "factor": factor,
                "passes": {"inference": level} if number else {},
            }
            for number, factor in enumerate((0.9, 1.0, 1.0, 1.2))
        ]
        path.write_text(json.dumps({"sessions": sessions}))
        found.append(ask(load(predictors.predictors_dir, catalogue_dir=predictors.catalogue_dir), listed))
    assert found[0].expected == found[1].expected
    assert [(one.host.sessions, one.host.factor) for one in found] == [(4, 1.0)] * 2


def test_a_session_whose_host_is_not_known_is_read_and_told_as_null(predictors, tmp_path) -> None:
    path = predictors.predictors_dir / "a30" / layout.HOSTS_SEEN_FILE
    session = json.loads(path.read_text(), parse_constant=pytest.fail)["sessions"][0]
    assert session["cpu_model"] is None
    path.write_text(json.dumps({"sessions": [session | {"cpu_model": math.nan}]}))  # as it was written before
    (read,) = HostsSeen.read(path.parent).sessions
    assert read.cpu_model is None


ONE, TWO, UNKNOWN = ("n1",), ("n1", "n2"), (HOST_LEFT_OUT,)


def seen_on(names, *, networks=False):
    passes = {"inference": 1.0} if networks else {}
    sessions = [Session(name, None, 1.0, passes) for name in names]
    return HostsSeen(tuple(sessions * 3))


@pytest.mark.parametrize(
    ("a", "b", "warned"),
    [
        (seen_on(ONE), seen_on(ONE), False),
        (seen_on(ONE), seen_on(TWO), True),
        (seen_on(UNKNOWN), seen_on(UNKNOWN), True),
        (seen_on([None]), seen_on([None]), True),
        (seen_on(()), seen_on(ONE), True),
        (seen_on(ONE, networks=True), seen_on(ONE), True),
    ],
)
def test_gpus_told_for_different_hosts_are_compared_with_a_warning(a, b, warned) -> None:
    paced = HostAnswer(None, 1.0, 1.0, 1.0, 1, 1, "host", 1.0, 0.0)
    by_device = replace(paced, paced_by="device")
    seen = {"a": a, "b": b}

    def said(answers, *, is_network=True):
        return different_hosts(answers, seen, "inference", is_network=is_network)

    assert len(said({"a": [by_device, paced], "b": [by_device]})) == warned
    if warned:
        assert said({"a": [paced], "b": [by_device]})[0].startswith(
            "The pass is host-bound on a. The GPUs were measured with different or"
        )
    assert said({"a": [by_device], "b": [by_device]}) == [], "no host paces it"
    assert said({"a": [replace(paced, name="n1")], "b": [replace(paced, name="n1")]}) == [], "a named host"
    assert said({"a": [paced, paced]}) == [], "nothing is compared"
    assert said({"a": [paced], "b": [None]}) == [], "b is told for no host"
    if a.of_networks("inference"):
        assert said({"a": [paced], "b": [paced]}, is_network=False) == [], "anchors on one host tell both"


def test_mean_powers_that_the_card_cannot_have_are_in_no_interval(predictors, traced, slower, monkeypatch) -> None:
    slower(1.0, spread=0.4)
    free = ask(predictors, traced, "node2")
    known = predictors.models["a30"].description.overheads(POINT)
    (low, high), power_w = free.intervals["power_w"], free.expected.power_w
    least_w, most_w = (low + power_w) / 2, (power_w + high) / 2
    monkeypatch.setattr(answers, "_BELOW_IDLE", least_w / known.power_idle_w)
    monkeypatch.setattr(answers, "_ABOVE_LIMIT", most_w / known.power_limit_w)
    bound = ask(predictors, traced, "node2")
    assert bound.intervals["power_w"] == pytest.approx((least_w, most_w))
    quickest, slowest = bound.intervals["time_s"]
    assert bound.intervals["energy_j"][0] == pytest.approx(max(free.intervals["energy_j"][0], least_w * quickest))
    assert bound.intervals["energy_j"][1] == pytest.approx(min(free.intervals["energy_j"][1], most_w * slowest))
    wide = {"power_w": (1.0, 9e3), "time_s": (0.9, 1.2), "energy_j": (1.0, 9e3)}
    expected = replace(free.expected, power_w=power_w, time_s=1.0, energy_j=power_w)
    energies = answers._possible(wide, expected, known)["energy_j"]
    assert energies == pytest.approx((0.9 * least_w, 1.2 * most_w))
    monkeypatch.setattr(answers, "_BELOW_IDLE", 2 * power_w / known.power_idle_w)
    assert ask(predictors, traced, "node2").intervals["power_w"][0] == power_w, "what is expected is in its interval"
    assert (bound.expected, bound.intervals["time_s"]) == (free.expected, free.intervals["time_s"])


def test_without_a_host_the_interval_spans_those_seen(predictors, traced) -> None:
    narrow = ask(predictors, traced)
    sessions = [
        {"host": f"n{number}", "cpu_model": None, "factor": factor} for number, factor in enumerate((0.5, 1, 40))
    ]
    path = predictors.predictors_dir / "a30" / layout.HOSTS_SEEN_FILE
    assert json.loads(path.read_text())["sessions"]
    path.write_text(json.dumps({"sessions": sessions}))
    wide = ask(load(predictors.predictors_dir, catalogue_dir=predictors.catalogue_dir), traced)
    assert wide.expected == narrow.expected
    assert wide.intervals["time_s"][1] > 2 * narrow.intervals["time_s"][1]
    assert (wide.host.sessions, wide.host.hosts) == (3, 3)
    damages = [{"factor": 1, "passes": [2]}, {"passes": {}}, {"factor": None, "passes": {}}]
    damages += [{"factor": factor} for factor in (0.0, 1e-320, 1e308, 10**400, "x", [1])]
    damages += [{"factor": 1, "passes": {"inference": level}} for level in (-1.0, math.nan, math.inf, "x")]
    damages += [{"factor": 1, name: value} for name in ("host", "cpu_model") for value in ([1], {"a": 1}, 5)]
    named = [json.dumps({"sessions": [{"host": "n1", "cpu_model": None} | damage]}) for damage in damages]
    others = [
        "[]",
        '{"sessions": {}}',
        '{"sessions": ""}',
        '{"sessions": [1]}',
        '{"sessions": [{"factor": 1}]}',
        "[" * 200_000,
    ]
    for damaged in (*others, *named):
        path.write_text(damaged)
        with pytest.raises(DataFileError, match="not a list of hosts"):
            ask(load(predictors.predictors_dir, catalogue_dir=predictors.catalogue_dir), traced)
