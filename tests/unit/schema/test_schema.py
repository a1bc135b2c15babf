"""Columns, flags and calibrated quantities: declared once, in the docs, and found by whoever uses them."""

import ast
from pathlib import Path

import pytest

import clockwatt
from clockwatt.dataset import flagging
from clockwatt.measure.steps.energy import ESTIMATORS
from clockwatt.schema import costs, tables
from clockwatt.schema.execution import TF32
from clockwatt.schema.flags import NEVER_LEARNT_FROM, Flag, LearntFrom, RaisedBy
from clockwatt.schema.records import CALIBRATION_SCHEMA, FORMER_NAMES, MEASUREMENT_SCHEMA, MeasurementRow
from clockwatt.schema.reference import BEGIN, END, main, reference

SOURCE = Path(clockwatt.__file__).parent
RESULTS = Path(__file__).parents[3] / "docs" / "reference" / "results-folder.md"


def test_tables_of_columns_flags_and_quantities_do_not_drift():
    readme = RESULTS.read_text(encoding="utf-8")
    assert f"{BEGIN}\n\n{reference()}\n{END}" in readme, "run python -m clockwatt.schema.reference"
    for flag in Flag:
        assert f"| `{flag}` | {flag.meaning}" in readme


def test_tables_are_made_anew_between_the_marks(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n", encoding="utf-8")
    main(readme)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    readme.write_text("nothing to replace", encoding="utf-8")
    with pytest.raises(ValueError, match="no lines"):
        main(readme)


def test_costs_name_columns_that_there_are():
    measured = [cost.measured for cost in costs.COSTS]
    measured += [costs.TIME_HOST_IN_PASS, costs.ENERGY, costs.ENERGY_DYNAMIC_UNTHROTTLED]
    for one in [*measured, *costs.POWER_BY_ESTIMATOR.values()]:
        assert {one.column, one.standard_error} <= set(MEASUREMENT_SCHEMA.names)
    for cost in costs.COSTS:
        assert {cost.corrected, cost.standard_error} <= set(tables.OPERATIONS_SCHEMA.names)
        assert {cost.corrected, cost.standard_error} <= set(tables.NETWORKS_SCHEMA.names)
        assert cost.corrected not in MEASUREMENT_SCHEMA.names, "a measured column stays as it was measured"
    assert set(costs.POWER_BY_ESTIMATOR) == set(ESTIMATORS)


def test_a_value_and_its_error_are_put_and_read_together():
    row = MeasurementRow(kind="operation", subject_id="a", pass_="inference", gpu="g", point="default", execution=TF32,
                         dtype="float32")  # fmt: skip
    costs.TIME_EAGER.put(row, 2.0, 0.1)
    assert (row.time_eager_s, row.time_eager_standard_error_s) == costs.TIME_EAGER.of(row) == (2.0, 0.1)


def test_former_names_are_of_columns_that_there_are_and_of_none_that_is_still_used():
    assert FORMER_NAMES.keys() <= set(MEASUREMENT_SCHEMA.names)
    assert not set(FORMER_NAMES.values()) & {*MEASUREMENT_SCHEMA.names, *CALIBRATION_SCHEMA.names}


def test_flags_that_are_never_learnt_from_are_those_that_say_so():
    assert set(NEVER_LEARNT_FROM) == {flag for flag in Flag if flag.learnt_from is LearntFrom.NO}
    assert Flag.POWER_CAPPED not in NEVER_LEARNT_FROM


def test_every_flag_is_raised_by_the_stage_that_it_names():
    raised = {stage: _named(folder) for stage, folder in ((RaisedBy.MEASURE, "measure"), (RaisedBy.DATASET, "dataset"))}
    for flag in Flag:
        if flag.raised_by is RaisedBy.IMPORT:  # a cell of an imported table
            continue
        assert flag.name in raised[flag.raised_by], f"nothing in {flag.raised_by} raises {flag}"
    assert "POWER_CAPPED" in _attributes(Path(flagging.__file__))


def test_no_column_is_put_together():
    """No f-string goes into a subscript, `getattr` or `setattr` where tables are written or read."""
    rooms = ("dataset", "figures", "measure", "predict", "schema", "workflow")
    paths = [path for room in rooms for path in (SOURCE / room).rglob("*.py") if path.name != "features.py"]
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in paths for line in _put_together(path)]
    assert len(paths) > 50
    assert found == []


def _named(folder: str) -> set[str]:
    return {name for path in (SOURCE / folder).rglob("*.py") for name in _attributes(path)}


def _attributes(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Flag"
    }


def _put_together(path: Path) -> list[int]:
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        within = []
        if isinstance(node, ast.Subscript):
            within = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            within = node.args[1:2]
        lines += [part.lineno for outer in within for part in ast.walk(outer) if isinstance(part, ast.JoinedStr)]
    return lines
