"""Reading and writing the project's Parquet files: whole or not at all, and never anything foreign."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from clockwatt.errors import DamagedFileError, DataFileError, OutputError
from clockwatt.io import former_settings, seal
from clockwatt.io.resources import comes_with_clockwatt
from clockwatt.io.seal import COMPRESSION as COMPRESSION
from clockwatt.io.seal import SealedWriter
from clockwatt.schema.records import FORMER_NAMES, READABLE_SINCE, SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 20_000
"""Rows that are held at once where a file is read in parts."""
DAMAGED = ".damaged"
"""Suffix of the name of a damaged file that is set aside."""
_MAGIC = b"PAR1"
_sets_aside = ContextVar("whether a damaged file may be renamed", default=False)
_ASIDE = ".part"
_ROOM = "Free some space or make the folder writable, then run the same command again; nothing is half-written."


@contextlib.contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is renamed to `path`, on any error it is removed.

    Raises
    ------
    OutputError
        If the folder cannot be written or the disk is full. `path` keeps what it held before.
    """
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_ASIDE, dir=path.parent)
        os.close(handle)
        aside = Path(name)
        yield aside
        seal.seal(aside)
        # mkstemp is private to the user by design; results are shared, so they get what the umask allows
        aside.chmod(0o666 & ~_umask())
        with aside.open("rb+") as written:
            os.fsync(written.fileno())
        aside.replace(path)
    except OSError as error:
        misnamed = isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError)
        raise OutputError(
            f"{path}: cannot be written ({os.strerror(error.errno) if error.errno else error}).",
            "Name a file in a folder." if misnamed else _ROOM,
        ) from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_written_aside(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; on success it takes the place of `path`, on any error it is removed.

    Raises
    ------
    OutputError
        If it cannot be made, or cannot take the place of `path`, which then keeps what it held before.
    """
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=_ASIDE, dir=path.parent))
        yield aside
        aside.chmod(0o777 & ~_umask())
        _replace_folder(aside, path)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be replaced ({os.strerror(error.errno) if error.errno else error}).", _ROOM
        ) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)


def _replace_folder(new: Path, path: Path) -> None:
    """Rename `new` to `path`, and remove the folder that was there."""
    if not path.exists():
        new.replace(path)
        return
    # a folder that is not empty cannot be renamed over
    old = new.with_name(f"{new.name.removesuffix(_ASIDE)}.replaced{_ASIDE}")
    path.replace(old)
    try:
        new.replace(path)
    except OSError:
        old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove_folders(folders: Iterable[Path]) -> None:
    """Remove folders with all that they hold.

    Raises
    ------
    OutputError
        If one cannot be removed.
    """
    for folder in folders:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be removed ({error}). Remove it by hand, it is not used.") from error


def left_aside(folder: Path) -> list[Path]:
    """Return folders in `folder` that a process which was killed was writing aside."""
    return [path for path in folder.glob(f".*{_ASIDE}") if path.is_dir()]


def write_table(table: pa.Table, path: Path) -> None:
    """Write `table` to `path` as Parquet, whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    with table_writer(path, table.schema) as writer:
        writer.write_table(table)


@contextlib.contextmanager
def table_writer(path: Path, schema: pa.Schema) -> Iterator[SealedWriter]:
    """Yield what writes tables one after another into one file, whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written. `path` keeps what it held before.
    """
    with written_aside(path) as aside, SealedWriter(aside, schema) as writer:
        yield writer


def write_text(text: str, path: Path) -> None:
    """Write `text` to `path` in UTF-8, whole or not at all.

    Raises
    ------
    OutputError
        If it cannot be written.
    """
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def damaged_set_aside() -> Iterator[None]:
    """Within, and in functions that it decorates, damaged files are renamed, so that the next run makes them anew.

    For stages that write what is read. Whoever only reads changes nothing: the folder may be somebody else's.
    """
    before = _sets_aside.set(True)
    try:
        yield
    finally:
        _sets_aside.reset(before)


def open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetFile:
    """Open a Parquet file and check that it holds rows of the kind `schema` describes.

    Raises
    ------
    DamagedFileError
        If the file is not what was written to it; within `damaged_set_aside` it is set aside as `….damaged`.
    DataFileError
        If the file is missing, is no readable Parquet file, lacks columns of `schema` or has them with another type, or
        another version of clockwatt wrote it whose columns meant something else.
    """
    try:
        if seal.is_whole(path) is False:
            raise _damaged(path, "damaged (its digest is of other bytes)")
        parquet = pq.ParquetFile(path)
    except (FileNotFoundError, NotADirectoryError):
        raise DataFileError(f"{path}: no such file.", "Run the stage that writes it first.") from None
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"not a readable Parquet file ({str(error).splitlines()[0]})") from error
    try:
        check_schema(path, parquet.schema_arrow, schema)
    except DataFileError:
        parquet.close()
        raise
    return parquet


