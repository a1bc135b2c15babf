"""The page in a real browser: it chooses as the command does, and works without a network, storage or a mouse."""

from __future__ import annotations

import functools
import json
import random
import shutil

import pyarrow as pa
import pytest

from clockwatt.errors import ClockwattError
from clockwatt.io import files
from clockwatt.page.write import write_page
from clockwatt.predict.api import load
from clockwatt.predict.gpu_predictor import best_points
from clockwatt.predict.request import Request
from clockwatt.schema import layout
from clockwatt.schema.tables import NETWORKS_SCHEMA

SECTIONS = ["answer", "tradeoff", "curves", "table", "networks", "joules", "trust", "method"]


@pytest.fixture(scope="module")
def shared(open_shared_page, page_of_made):
    """The page as its reader left it: to open it takes seconds."""
    return open_shared_page(page_of_made, storage=False)


@pytest.fixture
def opened(shared):
    """The page with the form and the search as they are when it opens."""
    shared.page.set_viewport_size({"width": 1280, "height": 900})
    shared.run(_AS_OPENED)
    yield shared
    assert shared.complaints == []
    assert shared.requests == []


_AS_OPENED = """() => {
    const search = document.getElementById("table-search");
    document.getElementById("chooser").reset();
    search.value = "";
    for (const one of [document.getElementById("chooser"), search]) one.dispatchEvent(new Event("input"));
}"""


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 1280)])
def test_it_opens_at_any_width_in_light_and_dark(opened, scheme, width):
    opened.page.emulate_media(color_scheme=scheme)
    opened.page.set_viewport_size({"width": width, "height": 900})
    assert opened.run("document.documentElement.scrollWidth") <= width
    assert opened.run("[...document.querySelectorAll('main > section')].map((one) => one.id)") == SECTIONS
    channels = opened.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(channels[:3]) < 60) == (scheme == "dark")


def test_everything_drawn_is_told_in_words_and_really_drawn(opened):
    said = opened.run("[...document.querySelectorAll('.plot')].map((one) => one.getAttribute('aria-label'))")
    assert len(said) == 11
    assert all(text and len(text) > 10 for text in said)
    canvases = opened.run(
        "Bokeh.documents.map((doc) => [...doc.roots()[0].renderers].map((one) => one.data_source.get_length()))"
    )
    assert all(any(rows) for rows in canvases[:5]), canvases


def questions(made, count, seed=7):
    """Random questions, of `Predictors.choose` and of the page's script."""
    dice = random.Random(seed)
    predictors = load(made.predictors, catalogue_dir=made.dataset / "catalogue", validation_dir=made.validation)

    @functools.cache
    def trace(name, shape, pass_):
        return predictors.traced(Request.of(network=name, inputs=(shape,)), pass_)

    for _ in range(count):
        network = dice.choice(made.config.networks)
        shape = ",".join(map(str, network.first_input.shape))
        pass_ = dice.choice(["inference", "training"])
        limits = {
            "max_slowdown": dice.choice([float("inf"), 0.0, 0.05, 0.3, 1.0]),
            "power_cap_w": dice.choice([float("inf"), float("inf"), 60.0, 80.0, 120.0]),
        }
        asked = {
            "network": network.network_id,
            "pass": pass_,
            "objective": dice.choice(["time", "energy", "edp"]),
            "gpus": dice.choice([None, ["a30"], ["v100"], ["a30", "v100"]]),
            **({} if limits["max_slowdown"] == float("inf") else {"maxSlowdown": limits["max_slowdown"]}),
            **({} if limits["power_cap_w"] == float("inf") else {"powerCap": limits["power_cap_w"]}),
        }
        traced = trace(network.name, shape, pass_)
        try:
            request = Request.of(objective=asked["objective"], gpus=asked["gpus"] or (), precision="tf32", **limits)
            answer = predictors.choose(request, traced).to_dict()
        except ClockwattError as error:
            answer = str(error)
        yield asked, answer


