import pandas as pd
import pytest

from clockwatt.errors import DataFileError
from clockwatt.operations.printed_modules import operation_of
from clockwatt.predict.features import operation_features
from clockwatt.predict.models.extrapolation import Domain, described
from support import synthetic


def catalogue(*operations):
    rows = [synthetic.row_of_operation(operation, "inference") for operation in operations]
    names = ("operation_id", "operation_class", "dtype", "spec", "flops", "bytes_read", "bytes_written")
    frame = pd.DataFrame({name: [getattr(row, name) for row in rows] for name in names}).assign(parameter_bytes=0)
    return frame.drop_duplicates("operation_id", ignore_index=True)


def said(domain, *operations):
    rows = catalogue(*operations)
    return [one.text for one in domain.outside(operation_features(rows), rows.set_index("operation_id"))]


@pytest.fixture(scope="module")
def domain():
    measured = [synthetic.operation_of("conv2d", [8, width, 32, 32], width, 3) for width in (16, 24, 32, 48, 64)]
    measured += [synthetic.operation_of("relu", [8, width, 32, 32]) for width in (16, 32, 64)]
    rows = catalogue(*measured)
    return Domain.of(operation_features(rows), rows)


def test_between_what_was_measured_nothing_is_said(domain):
    assert said(domain, synthetic.operation_of("conv2d", [8, 40, 32, 32], 40, 3)) == []
    assert said(domain, synthetic.operation_of("relu", [8, 16, 32, 32])) == []


def test_a_larger_operation_is_named_with_its_nearest_neighbour(domain):
    large = synthetic.operation_of("conv2d", [8, 512, 64, 64], 512, 3)
    (sentence,) = said(domain, large, synthetic.operation_of("conv2d", [8, 40, 32, 32], 40, 3))
    assert "1 of 2 conv2d lie outside the training data" in sentence
    assert "conv2d 8×512×64×64 · 512×512×3×3" in sentence
    assert "from conv2d 8×64×32×32 · 64×64×3×3" in sentence


def test_an_unknown_class_and_dtype_are_said(domain):
    (sentence,) = said(domain, synthetic.operation_of("add", [8, 16, 32, 32]))
    assert "No add was measured" in sentence
    rows = catalogue(synthetic.operation_of("relu", [8, 16, 32, 32])).assign(dtype="bfloat16")
    (outside,) = domain.outside(operation_features(rows), rows.set_index("operation_id"))
    assert outside.text == "Nothing was measured in bfloat16."


def test_what_can_change_an_answer_by_more_than_one_percent_matters(domain):
    rows = catalogue(synthetic.operation_of("conv2d", [8, 512, 64, 64], 512, 3), synthetic.operation_of("add", [8, 16]))
    unknown, far = domain.outside(operation_features(rows), rows.set_index("operation_id"))
    assert (far.matters(0.009), far.matters(0.011)) == (False, True)
    assert (unknown.matters(0.0009), unknown.matters(0.0011)) == (False, True)
    assert [list(one.rows) for one in (unknown, far)] == [[1], [0]]


def test_comes_back_from_its_file(domain, tmp_path):
    domain.write(tmp_path / "domain.parquet")
    pd.testing.assert_frame_equal(Domain.read(tmp_path / "domain.parquet").measured, domain.measured)
    with pytest.raises(DataFileError, match="no such file"):
        Domain.read(tmp_path / "none.parquet")


def test_of_operations_at_one_place_one_is_kept():
    rows = catalogue(*(synthetic.operation_of("relu", shape) for shape in ([8, 16, 32, 32], [8, 32, 16, 32], [8, 64])))
    assert Domain.of(operation_features(rows), rows).measured["described"].tolist() == [
        "relu 8×64", "relu 8×16×32×32"
    ]  # fmt: skip


def test_an_operation_in_words():
    assert described(operation_of("ReLU()", [2, 3], "inference").to_json()) == "relu 2×3"


def test_the_ignorance_of_a_class_follows_from_how_it_computes(domain):
    rows = catalogue(
        synthetic.operation_of("relu", [8, 16, 32, 32]),
        synthetic.operation_of("add", [8, 16, 32, 32]),
        synthetic.operation_of("topk", [8, 4096]),
        synthetic.operation_of("svd", [512, 512]),
    )
    known = domain.ignorance(rows)
    assert known.ratio.tolist() == [1, 10, 10, 10]
    assert known.longest_s[:2].tolist() == [0, 0]
    assert 8 * 4096 * 1e-10 < known.longest_s[2] < 1e-3 < known.longest_s[3]
