"""Where rows come from: anything becomes one Ibis table."""

from __future__ import annotations

import csv
import difflib
import glob
import gzip
import os
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.data.encode import as_text
from blindbayes.data.values import NUMBER_PATTERN, Untyped, untyped
from blindbayes.errors import ConfigError, DataError
from blindbayes.lazy import lazy

if TYPE_CHECKING:
    import ibis
    import narwhals.stable.v2 as nw
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    ibis = lazy("ibis")
    nw = lazy("narwhals.stable.v2")
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

_URL = re.compile(r"^[a-z][a-z0-9+]*://", re.IGNORECASE)
MEMORY_LIMIT = "512MB"  # of the embedded DuckDB; larger work spills to disk
_LOAD_BYTES = 128 * 1024 * 1024  # a smaller CSV is parsed once into memory; a larger one is scanned per column


@dataclass(slots=True)
class Source:
    """A table to count. Close it, or use it as a context manager, to let go of its connection."""

    table: Any
    label: str  # for logs and reports: the kind of source, never a path's content or a credential
    columns: tuple[str, ...]
    _backend: Any = field(default=None, repr=False)
    _owned: bool = field(default=True, repr=False)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect, if the connection was made here."""
        if self._backend is not None and self._owned:
            self._backend.disconnect()
        self._backend = None

    def kept(self, rows: Any) -> Any:
        """The rows of an expression over the table, computed once where the engine is this process's own."""
        if self.label not in ("csv", "parquet", "frame"):
            return rows
        try:
            return self._backend.create_table("kept", rows, temp=True, overwrite=True)
        except Exception as cause:  # an engine's text may quote a row
            problem = type(cause).__name__
        raise DataError(f"the data source failed while its rows were read ({problem})")

    def require_columns(self, codebook: Codebook, *, extra_columns: str = "refuse", labels: bool = True) -> None:
        """Refuse a table that lacks a column of the codebook, or has one that the codebook does not know."""
        require_columns(self.columns, codebook, extra_columns=extra_columns, labels=labels)