def test_the_chooser_gives_what_recommend_gives(opened, made):
    refused = 0
    for asked, answer in questions(made, 20):
        found = opened.run("(asked) => clockwatt.ask(asked)", asked)
        if isinstance(answer, str):
            refused += 1
            assert found["refused"].rstrip(".").split(" is ")[0].lower()[:20] == answer.lower()[:20]
            continue
        assert [(one["gpu"], one["point"]) for one in found["candidates"]] == [
            (one["gpu"], one["point"]) for one in answer["candidates"]
        ]
        for one, other in zip(found["candidates"], answer["candidates"], strict=True):
            for name in ("time_s", "energy_j", "power_w"):
                assert one[name] == pytest.approx(other["expected"][name], rel=1e-12)
            for name, key in (("time_interval", "time_s"), ("energy_interval", "energy_j")):
                assert one[name] == pytest.approx(list(other["intervals"][key]), rel=1e-12)
        for name in ("allowed", "as_good", "regret"):
            assert found[name] == answer[name], name
        of_memory = [text for text in answer["best"]["warnings"] if text.startswith("Memory is left out")]
        assert len(of_memory) == 1, "the page states no memory"
        assert found["warnings"] == [text for text in answer["best"]["warnings"] if text not in of_memory]
    assert 0 < refused < 10


def test_the_form_asks_what_it_shows(opened, made):
    page = opened.page
    page.select_option("[name=network]", "1")
    page.select_option("[name=pass]", "training")
    page.select_option("[name=objective]", "time")
    page.fill("[name=cap]", "90")
    network = made.config.networks[1].network_id
    found = opened.run(
        "(asked) => clockwatt.ask(asked)",
        {"network": network, "pass": "training", "objective": "time", "powerCap": 90},
    )
    sentence = opened.text("#answer-sentence")
    assert sentence.startswith(f"{found['best']['gpu']} (virtual) at {found['best']['point']}")
    assert "--power-cap 90" in opened.text("#answer-command")
    assert "--pass training" in opened.text("#answer-command")
    page.fill("[name=cap]", "1")
    assert opened.text("#answer-sentence").startswith("No candidate meets the limits. The least mean power is")


def test_limits_that_contradict_each_other_say_what_the_one_leaves(opened):
    question = {"network": "net16-8x3x64x64-float32", "pass": "inference", "gpus": ["a30"], "objective": "time"}
    fastest = opened.run("(asked) => clockwatt.ask(asked)", question)["best"]
    limited = question | {"maxSlowdown": 0, "powerCap": fastest["power_w"] - 1}
    refused = opened.run("(asked) => clockwatt.ask(asked)", limited)["refused"]
    assert refused.startswith("No candidate meets the limits. Among fast enough candidates, the least mean power is")
    assert f"on a30 at {fastest['point']}" in refused


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("slowdown", "-5", "Slower by at most: write a number from 0 up"),
        ("cap", "0.5", "Power at most: write a number from 1 up"),
    ],
)
def test_a_limit_that_the_command_refuses_is_refused(opened, field, typed, said):
    opened.page.fill(f"[name={field}]", typed)
    assert opened.text("#answer-sentence").startswith(said)
    assert opened.text("#answer-command") == ""
    opened.page.fill(f"[name={field}]", "50")
    assert "less energy" in opened.text("#answer-sentence") or "nobody asks for less" in opened.text("#answer-sentence")


@pytest.fixture(scope="module")
def page_with_a_measured_gpu(made, tmp_path_factory, open_shared_page):
    """The page of a campaign whose v100 passes for a measured one.

    One network was measured there alone; another one nowhere at sm900.
    """
    tmp_path = tmp_path_factory.mktemp("measured")
    for name in ("dataset", "predictors"):
        shutil.copytree(made.root / name, tmp_path / name)
    description = tmp_path / "predictors" / "v100" / layout.DESCRIPTION_FILE
    description.write_text(json.dumps(json.loads(description.read_text()) | {"virtual": False}))
    networks = tmp_path / "dataset" / layout.NETWORKS_FILE
    rows = files.read_table(networks, NETWORKS_SCHEMA).to_pandas()
    rows["virtual"] = rows["gpu"] != "v100"
    rows = rows[~(rows["virtual"] & rows["subject_id"].str.startswith("net16"))]
    rows = rows[~(rows["subject_id"].str.startswith("net24") & (rows["point"] == "sm900"))]
    networks.unlink()
    files.write_table(pa.Table.from_pandas(rows, NETWORKS_SCHEMA, preserve_index=False), networks)
    campaign = made.config.model_copy(update={"networks": made.config.networks[1:]})
    page = tmp_path / "page.html"
    write_page(campaign, tmp_path / "dataset", tmp_path / "predictors", made.validation, page)
    return open_shared_page(page)


