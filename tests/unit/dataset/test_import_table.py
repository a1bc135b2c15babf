"""Measurements by others, from a table to a dataset that is fitted and joined."""

import json

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from clockwatt import config
from clockwatt.cli.main import app
from clockwatt.config import NetworkConfig, OperatingPoint, TrainingConfig
from clockwatt.dataset import table as cells
from clockwatt.dataset.build import build_dataset
from clockwatt.dataset.import_table import Request, import_table
from clockwatt.dataset.reference import references
from clockwatt.dataset.table import CellError
from clockwatt.errors import ClockwattError, ConfigError, DataFileError, OutputError
from clockwatt.io import files
from clockwatt.operations.catalogue import trace_rows
from clockwatt.predict.fit import fit
from clockwatt.schema.records import OPERATION_SCHEMA
from support import small_networks, synthetic

RELU = {"operation": "ReLU()", "input_shape": "4x8x16x16", "pass": "inference", "tf32": True}
TIMED = {**RELU, "time_device_s": 1e-5, "time_host_s": 5e-6, "time_eager_s": 1.2e-5, "power_w": 100.0}


def table_of(folder, rows, name="others.csv"):
    path = folder / name
    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


def imported(folder, rows, **changes):
    """Import rows into folder/a30; the dataset's operations."""
    request = Request(table_of(folder, rows), "a30", "NVIDIA A30", **changes)
    return import_table(request, folder / "a30"), pd.read_parquet(folder / "a30/dataset/operations.parquet")


def of_small_network():
    """A row for each module of a network, with the shape that it is given there."""
    x, rows = torch.zeros(4, 8, 16, 16), []
    for number, module in enumerate(small_networks.printed_modules(), 1):
        shape = "x".join(map(str, x.shape))
        rows.append({**TIMED, "operation": repr(module), "input_shape": shape, "time_device_s": number * 1e-6})
        x = module(x).detach()
    return rows


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_what_is_imported_is_the_operation_that_a_traced_network_calls(tmp_path, pass_):
    rows = [{**row, "pass": pass_} for row in of_small_network()]
    names = {row["operation"].split("(")[0] for row in rows}
    assert names >= {"BatchNorm2d", "ReLU", "SiLU", "GELU", "Conv2d", "Linear", "MaxPool2d"}
    _, operations = imported(tmp_path, rows)
    network = NetworkConfig(name="support.small_networks:printed", input=[4, 8, 16, 16])
    traced = {row.operation_id for row in trace_rows(network, pass_, TrainingConfig()).operations}
    assert set(operations["subject_id"]) <= traced
    assert len(operations) == len(rows)


def test_a_spec_of_a_catalogue_is_imported_as_itself(tmp_path):
    network = NetworkConfig(name="support.small_networks:printed", input=[4, 8, 16, 16], dtype="bfloat16")
    traced = trace_rows(network, "inference", TrainingConfig()).operations[0]
    _, operations = imported(tmp_path, [{**TIMED, "operation": traced.spec, "input_shape": ""}])
    assert operations[["subject_id", "dtype"]].to_numpy().tolist() == [[traced.operation_id, "bfloat16"]]


def test_what_is_not_known_is_null(tmp_path):
    done, operations = imported(
        tmp_path, [{**RELU, "time_eager_s": 2e-5}, {**TIMED, "operation": "SiLU()", "power_idle_w": 30}]
    )
    bare, full = operations.sort_values("time_eager_s", ascending=False).to_dict("records")
    unknown = ("time_device_s", "time_host_s", "power_w", "energy_j", "energy_dynamic_j", "time_eager_standard_error_s")
    assert all(pd.isna(bare[name]) for name in unknown)
    assert bare["excluded"] == "times back to back alone"
    assert full["excluded"] == ""
    assert full["energy_j"] == pytest.approx(100 * 1.2e-5)
    assert full["energy_dynamic_j"] == pytest.approx(70 * 1.2e-5)
    assert (done.rows, done.learnable, done.back_to_back) == (2, 1, 0)
    assert done.without == {"time_device_s": 1, "time_host_s": 1}
    assert not operations["virtual"].any()


