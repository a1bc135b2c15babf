"""The page in a real Firefox: drawn, quiet, and of the same answers."""

from __future__ import annotations

import json
import shutil

import pytest

from clockwatt.predict.api import load
from clockwatt.predict.request import Request
from support.firefox import Firefox

FIREFOX = ("firefox-esr", "firefox")


@pytest.fixture(scope="module")
def firefox() -> str:
    """A Firefox of this machine; .ci/run installs one."""
    found = next(filter(None, map(shutil.which, FIREFOX)), None)
    if found is None:
        pytest.skip("no Firefox here: apt install firefox-esr")
    return found


def test_it_opens_without_a_complaint_a_request_or_storage_and_chooses_as_recommend(
    firefox, page_of_made, made, tmp_path
):
    predictors = load(made.predictors, catalogue_dir=made.dataset / "catalogue", validation_dir=made.validation)
    with Firefox(firefox, tmp_path, dark=True, storage=False) as browser:
        browser.open(page_of_made, width=390)
        assert browser.run("document.documentElement.scrollWidth") <= 390
        drawn = browser.run(
            "Bokeh.documents.map((doc) => [...doc.roots()[0].renderers].map((one) => one.data_source.get_length()))"
        )
        assert all(any(rows) for rows in drawn[:5]), drawn
        channels = browser.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        assert max(channels[:3]) < 60
        for network, objective in zip(made.config.networks, ("time", "energy", "edp"), strict=True):
            shape = ",".join(map(str, network.first_input.shape))
            traced = predictors.traced(Request.of(network=network.name, inputs=(shape,)), "training")
            expected = predictors.choose(Request.of(objective=objective, precision="tf32"), traced)
            asked = {"network": network.network_id, "pass": "training", "objective": objective}
            found = browser.run(f"clockwatt.ask({json.dumps(asked)})")
            assert [(one["gpu"], one["point"]) for one in found["candidates"]] == [
                (one.gpu, one.point) for one in expected.candidates
            ]
            assert found["best"]["energy_j"] == pytest.approx(expected.best.expected.energy_j, rel=1e-12)
        assert browser.complaints == []
        assert browser.requests == []
