"""Sources of rows: files and frames as Arrow batches, any source as an Ibis table."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from blindbayes.codebook import Codebook, Numeric
from blindbayes.data.engines import (
    SCHEMES,
    engine_of,
    fetched,
    fetched_batches,
    is_spark,
    plain_columns,
    require_engine,
    require_order,
    require_sound,
    spark_session,
    spark_table,
)
from blindbayes.data.files import (
    BATCH,
    KINDS,
    Dialect,
    csv_batches,
    excel_table,
    kind_of,
    parquet_batches,
    parquet_columns,
    settled,
)
from blindbayes.data.frames import plain_types, require_distinct, to_arrow
from blindbayes.data.libraries import ibis, pa, pc
from blindbayes.data.mapping import mapped, unreadable_dates
from blindbayes.data.numerals import with_points, with_points_there, without_markers, without_markers_there
from blindbayes.data.values import NUMBER_PATTERN, UnreadableDates
from blindbayes.errors import ConfigError, DataError

_URL = re.compile(r"^[a-z][a-z0-9+]*://", re.IGNORECASE)
MEMORY_LIMIT = "512MB"  # of the embedded DuckDB; larger work spills to disk
_LOCAL = ("csv", "excel", "parquet", "frame", "duckdb")
_USUAL_MARKERS = frozenset(
    ("NA", "N/A", "#N/A", "na", "n/a", "NaN", "nan", "NULL", "Null", "null", "None", "none", "k.A.", "?", "-", "--", ".")
)


@dataclass(slots=True)
class Source:
    """A table to count. Close it, or use it as a context manager, to release its connection."""

    label: str  # kind of source, for logs and reports; never a path or a credential
    columns: tuple[str, ...]
    dialect: Dialect | None = None  # complete, of a text file
    _table: Any = field(default=None, repr=False)
    _backend: Any = field(default=None, repr=False)
    _owned: bool = field(default=True, repr=False)
    _rows: Callable[..., Iterator[pa.RecordBatch]] | None = field(default=None, repr=False)  # of a file: some columns
    _mapped: bool = field(default=False, repr=False)
    watch: Callable[[int, int, str], None] | None = field(default=None, repr=False)  # receives the progress of counting
    _ended: Callable[[], Any] | None = field(default=None, repr=False)  # for a table in a session that stays open
    _dates: Callable[[Codebook], dict[str, Any]] | None = field(default=None, repr=False)  # `unreadable_dates` of a map
    _before: Any = field(default=None, repr=False)  # the table that the map reads
    marks: tuple[str, str] = (".", "")  # decimal mark and separator of thousands of numbers that are written as text

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect, if the connection was made here."""
        if self._backend is not None and self._owned:
            self._backend.disconnect()
        if self._ended is not None:
            self._ended()
        self._backend = self._table = self._ended = None

    @property
    def table(self) -> Any:
        """The rows as an Ibis table; a file is loaded into an embedded engine at first use."""
        if self._table is None and self._rows is not None:
            self._backend, self._table = safely(partial(_loaded, self._rows, self.columns))
        return self._table

    @property
    def is_local(self) -> bool:
        """True if this process reads the rows anyway; a database counts by itself, unless its columns are mapped."""
        return self._mapped or self.label in _LOCAL

    def count(self) -> int:
        """Return the number of rows; of a file, one column is read for it, and nothing is loaded."""
        if self._rows is not None and self._table is None:
            return sum(batch.num_rows for batch in safely(lambda: self._batches(self.columns[:1], None)))
        return int(fetched(self.table.aggregate(rows=self.table.count()))["rows"][0].as_py())

    def unreadable_dates(self, codebook: Codebook) -> dict[str, UnreadableDates]:
        """Count by feature the rows that are missing because the map could not read a date; leave features without any out."""
        conditions = {} if self._dates is None else self._dates(codebook)
        if not conditions:
            return {}
        sums = {f"c{at}": condition.sum() for at, (condition, _) in enumerate(conditions.values())}
        counted = safely(lambda: fetched(self._before.aggregate(**sums))).to_pylist()[0]
        rows = zip(conditions, (form for _, form in conditions.values()), counted.values(), strict=True)
        return {name: UnreadableDates(int(count), form) for name, form, count in rows if count}

    def arrow(self, names: Sequence[str], codebook: Codebook | None = None, table: Any = None) -> pa.Table:
        """Return columns of all rows in memory, in any order."""
        if self._rows is None and (table is not None or not self._decimal_columns(codebook)):
            return safely(lambda: fetched(plain_columns(self.table if table is None else table, names)))
        parts = [pa.table(batch) for batch in self.batches(names, codebook, table, any_order=True)]
        return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({name: [] for name in names})

    def in_order(self, names: Sequence[str], codebook: Codebook | None = None) -> pa.Table:
        """Return columns of all rows in memory, in row order."""
        parts = [pa.table(batch) for batch in self.batches(names, codebook)]
        empty = pa.table({name: pa.array([], pa.string()) for name in names})
        return pa.concat_tables(parts, promote_options="permissive") if parts else empty

    def require_order(self) -> None:
        if self.label == "spark":
            require_order(self.table)

    def batches(
        self,
        names: Sequence[str],
        codebook: Codebook | None = None,
        table: Any = None,
        *,
        any_order: bool = False,
        coded: Container[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """Yield columns by name, in row order, of the source or of `table`, an expression over `rows`.

        With a decimal comma, numeric features of `codebook` get decimal points. `coded` columns may be dictionaries.
        """
        if not any_order:
            self.require_order()
        marked = self._decimal_columns(codebook) if table is None else set()
        batches = safely(partial(self._batches, names, table, coded))
        while (batch := safely(partial(next, batches, None))) is not None:
            if batch.num_rows:
                columns = {name: batch.column(name) for name in names}
                points = {name: with_points(columns[name], *self.marks) for name in marked & {*names}}
                yield columns | points

    def _batches(self, names: Sequence[str], table: Any, coded: Container[str] = ()) -> Iterator[pa.RecordBatch]:
        if self._rows is not None and self._table is None and table is None:
            return self._rows(names, coded=coded)
        return fetched_batches(plain_columns(self.table if table is None else table, names), BATCH)

    def _decimal_columns(self, codebook: Codebook | None) -> set[str]:
        if codebook is None or self.marks == (".", ""):
            return set()
        return {each.name for each in codebook.features if isinstance(each, Numeric)}

    def rows(self, codebook: Codebook) -> Any:
        """Return the rows as an Ibis table whose numbers have decimal points."""
        marked = [name for name in self._decimal_columns(codebook) if name in self.columns]
        marked = [name for name in marked if self.table[name].type().is_string()]
        if not marked:
            return self.table
        return self.table.mutate([with_points_there(self.table[name], *self.marks).name(name) for name in marked])

    def require_columns(self, codebook: Codebook, *, extra_columns: str = "refuse", labels: bool = True) -> None:
        """Raise if the table lacks a column of the codebook, or has an unknown one."""
        require_columns(self.columns, codebook, extra_columns=extra_columns, labels=labels)


def open_source(
    source: Any, *, table: str | None = None, dialect: Dialect | None = None, spark: Mapping[str, Any] | None = None
) -> Source:
    """Open a frame, a CSV, Excel or Parquet path (wildcards allowed), a database URL, an Ibis table, or a table of Spark.

    A database URL names its table in the fragment or in `table`: ``postgres://user@host/db#schema.visits``,
    ``duckdb:///path/to/file.duckdb#visits``, ``spark://host:7077#db.visits``, ``sc://host:15002#visits``.
    A Spark DataFrame, or a session and `table`, are accepted too; `spark` has settings for a session that is started here.
    """
    if isinstance(source, Source):
        return source
    if _is_expression(source) and engine_of(source) != "pyspark":
        require_engine(engine_of(source))
        require_sound(source._find_backend(use_default=True))
        return _checked(Source("ibis table", tuple(source.columns), None, source, None, False))
    if _is_expression(source) or is_spark(source):
        return _open_spark(source, table)
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if isinstance(source, str):
        if _URL.match(source):
            return _open_url(source, table, spark or {})
        return _open_path(source, dialect or Dialect(), table)
    return _open_frame(source)


def batches_of(table: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of an Ibis table. Errors carry only the type of an engine's error, whose message may quote a row."""
    batches = safely(lambda: fetched_batches(plain_columns(table, names), BATCH))
    while (batch := safely(partial(next, batches, None))) is not None:
        yield batch


def open_table(
    source: Any,
    *,
    map: Mapping[str, Any] | None = None,
    dialect: Dialect | None = None,
    table: str | None = None,
    partly: bool = False,
    spark: Mapping[str, Any] | None = None,
) -> Source:
    """Open a path in any dialect, a URL, an Ibis table or a frame, for `fit`, `predict`, studies and checks.

    `map` renames, recodes and derives columns (`blindbayes.data.mapping`), without changing the table; with `partly`, rules
    whose columns the table lacks are skipped. `dialect` says how values are written; its marks and missing texts hold for
    frames and databases too. `table` is the table of a database or the sheet of a workbook; `spark` has settings for a session
    of Spark. Close the source, or use it as a context manager.
    """
    dialect = dialect or Dialect()
    if map and not is_source(source):
        opened = _open_frame(source, lenient=True)
    else:
        opened = open_source(source, table=table, dialect=dialect, spark=spark)
    is_owned = opened is not source
    if dialect.missing:
        opened = _without_markers(opened, dialect.missing, is_owned=is_owned)
    if dialect.marks != (".", "") and opened.label != "excel":  # whose numbers have points
        opened = replace(opened if is_owned else still_open(opened), marks=dialect.marks)
    if not map:
        return opened
    rules = dict(map)
    try:
        if opened.label == "spark":
            raise ConfigError("maps do not work in Spark: make a view there that has the codebook's columns, and name it")
        made = safely(
            lambda: mapped(opened.table, map, partly=partly, decimal=dialect.decimal, thousands=dialect.thousands),
            "the map cannot be applied to the table",
        )
    except (DataError, ConfigError):
        if opened is not source:
            opened.close()
        raise
    columns = tuple(made.columns)
    require_distinct(columns, fold=True)
    return Source(
        opened.label,
        columns,
        opened.dialect,
        made,
        opened._backend,
        opened is not source,
        _mapped=True,
        _dates=lambda codebook: unreadable_dates(opened.table, rules, codebook, dialect.marks),
        _before=opened.table,
        marks=opened.marks,
    )


def _without_markers(opened: Source, markers: tuple[str, ...], *, is_owned: bool) -> Source:
    """Return the source with markers as missing cells."""
    if opened.label == "spark":
        opened.close()
        raise ConfigError("missing markers do not work in Spark: make a view there that has nulls in their place, and name it")
    if opened._rows is not None and opened._table is None:
        return replace(opened, _rows=without_markers(opened._rows, markers), _owned=is_owned)
    cleared = safely(lambda: without_markers_there(opened.table, markers), "the table cannot be read")
    return replace(opened, _table=cleared, _owned=is_owned and opened._owned)


def is_source(source: Any) -> bool:
    """Return True for a path, URL, opened source, or table of Ibis or Spark; False for a frame."""
    return isinstance(source, str | os.PathLike | Source) or _is_expression(source) or is_spark(source)


def still_open(source: Any) -> Any:
    """Return a source that may be closed while the caller's, if it is one that was opened before, stays open."""
    return replace(source, _owned=False, _ended=None) if isinstance(source, Source) else source


def query_rows(source: Any, codebook: Codebook, *, extra_columns: str, labelled: bool = False) -> pa.Table:
    """Return the rows of a source to classify, in order, or to score, `labelled` and in any order. What was open stays open."""
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns, labels=labelled)
        if labelled:
            return opened.arrow([*codebook.names, codebook.target], codebook)
        if opened.label == "spark":
            raise DataError(
                "rows of a Spark table have no order in which classes could be returned: classify in Spark by the query that "
                "`blindbayes export model.json model.sql --table TABLE --dialect spark` writes, or pass frame.toPandas()"
            )
        return opened.in_order(codebook.names, codebook)
    finally:
        if opened is not source:
            opened.close()


def _is_expression(source: Any) -> bool:
    """Return True for a table of Ibis, without importing Ibis."""
    return "ibis" in sys.modules and isinstance(source, ibis.Table)


def require_columns(
    columns: Sequence[str], codebook: Codebook, *, extra_columns: str = "refuse", labels: bool = True, required: bool = True
) -> None:
    """Raise if columns are missing or unknown. Names of columns are public; no value is read."""
    require_distinct(columns)
    present = set(columns)
    wanted = [*codebook.names, *([codebook.target] if labels else [])]
    if required and (missing := [name for name in wanted if name not in present]):
        raise _missing_columns(missing, sorted(present - {*wanted}))
    known = {*codebook.names, codebook.target}
    if codebook.identifier is not None:
        known |= {part.column for part in codebook.identifier.parts}
    if extra_columns == "refuse":
        for name in columns:
            if name not in known:
                raise DataError(
                    f"column {name!r} is not in the codebook; drop it, declare it, or leave it unread: extra_columns='ignore' "
                    "(--ignore-extra on the command line)"
                )
    elif extra_columns != "ignore":
        raise ConfigError("extra_columns must be 'refuse' or 'ignore'")


def _missing_columns(missing: Sequence[str], others: Sequence[str]) -> DataError:
    """Return the error that names every missing column, its likely misspelling, and how to rename one."""
    near = {name: difflib.get_close_matches(name, others, n=1) for name in missing}
    named = [f"{name!r} (is {near[name][0]!r} a misspelling of it?)" if near[name] else repr(name) for name in missing]
    columns, verb = ("columns", "are") if len(missing) > 1 else ("column", "is")
    return DataError(
        f"{columns} {', '.join(named)} of the codebook {verb} missing from the table; add or rename them, change the codebook, "
        "or derive them by a map: map={'NEW': 'OLD'} (--map on the command line, [rows.map] in site.toml)"
    )


def read_public(
    path: Any, *, text: Sequence[str] = (), missing: Sequence[str] = (), max_rows: int | None = None
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return a small public file, to make a codebook from, as an Arrow table with inferred types, and its missing markers.

    Columns in `text` remain text, and so do codes with leading zeros; texts in `missing` do not prevent a column from being
    numeric. So do the usual markers, such as NA, that stand in a text file among numbers. Reading ends with the batch that
    reaches `max_rows`. A source is closed.
    """
    with open_source(path) as source:
        batches, rows = [], 0
        for batch in source.batches(source.columns, any_order=True):
            batches.append(pa.table(batch))
            rows += batches[-1].num_rows
            if max_rows is not None and rows >= max_rows:
                break
        table = pa.concat_tables(batches) if batches else pa.table({name: pa.array([], pa.string()) for name in source.columns})
    markers = tuple(missing)
    if source.dialect is not None or source.marks != (".", ""):
        # A column of another type was made by a map. A text without these marks remains one, unless all in the file is text.
        texts = {
            name: changed
            for name in table.column_names
            if pa.types.is_string(table.schema.field(name).type) and name not in text
            if (changed := with_points(table.column(name), *source.marks)) != table.column(name) or source.dialect is not None
        }
        markers = tuple(dict.fromkeys((*markers, *_markers_among_numbers(texts.values(), frozenset(markers)))))
        for name, column in texts.items():
            present = pc.if_else(pc.is_in(column, value_set=pa.array(["", *markers], pa.string())), None, column)
            are_codes = pc.any(pc.match_substring_regex(present, r"^0[0-9]")).as_py()
            if not are_codes and pc.all(pc.match_substring_regex(present, NUMBER_PATTERN)).as_py():
                table = table.set_column(table.column_names.index(name), name, present.cast(pa.float64()))
    return table, markers


def _markers_among_numbers(columns: Iterable[Any], missing: Set[str]) -> tuple[str, ...]:
    """Return the usual missing markers that, but for `missing`, are the only texts beside the numbers of a column."""
    markers: set[str] = set()
    for column in columns:
        distinct = pc.unique(column).drop_null()
        texts = set(distinct.filter(pc.invert(pc.match_substring_regex(distinct, NUMBER_PATTERN))).to_pylist()) - {"", *missing}
        if texts <= _USUAL_MARKERS and len(distinct) > len(texts) + 1:
            markers |= texts
    return tuple(sorted(markers))


def _embedded() -> Any:
    return _offline(ibis.duckdb.connect(memory_limit=MEMORY_LIMIT))


def _offline(backend: Any) -> Any:
    """Block network access of a data source, such as a view in a DuckDB file."""
    backend.raw_sql("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false")
    return backend


def _loaded(rows: Callable[[Sequence[str]], Iterator[pa.RecordBatch]], columns: Sequence[str]) -> tuple[Any, Any]:
    """Return an embedded engine with the rows of a file, in order; it spills to disk what exceeds its memory."""
    backend = _embedded()
    batches = rows(columns)
    first = next(batches, None)
    schema = pa.schema([(name, pa.string()) for name in columns]) if first is None else first.schema
    reader = pa.RecordBatchReader.from_batches(schema, iter(()) if first is None else itertools.chain([first], batches))
    backend.con.register("arriving", reader)
    backend.raw_sql("CREATE TEMP TABLE rows AS SELECT * FROM arriving")
    backend.con.unregister("arriving")
    return backend, backend.table("rows")


def safely(step: Callable[[], Any], what: str = "the data source failed while its rows were read") -> Any:
    """Run a step; on failure raise with only the type of the error, whose message may quote a row, and without a cause."""
    try:
        return step()
    except (DataError, ConfigError):
        raise
    except Exception as cause:
        problem = type(cause).__name__
    raise DataError(f"{what} ({problem})")


def _open_path(path: str, dialect: Dialect, table: str | None) -> Source:
    if path.casefold().startswith("jdbc:"):
        raise ConfigError("a database URL has no jdbc: before it, for example postgres://user@host/db#visits")
    if not any(mark in path for mark in "*?[") and not Path(path).exists():
        where = "" if Path(path).is_absolute() else " in the folder where the command was started"
        raise DataError(f"{path!r} does not exist{where}")
    kind = kind_of(path)
    if kind is None and Path(path).suffix.casefold() in (".duckdb", ".ddb", ".db"):
        raise ConfigError(f"{path!r} seems to be a database: name its table too, as in 'duckdb://{path}#visits'")
    if kind is None:
        raise ConfigError(f"{path!r}: {KINDS}")
    if kind == "csv":
        names, complete = settled(path, dialect)
        require_distinct(names, fold=True)
        return _checked(Source("csv", names, complete, _rows=partial(csv_batches, path, complete, names), marks=complete.marks))
    unreadable = f"{path!r} cannot be read as a table"
    if kind == "excel":
        sheet = safely(partial(excel_table, path, table or dialect.sheet, dialect.names), unreadable)
        require_distinct(sheet.column_names, fold=True)
        rows = lambda names, coded=(): iter(sheet.select(list(names)).to_batches(BATCH))  # noqa: E731
        return _checked(Source("excel", tuple(sheet.column_names), replace(dialect, decimal=".", thousands=""), _rows=rows))
    columns = safely(partial(parquet_columns, path), unreadable)
    require_distinct(columns, fold=True)
    return _checked(Source("parquet", columns, _rows=partial(parquet_batches, path)))


def _open_spark(source: Any, name: str | None) -> Source:
    table, ended = safely(partial(spark_table, source, name), "the Spark table cannot be read")
    try:
        require_distinct(table.columns, fold=True)
        return _checked(Source("spark", tuple(table.columns), None, table, None, False, _ended=ended))
    except DataError:
        ended()
        raise


def _open_url(url: str, table: str | None, spark: Mapping[str, Any]) -> Source:
    parts = urlsplit(url)
    name = table or unquote(parts.fragment)
    scheme = parts.scheme.lower()
    engine = require_engine(SCHEMES.get(scheme, scheme))
    if not name:
        raise ConfigError("a database URL names its table after #, for example postgres://user@host/db#visits")
    if engine == "Spark":
        session = _driven(engine, scheme, lambda: spark_session(url.partition("#")[0], spark))
        return _open_spark(session, name)
    backend = connect_database(url)
    schema, _, last = name.rpartition(".")
    try:
        rows = backend.table(last, database=schema or None)
    except Exception as cause:
        there = _tables_there(backend, schema)
        backend.disconnect()
        raise DataError(
            f"{engine} has no readable table of that name ({type(cause).__name__}); the URL names it after #{there}"
        ) from None
    opened = Source(scheme, tuple(rows.columns), None, rows, backend)
    try:
        if scheme != "duckdb":
            require_sound(backend)
        return _checked(opened)
    except DataError:
        opened.close()
        raise


def _tables_there(backend: Any, schema: str) -> str:
    """Return the first tables of a database in words, or nothing if it does not say."""
    try:
        names = sorted(backend.list_tables(database=schema or None))
    except Exception:
        return ""
    return f"; there are {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""


def connect_database(url: str) -> Any:
    """Connect to DuckDB, for reading only, or to PostgreSQL. Errors contain neither the URL nor its password."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    engine = require_engine(SCHEMES.get(scheme, scheme))
    file = unquote(parts.netloc + parts.path)
    if scheme != "duckdb":
        bare = urlunsplit((parts.scheme, parts.netloc, parts.path, parts.query, ""))
        return _driven(engine, scheme, lambda: ibis.connect(bare))
    if not Path(file).is_file():
        raise DataError(
            f"there is no DuckDB file {file!r}: write duckdb:///folder/visits.duckdb#table for a path from the root, "
            "duckdb://visits.duckdb#table for one from the folder where the command was started"
        )
    try:
        return _offline(ibis.duckdb.connect(file, read_only=True))
    except ConfigError:
        raise
    except Exception as cause:
        raise DataError(
            f"the DuckDB file {Path(file).name!r} cannot be read ({type(cause).__name__}): close it where it is open for "
            "writing; DuckDB lets nobody else in meanwhile"
        ) from None


def _driven(engine: str, scheme: str, connect: Callable[[], Any]) -> Any:
    try:
        return connect()
    except (ConfigError, DataError):
        raise
    except ImportError:
        raise ConfigError(f"{engine} needs an extra: pip install 'blindbayes[{scheme.removesuffix('ql')}]'") from None
    except Exception as cause:  # drivers put the URL, and so its password, into their messages
        raise DataError(f"{engine} cannot be opened ({type(cause).__name__}); check the URL and its server") from None


def _open_frame(frame: Any, *, lenient: bool = False) -> Source:
    table = to_arrow(frame, lenient=lenient)
    require_distinct(table.column_names, fold=True)
    if not table.column_names:
        raise DataError("the table has no columns")
    backend = _embedded()
    try:
        made = safely(
            lambda: backend.create_table("frame", plain_types(table), temp=True), "the frame cannot be read as a table"
        )
    except DataError:
        backend.disconnect()
        raise
    return _checked(Source("frame", tuple(table.column_names), None, made, backend))


def _checked(source: Source) -> Source:
    if not source.columns:
        raise DataError("the table has no columns")
    return source