def test_rows_of_the_same_operation_are_repetitions(tmp_path):
    _, operations = imported(tmp_path, [TIMED, TIMED, {**TIMED, "tf32": False}])
    assert sorted(zip(operations["execution"], operations["repetition"], strict=True)) == [
        ("fp32", 0),
        ("tf32", 0),
        ("tf32", 1),
    ]


def test_columns_have_the_names_that_they_have(tmp_path):
    row = {"module": "GELU(approximate='none')", "mode": "training", "shape": [4, 8], "s": 1e-4, "note": "x"}
    path = table_of(tmp_path, [row], "others.parquet")
    columns = {"operation": "module", "pass": "mode", "input_shape": "shape", "time_eager_s": "s"}
    request = Request(path, "a30", "a30", OperatingPoint(900), columns, {"tf32": "no"})
    assert import_table(request, tmp_path / "a30").columns_left == ("note",)
    (measured,) = pd.read_parquet(tmp_path / "a30/dataset/operations.parquet").to_dict("records")
    assert {name: measured[name] for name in ("pass", "execution", "point", "gpu_name", "requested_sm_clock_mhz")} == {
        "pass": "training", "execution": "fp32", "point": "sm900", "gpu_name": "NVIDIA A30",
        "requested_sm_clock_mhz": 900,
    }  # fmt: skip


@pytest.mark.parametrize(("change", "said"), [
    ({"operation": ""}, "row 2, column operation: is empty"),
    ({"operation": "Transformer(3)"}, "row 2, column operation: 'Transformer(3)': Transformer is not among"),
    ({"operation": "Linear(in_features=3, out_features=2)"}, "row 2, column operation: 'Linear(in"),
    ({"operation": '{"fn":"os.system"}'}, "row 2, column operation: not an operation"),
    ({"operation": '{"fn":"torch.load","args":[],"kwargs":{},"tensors":[],"out":[]}'}, "row 2, column operation: "),
    ({"input_shape": "4x?"}, "row 2, column input_shape: '4x?' is not a shape"),
    ({"input_shape": ""}, "row 2, column input_shape: is empty"),
    ({"pass": "forward"}, "row 2, column pass: 'forward' is not a pass. Write inference or training"),
    ({"tf32": "maybe"}, "row 2, column tf32: 'maybe' is neither true nor false"),
    ({"time_host_s": "fast"}, "row 2, column time_host_s: 'fast' is not a number"),
    ({"time_eager_s": -1.0}, "row 2, column time_eager_s: -1.0 is not above zero"),
    ({"time_eager_s": 336.0}, "Times are in seconds"),
    ({"time_device_s": 0.0}, "row 2, column time_device_s: 0 for torch.nn.functional.relu, which runs on the device"),
    ({"power_w": 0}, "row 2, column power_w: 0"),
    ({"power_w": 100e3}, "row 2, column power_w: 1e+05 W is more than any GPU draws. Convert powers to W"),
    ({"power_w": None, "energy_j": 1.2}, "row 2, column power_w: 1e+05 W is more than any GPU draws"),
    ({"energy_j": 12e-3}, "row 2, column energy_j: 0.012 J is not power_w × time_eager_s = 0.0012 J"),
    ({"operation": "x.y()"}, "row 2, column operation: 'x.y()': not the printed form of a module"),
    ({"operation": "Dropout(p=2)", "pass": "training"}, "row 2, column operation: torch.nn.functional.dropout: cannot"),
    ({"input_shape": "99999999999x9999999999"}, "tensors[0]: is larger than any memory"),
    (dict.fromkeys(("time_device_s", "time_host_s", "time_eager_s")), "row 2, column time_device_s: no time"),
])  # fmt: skip
def test_a_bad_cell_is_told_by_file_row_and_column_and_nothing_is_written(tmp_path, change, said):
    with pytest.raises(DataFileError) as raised:
        imported(tmp_path, [TIMED, {**TIMED, **change}])
    message = str(raised.value)
    assert "others.csv" in message
    assert said in message
    assert [path.name for path in tmp_path.iterdir()] == ["others.csv"]


