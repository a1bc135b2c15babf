"""Means, fits and whether a limit bit, against cases worked out by hand."""

import shutil

import numpy as np
import pandas as pd
import pytest

from clockwatt import signals
from clockwatt.studies.power import analysis
from clockwatt.studies.power.draw import draw_study
from clockwatt.studies.power.figures import curves, epochs, sampling, traces
from clockwatt.studies.power.names import FIGURES, TABLE_FILES
from clockwatt.studies.power.tables import CLOCK, POWER_LIMIT


def runs(limits, drawn_w, *, network="ecg_resnet", capped=1.0, energy=lambda limit: 1e3 + (limit - 200) ** 2):
    """Two repetitions at each limit, whose energy differs by 2 J; the time falls with the limit."""
    rows = [
        {
            "network": network, "setting": POWER_LIMIT, "asked": float(limit), "point": f"pl{limit}",
            "repetition": repetition, "time_s": 3e3 / limit, "energy_j": energy(limit) + (1 if repetition == 2 else -1),
            "energy_counter_j": None, "power_mean_w": drawn_w(limit), "power_high_w": drawn_w(limit),
            "power_limit_w": float(limit), "power_cap_share": capped, "sm_clock_mhz": 1000.0, "virtual": False,
        }
        for limit in limits
        for repetition in (1, 2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def fit_of(table, objective="energy_j"):
    fits = analysis.fits(table, analysis.summary(table))
    return fits[fits["objective"] == objective].iloc[0]


def test_means_and_deviations():
    told = analysis.summary(runs([150, 250], float)).iloc[0]
    assert told["energy_j"] == 1e3 + 50**2
    assert told["energy_j_deviation"] == pytest.approx(np.sqrt(2))
    assert told["energy_delay_product_j_s"] == pytest.approx((1e3 + 50**2) * 20)
    assert told["runs"] == 2


def test_a_parabola_is_found_again():
    fit = fit_of(runs([150, 190, 230, 270], float))
    assert [fit["c0"], fit["c1"], fit["c2"]] == pytest.approx([41e3, -400, 1])
    assert fit["optimum_x"] == pytest.approx(200, abs=0.1)
    assert not fit["at_border"]
    assert fit["r2"] > 0.999


def test_an_optimum_at_the_border_is_told_as_one():
    fit = fit_of(runs([150, 200, 250], float, energy=lambda limit: 10.0 * limit))
    assert (fit["optimum_x"], fit["at_border"]) == (150, True)


def test_where_the_limit_never_bit_there_is_no_fit():
    table = runs([150, 200, 250, 300], lambda limit: 80.0, capped=0.0)
    assert not analysis.summary(table)["limit_bit"].any()
    fit = fit_of(table)
    assert fit["why_not"] == "the limit never bit:\nat 150 W it drew 80 W"
    assert np.isnan(fit["c0"])


def test_throttle_reasons_alone_do_not_make_a_limit_bite_nor_does_power_alone():
    assert not analysis.summary(runs([150], lambda limit: 80.0, capped=1.0))["limit_bit"].any()
    assert not analysis.summary(runs([150], lambda limit: 149.0, capped=0.1))["limit_bit"].any()
    assert analysis.summary(runs([150], lambda limit: 149.0, capped=None))["limit_bit"].all()


def test_limits_that_did_not_bite_stand_where_the_network_draws_by_itself():
    table = pd.concat([runs([150, 180, 210], float), runs([250, 300], lambda limit: 225.0, capped=0.0)])
    means = analysis.summary(table)
    assert means["x"].tolist() == [150, 180, 210, 225, 225]
    assert fit_of(table)["places"] == 4


def test_two_places_are_too_few():
    table = pd.concat([runs([150], float), runs([250, 300], lambda limit: 225.0, capped=0.0)])
    assert fit_of(table)["why_not"] == "the limit bit at 1 of 3 points:\ntoo few for a curve"


def test_no_trend_has_no_optimum():
    rng = np.random.default_rng(0)
    table = runs([150, 200, 250, 300], float)
    table["energy_j"] = 1e3 + rng.normal(size=len(table))
    fit = fit_of(table)
    assert fit["r2"] < signals.LEAST_R2
    assert np.isnan(fit["optimum_x"])
    flat = fit_of(runs([150, 190, 230, 270], float, energy=lambda limit: 1e6 + (limit - 200) ** 2))
    assert flat["r2"] > signals.LEAST_R2
    assert np.isnan(flat["optimum_x"]), "every limit does as well"


def test_clocks_stand_where_they_ran():
    table = runs([900, 1200, 1400], float).assign(setting=CLOCK, power_cap_share=0.0)
    table["sm_clock_mhz"] = table["asked"].clip(upper=1300)
    means = analysis.summary(table)
    assert means["x"].tolist() == [900, 1200, 1300]
    assert means["reached"].tolist() == [True, True, False]


def test_the_front_leaves_out_what_another_point_beats():
    table = runs([150, 200, 250], float, energy={150: 100.0, 200: 120.0, 250: 110.0}.get)
    front = curves.front(analysis.summary(table)).set_index("point")["on_front"]
    assert front.to_dict() == {"pl150": True, "pl200": False, "pl250": True}


def test_jitter_is_the_deviation_of_intervals_over_their_mean():
    key = {"network": "dense_512", "point": "pl150", "repetition": 1}
    times = np.cumsum([0, 0.09, 0.11, 0.09, 0.11])
    readings = pd.DataFrame({"time_s": times, "lane": "polled", "power_w": 1.0} | key)
    found = sampling.histogram(sampling.intervals(readings))
    assert found["jitter"].iloc[0] == pytest.approx(0.1)
    assert found["share"].sum() == pytest.approx(1)
    rates = [1 / 0.09, 1 / 0.11]
    assert [found["mean_hz"].iloc[0], found["deviation_hz"].iloc[0]] == pytest.approx([np.mean(rates), np.std(rates)])


def test_cumulative_energy_goes_to_the_longest_run_and_one_that_is_over_keeps_its_own():
    run = {"network": "ecg_resnet", "point": "pl200", "start_s": 1.0}
    both = pd.DataFrame([run | {"repetition": 1, "end_s": 11.0}, run | {"repetition": 2, "end_s": 15.0}])
    readings = pd.DataFrame(
        [
            {**run, "repetition": row.repetition, "lane": "ring", "time_s": time_s, "power_w": 100.0}
            for row in both.itertuples()
            for time_s in np.arange(1.0, row.end_s + 0.05, 0.1)
        ]
    )
    found = traces.cumulative(readings, both)
    assert found["time_s"].iloc[-1] == pytest.approx(14, abs=0.1)
    assert found["energy_j"].iloc[-1] == pytest.approx((1000 + 1400) / 2, rel=0.01)
    assert found["energy_j"].diff().min() >= 0
    assert found["deviation_j"].iloc[-1] == pytest.approx(400 / 2**0.5, rel=0.01)


def test_the_first_epoch_is_marked_but_where_runs_have_one_only():
    frame = pd.DataFrame({"epoch": [0, 1, 2]})
    assert epochs.spread(frame)["first"].tolist() == [True, False, False]
    assert epochs.spread(frame[:1])["first"].tolist() == [False]


def test_every_figure_and_table_is_written(study_dir, tmp_path):
    folder = shutil.copytree(study_dir, tmp_path / "a30")
    draw_study(folder)
    for name in FIGURES:
        for suffix in ("png", "pdf", "csv"):
            assert (folder / "figures" / f"{name}.{suffix}").stat().st_size > 100
    assert all((folder / name).is_file() for name in TABLE_FILES)


def test_the_figure_says_of_which_network_the_limit_never_bit():
    small = runs([150, 180, 210], lambda limit: 80.0, network="dense_512", capped=0.0)
    table = pd.concat([runs([150, 180, 210], float), small]).assign(virtual=True)
    means = analysis.summary(table)
    figure = curves.draw_against(curves.against(table, means, POWER_LIMIT), analysis.fits(table, means), POWER_LIMIT)
    words = [any("never bit" in text.get_text() for text in axes.texts) for axes in figure.axes]
    assert words == [False, True] * 3
    assert all(axes.get_title(loc="left").endswith("(virtual)") for axes in figure.axes[:2])


def test_an_unknown_figure_is_told(study_dir):
    from clockwatt.errors import ClockwattError

    with pytest.raises(ClockwattError, match="--only curve: there is no such table or figure; choose among summary"):
        draw_study(study_dir, ["curve"])