def _damaged(path: Path, what: str) -> DamagedFileError:
    """Say what is wrong with a file and what to do; rename it where that may be done."""
    if set_aside(path):
        return DamagedFileError(
            f"{path}: {what}. It is set aside as {path.name}{DAMAGED}; run the workflow again, "
            "which makes anew what it held."
        )
    if comes_with_clockwatt(path):
        return DamagedFileError(f"{path}: {what}. It came with clockwatt: install clockwatt anew.")
    return DamagedFileError(f"{path}: {what}.", "Delete it and run the workflow, or the stage that writes it, again.")


def set_aside(path: Path, *, anything: bool = False) -> bool:
    """Rename a damaged file within `damaged_set_aside`, and say whether it was.

    What never was Parquet may be somebody's and stays, but for `anything`.
    """
    if not _sets_aside.get() or comes_with_clockwatt(path):
        return False
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            ours = file.read(len(_MAGIC)) == _MAGIC or path.stat().st_size == 0
        if ours or anything:
            path.rename(path.with_name(f"{path.name}{DAMAGED}"))
            return True
    return False


def set_aside_damaged(paths: Iterable[Path]) -> list[Path]:
    """Rename every file whose bytes are not what was written to it, within `damaged_set_aside`; their names."""
    found = []
    for path in paths:
        try:
            whole = seal.is_whole(path) is not False
            if whole:
                pq.read_metadata(path)
        except FileNotFoundError:
            continue
        except (pa.ArrowException, OSError):
            whole = False
        if not whole and set_aside(path):
            found.append(path)
    return found


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file of the kind `schema` describes (all of it, or some `columns`).

    A nullable column that the file lacks, because an older version wrote it, is null throughout; one that had another
    name then is found by it.

    Raises
    ------
    DataFileError
        See `open_parquet`; also if a page of the file is damaged.
    """
    with open_parquet(path, schema) as parquet:
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        with _named_damaged(path):
            table = parquet.read(columns=stored_columns(parquet.schema_arrow.names, wanted.names))
            return with_columns(table, schema, wanted.names)


def read_frame(path: Path, command: str) -> pd.DataFrame:
    """Read a Parquet file of any columns that a command of clockwatt writes.

    Raises
    ------
    DataFileError
        If it is missing or damaged.
    """
    try:
        frame: pd.DataFrame = pq.read_table(path).to_pandas()
    except FileNotFoundError:
        raise DataFileError(f"{path}: no such file. `clockwatt {command}` writes it.") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise DataFileError(f"{path}: cannot be read ({error}).") from error
    return frame


def read_batches(
    path: Path,
    schema: pa.Schema,
    columns: list[str] | None = None,
    row_groups: Callable[[pq.FileMetaData], list[int]] | None = None,
    batch_rows: int | None = None,
) -> Iterator[pa.Table]:
    """Yield the same in parts, so that memory does not grow with the file.

    Parameters
    ----------
    path, schema, columns
        As for `read_table`.
    row_groups
        Chooses the row groups that are read, by the file's footer; by default all.
    batch_rows
        Rows of a part at most; by default `BATCH_ROWS`.

    Raises
    ------
    DataFileError
        See `read_table`.
    """
    wanted = list(schema.names if columns is None else columns)
    with open_parquet(path, schema) as parquet:
        there = stored_columns(parquet.schema_arrow.names, wanted)
        chosen = None if row_groups is None else row_groups(parquet.metadata)
        batches = parquet.iter_batches(batch_rows or BATCH_ROWS, columns=there, row_groups=chosen)
        while True:
            with _named_damaged(path):
                batch = next(batches, None)
                if batch is None:
                    return
                table = with_columns(pa.Table.from_batches([batch]), schema, wanted)
            yield table


@contextlib.contextmanager
def named_by_user(fix: str) -> Iterator[None]:
    """Within, errors of reading files have this fix: no stage wrote the file."""
    try:
        yield
    except DataFileError as error:
        raise type(error)(error.what, fix if error.fix else "") from error


@contextlib.contextmanager
def _named_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, f"damaged ({str(error).splitlines()[0]})") from error


def stored_columns(found: Collection[str], wanted: Collection[str]) -> list[str]:
    """Names that a file has `wanted` columns under, today's or former ones; columns that it lacks are left out."""
    found = frozenset(found)
    names = (_stored(name, found) for name in wanted)
    return [*(name for name in names if name is not None), *former_settings.stored_instead(found, wanted)]


