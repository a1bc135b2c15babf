"""Join the measurements of a campaign, and its catalogue with those of reference data, into one dataset."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from clockwatt.config import CampaignConfig, OperatingPoint
from clockwatt.dataset.join import Catalogue, Point, joined
from clockwatt.dataset.quality import QualityReport
from clockwatt.dataset.reference import Source, references
from clockwatt.errors import DamagedFileError, DataFileError
from clockwatt.io import files
from clockwatt.io.progress import progress, say
from clockwatt.io.seal import SealedWriter
from clockwatt.schema import layout, records, tables
from clockwatt.schema.records import CALL_SCHEMA, NETWORK_SCHEMA, OPERATION_SCHEMA

_OUTPUTS = {
    records.OPERATION: (layout.OPERATIONS_FILE, tables.OPERATIONS_SCHEMA),
    records.NETWORK: (layout.NETWORKS_FILE, tables.NETWORKS_SCHEMA),
    records.ANCHOR: (layout.ANCHORS_FILE, tables.ANCHORS_SCHEMA),
}

_Part = tuple[list[Source], str, OperatingPoint]
"""A GPU at an operating point, and who measured it: the campaign alone, or the reference data that have it."""
_MEASURED_KEY = ("subject_id", "pass", "execution")
_NAMED = 5
_UNLIKE = "networks that the campaign has with other calls or another optimizer"


@files.damaged_set_aside()
def build_dataset(config: CampaignConfig, measurements_dir: Path, catalogue_dir: Path, output_dir: Path) -> None:
    """Join every measurement of a campaign, and the reference data it names, with the catalogue; flag it and count it.

    Writes `operations.parquet`, `networks.parquet`, `anchors.parquet`, `calibration.parquet` and `quality.json`, and in
    `catalogue/` what all of these rows measured. Every row that the campaign measured is in one of them; of reference
    data, `quality.json` counts what is not. Files are read in batches, so memory does not grow with the campaign.

    Parameters
    ----------
    config
        The campaign: it names the files.
    measurements_dir
        Folder with `{gpu}/{point}/…`, see `clockwatt.schema.layout`.
    catalogue_dir
        Folder with `operations.parquet`, `calls.parquet` and `networks.parquet`.
    output_dir
        Where the dataset goes.

    Raises
    ------
    ConfigError
        If a label of the campaign stands for another device in the reference data.
    DataFileError
        If a file of the campaign is missing, damaged, of another kind or of another GPU or operating point. All that
        are damaged are set aside.
    OutputError
        If the dataset cannot be written; what was there stays.
    """
    sources = [Source(config, measurements_dir, catalogue_dir), *references(config)]
    with _all_damaged_at_once(sources[0]):
        join_sources(config.campaign, sources, output_dir)


@contextlib.contextmanager
def _all_damaged_at_once(own: Source) -> Iterator[None]:
    """Report all damaged files of the campaign at once; the next run writes them again."""
    try:
        yield
    except DamagedFileError as error:
        also = files.set_aside_damaged(own.files())
        if not also:
            raise
        named = ", ".join(map(str, also[:_NAMED])) + (f" and {len(also) - _NAMED} more" if len(also) > _NAMED else "")
        raise DamagedFileError(f"{error} So are set aside: {named}.") from error


def join_sources(campaign: str, sources: list[Source], output_dir: Path) -> None:
    """Join measurements, reference data alone among them, into a dataset; otherwise as `build_dataset`.

    Parameters
    ----------
    campaign
        What the dataset calls it.
    sources
        The campaign's own first. Of a GPU at an operating point that it lacks, all reference data are joined.
    output_dir
        Where the dataset goes.

    Raises
    ------
    DataFileError, OutputError
        As in `build_dataset`.
    """
    quality = QualityReport(campaign)
    parts = _parts(sources, quality)
    unlike = dict(zip(sources, join_catalogues(sources, output_dir / layout.CATALOGUE), strict=True))
    catalogues = {source: _catalogues(source) for source in sources}
    with ExitStack() as stack, progress("dataset", len(parts)) as advance:
        writers = {
            kind: stack.enter_context(files.table_writer(output_dir / name, columns))
            for kind, (name, columns) in _OUTPUTS.items()
        }
        for own, gpu, point in parts:
            _add_point(own, gpu, point, catalogues, unlike, writers, quality)
            advance(f"{gpu} {point}")
    _join_calibration(parts, output_dir / layout.CALIBRATION_FILE)
    report = quality.report()
    files.write_text(json.dumps(report, indent=2) + "\n", output_dir / layout.QUALITY_FILE)
    say(
        f"dataset: {report['rows']} measurements, {report['virtual_rows']} of them on virtual GPUs. "
        f"Flags and missing measurements: {layout.QUALITY_FILE}"
    )


def _parts(sources: list[Source], quality: QualityReport) -> list[_Part]:
    """Every GPU and operating point once: from the campaign if it measured it, else from all reference data with it."""
    parts: dict[tuple[str, str], _Part] = {}
    for source in sources:
        if source.reference is not None:
            quality.add_reference(source.reference)
        for gpu, point in source.points():
            measured_by, _, _ = parts.setdefault((gpu, str(point)), ([], gpu, point))
            if source.reference is None or all(other.reference for other in measured_by):
                measured_by.append(source)
            else:
                paths = source.measurement_files(gpu, point)
                rows = sum(files.read_table(path, records.MEASUREMENT_SCHEMA, ["kind"]).num_rows for path in paths)
                quality.leave_out(source.reference, f"{gpu} {point}: measured by the campaign itself", rows)
    return list(parts.values())


def _add_point(
    sources: list[Source],
    gpu: str,
    point: OperatingPoint,
    catalogues: dict[Source, dict[str, Catalogue]],
    unlike: dict[Source, frozenset[NetworkKey]],
    writers: dict[str, SealedWriter],
    quality: QualityReport,
) -> None:
    of_point = Point.read([path for source in sources for path in source.measurement_files(gpu, point)])
    seen: dict[str, set[tuple[str, str, str]]] = {kind: set() for kind in _OUTPUTS}
    for source in sources:
        for path in source.measurement_files(gpu, point):
            for kind, rows in _by_kind(path, gpu, str(point)):
                seen[kind].update(zip(*(rows[name].to_pylist() for name in _MEASURED_KEY), strict=True))
                if kind == records.NETWORK and source.reference is not None:
                    kept = without_networks(rows, unlike[source])
                    quality.leave_out(source.reference, _UNLIKE, rows.num_rows - kept.num_rows)
                    rows = kept
                table = joined(rows, _OUTPUTS[kind][1], catalogues[source].get(kind), of_point)
                writers[kind].write_table(table)
                quality.add(table)
    missing = {
        kind: {key for source in sources for key in _missing(source, gpu, catalogues[source][kind], seen[kind])}
        for kind in (records.OPERATION, records.NETWORK)
    }
    references_of = [source.reference for source in sources if source.reference is not None]
    quality.close_point(gpu, str(point), of_point.factors, missing, references_of)


def _missing(
    source: Source, gpu: str, catalogue: Catalogue, seen: set[tuple[str, str, str]]
) -> Iterator[tuple[str, str]]:
    """Return what a source's campaign wants measured on a GPU and has no row for, as (id, pass)."""
    passes, settings_of = source.config.passes, functools.cache(source.config.gpu(gpu).execution_of)
    for key, pass_, wanted, operation in catalogue.wanted:
        settings = settings_of(wanted, operation)
        if pass_ in passes and not seen.issuperset((key, pass_, one) for one in settings):
            yield key, pass_


