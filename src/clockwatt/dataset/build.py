"""Joining the measurements of a campaign into one dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clockwatt import files, layout, records
from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.dataset import schema
from clockwatt.dataset.join import Cards, Catalogue, joined
from clockwatt.dataset.quality import QualityReport
from clockwatt.errors import DataFileError
from clockwatt.progress import progress, say

_OUTPUTS = {
    records.OPERATION: (schema.OPERATIONS_FILE, schema.OPERATIONS_SCHEMA),
    records.NETWORK: (schema.NETWORKS_FILE, schema.NETWORKS_SCHEMA),
    records.ANCHOR: (schema.ANCHORS_FILE, schema.ANCHORS_SCHEMA),
}


def build_dataset(config: CampaignConfig, measurements_dir: Path, catalogue_dir: Path, output_dir: Path) -> None:
    """Join every measurement of a campaign with the catalogue, flag it, and count it.

    Writes `operations.parquet`, `networks.parquet`, `anchors.parquet`, `calibration.parquet` and `quality.json`. Every
    row that was measured is in one of them. Files are streamed, one row group each, so memory does not grow with the
    campaign.

    Parameters
    ----------
    config
        The campaign: it names the files.
    measurements_dir
        Folder with `{gpu}/{point}/…`, see `clockwatt.layout`.
    catalogue_dir
        Folder with `operations.parquet` and `networks.parquet`.
    output_dir
        Where the dataset goes.

    Raises
    ------
    DataFileError
        If a file of the campaign is missing, damaged, of another kind or of another GPU or operating point.
    OutputError
        If the dataset cannot be written; what was there stays.
    """
    catalogues = {
        records.OPERATION: Catalogue.read(
            catalogue_dir / "operations.parquet", records.OPERATION_SCHEMA, "operation_id"
        ),
        records.NETWORK: Catalogue.read(catalogue_dir / "networks.parquet", records.NETWORK_SCHEMA, "network_id"),
    }
    quality = QualityReport(config.campaign)
    points = [(label, point) for label, gpu in config.gpus.items() for point in gpu.points]
    with ExitStack() as stack, progress("dataset", len(points)) as advance:
        writers = {kind: _open(stack, output_dir / name, columns) for kind, (name, columns) in _OUTPUTS.items()}
        for gpu, point in points:
            _add_point(config, measurements_dir, gpu, point, catalogues, writers, quality)
            advance(f"{gpu} {point}")
    _join_calibration(config, measurements_dir, output_dir / schema.CALIBRATION_FILE)
    report = quality.report()
    files.write_text(json.dumps(report, indent=2) + "\n", output_dir / schema.QUALITY_FILE)
    say(
        f"dataset: {report['rows']} rows, {report['virtual_rows']} of them virtual; "
        f"flags and gaps are counted in {schema.QUALITY_FILE}"
    )


def _add_point(
    config: CampaignConfig,
    measurements_dir: Path,
    gpu: str,
    point: OperatingPoint,
    catalogues: dict[str, Catalogue],
    writers: dict[str, pq.ParquetWriter],
    quality: QualityReport,
) -> None:
    folder = layout.point_dir(gpu, point)
    paths = [measurements_dir / path for path in layout.measurement_files(config) if path.parent == folder]
    cards = Cards.read(paths)
    seen: dict[str, set[tuple[str, str, bool]]] = {kind: set() for kind in _OUTPUTS}
    for path in paths:
        for kind, rows in _by_kind(path, gpu, str(point)):
            table = joined(rows, _OUTPUTS[kind][1], catalogues.get(kind), cards)
            writers[kind].write_table(table)
            quality.add(table)
            seen[kind].update(zip(*(rows[name].to_pylist() for name in ("subject_id", "pass", "tf32")), strict=True))
    missing = {
        kind: {
            (key, pass_)
            for key, pass_, tf32 in catalogue.wanted - seen[kind]
            if pass_ in config.passes and tf32 in config.gpu(gpu).tf32
        }
        for kind, catalogue in catalogues.items()
    }
    quality.close_point(gpu, str(point), cards.factors, missing)


def _by_kind(path: Path, gpu: str, point: str) -> Iterator[tuple[str, pa.Table]]:
    rows = files.read_table(path, records.MEASUREMENT_SCHEMA)
    for column, expected in (("gpu", gpu), ("point", point)):
        strangers = set(rows[column].to_pylist()) - {expected}
        if strangers:
            raise DataFileError(
                f"{path}: holds rows of {column} {min(strangers)!r}, not {expected!r}. It lies in the wrong folder: "
                "delete it and run `clockwatt measure` for this GPU and operating point."
            )
    for kind in _OUTPUTS:
        table = rows.filter(pc.field("kind") == kind)
        if table.num_rows:
            yield kind, table


def _open(stack: ExitStack, path: Path, columns: pa.Schema) -> pq.ParquetWriter:
    aside = stack.enter_context(files.written_aside(path))
    return stack.enter_context(pq.ParquetWriter(aside, columns, compression=files.COMPRESSION))


def _join_calibration(config: CampaignConfig, measurements_dir: Path, output: Path) -> None:
    with ExitStack() as stack:
        writer = _open(stack, output, records.CALIBRATION_SCHEMA)
        for path in layout.calibration_files(config):
            writer.write_table(files.read_table(measurements_dir / path, records.CALIBRATION_SCHEMA))