def test_all_bad_rows_are_told_at_once(tmp_path):
    with pytest.raises(DataFileError) as raised:
        imported(tmp_path, [{**TIMED, "pass": "x"}, TIMED, *[{**TIMED, "tf32": "x"}] * 11])
    message = str(raised.value)
    assert "12 cells" in message
    assert "row 1, column pass" in message
    assert "row 3, column tf32" in message
    assert message.endswith("and 2 more")


def test_modules_that_cannot_be_read_are_left_out_where_that_is_asked_for(tmp_path):
    done, operations = imported(tmp_path, [TIMED, *[{**TIMED, "operation": "Softsign()"}] * 2], skip_unknown=True)
    assert done.skipped == {"Softsign": 2}
    assert len(operations) == 1


@pytest.mark.parametrize(("rows", "changes", "said"), [
    ([{"a": 1}], {}, "has no column 'operation', but 'a'"),
    ([RELU], {}, "has no time"),
    ([TIMED], {"columns": {"pass": "mode"}}, "has no column 'mode', which --column pass=mode names"),
    ([TIMED], {"columns": {"mode": "pass"}}, "--column mode: is not a column. Choose operation, "),
    ([TIMED], {"constants": {"pas": "training"}}, "--constant pas: is not a column"),
    ([TIMED], {"columns": {"energy_j": "power_w"}}, "column 'power_w' is taken twice"),
    ([TIMED], {"columns": {"pass": "pass"}, "constants": {"pass": "training"}}, "--column names it too"),
])  # fmt: skip
def test_a_bad_column_is_told(tmp_path, rows, changes, said):
    with pytest.raises(DataFileError) as raised:
        imported(tmp_path, rows, **changes)
    assert said in str(raised.value)
    assert not (tmp_path / "a30").exists()


@pytest.mark.parametrize(("name", "content", "said"), [
    ("t.csv", "", "cannot be read as a table"),
    ("t.csv", 'a,b\n1,2,3,4\n"x', "stands in double quotes"),
    ("t.csv", "operation,pass,tf32\nReLU(),4x8,inference,true\n", "rows have more cells than the header"),
    ("t.csv", "operation,pass,tf32,time_eager_s\n", "has a header and no rows"),
    ("t.parquet", "no Parquet", "Write it again, or save the table as .csv"),
    ("t.xlsx", "", "neither .csv nor .parquet"),
    ("", "", "neither .csv nor .parquet"),
])  # fmt: skip
def test_a_file_that_is_no_table_is_told(tmp_path, name, content, said):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataFileError, match=said):
        import_table(Request(tmp_path / name, "a30", "A30"), tmp_path / "a30")


def test_a_table_that_is_not_there_is_named_before_an_unknown_gpu(tmp_path):
    with pytest.raises(DataFileError, match=r"nofile\.csv: no such file"):
        import_table(Request(tmp_path / "nofile.csv", "b", "b"), tmp_path / "b")