def _catalogues(source: Source) -> dict[str, Catalogue]:
    folder = source.catalogue
    return {
        records.OPERATION: Catalogue.read(folder / layout.OPERATIONS_FILE, records.OPERATION_SCHEMA, "operation_id"),
        records.NETWORK: Catalogue.read(folder / layout.NETWORKS_FILE, records.NETWORK_SCHEMA, "network_id"),
    }


def _by_kind(path: Path, gpu: str, point: str) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of a file, a batch of one kind at a time."""
    for rows in files.read_batches(path, records.MEASUREMENT_SCHEMA):
        for column, expected in (("gpu", gpu), ("point", point)):
            strangers = set(pc.unique(rows[column]).to_pylist()) - {expected}
            if strangers:
                raise DataFileError(
                    f"{path}: holds rows of {column} {min(strangers)!r}, not {expected!r}. It is in the wrong "
                    "folder: delete it and run `clockwatt measure` for this GPU and operating point."
                )
        for kind in _OUTPUTS:
            table = rows.filter(pc.field("kind") == kind)
            if table.num_rows:
                yield kind, table


def _join_calibration(parts: list[_Part], output: Path) -> None:
    with files.table_writer(output, records.CALIBRATION_SCHEMA) as writer:
        for sources, gpu, point in parts:
            for source in sources:
                path = source.measurements / layout.calibration_file(gpu, point)
                writer.write_table(files.read_table(path, records.CALIBRATION_SCHEMA))


NetworkKey = tuple[str, str]
"""Network id and pass."""

_OPERATION_KEY = ["operation_id", "pass"]
_HOW_IT_IS_MEASURED = {"measured_execution", "measured_quantities"}
_NETWORK_KEY = ["network_id", "pass"]


def join_catalogues(sources: Sequence[Source], output_dir: Path) -> list[frozenset[NetworkKey]]:
    """Write `operations.parquet`, `calls.parquet` and `networks.parquet` of all sources; the first source wins.

    An operation's id identifies it fully. A network's does not: it may have been traced with another optimizer or by
    another version.

    Returns
    -------
    list of frozenset
        For each source, its networks that one before it has under the same id and pass, but not alike.

    Raises
    ------
    DataFileError
        If a catalogue is missing, damaged or of another kind.
    OutputError
        If a file cannot be written.
    """
    operations, calls, networks = [], [], []
    known: dict[NetworkKey, str] = {}
    unlike = []
    for source in sources:
        operations.append(files.read_table(source.catalogue / layout.OPERATIONS_FILE, OPERATION_SCHEMA))
        table = files.read_table(source.catalogue / layout.NETWORKS_FILE, NETWORK_SCHEMA)
        own = {(row["network_id"], row["pass"]): _described(row) for row in table.to_pylist()}
        unlike.append(frozenset(key for key, network in own.items() if known.get(key, network) != network))
        new = own.keys() - known.keys()
        networks.append(_of_networks(table, new))
        calls.append(_of_networks(files.read_table(source.catalogue / layout.CALLS_FILE, CALL_SCHEMA), new))
        known = own | known
    files.write_table(_first_of_each(pa.concat_tables(operations)), output_dir / layout.OPERATIONS_FILE)
    files.write_table(pa.concat_tables(calls), output_dir / layout.CALLS_FILE)
    files.write_table(pa.concat_tables(networks), output_dir / layout.NETWORKS_FILE)
    return unlike


def without_networks(rows: pa.Table, networks: frozenset[NetworkKey]) -> pa.Table:
    """Return measurements of networks without those of some of them."""
    keys = zip(rows["subject_id"].to_pylist(), rows["pass"].to_pylist(), strict=True)
    return rows.filter(pa.array([key not in networks for key in keys], pa.bool_()))


def _described(row: dict[str, object]) -> str:
    """Return all settings that determine a pass of the network."""
    return repr({name: value for name, value in row.items() if name not in _HOW_IT_IS_MEASURED})


def _of_networks(rows: pa.Table, networks: set[NetworkKey]) -> pa.Table:
    index = pd.MultiIndex.from_frame(rows.select(_NETWORK_KEY).to_pandas())
    return rows.filter(pa.array(index.isin(sorted(networks)), pa.bool_()))


def _first_of_each(operations: pa.Table) -> pa.Table:
    again = operations.select(_OPERATION_KEY).to_pandas().duplicated()
    return operations.filter(pa.array(~again, pa.bool_()))
