"""Database engines that count rows themselves: only those that pass the conformance suite in tests/data.

An engine may silently round a sum, fold the case of a text, or read `12f` as 12. Unknown engines are therefore refused by name,
and known ones must read a few test values when they are opened, since settings of a session can change how they read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, islice
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from blindbayes._lazy import need
from blindbayes.data.libraries import ibis, pa
from blindbayes.data.values import NUMBER_PATTERN
from blindbayes.errors import ConfigError, DataError

PASSED = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "pyspark": "Spark"}
SCHEMES = {"duckdb": "duckdb", "postgres": "postgres", "postgresql": "postgres", "spark": "pyspark", "sc": "pyspark"}
_SPARK = {  # for sessions started here; settings of the site take precedence
    "spark.master": "local[*]",
    "spark.app.name": "blindbayes",
    "spark.ui.enabled": "false",  # it would open a port to everyone
    "spark.ui.showConsoleProgress": "false",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}  # if master and driver are one
_BLANKS = r"[ \t-\r]*"  # SPACE of `values`, for every engine
_TELLING = {"12": 12.0, "12f": None, "V12": None, "v12": None, " 1e2\t": 100.0, "-.5 ": -0.5, "12\u2028": None, "a\\'b": None}
_LARGE = 3_037_000_499  # its square has 64 bits
_FLOAT_DIGITS, _ARROW_DIGITS = 15, 38  # of a float; of decimals in every engine but PostgreSQL
_views = count()
_sound: WeakSet[Any] = WeakSet()  # Spark sessions that passed `require_sound`


def require_engine(name: str) -> str:
    """Return the display name of an engine of Ibis, or raise if it has not passed the suite."""
    if name not in PASSED:
        raise ConfigError(
            f"the engine {name!r} has not passed the conformance suite, and might silently miscount: use "
            f"{', '.join(PASSED.values())}, or a file or frame"
        )
    return PASSED[name]


def engine_of(table: Any) -> str:
    """Return Ibis' name of the engine of an expression."""
    return str(table._find_backend(use_default=True).name)


def fetched(query: Any, backend: Any = None) -> pa.Table:
    """Return the rows of a query; from Spark without pandas, which would turn whole numbers into floats."""
    backend = query._find_backend(use_default=True) if backend is None else backend
    if backend.name == "pyspark":
        return backend._session.sql(backend.compile(query)).toArrow()
    return backend.to_pyarrow(query)