def open_source(source: Any, *, table: str | None = None, memory_limit: str = MEMORY_LIMIT, ordered: bool = False) -> Source:
    """Open a frame, a CSV or Parquet path (wildcards allowed), a database URL, or an Ibis table.

    `ordered` keeps the rows of a file in order, which counting does not need and pays for.

    A database URL names its table in the fragment or in `table`: ``postgres://user@host/db#schema.visits``,
    ``duckdb:///path/to/file.duckdb#visits``.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, ibis.Table):
        return _checked(Source(source, "ibis table", tuple(source.columns), None, False))
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if isinstance(source, str):
        return _open_url(source, table) if _URL.match(source) else _open_path(source, memory_limit, ordered)
    return _open_frame(source, memory_limit)


def is_source(source: Any) -> bool:
    """Whether this is a path, URL, opened source or Ibis table, which are counted where they lie; a frame is not."""
    return isinstance(source, str | os.PathLike | Source | ibis.Table)


def require_columns(
    columns: Sequence[str], codebook: Codebook, *, extra_columns: str = "refuse", labels: bool = True, required: bool = True
) -> None:
    """The column rules, for tables and frames alike. Names of columns are public; values are not looked at."""
    require_distinct(columns)
    present = set(columns)
    wanted = [*codebook.names, *([codebook.target] if labels else [])]
    if required:
        for name in wanted:
            if name not in present:
                near = difflib.get_close_matches(name, sorted(present - {*wanted}), n=1)
                hint = f"is {near[0]!r} a misspelling of it? Rename it" if near else "add it"
                raise DataError(f"column {name!r} of the codebook is missing from the table; {hint} or change the codebook")
    known = {*codebook.names, codebook.target}
    if codebook.identifier is not None:
        known |= {part.column for part in codebook.identifier.parts}
    if extra_columns == "refuse":
        for name in columns:
            if name not in known:
                raise DataError(
                    f"column {name!r} is not in the codebook; drop it, declare it, or leave it unread by extra_columns='ignore'"
                )
    elif extra_columns != "ignore":
        raise ConfigError("extra_columns is 'refuse' or 'ignore'")


def require_distinct(columns: Sequence[str], *, fold: bool = False) -> None:
    """Refuse a column name that stands twice; with `fold`, also one that differs from another only in case."""
    seen: dict[str, str] = {}
    for name in columns:
        key = name.casefold() if fold else name
        if seen.get(key) == name:
            raise DataError(f"column {name!r} stands twice in the table; rename or drop one")
        if key in seen:
            raise DataError(f"columns {seen[key]!r} and {name!r} differ in upper and lower case only; rename or drop one")
        seen[key] = name


def read_public(path: str, *, text: Sequence[str] = (), missing: Sequence[str] = ()) -> pa.Table:
    """A whole small file as an Arrow table with guessed types. For public tables, from which a codebook is made.

    Columns named in `text` stay text; a text of `missing` does not keep a column from being numeric.
    """
    with open_source(path, ordered=True) as source:
        table: pa.Table = source.table.to_pyarrow()
    if source.label == "csv":
        for position, name in enumerate(table.column_names):
            column = table.column(position)
            present = pc.if_else(pc.is_in(column, value_set=pa.array(["", *missing], pa.string())), None, column)
            if name not in text and pc.all(pc.match_substring_regex(present, NUMBER_PATTERN)).as_py():
                table = table.set_column(position, name, present.cast(pa.float64()))
    return table


def _embedded(memory_limit: str, ordered: bool = False) -> Any:
    backend = ibis.duckdb.connect(memory_limit=memory_limit)
    # Nothing is fetched from a network by a data source.
    backend.raw_sql("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
    backend.raw_sql(f"SET preserve_insertion_order={'true' if ordered else 'false'}")
    return backend


def _open_path(path: str, memory_limit: str, ordered: bool) -> Source:
    lower = path.lower()
    wild = any(mark in path for mark in "*?[")
    if not wild and not Path(path).exists():
        where = "" if Path(path).is_absolute() else " in the folder where the command was started"
        raise DataError(f"{path!r} does not exist{where}")
    backend = _embedded(memory_limit, ordered)
    with _reading(repr(path), backend):
        if lower.endswith((".parquet", ".pq")) or Path(path).is_dir():
            pattern = os.path.join(path, "*.parquet") if Path(path).is_dir() else path
            table = backend.read_parquet(pattern)
            return _checked(Source(table, "parquet", tuple(table.columns), backend))
        if lower.endswith((".csv", ".csv.gz", ".tsv")):
            delimiter = "\t" if lower.endswith(".tsv") else ","
            for file in glob.glob(path) if wild else [path]:
                _require_header(file, delimiter)
            # Text as it stands in the file: engines that guess types turn 007 into 7 and ? into an error. Quote, escape and
            # comment are fixed too, since DuckDB guesses them from a sample: it takes 'a' for a quoted a.
            table = backend.read_csv(
                path, all_varchar=True, header=True, delim=delimiter, quote='"', escape='"', comment="", skip=0
            )
            if not wild and Path(path).stat().st_size <= _LOAD_BYTES:
                table = backend.create_table("rows", table, temp=True)  # parsed once, not once per column
            return _checked(Source(table, "csv", tuple(table.columns), backend))
    backend.disconnect()
    raise ConfigError(f"{path!r}: a path ends in .csv, .csv.gz, .tsv or .parquet, or is a folder of Parquet files")


@contextmanager
def _reading(what: str, backend: Any) -> Iterator[None]:
    try:
        yield
    except (DataError, ConfigError):
        backend.disconnect()
        raise
    except Exception as cause:  # every engine has its own errors, and their texts quote rows
        backend.disconnect()
        raise DataError(f"{what} cannot be read as a table ({type(cause).__name__})") from None


def _require_header(path: str, delimiter: str) -> None:
    """DuckDB renames a second column of the same name, in any case; a header is read here to refuse it instead."""
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file, delimiter=delimiter), None)
    except (UnicodeDecodeError, csv.Error, OSError):
        raise DataError(f"{path!r} is not UTF-8 text with a header row") from None
    if not header:
        raise DataError(f"{path!r} is empty; a table has a header row")
    require_distinct(header, fold=True)


def _open_url(url: str, table: str | None) -> Source:
    parts = urlsplit(url)
    name = table or unquote(parts.fragment)
    scheme = parts.scheme.lower()
    if not name:
        raise ConfigError("a database URL names its table after #, for example postgres://user@host/db#visits")
    bare = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
    file = unquote(parts.netloc + parts.path)
    if scheme == "duckdb" and not Path(file).is_file():
        raise DataError(
            f"there is no DuckDB file {file!r}: write duckdb:///folder/visits.duckdb#table for a path from the root, "
            "duckdb://visits.duckdb#table for one from the folder where the command was started"
        )
    try:
        if scheme == "duckdb":
            backend = ibis.duckdb.connect(file, read_only=True)
        else:
            backend = ibis.connect(bare)
    except Exception as cause:  # drivers put the URL, and so its password, into their messages
        if scheme == "duckdb":
            raise DataError(
                f"the DuckDB file {Path(file).name!r} cannot be read ({type(cause).__name__}): close it where it is open for "
                "writing; DuckDB lets nobody else in meanwhile"
            ) from None
        raise DataError(
            f"the {scheme} database cannot be opened ({type(cause).__name__}); check the URL, its server and the driver extra"
        ) from None
    schema, _, last = name.rpartition(".")
    try:
        found = backend.table(last, database=schema or None)
    except Exception as cause:
        backend.disconnect()
        raise DataError(
            f"the {scheme} database has no readable table of that name ({type(cause).__name__}); it stands after # in the URL"
        ) from None
    return _checked(Source(found, scheme, tuple(found.columns), backend))


def _open_frame(frame: Any, memory_limit: str) -> Source:
    table = to_arrow(frame)
    require_distinct(table.column_names, fold=True)
    if not table.column_names:
        raise DataError("the table has no columns")
    backend = _embedded(memory_limit)
    with _reading("the frame", backend):
        return _checked(
            Source(backend.create_table("frame", _plain_types(table), temp=True), "frame", tuple(table.column_names), backend)
        )


def to_arrow(frame: Any, *, total: bool = False) -> pa.Table:
    """An Arrow table from a pandas, polars, Arrow or other narwhals frame; duplicate column names are refused.

    An object that is neither text, number nor truth value, in a column of mixed ones, is an error unless `total`.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        require_distinct(frame.column_names)
        return frame
    wrapped = _wrapped(frame)
    # Column by column: a frame as a whole brings its index along, and one column of mixed objects stops them all.
    found = {str(name): _frame_column(wrapped[name]) for name in wrapped.columns}
    texts = {
        name: column.texts if total and isinstance(column, Untyped) else as_text(column, name) for name, column in found.items()
    }
    return pa.table(texts)


