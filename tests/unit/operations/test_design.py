"""Operations by design: the same draw each time, within bounds, of every family, and real operations all of them."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from rebuild import mismatches

from clockwatt import config
from clockwatt.config import PASSES, DesignConfig
from clockwatt.config.design import FAMILIES
from clockwatt.errors import ConfigError, DataFileError
from clockwatt.gpu.specs import UnknownGpuError, find_spec
from clockwatt.io import files
from clockwatt.operations.catalogue import write_catalogue
from clockwatt.operations.design import draw, extremes, rounds
from clockwatt.operations.design.block import Block, Calls, Input, trace_block
from clockwatt.operations.design.sizes import LARGEST_TENSOR, Sizes
from clockwatt.operations.spec.operation import MATRIX_CLASSES, Operation
from clockwatt.schema import records
from clockwatt.schema.execution import ExecutionSettings
from clockwatt.schema.records import OPERATION_SCHEMA, TRAINING
from clockwatt.workflow.design_rounds import round_costs

SMALL = {"max_memory_bytes": 5e6, "max_time_s": 5e-6, "seed": 3}


@pytest.fixture(scope="module")
def drawn() -> list[records.OperationRow]:
    return list(draw.drawn_operations(DesignConfig(operations=60, **SMALL), PASSES))


def candidates(rows: list[records.OperationRow], **values: list[float]) -> list[rounds.Candidate]:
    spreads, weights = values.get("spread", [1.0] * len(rows)), values.get("weight_s", [1.0] * len(rows))
    return [rounds.Candidate(*each) for each in zip(rows, spreads, weights, strict=True)]


def write_candidates(path: Path, rows: list[records.OperationRow], spread: float = 0.5) -> Path:
    table = records.table_of(rows, OPERATION_SCHEMA).to_pydict()
    table |= {"spread": [spread] * len(rows), "weight_s": [1e-3] * len(rows)}
    files.write_table(rounds.pa.Table.from_pydict(table, schema=rounds.CANDIDATES_SCHEMA), path)
    return path


def test_a_larger_number_keeps_the_earlier_operations(drawn):
    fewer = list(draw.drawn_operations(DesignConfig(operations=25, **SMALL), PASSES))
    assert fewer == drawn[:25]


def test_another_seed_draws_other_operations(drawn):
    other = draw.drawn_operations(DesignConfig(operations=20, **(SMALL | {"seed": 4})), PASSES)
    assert not {row.operation_id for row in other} & {row.operation_id for row in drawn}


def test_what_is_drawn_is_unique_within_its_bounds_and_tells_its_block(drawn):
    assert len({(row.operation_id, row.pass_) for row in drawn}) == len(drawn) == 60
    assert {row.pass_ for row in drawn} == set(PASSES)
    for row in drawn:
        assert row.bytes_read + row.bytes_written <= SMALL["max_memory_bytes"]
        for name in row.measured_execution:
            assert draw.roofline_time_s(row, find_spec("h200"), ExecutionSettings(name)) <= SMALL["max_time_s"]
        assert (row.source, row.measured_quantities, row.device_work) == ("design", ["time"], True)
        assert row.block.split("-")[0] in {*draw.QUOTAS, "optimizer"}


def test_families_that_are_named_are_drawn_alone():
    design = DesignConfig(operations=30, families={"enlarged": 1, "tall": 2}, max_memory_bytes=5e7, seed=5)
    families = {row.block.split("-")[0] for row in draw.drawn_operations(design, PASSES)}
    assert {"enlarged", "tall"} <= families <= {"enlarged", "tall", "optimizer"}


def test_families_that_give_nothing_in_a_pass_are_no_endless_draw(monkeypatch):
    monkeypatch.setattr(draw, "_BARREN", 20)
    design = DesignConfig(operations=3, families={"dropout": 1}, seed=1)  # which inference leaves out
    with pytest.raises(ConfigError, match=r"design: 20 blocks in turn .* after 0 of 3"):
        list(draw.drawn_operations(design, ["inference"]))


def test_the_order_of_named_families_is_no_part_of_the_draw():
    one, other = ({"tall": 1, "enlarged": 2}, {"enlarged": 2, "tall": 1})
    assert list(DesignConfig(operations=1, families=one).families) == list(
        DesignConfig(operations=1, families=other).families
    )


def test_every_family_can_be_named_and_those_of_the_first_draw_alone_have_a_share():
    assert tuple(draw.QUOTAS) == FAMILIES
    without = FAMILIES[FAMILIES.index("picked") + 1 :]
    assert [name for name, (share, _) in draw.QUOTAS.items() if not share] == list(without)


@pytest.mark.parametrize(
    ("families", "told"),
    [
        ({"talls": 1}, "has no family talls"),
        ({"tall": -1}, "are shares"),
        ({"tall": 0}, "above 0"),
        ({"tall": 1e308, "volume": 1e308}, "are shares"),
    ],
)
def test_families_that_cannot_be_drawn_are_refused(families, told):
    with pytest.raises(ValueError, match=told):
        DesignConfig(operations=3, families=families)


def test_tf32_is_drawn_where_it_matters_and_nowhere_else(drawn):
    matrix = [row for row in drawn if row.operation_class in MATRIX_CLASSES and row.dtype == "float32"]
    assert {tuple(row.measured_execution) for row in matrix} >= {("fp32",), ("tf32",)}
    others = [row for row in drawn if row.dtype != "float32"]
    assert {tuple(row.measured_execution) for row in others} == {("tf32",)}


def test_what_is_drawn_can_be_built_and_run(drawn):
    for row in drawn:
        found = mismatches(Operation.from_json(row.spec), row.pass_)
        assert [each for each in found if ": stride " not in each] == [], row.block


def test_families_of_indices_and_spectra_can_be_built_and_run():
    families = ("modulated_convolution", "decoding", "graph", "table", "position_bias", "transform", "modes")
    design = DesignConfig(
        operations=80, families=dict.fromkeys(families, 1), seed=3, max_memory_bytes=5e6, max_time_s=5e-6
    )
    rows = list(draw.drawn_operations(design, PASSES))
    assert {*families} <= {row.block.split("-")[0] for row in rows}
    test_what_is_drawn_can_be_built_and_run(rows)


@pytest.mark.parametrize("family", list(draw.QUOTAS))
def test_every_family_gives_operations_that_pytorch_takes(family):
    refused, classes = 0, set()
    for number, learns in itertools.product(range(6), (False, True)):
        try:
            with torch.device("meta"):
                block = draw.QUOTAS[family][1](Sizes(f"{family}/{number}"))
            calls = trace_block(block, family, learns=learns)
        except (RuntimeError, ValueError):  # such as a normalisation of a single value
            refused += 1
            continue
        classes |= {call.operation.operation_class for call in calls if call.kind == "compute"}
    assert refused <= 2
    assert classes


def test_patches_are_cut_from_pictures_and_clips_without_gaps_and_within_the_bound():
    kinds = set()
    for number in range(400):
        with torch.device("meta"):
            block = extremes.patches(Sizes(f"patches/{number}"))
            given = block.module(torch.empty(block.inputs[0].shape, dtype=next(block.module.parameters()).dtype))
        (entry,), layer = block.inputs, block.module
        assert isinstance(layer, torch.nn.Conv2d | torch.nn.Conv3d)
        assert all(stride <= kernel for stride, kernel in zip(layer.stride, layer.kernel_size, strict=True))
        assert all(size >= kernel for size, kernel in zip(entry.shape[2:], layer.kernel_size, strict=True))
        assert entry.grad == (entry.shape[1] > 4), "a picture needs no gradient"
        assert max(math.prod(entry.shape), given.numel()) <= LARGEST_TENSOR
        kinds.add((type(layer).__name__, layer.stride == layer.kernel_size))
    assert kinds == {("Conv2d", True), ("Conv2d", False), ("Conv3d", True), ("Conv3d", False)}


def test_an_operation_of_a_block_is_that_of_a_network():
    """The convolution of a block is the very one that a traced network calls."""
    from clockwatt.config import NetworkConfig, TrainingConfig
    from clockwatt.operations.trace.trace import trace_network

    network = NetworkConfig(name="resnet18", input=[2, 3, 64, 64])
    of_network = {call.operation.operation_id for call in trace_network(network, TRAINING, TrainingConfig()).calls}
    with torch.device("meta"):
        layers = (torch.nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(True))
    calls = trace_block(Block(torch.nn.Sequential(*layers), [Input((2, 64, 16, 16))]), "block", learns=True)
    assert [call.operation.operation_class for call in calls if call.kind == "compute"] == [
        "conv2d", "add", "batch_norm", "relu"
    ]  # fmt: skip  # the addition counts batches
    assert {call.operation.operation_id for call in calls} <= of_network


def test_a_recurrent_layer_costs_its_products_and_is_quick_to_trace():
    with torch.device("meta"):
        layer = torch.nn.LSTM(32, 64, 2, bidirectional=True, batch_first=True)
    block = Block(layer, [Input((4, 100, 32))])
    (operation,) = [
        call.operation for call in trace_block(block, "lstm", learns=True) if call.operation.operation_class == "lstm"
    ]
    assert [output.shape for output in operation.out] == [(4, 100, 128), (4, 4, 64), (4, 4, 64)]
    assert operation.grad_out[0] is not None
    row = draw.operation_row(operation, "compute", TRAINING)
    per_token = sum(2 * 2 * (width + 64) * 4 * 64 for width in (32, 128))  # directions, multiply and add
    assert row.flops == pytest.approx(3 * 400 * per_token, rel=0.02)


def test_half_is_chosen_by_spread_times_weight_and_half_evenly(drawn):
    spread = [5.0 if number < 10 else 1e-9 for number in range(60)]
    chosen = rounds.choose(candidates(drawn, spread=spread), 20, seed=1)
    uncertain = {row.operation_id for row in drawn[:10]}
    assert len({each.key for each in chosen}) == 20
    assert uncertain <= {each.row.operation_id for each in chosen}
    assert rounds.choose(candidates(drawn, spread=spread), 12, seed=1) == chosen[:12]
    assert len(rounds.choose(candidates(drawn, spread=[0.0] * 60), 99, seed=1)) == 60


def test_a_later_round_takes_from_its_file_what_is_not_drawn_yet(drawn, tmp_path):
    path = write_candidates(tmp_path / "candidates-1.parquet", drawn)
    design = DesignConfig(
        operations=20, **SMALL, quantities=["time", "energy"], rounds=[{"candidates": str(path), "operations": 15}]
    )
    rows = list(rounds.designed_operations(design, PASSES))
    assert len({(row.operation_id, row.pass_) for row in rows}) == 35
    assert {row.operation_id for row in rows[20:]} <= {row.operation_id for row in drawn[20:]}
    assert all(row.measured_quantities == ["time", "energy"] for row in rows)
    assert [row.design_round for row in rows] == [0] * 20 + [1] * 15


def test_a_file_with_too_few_candidates_is_told(drawn, tmp_path):
    path = write_candidates(tmp_path / "candidates-1.parquet", drawn)
    design = DesignConfig(operations=20, **SMALL, rounds=[{"candidates": str(path), "operations": 41}])
    with pytest.raises(
        DataFileError, match=r"candidates-1.parquet: holds 40 operations that are not drawn yet, not 41"
    ):
        list(rounds.designed_operations(design, PASSES))


def test_a_spread_that_is_no_number_is_told(drawn, tmp_path):
    path = write_candidates(tmp_path / "candidates-1.parquet", drawn[:3], spread=math.nan)
    with pytest.raises(DataFileError, match=r"candidates-1.parquet: row 0: spread is nan"):
        rounds.read_candidates(path)


def test_a_catalogue_holds_networks_and_designed_operations(tmp_path):
    content = {
        "campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}, "design": SMALL | {"operations": 15},
        "networks": [{"name": "squeezenet1_1", "input": [2, 3, 64, 64]}],
    }  # fmt: skip
    write_catalogue(config.parse(content), tmp_path)
    operations = files.read_table(tmp_path / "operations.parquet", OPERATION_SCHEMA).to_pandas()
    assert operations["source"].value_counts()["design"] == 15
    assert set(operations["source"]) == {"design", "network"}
    assert (operations["block"].notna() == (operations["source"] == "design")).all()
    (cost,) = round_costs(config.parse(content), tmp_path)
    assert (cost.number, cost.label, cost.operations) == (0, "a30", 15)
    only_tf32 = operations[
        (operations["source"] == "design") & operations["measured_execution"].map(lambda each: "tf32" in each)
    ]
    assert cost.rows == len(only_tf32)
    assert 0 < cost.gpu_hours < 0.02


def test_a_campaign_needs_networks_or_a_design():
    content = {"campaign": "test", "gpus": {"a30": {"device": "virtual:a30"}}}
    with pytest.raises(ConfigError, match="networks: is missing, and so is design"):
        config.parse(content)
    assert config.parse(content | {"design": {"operations": 5}}).networks == []


def test_a_gpu_that_nobody_knows_bounds_nothing():
    with pytest.raises(UnknownGpuError, match="h300"):
        next(draw.drawn_operations(DesignConfig(operations=1, gpu="h300"), PASSES))


def test_blocks_may_be_functions():
    block = Block(Calls(torch.add), [Input((2, 3)), Input((3,), grad=False)])
    (call,) = trace_block(block, "add", learns=True)
    assert call.operation.function == "torch.add"
    assert [tensor.grad for tensor in call.operation.tensors] == [True, False]