def fetched_batches(query: Any, size: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of a query in batches; from Spark one partition at a time, in constant memory."""
    backend = query._find_backend(use_default=True)
    if backend.name != "pyspark":
        yield from backend.to_pyarrow_batches(query, chunk_size=size)
        return
    schema, rows = query.schema().to_pyarrow(), backend._session.sql(backend.compile(query)).toLocalIterator()
    while piece := list(islice(rows, size)):
        columns = zip(*piece, strict=True)
        yield pa.record_batch([pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)], schema=schema)


def require_sound(backend: Any) -> None:
    """Raise if an engine does not read test texts, and add large squares, as all others do."""
    texts = ibis.array([*_TELLING]).unnest().name("text").as_table()
    large = texts.text.length().cast("int64") + _LARGE
    read = texts.mutate(number=number_text(texts.text).cast("float64"), square=squared(large, wide=True))
    query = read.group_by("text").agg(number=read.number.max(), square=read.square.sum())
    try:
        rows = fetched(query, backend).to_pylist()
    except Exception as cause:
        problem = f" ({type(cause).__name__})"
    else:
        readings = {row["text"]: (row["number"], int(row["square"])) for row in rows}
        if readings == {text: (number, (len(text) + _LARGE) ** 2) for text, number in _TELLING.items()}:
            return
        problem = ""
    raise DataError(f"{PASSED[backend.name]} does not read as its conformance suite says{problem}: undo the session's settings")


def squared(code: Any, *, wide: bool) -> Any:
    """Return the square of a whole number; a wide one as a decimal of 38 digits."""
    if wide:
        code = code.cast("decimal(19, 0)")
        return (code * code).cast("decimal(38, 0)")
    return code * code


def require_order(table: Any) -> None:
    """Raise if rows have no stable order but must correspond to other rows or to results."""
    if engine_of(table) == "pyspark":
        raise DataError(
            "rows of a Spark table have no order, but must correspond to other rows here: match them by identifier "
            "(aligned = false), or use a sorted Parquet file"
        )


def number_text(text: Any) -> Any:
    """Return the number that a text denotes, as a text without blanks, or null.

    The match must be the whole text: `$` of Java also matches before a final line separator.
    """
    whole = f"^{_BLANKS}({NUMBER_PATTERN[1:-1]}){_BLANKS}$"
    return ibis.ifelse(text.re_extract(whole, 0) == text, text.re_extract(whole, 1), ibis.null("string"))


def decimal_number(column: Any) -> Any:
    """Return a decimal as a float; infinite or 0 for decimals of PostgreSQL beyond floats."""
    kind = column.type()
    if kind.precision is not None and kind.precision <= _FLOAT_DIGITS:
        return column.cast("float64")
    text = column.cast("string")  # some engines round longer decimals twice, their text once
    number = text.cast("float64")
    if kind.precision is not None and kind.precision <= _ARROW_DIGITS:
        return number
    size, endless = column.abs(), ibis.literal("Infinity").cast("float64")
    return ibis.cases(
        (size < 1e-307, 0.0),
        (size < 1.7e308, number),
        (text.length() > _FLOAT_DIGITS, ibis.ifelse(column > 0, endless, -endless)),
        else_=number,  # null, or infinite already
    )


def plain_columns(table: Any, names: Sequence[str]) -> Any:
    """Return columns as every engine can export them.

    Arrow supports neither all digits nor NaN of PostgreSQL's decimals; char(n) is padded with blanks that comparisons ignore.
    """
    columns = {name: table[name] for name in names}
    if engine_of(table) == "postgres":
        for name, column in columns.items():
            kind = column.type()
            if kind.is_decimal() or kind.is_string():
                columns[name] = decimal_number(column) if kind.is_decimal() else column + ""
    return table.select([column.name(name) for name, column in columns.items()])


def text_key(text: Any) -> Any:
    """Return the bytes of a text, to group by.

    Under a collation, or as citext, different texts are equal, and which one represents them depends on the rows: one record
    would change how others are read. Collations of Spark are refused.
    """
    engine = engine_of(text)
    if engine == "postgres":
        return _bytes_of("convert_to")(text, "UTF8")
    return _bytes_of("encode")(text) if engine == "duckdb" else text


@cache
def _bytes_of(name: str) -> Any:
    """Return the function of this name as an Ibis expression."""

    def convert_to(text: str, encoding: str) -> bytes:  # type: ignore[empty-body]
        """PostgreSQL's function from a text and an encoding to bytes."""

    def encode(text: str) -> bytes:  # type: ignore[empty-body]
        """DuckDB's function from a text to its bytes in UTF-8."""

    return ibis.udf.scalar.builtin({"convert_to": convert_to, "encode": encode}[name])


# -- Spark -----------------------------------------------------------------------------------------------------------------


def is_spark(source: Any) -> bool:
    """Return True for a DataFrame or a session of Spark, without importing Spark."""
    if "pyspark" not in sys.modules:
        return False
    kinds = {each.__name__ for each in type(source).__mro__ if each.__module__.startswith("pyspark.sql")}
    return bool(kinds & {"DataFrame", "SparkSession"})


def spark_table(source: Any, name: str | None = None) -> tuple[Any, Callable[[], Any]]:
    """Return an Ibis table for a DataFrame, a session and a table name, or Spark's Ibis table, and a function to end its use.

    It restores the session's settings: Ibis sets its time zone.
    """
    if isinstance(source, ibis.Table):
        backend = source._find_backend()
        frame = backend._session.sql(backend.compile(source))
    elif hasattr(source, "sparkSession"):
        frame = source
    elif name:
        frame = source.table(name)
    else:
        raise ConfigError("a Spark session has many tables: name one with table")
    session = frame.sparkSession
    for field in frame.schema.fields:  # a collation would group texts that differ
        if getattr(field.dataType, "collation", "UTF8_BINARY") not in (None, "UTF8_BINARY"):
            raise DataError(f"column {field.name!r} has a collation, under which different texts are equal; cast it before")
    view = f"blindbayes_{os.getpid()}_{next(_views)}"
    frame.createOrReplaceTempView(view)
    settings = {key: session.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.sql.mapKeyDedupPolicy")}
    backend = ibis.pyspark.connect(session)
    table = backend.table(view)
    for key, value in settings.items():
        session.conf.set(key, value)
    if session not in _sound:
        require_sound(backend)
        _sound.add(session)
    return table, lambda: session.catalog.dropTempView(view)


def spark_session(url: str, options: Mapping[str, Any]) -> Any:
    """Return the session of a URL: Spark Connect (sc://), a master (spark://host:7077), or `spark.master` of the options.

    Spark returns the same session for the life of the process.
    """
    SparkSession = need("pyspark.sql").SparkSession
    settings = _flat(options)
    if url.startswith("sc:"):
        builder = SparkSession.builder.remote(url)
    else:
        host = urlsplit(url).netloc
        settings = {**_SPARK, **({"spark.master": url} if host not in ("", "local") else {}), **settings}
        settings = {**(_LOOPBACK if settings["spark.master"].startswith("local") else {}), **settings}
        builder = SparkSession.builder
    fresh = SparkSession.getActiveSession() is None
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if fresh and not url.startswith("sc:"):
        session.sparkContext.setLogLevel("OFF")  # Spark writes cells into its log
    return session


def _flat(options: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return settings by their dotted names; TOML reads unquoted dots as nested tables."""
    settings: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, Mapping):
            settings |= _flat(value, f"{before}{key}.")
        else:
            settings[before + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings
