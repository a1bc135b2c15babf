"""The comparison of a card with others, with planted differences."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.errors import ClockwattError, ConfigError, DataFileError
from clockwatt.gpu.specs import find_spec
from clockwatt.gpu.virtual.model import CardModel
from clockwatt.io import files
from clockwatt.measure.card import FLOP_PER_BYTE
from clockwatt.schema.records import MEASUREMENT_SCHEMA, MEASUREMENT_VERSION, MeasurementRow, table_of
from clockwatt.studies.survey import cards, measured_programs, passport, placement, results, spread, variance
from clockwatt.studies.survey.observations import COMPARED
from clockwatt.workflow.settings import slurm_resources, whole_node

SLOW, HOT_K = 0.02, 20.0
PER_DEGREE = 0.001


def observed(card: str, random: np.random.Generator, *, slow: float = 0.0, warmer_k: float = 0.0) -> pd.DataFrame:
    """Five measurements of each quantity: cards differ by 0.3 %, and a card slows by 0.1 % per K."""
    rows = []
    for name, compared in COMPARED.items():
        effect = random.normal(0, 0.003) + np.log1p(slow) * (compared.column == "time_eager_s")
        warming = warmer_k + random.uniform(0, 5) * np.linspace(-2, 2, 5)
        for position, temperature_c in enumerate(45 + warming):
            log = effect + PER_DEGREE * (temperature_c - 45) + random.normal(0, 0.0005)
            rows.append((name, card, f"of {card}", "n1", 0, position, log, temperature_c))
    columns = ["quantity", "card", "session", "host", "started_us", "position", "log", "temperature_c"]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture(scope="module")
def fleet() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.concat([observed(f"GPU-{number}", random) for number in range(12)], ignore_index=True)


def test_a_slower_card_is_an_outlier_and_others_are_not(fleet):
    summary, random = passport.fleet_summary(fleet), np.random.default_rng(1)
    compared = passport.compare(observed("slow", random, slow=SLOW), summary)
    times = compared[[COMPARED[name].worse == "slower" for name in compared.index]]
    assert times["outlier"].all()
    assert ((times["low"] < SLOW) & (times["high"] > SLOW)).all()
    assert "slower by" in passport.verdict(compared, [])
    normal = [passport.compare(observed("other", random), summary) for _ in range(20)]
    assert all(passport.verdict(other, []) is None for other in normal)


def test_slow_cards_do_not_hide_one_another():
    random = np.random.default_rng(6)
    others = [observed(f"GPU-{number}", random, slow=0.03 * (number < 2)) for number in range(12)]
    compared = passport.compare(observed("slow", random, slow=0.03), passport.fleet_summary(pd.concat(others)))
    assert compared.loc[[COMPARED[name].worse == "slower" for name in compared.index], "outlier"].all()


def test_temperature_is_separated_from_the_card(fleet):
    compared = passport.compare(
        observed("hot", np.random.default_rng(1), warmer_k=HOT_K), passport.fleet_summary(fleet)
    )
    assert compared["from_temperature"].to_numpy() == pytest.approx(np.expm1(PER_DEGREE * HOT_K), rel=0.1)
    assert compared["difference"].to_numpy() == pytest.approx(compared["from_temperature"].to_numpy(), abs=0.012)


def test_measurements_late_in_a_session_are_not_compared(fleet):
    late = fleet[fleet["position"] == 0].assign(position=100 + np.arange(12 * len(COMPARED)))
    late["log"] += SLOW
    late["temperature_c"] += 10
    summary = passport.fleet_summary(pd.concat([fleet, late]))
    assert (summary["last_position"] == 4).all()
    known = passport.fleet_summary(fleet)
    assert summary["mean"].to_numpy() == pytest.approx(known["mean"].to_numpy(), abs=1e-12)
    assert summary["per_degree"].to_numpy() == pytest.approx(PER_DEGREE, rel=0.2)
    own = observed("other", np.random.default_rng(1))
    late = own.assign(position=own["position"] + 100, log=own["log"] + SLOW)
    assert passport.verdict(passport.compare(pd.concat([own, late]), summary), []) is None


def test_three_cards_are_too_few(fleet):
    with pytest.raises(ClockwattError, match="3 cards of this model"):
        passport.fleet_summary(fleet[fleet["card"].isin(["GPU-1", "GPU-2", "GPU-3"])])


def test_the_split_recovers_planted_deviations():
    random, planted = np.random.default_rng(3), {"host": 0.01, "card": 0.004, "session": 0.002, "rest": 0.001}
    numbers = {"host": 8, "card": 16, "session": 32, "rest": 64}
    effects = {level: random.normal(0, planted[level], count) for level, count in numbers.items()}
    rows = pd.DataFrame({level: np.arange(64) // (64 // count) for level, count in numbers.items()})
    rows["log"] = sum(effects[level][rows[level]] for level in numbers)
    rows = rows.assign(temperature_c=50 + random.normal(size=64), started_us=0, position=0)
    levels, limits = variance.levels_of(rows)
    parts = variance.split(variance.MixedModel.of(rows, levels))
    assert list(parts.index) == list(planted)
    for level, deviation in planted.items():
        assert parts.loc[level, "low"] < deviation < parts.loc[level, "high"], level
        assert parts.loc[level, "low"] <= parts.loc[level, "deviation"] <= parts.loc[level, "high"]
    assert limits == ["Not separated: card and day. 16 of 16 cards were measured on one day only."]


def test_the_likelihood_is_that_of_the_whole_covariance_matrix():
    random = np.random.default_rng(4)
    rows = pd.DataFrame({"host": np.arange(23) // 9, "card": np.arange(23) // 4, "log": random.normal(size=23)})
    rows = rows.sample(frac=1, random_state=0).assign(temperature_c=50 + random.normal(size=23), position=0)
    model, deviations = variance.MixedModel.of(rows, ("host", "card")), {"host": 0.3, "card": 0.2, "rest": 0.1}
    levels = [model.groups[level][:, None] == model.groups[level] for level in deviations]
    covariance = sum(sd**2 * same for sd, same in zip(deviations.values(), levels, strict=True))
    inverse = np.linalg.inv(covariance)
    of_fixed = model.fixed.T @ inverse @ model.fixed
    residuals = model.logs - model.fixed @ np.linalg.solve(of_fixed, model.fixed.T @ inverse @ model.logs)
    whole = np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(of_fixed)[1] + residuals @ inverse @ residuals
    assert model.deviance(np.log(list(deviations.values()))) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("planted", [0.0, 0.01])
def test_the_position_in_the_node_is_split_from_node_and_card(planted):
    random = np.random.default_rng(7)
    host, position = np.divmod(np.arange(64), 8)
    log = planted * random.normal(size=8)[position] + random.normal(0, 0.005, 8)[host] + random.normal(0, 0.003, 64)
    rows = pd.DataFrame({"card": np.arange(64), "host": host, "log": log})
    model = variance.CrossedModel.of_places(rows, pd.Series(position))
    found = variance.split(model, [variance.POSITION]).loc[variance.POSITION]
    assert found["low"] <= planted <= found["high"]
    assert (found["low"] > 0) == (planted > 0)
    assert variance.CrossedModel.of_places(rows[rows["host"] < 2], pd.Series(position)) is None


def test_what_cannot_be_told_apart_is_named(fleet):
    levels, limits = variance.levels_of(fleet)
    assert levels == ["card"]
    assert [limit.split(".")[0] for limit in limits] == [
        "Not separated: card and node",
        "Not separated: card and session",
        "Not separated: card and day",
    ]


def test_false_discoveries_are_few_and_slow_cards_are_found():
    false, found = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        rows = pd.DataFrame({"card": range(64), "log": random.normal(0, 0.003, 64)})
        rows.loc[:3, "log"] += SLOW
        called = variance.outliers(rows)["outlier"]
        false.append(called[4:].sum() / max(1, called.sum()))
        found.append(called[:4].mean())
    assert np.mean(false) <= 0.05
    assert np.mean(found) >= 0.95


def test_placement_gains_the_planted_difference_and_nothing_by_noise():
    random = np.random.default_rng(5)
    rows = pd.concat([observed(f"GPU-{number}", random) for number in range(16)], ignore_index=True)
    rows["started_us"] = range(len(rows))
    slow = rows["card"].isin([f"GPU-{number}" for number in range(8)]) & (
        rows["quantity"] == "time of softmax (memory)"
    )
    best = "50% of the cards at work: the best"

    def saved(changed: pd.DataFrame) -> pd.Series:
        table = placement.gains(placement.halves(changed)).set_index(["quantity", "placement"])
        return table.loc["time, memory-bound", best]

    planted = saved(rows.assign(log=rows["log"] + np.log1p(0.1) * slow))
    assert planted["low"] < 100 * (1 - 1 / 1.05) < planted["high"]
    noise = rows.assign(log=random.normal(0, 0.01, len(rows)))
    assert saved(noise)["low"] < 0 < saved(noise)["high"]


def card(*options: object) -> int:
    """Run `clockwatt card`; return its exit status."""
    return app(["card", *map(str, options)], prog_name="clockwatt", standalone_mode=False)


def test_the_command_judges_a_virtual_card(tmp_path, capsys, monkeypatch):
    def write(rows: pd.DataFrame, name: str) -> None:
        files.write_table(pa.Table.from_pandas(rows, MEASUREMENT_SCHEMA, preserve_index=False), tmp_path / name)

    with pytest.raises(ClockwattError, match=r"virtual:h200: no other card is known\. Give --output"):
        card("--gpu", "virtual:h200")
    with pytest.raises(ClockwattError, match="0 cards of this model"):
        card("--gpu", "virtual:h200", "--rounds", 2, "--output", tmp_path / "own.parquet")
    own = files.read_table(tmp_path / "own.parquet", MEASUREMENT_SCHEMA).to_pandas()
    (tmp_path / "fleet").mkdir()
    for number in range(5):
        other = own.assign(gpu_uuid=f"GPU-{number}", session_id=str(number))
        other[["time_eager_s", "power_w"]] *= 1 + 0.001 * (number - 2)
        write(other, f"fleet/{number}.parquet")
    own.to_parquet(tmp_path / "pandas.parquet")
    for name in ("own.parquet", "pandas.parquet"):
        assert card("--fleet", tmp_path / "fleet", "--measured", tmp_path / name) == 0
    throttled = [["hw_thermal_slowdown"]] * len(own)
    write(own.assign(time_eager_s=1.03 * own["time_eager_s"], throttle_reasons=throttled), "slow.parquet")
    both = ["--measured", tmp_path / "slow.parquet", "--measured", tmp_path / "fleet" / "0.parquet"]
    assert card("--fleet", tmp_path / "fleet", *both) == 3
    line = capsys.readouterr().out.splitlines()[-1]
    assert "slower by 3.0 %" in line
    assert "throttled (hw_thermal_slowdown)" in line
    write(own[own["subject_id"] == COMPARED["time of ReLU (memory)"].operation_id], "partial.parquet")
    partial = ["--measured", tmp_path / "partial.parquet"]
    assert card("--fleet", tmp_path / "fleet", *partial) == 1
    said = capsys.readouterr().out
    assert "not judged, no time of softmax (memory); measure it again" in said
    assert "nan" not in said
    assert card("--fleet", tmp_path / "fleet", *partial, *both) == 3
    write(own.assign(gpu_uuid="GPU-other", time_eager_s=1.03 * own["time_eager_s"]), "also_slow.parquet")
    capsys.readouterr()
    assert card("--fleet", tmp_path / "fleet", *both, "--measured", tmp_path / "also_slow.parquet") == 3
    line = capsys.readouterr().out.splitlines()[-1]
    assert own["gpu_uuid"][0] in line
    assert "GPU-other" in line
    broken = tmp_path / "fleet" / "broken.parquet"
    broken.write_bytes(b"PAR1")
    write(own.assign(gpu_name="NVIDIA A30"), "a30.parquet")
    a30 = ["--measured", tmp_path / "a30.parquet"]
    assert card("--fleet", tmp_path / "fleet", "--measured", broken, *a30, *both) == 3
    said = capsys.readouterr().err
    assert "a30.parquet: the fleet has no other NVIDIA A30, only virtual H200 (5 cards)" in said
    assert re.search(rf"error: {broken}.*\n", said)
    assert re.search(rf"warning: left out of the fleet: {broken}", said)
    with pytest.raises(DataFileError, match=r"not a readable Parquet .* Give a file of `clockwatt card --output`"):
        card("--fleet", tmp_path / "fleet", "--measured", broken)
    broken.unlink()
    monkeypatch.setenv("COLUMNS", "20")  # as a log of a job may seem to have
    app(["study-survey", str(tmp_path / "fleet")], prog_name="clockwatt", standalone_mode=False)
    told = capsys.readouterr().out
    assert "(max − min) / median  SD of card" in told.splitlines()[0]
    assert "virtual H200, 5 cards." in told
    assert "5 of 5 cards were measured in one session only." in told


def surveyed(nodes: dict[str, int], device: str = "virtual:h200", **slurm: object) -> config.CampaignConfig:
    """Return a campaign that surveys H200s."""
    study = {"gpus": {"h200": nodes}, "rounds": 2, "gemm_sizes": [20_480]}
    gpus = {"h200": {"device": device, "slurm": slurm}}
    networks = [{"name": "resnet18", "input": [1, 3, 64, 64]}]
    return config.parse({"campaign": "s", "gpus": gpus, "networks": networks, "studies": {"survey": study}})


def test_the_survey_recovers_the_differences_of_virtual_cards(tmp_path):
    campaign = surveyed({"n-01": 3, "n-02": 2})
    for node, index, _ in campaign.studies.study_survey().cards("h200"):
        cards.measure(campaign, "h200", node, index, tmp_path / f"{node}-{index}.parquet")
    with pytest.raises(ClockwattError, match="not n1"):
        cards.measure(surveyed({"n1": 3}, "NVIDIA H200"), "h200", "n1", 0, tmp_path / "lost.parquet")
    found = results.survey([tmp_path])
    spec = find_spec("h200")
    planted = [
        CardModel(spec, seed=0, card=int(card.rpartition("card")[2])).time_factor for card in found.cards["card"]
    ]
    assert found.cards["time of ReLU (memory)"].to_numpy() == pytest.approx(
        planted / np.median(planted) - 1, abs=0.0005
    )
    assert list(zip(found.cards["host"], found.cards["index"], strict=True)) == [
        ("n-01", 0), ("n-01", 1), ("n-01", 2), ("n-02", 0), ("n-02", 1)
    ]  # fmt: skip
    results.write(found, tmp_path / "results")
    assert len(list((tmp_path / "results").rglob("*.png"))) == 5
    assert len(pd.read_csv(tmp_path / "results" / results.VARIANCE_FILE)) == len(COMPARED)
    programs = pd.read_csv(tmp_path / "results" / results.PROGRAMS_FILE).set_index("program")
    products = {"SGEMM 20480", "DGEMM 20480", "bfloat16 GEMM 20480"}
    assert set(programs.index) == {"copy", "ReLU", "ReLU, small", "softmax", "linear", "linear, small"} | products
    assert (programs["cards"] == 5).all()
    assert programs.loc["copy", "time_spread"] == pytest.approx(np.ptp(planted) / np.median(planted), abs=0.001)
    assert programs.loc["SGEMM 20480", ["flop_per_byte", "at_power_limit"]].tolist() == [20_480 / 6, 1]
    assert programs.loc["copy", "at_power_limit"] == 0
    assert set(programs.index[programs["limit"] == "power limit"]) == products | {"linear"}
    assert set(programs.index[programs["limit"] == "host"]) == {"ReLU, small", "linear, small"}
    assert programs.loc[["copy", "ReLU", "softmax"], "limit"].eq("memory").all()


@pytest.mark.parametrize(
    ("changes", "flop_per_byte", "limit"),
    [
        ({"throttle_reasons": ["sw_power_cap"]}, 1e4, "power limit"),
        ({"throttle_reasons": ["sw_power_cap"], "power_w": 400.0}, 1.0, "memory"),
        ({}, 1e4, "compute"),
        ({}, 1.0, "memory"),
        ({"time_host_s": 2.0}, 1e4, "host"),
        ({"gpu_name": "Unknown"}, 1e4, "not known"),
        ({}, None, "not known"),
    ],
)
def test_what_limits_a_program_is_found(tmp_path, monkeypatch, changes, flop_per_byte, limit):
    row = MeasurementRow(
        kind="operation", subject_id="a", pass_="inference", gpu="g", point="default", execution="fp32",
        dtype="float32", repetition=0, session_id="s", shard="1/1", position=0, started_us=0, ended_us=1,
        duration_s=1.0, clockwatt_version="0", settings_id="0", virtual=False, gpu_name="NVIDIA H200", gpu_uuid="GPU-1",
        host="n", status="ok", measurement_version=MEASUREMENT_VERSION,
        time_eager_s=1.0, time_host_s=0.1, time_device_s=1.0, power_w=690.0,
        power_limit_w=700.0,
    )  # fmt: skip
    monkeypatch.setattr(measured_programs, "operations", lambda study: {"product": SimpleNamespace(operation_id="a")})
    about = {} if flop_per_byte is None else {FLOP_PER_BYTE: json.dumps({"a": flop_per_byte}).encode()}
    table = table_of([replace(row, **changes)], MEASUREMENT_SCHEMA)
    table = table.replace_schema_metadata((MEASUREMENT_SCHEMA.metadata or {}) | about)
    files.write_table(
        measured_programs.named(table, surveyed({"n1": 1}).studies.study_survey()), tmp_path / "one.parquet"
    )
    assert spread.of_cards([tmp_path / "one.parquet"])[["program", "limit"]].to_numpy().tolist() == [["product", limit]]


def test_a_card_that_does_not_answer_is_listed(tmp_path, monkeypatch, fleet):
    campaign = surveyed({"n1": 5})
    for index in range(4):
        cards.measure(campaign, "h200", "n1", index, tmp_path / f"n1-{index}-1.parquet")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cards.measure(surveyed({"n1": 5}, "NVIDIA H200"), "h200", "n1", 4, tmp_path / "n1-4-1.parquet")
    lost = results.survey([tmp_path]).cards.iloc[-1]
    assert (lost["host"], lost["index"], lost["sessions"]) == ("n1", 4, 0)
    assert lost["not_measured"]
    with pytest.raises(DataFileError, match=r"n1-4-1\.parquet: .*no NVIDIA driver|n1-4-1\.parquet: card 4 is not here"):
        card("--measured", tmp_path / "n1-4-1.parquet", "--fleet", tmp_path)
    other = files.read_table(tmp_path / "n1-3-1.parquet", MEASUREMENT_SCHEMA).to_pandas()
    for name, changes in (("n1-5-1", {}), ("n1-6-1", {"power_w": None}), ("a30-0-1", {"gpu_name": "NVIDIA A30"})):
        table = pa.Table.from_pandas(other.assign(**changes), MEASUREMENT_SCHEMA, preserve_index=False)
        files.write_table(table, (tmp_path if name.startswith("n1") else tmp_path / "a30") / f"{name}.parquet")
    fleet_files = [option for index in range(4) for option in ("--fleet", tmp_path / f"n1-{index}-1.parquet")]
    with pytest.raises(ClockwattError, match=r"no other NVIDIA A30, only virtual H200 \(4 cards\)"):
        card("--measured", tmp_path / "a30" / "a30-0-1.parquet", *fleet_files)
    (tmp_path / "a30" / "a30-0-1.parquet").unlink()
    table = files.read_table(tmp_path / "n1-0-1.parquet", MEASUREMENT_SCHEMA)
    about = (MEASUREMENT_SCHEMA.metadata or {}) | {b"serial": b"1654"}
    files.write_table(table.replace_schema_metadata(about), tmp_path / "n1-0-1.parquet")
    found = results.survey([tmp_path])
    assert found.cards["serial"].tolist()[:2] == ["1654", ""]
    assert f"{other['gpu_uuid'][0]} was measured as n1 3 and n1 5." in "\n".join(found.limits)
    assert found.cards.loc[found.cards["index"] == 6, "not_measured"].str.startswith("power was not measured").all()


def test_a_job_of_the_survey_asks_for_all_cards_of_its_node():
    for asked, wanted in (({"gres": "gpu:h200:1"}, "gpu:h200:8"), ({"gres": "gpu"}, "gpu:8"), ({"gpu": 1}, None)):
        gpu = surveyed({"n1": 8}, **asked).gpus["h200"]
        resources = slurm_resources(whole_node(gpu, "n1", 8), 1)
        assert resources["gres"] == wanted
        assert resources["gpu"] == (8 if "gpu" in asked else None)
        assert resources["slurm_extra"] == "--nodelist=n1"


def test_a_range_of_nodes_is_refused():
    with pytest.raises(ConfigError, match=r"'gpu\[01-02\]' is not one node"):
        surveyed({"gpu[01-02]": 8})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("none.parquet", None, "no such file. Give a file"), ("junk.parquet", "junk", "not a readable Parquet"),
     ("empty", None, "no measurements")],
)  # fmt: skip
def test_what_is_no_measurement_is_named(tmp_path, name, text, says):
    (tmp_path / "empty").mkdir()
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataFileError, match=f"{name}: {says}"):
        results.survey([tmp_path / name])