def test_a_network_that_virtual_gpus_leave_out_says_so_and_who_answers(page_with_a_measured_gpu):
    opened = page_with_a_measured_gpu
    page = opened.page
    page.select_option("[name=network]", label=next(
        text for text in opened.run("[...document.querySelectorAll('[name=network] option')].map((one) => one.text)")
        if text.startswith("net16")
    ))  # fmt: skip
    page.select_option("[name=among]", "virtual")
    assert opened.text("#answer-sentence").startswith("Virtual GPUs are not predicted for this network here")
    assert "clockwatt recommend net16 --input 8,3,64,64" in opened.text("#answer-command")
    assert "--precision tf32" in opened.text("#answer-command")
    page.select_option("[name=among]", "both")
    assert opened.text("#answer-sentence").startswith("v100 at ")
    assert "Virtual GPUs are not predicted for this network here." in opened.text("#answer-good")
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "pass_"), [(1280, "inference"), (390, "training")])
def test_labels_of_points_that_lie_close_are_nearest_to_their_own(opened, width, pass_):
    opened.page.set_viewport_size({"width": width, "height": 900})
    seen = 0
    for network in "012":
        opened.page.select_option("[name=network]", network)
        opened.page.select_option("[name=pass]", pass_)
        # ranges follow the points as the plot is drawn: labels are where they stay when all are right, or never are
        opened.page.wait_for_function(f"({_LABELS})().every(([own]) => own)", timeout=30_000)
        found = opened.run(_LABELS)
        seen += len(found)
        assert all(own for own, _ in found), (network, pass_, found)
    assert seen > 6


_LABELS = """() => {
    const plot = Bokeh.documents.map((doc) => doc.roots()[0]).find((one) => one.name === "tradeoff");
    const rows = (name) => plot.document.get_model_by_name(name).data;
    const [points, labels] = [rows("tradeoff-points"), rows("tradeoff-labels")];
    const x = (value) => (value - plot.x_range.start) / (plot.x_range.end - plot.x_range.start) * plot.inner_width;
    const y = (value) => (plot.y_range.end - value) / (plot.y_range.end - plot.y_range.start) * plot.inner_height;
    return labels.text.map((text, one) => {
      const far = points.x.map((px, n) =>
        Math.hypot(x(px) - x(labels.x[one]), y(points.y[n]) - y(labels.y[one]) - labels.dy[one]));
      const nearest = far.indexOf(Math.min(...far));
      return [points.x[nearest] === labels.x[one] && points.y[nearest] === labels.y[one], text];
    });
}"""
"""Each label's text, and whether the point that it is drawn nearest to, in pixels, is the one that it names."""


def test_page_recommend_and_the_end_of_a_run_say_the_same_saving_against_the_highest_clock(opened, made):
    opened.page.select_option("[name=among]", "gpu-0")
    saved = opened.run(
        """() => {
        const ask = (gpus) => clockwatt.ask({ network: "net16-8x3x64x64-float32", pass: "inference", gpus: ["a30"] });
        const { best, candidates } = ask();
        return 1 - best.energy_j / candidates.find((one) => one.point === "sm1440").energy_j;
    }"""
    )
    assert 0.005 < saved < 0.9
    (end,) = (
        best
        for best in best_points(made.validation)
        if (best.network_id, best.pass_, best.gpu) == ("net16-8x3x64x64-float32", "inference", "a30")
    )
    assert (end.reference_point, end.less_energy) == ("sm1440", pytest.approx(saved, rel=1e-6))
    predictors = load(made.predictors, catalogue_dir=made.dataset / "catalogue", validation_dir=made.validation)
    (network,) = (one for one in made.config.networks if one.network_id == end.network_id)
    traced = predictors.traced(Request.of(network=network.name, inputs=("8,3,64,64",)), "inference")
    chosen = predictors.choose(Request.of(gpus=["a30"], precision=str(end.execution)), traced)
    energies = {one.point: one.expected.energy_j for one in chosen.candidates}
    assert 1 - energies[chosen.best.point] / energies["sm1440"] == pytest.approx(saved, rel=1e-6)
    shown = f"{saved * 100:.1f}".removesuffix(".0") if saved < 0.1 else f"{saved * 100:.0f}"
    assert f"{shown}\u00a0% less energy" in opened.run("document.getElementById('answer-sentence').textContent")
    assert "at sm1440, its highest clock" in opened.text("#answer-sentence")