def with_columns(table: pa.Table, schema: pa.Schema, columns: list[str]) -> pa.Table:
    """Return the table with these columns of `schema`, in this order; those that it lacks are null throughout."""
    wanted = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
    table = former_settings.with_settings(table)
    found, names = {}, frozenset(table.column_names)
    for field in wanted:
        stored = _stored(field.name, names)
        found[field.name] = pa.nulls(table.num_rows, field.type) if stored is None else table[stored]
    return pa.table(found).cast(wanted)


def _stored(name: str, found: Collection[str]) -> str | None:
    """Return the name that a column of today has among those of a file; None where the file lacks it."""
    return next((known for known in (name, FORMER_NAMES.get(name)) if known in found), None)


def check_schema(path: Path, found: pa.Schema, expected: pa.Schema) -> None:
    """Check that a file's columns include those of `expected` that are not nullable, and have the same types.

    Raises
    ------
    DataFileError
        Naming the columns that are missing or of another type, or the version that wrote the file.
    """
    kind = (expected.metadata or {}).get(b"kind", b"expected").decode()
    _check_version(path, found.metadata or {}, kind)
    there = {*found.names, *(today for today, former in former_settings.FORMER.items() if former in found.names)}
    missing = [field.name for field in expected if not field.nullable and _stored(field.name, there) is None]
    if missing:
        raise DataFileError(
            f"{path}: holds no {kind} rows: column {', '.join(repr(name) for name in missing[:3])}"
            f"{f' and {len(missing) - 3} more' if len(missing) > 3 else ''} missing.",
            "Give the right file, or rerun the stage that writes it.",
        )
    names = frozenset(found.names)
    for field in expected:
        stored = _stored(field.name, names)
        if stored is not None and not _readable_as(field.type, found.field(stored).type):
            raise DataFileError(
                f"{path}: column {stored!r} is of type {found.field(stored).type}, not {field.type}.",
                "Rerun the stage that writes it.",
            )


def _readable_as(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Return whether a column has the `wanted` type, or one that pandas or polars gives the same values."""
    types = pa.types
    if types.is_null(found):  # of a column without values
        return True
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_list(wanted):
        lists = types.is_list(found) or types.is_large_list(found)
        return lists and _readable_as(wanted.value_type, found.value_type)
    if types.is_string(wanted):
        return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))
    # pandas has floats where integers are null
    return bool(found == wanted or (types.is_int64(wanted) and types.is_float64(found)))


def _check_version(path: Path, found: dict[bytes, bytes], kind: str) -> None:
    """Refuse files whose columns meant something else; those of other kinds are refused for their columns."""
    if found.get(b"kind", b"").decode() != kind or b"schema_version" not in found:
        return
    version = int(found[b"schema_version"])
    if version > SCHEMA_VERSION:
        raise DataFileError(
            f"{path}: its columns are of version {version}, and this clockwatt knows {SCHEMA_VERSION} at most. "
            "A newer clockwatt wrote it: update this one."
        )
    if version < READABLE_SINCE.get(kind, 1):
        raise DataFileError(
            f"{path}: its columns are of version {version}, and {kind} rows are read since version "
            f"{READABLE_SINCE[kind]}. Run the stage that writes it again: measurements are kept."
        )


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