def test_a_folder_that_holds_something_stays_as_it_is(tmp_path):
    imported(tmp_path, [TIMED])
    with pytest.raises(OutputError, match="not an empty folder"):
        imported(tmp_path, [TIMED])
    for gpu, device, error in (
        ("a 30", "A30", ConfigError),
        ("a", "virtual:a30", ConfigError),
        ("a", "S3", ClockwattError),
    ):
        with pytest.raises(error):
            import_table(Request(tmp_path / "others.csv", gpu, device), tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("said", ["4x8", "4,8", "(4, 8)", "[4, 8]", "torch.Size([4, 8])", [4, 8], "4 × 8"])
def test_shapes_are_read_as_people_write_them(said):
    assert cells.shape(said) == (4, 8)


@pytest.mark.parametrize("said", ["", "4x0", "x", "4x", "4;8", "4.5"])
def test_what_is_no_shape_is_refused(said):
    with pytest.raises(CellError):
        cells.shape(said)


def test_a_campaign_takes_it_in_as_it_takes_shipped_data(tmp_path):
    folder = tmp_path / "others"
    import_table(Request(table_of(tmp_path, [TIMED]), "theirs", "NVIDIA A30"), folder)
    settings = synthetic.campaign(clocks=[900], networks=1, reference=[str(folder)])
    (source,) = references(settings)
    assert len(source.digest()) == 16
    made = synthetic.write_campaign(tmp_path / "own", settings)
    build_dataset(settings, made.measurements, made.catalogue, made.dataset)
    operations = pd.read_parquet(made.dataset / "operations.parquet")
    (theirs,) = operations[operations["gpu"] == "theirs"].to_dict("records")
    assert (theirs["operation_class"], theirs["excluded"]) == ("relu", "")
    assert set(operations["gpu"]) > {"theirs"}
    catalogue = pd.read_parquet(made.dataset / "catalogue/operations.parquet")
    assert theirs["subject_id"] in set(catalogue["operation_id"])


def test_a_reference_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="no folder that `clockwatt import` wrote"):
        synthetic.campaign(clocks=[900], networks=1, reference=[f"{tmp_path}/not-there"])


def test_the_command_goes_from_a_table_to_a_prediction(tmp_path):
    rows = []
    for channels in (4, 8, 16, 32, 64):
        sizes = {"input_shape": f"4x{channels}x16x16", "time_device_s": channels * 1e-6, "power_idle_w": 30}
        rows.extend({**TIMED, **sizes, "operation": name} for name in ("ReLU()", "SiLU()", "Sigmoid()"))
    path, folder = table_of(tmp_path, rows), tmp_path / "a30"
    options = ["--gpu", "a30", "--device", "NVIDIA A30", "--output-dir", str(folder)]
    done = CliRunner().invoke(app, ["import", str(path), *options])
    assert done.exit_code == 0, done.output
    assert "15 measurements of 15 operations on a30 at default" in done.stdout
    command = next(line.split() for line in done.stdout.splitlines() if line.strip().startswith("clockwatt fit"))
    fitted = CliRunner().invoke(app, command[1:])
    assert fitted.exit_code == 0, fitted.output
    asked = [
        "predict", "torch.nn:SiLU", "--input", "4,8,16,16", "--pass", "inference", "--gpu", "a30",
        "--predictors-dir", str(folder / "predictors"), "--json",
    ]  # fmt: skip
    answer = json.loads(CliRunner().invoke(app, asked).stdout)
    assert answer["expected"]["device_s"] == pytest.approx(8e-6, rel=0.01)
    assert answer["measured_calls"] == 1


def test_pairs_of_the_command_are_names_and_values(tmp_path):
    path = table_of(tmp_path, [TIMED])
    options = ["import", str(path), "--gpu", "a30", "--device", "A30", "--output-dir", str(tmp_path / "a30")]
    for wrong in (["--column", "pass"], ["--constant", "tf32=true", "--constant", "tf32=false"]):
        done = CliRunner().invoke(app, [*options, *wrong])
        assert isinstance(done.exception, ClockwattError)
    assert not (tmp_path / "a30").exists()


def test_an_operation_that_the_catalogue_lacks_is_a_message(tmp_path):
    imported(tmp_path, [TIMED, {**TIMED, "operation": "SiLU()"}])
    dataset = tmp_path / "a30/dataset"
    catalogue = dataset / "catalogue/operations.parquet"
    lacking = pd.read_parquet(catalogue)["operation_id"].iloc[0]
    files.write_table(files.read_table(catalogue, OPERATION_SCHEMA).slice(1), catalogue)
    settings = config.load(tmp_path / "a30/config.yaml")
    with pytest.raises(DataFileError, match=f"lacks 1 operations that were measured, such as {lacking} in inference"):
        fit(settings, dataset, catalogue.parent, tmp_path / "predictors")
    assert not (tmp_path / "predictors/a30").exists()
