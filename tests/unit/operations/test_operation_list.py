import json

import pyarrow as pa
import pytest

from clockwatt.errors import DataFileError
from clockwatt.io import files
from clockwatt.operations.operation_list import LISTED_SCHEMA, read_listed
from clockwatt.operations.printed_modules import operation_of

CONV = operation_of("Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), bias=False)", [2, 3, 8, 8], "inference")
RELU = operation_of("ReLU()", [2, 8, 6, 6], "inference")


def lines(path, *entries):
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def test_json_lines_and_parquet_say_the_same(tmp_path):
    specs = [json.loads(operation.to_json()) for operation in (CONV, RELU)]
    given = read_listed(
        lines(tmp_path / "net.jsonl", {"spec": specs[0], "count": 3}, "", {"spec": specs[1]}), "inference"
    )
    table = pa.table({"spec": [CONV.to_json(), RELU.to_json()], "count": [3, None]}, schema=LISTED_SCHEMA)
    files.write_table(table, tmp_path / "net.parquet")
    assert read_listed(tmp_path / "net.parquet", "inference") == given
    assert [call.operation_id for call in given.calls] == [CONV.operation_id] * 3 + [RELU.operation_id]
    assert [row.operation_class for row in given.operations] == ["conv2d", "relu"]
    assert given.operations[0].flops == 2 * 2 * 8 * 36 * 27
    assert (given.network.network_id, given.network.calls) == ("net", 4)


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_printed_modules_are_the_specs_that_they_print(tmp_path, pass_):
    conv, relu = "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), bias=False)", "ReLU(inplace=True)"
    operations = [operation_of(conv, [2, 3, 8, 8], pass_), operation_of(relu, [2, 8, 6, 6], pass_)]
    specs = [json.loads(operation.to_json()) for operation in operations]
    (tmp_path / "json").mkdir()
    given = read_listed(lines(tmp_path / "json" / "net.txt", {"spec": specs[0], "count": 3}, {"spec": specs[1]}), pass_)
    assert read_listed(lines(tmp_path / "net.txt", f"{conv}  2x3x8x8 ×3", "", f"{relu} 2x8x6x6"), pass_) == given
    mixed = lines(tmp_path / "net.txt", f"{conv} 2x3x8x8 x3", {"spec": specs[1]})
    assert read_listed(mixed, pass_) == given


@pytest.mark.parametrize("pass_", ["inference", "training"])
def test_grouped_convolutions_of_a_file_are_known(tmp_path, pass_):
    convolutions = [
        operation_of(f"Conv2d(8, 8, kernel_size=(3, 3), stride=(1, 1), groups={groups})", [2, 8, 6, 6], pass_)
        for groups in (1, 2, 4, 8)
    ]
    entries = [{"spec": json.loads(operation.to_json())} for operation in convolutions]
    entries[1]["count"] = 3
    assert read_listed(lines(tmp_path / "net.jsonl", *entries), pass_).network.grouped_convolutions == 4
    plain = lines(tmp_path / "plain.jsonl", entries[0], entries[3])
    assert read_listed(plain, pass_).network.grouped_convolutions == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "net.jsonl:2: not JSON"),
        ("ReLU()", "write .*or a printed module"),
        ("ReLU() 2x8x6x6 3", "write .*or a printed module"),
        ("ReLU() 2x8x6x6 ×0", "net.jsonl:2: count 0"),
        ("Relu() 2x8x6x6", "net.jsonl:2: 'Relu\\(\\)': Relu is not among .*ReLU"),
        ("Conv2d(3, 8, kernel_size=(3, 3)) 2x8", "net.jsonl:2: .* does not fit an input of shape"),
        ("ReLU(__import__('os').getpid()) 2x8", "net.jsonl:2: .*not the printed form of a module"),
        ("[]", "net.jsonl:2: write"),
        ({"spec": "text"}, "net.jsonl:2: write"),
        ({"spec": {}, "counts": 3}, "net.jsonl:2: write"),
        ({"spec": {}}, "net.jsonl:2: not an operation"),
        ({"spec": json.loads(RELU.to_json()), "count": 0}, "net.jsonl:2: count 0"),
        ({"spec": json.loads(RELU.to_json()), "count": True}, "net.jsonl:2: count True"),
        ({"spec": json.loads(RELU.to_json()) | {"fn": "torch.load"}}, "net.jsonl:2: function 'torch.load'"),
    ],
)
def test_what_is_no_operation_is_named_by_its_line(tmp_path, line, message):
    path = lines(tmp_path / "net.jsonl", {"spec": json.loads(CONV.to_json())}, line)
    with pytest.raises(DataFileError, match=message.replace("[", r"\[")):
        read_listed(path, "inference")


def test_empty_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(DataFileError, match="holds no operation"):
        read_listed(lines(tmp_path / "empty.jsonl"), "inference")
    with pytest.raises(DataFileError, match=r"none\.jsonl: cannot be read"):
        read_listed(tmp_path / "none.jsonl", "inference")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataFileError, match=r"binary\.jsonl: cannot be read"):
        read_listed(tmp_path / "binary.jsonl", "inference")