def rows_of(opened, column):
    return opened.run(
        f"[...document.querySelectorAll('#table-rows tbody tr')].map((row) => row.children[{column}].textContent)"
    )


def test_the_table_sorts_searches_and_gives_csv(opened):
    everything = opened.run("clockwatt.csv()").splitlines()
    assert len(everything) == 1 + 2 * 3 * 4, "networks × passes × operating points"
    assert opened.text("#table-count") == "15 of 24 rows shown"
    opened.page.click("#table-more")
    assert len(rows_of(opened, 0)) == 24
    energy = "#table-rows th:nth-child(8) button"
    opened.page.click(energy)
    lines = [dict(zip(everything[0].split(","), line.split(","), strict=True)) for line in
             opened.run("clockwatt.csv()").splitlines()[1:]]  # fmt: skip
    values = [float(line["measured_energy_j"]) for line in lines]
    assert values == sorted(values)
    opened.page.click(energy)
    assert opened.page.get_attribute("#table-rows th:nth-child(8)", "aria-sort") == "descending"
    opened.page.fill("#table-search", "NET24 v100 training")
    assert [text.split(" ")[0] for text in rows_of(opened, 0)] == ["net24"]
    assert rows_of(opened, 3) == ["sm900"]
    opened.page.fill("#table-search", "1")
    assert opened.text("#table-count") == "20 of 20 rows shown", "no button for a few rows"
    opened.page.fill("#table-search", "nothing of this name")
    assert opened.text("#table-count") == "0 of 0 rows shown"
    with opened.page.expect_download() as download:
        opened.page.click("#table-csv")
    assert download.value.suggested_filename == "clockwatt-synthetic.csv"


def test_what_is_predicted_stands_in_the_table_with_its_interval(page_with_a_measured_gpu):
    opened = page_with_a_measured_gpu
    opened.page.uncheck("#table-measured")
    opened.page.fill("#table-search", "net24 inference 900")
    names, *lines = (line.split(",") for line in opened.run("clockwatt.csv()").splitlines())
    row = dict(zip(names, lines[0], strict=True))
    assert row["measured_time_s"] == ""
    shown = rows_of(opened, 5)[0].replace("\u00a0", " ")
    value, unit, ends = shown.split(" ")
    scale = {"ms": 1e3, "µs": 1e6}[unit]
    low, high = map(float, ends.strip("()").split("–"))
    for said, name in ((float(value), "time_s"), (low, "time_low_s"), (high, "time_high_s")):
        assert said == pytest.approx(scale * float(row[name]), rel=0.01)
    assert rows_of(opened, 7)[0].endswith(")")


def test_it_can_be_used_by_keyboard_alone(opened):
    keys = opened.page.keyboard
    opened.page.focus("[name=network]")
    keys.press("Shift+Tab")
    names = []
    for _ in range(40):
        keys.press("Tab")
        focused = opened.run(
            "[document.activeElement.name || document.activeElement.textContent || document.activeElement.id,"
            " getComputedStyle(document.activeElement.closest('.plot') || document.activeElement).outlineStyle]"
        )
        names.append(focused[0])
        assert focused[1] != "none", f"focus cannot be seen on {focused[0]}"
        if focused[0] == "network":
            keys.press("ArrowDown")
        if focused[0] == "slowdown":
            keys.type("20")
        if focused[0] == "Energy":
            keys.press("Enter")
            break
    wanted = ["network", "pass", "execution", "objective", "slowdown", "cap", "among"]
    assert [name for name in names if name in wanted] == wanted
    assert "--max-slowdown 20%" in opened.text("#answer-command")
    assert "net24" in opened.text("#answer-command")
    assert opened.page.get_attribute("#table-rows th:nth-child(8)", "aria-sort") == "ascending"
    assert opened.run("document.activeElement.textContent") == "Energy", "sorting keeps the focus"


def test_names_are_shown_as_they_are_and_never_run(open_page, page_of_made, tmp_path):
    text = page_of_made.read_text(encoding="utf-8").replace('"name":"net16"', '"name":"<img src=x onerror=alert(1)>"')
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    opened = open_page(tmp_path / "page.html")
    assert opened.run("document.querySelectorAll('img').length") == 0
    assert "<img src=x" in opened.text("#tradeoff-lead")
    assert opened.complaints == []