def frame_columns(frame: Any, names: Container[str] | None = None) -> dict[str, Any]:
    """The columns of a frame as `encode` takes them: of one type, or value by value where a frame holds objects.

    `names` picks some of them.
    """
    if isinstance(frame, pa.Table | pa.RecordBatch):
        table = to_arrow(frame)
        return {name: table.column(name) for name in table.column_names if names is None or name in names}
    wrapped = _wrapped(frame)
    picked = [name for name in wrapped.columns if names is None or str(name) in names]
    return {str(name): _frame_column(wrapped[name], inferred=False) for name in picked}


def _wrapped(frame: Any) -> Any:
    require_distinct([str(name) for name in getattr(frame, "columns", [])])
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise DataError(
            f"a {type(frame).__name__} is no table; pass a pandas, polars or Arrow frame, a path or a URL"
        ) from None


def _frame_column(series: Any, *, inferred: bool = True) -> pa.Array | Untyped:
    """A column; with `inferred` one of objects is of the type that Arrow finds for all of them, if it does."""
    if inferred or series.dtype != nw.Object:
        try:
            column: pa.Array = series.to_arrow()
        except (pa.ArrowException, OverflowError, ValueError):
            pass
        else:
            return column
    return untyped(np.asarray(series.to_numpy(), dtype=object))


def _plain_types(table: pa.Table) -> pa.Table:
    """Dictionary columns as plain ones (DuckDB makes enums of them), nulls-only columns as text, half floats as floats."""
    for position, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(column.type.value_type))
        elif pa.types.is_null(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.string()))
        elif pa.types.is_float16(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.float32()))
    return table


def _checked(source: Source) -> Source:
    if not source.columns:
        raise DataError("the table has no columns")
    return source
