"""Read tables from files as Arrow batches of text, and determine the dialect of a CSV.

The meaning of a cell must not depend on other rows. The dialect is therefore declared or determined without records: the
delimiter by the header, the encoding by the mark at the start of the file. A decimal comma is declared; every column is read as
text, and `encode` reads each cell independently.
"""

from __future__ import annotations

import codecs
import csv
import glob
import io
import itertools
import lzma
import os
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from blindbayes._lazy import need
from blindbayes.crypto.kernels import Kernels, active
from blindbayes.crypto.kernels.cells import MAX_COLUMNS, PADDING, CellScanner, Stop
from blindbayes.data.libraries import pa, pacsv, pc, pq
from blindbayes.data.numerals import require_marks
from blindbayes.data.values import written_text
from blindbayes.errors import ConfigError, DataError

PACKED = (".gz", ".bz2", ".zst", ".xz", ".zip")
TEXT = (".csv", ".tsv", ".txt")
EXCEL = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
PARQUET = (".parquet", ".pq")
KINDS = (
    "a path ends in .csv, .tsv or .txt (also packed: .gz, .bz2, .zst, .xz, .zip), .parquet or .xlsx, or is a folder of Parquet "
    "files"
)
_DELIMITERS = (",", ";", "\t", "|")
BATCH = 1 << 16  # rows: a column of them fits a processor's memory
_BLOCK, _LARGE_BLOCK = 1 << 20, 1 << 26  # bytes of a text file that are parsed at a time; a row is at most a large one
_HEADER = 1 << 20  # bytes of a header row at most
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Dialect of a table that is written as text, for `open_table`.

    Parameters
    ----------
    delimiter, encoding : str, optional
        Of a text file; by default determined by its header and first bytes.
    quote : str
        Quote character of a text file.
    decimal, thousands : str
        Decimal mark, and what separates digits in groups of three.
    names : sequence of str, optional
        Columns of a file without a header row.
    sheet : str, optional
        Sheet of a workbook, by default the first.
    missing : sequence of str
        Texts that mean no value, in all columns.
    """

    delimiter: str | None = None
    quote: str = '"'
    encoding: str | None = None
    decimal: str = "."
    names: tuple[str, ...] | None = None
    sheet: str | None = None
    thousands: str = ""
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", None if self.names is None else tuple(self.names))
        object.__setattr__(self, "missing", tuple(self.missing))
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in "\r\n"):
            raise ConfigError("a delimiter must be one character")
        if len(self.quote) != 1 or self.quote == self.delimiter:
            raise ConfigError("a quote must be one character, other than the delimiter")
        require_marks(self.decimal, self.thousands)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ConfigError(f"the encoding {self.encoding!r} is not known; for example utf-8, latin-1, cp1252") from None

    @property
    def marks(self) -> tuple[str, str]:
        return self.decimal, self.thousands

    def __str__(self) -> str:
        mark = "comma" if self.decimal == "," else "point"
        between = _NAMES.get(self.delimiter or ",", repr(self.delimiter))
        return f"separated by {between}, {self.encoding or 'utf-8'}, decimal {mark}"


def kind_of(path: str) -> str | None:
    """Return csv, excel, parquet, or None for unknown files."""
    lower = path.lower()
    for ending in PACKED:
        lower = lower.removesuffix(ending)
    if Path(path).is_dir() or lower.endswith(PARQUET):
        return "parquet"
    return "csv" if lower.endswith(TEXT) else "excel" if lower.endswith(EXCEL) else None


def settled(path: str, dialect: Dialect) -> tuple[tuple[str, ...], Dialect]:
    """Return the columns of the text files of a path, and their complete dialect."""
    first: tuple[tuple[str, ...], Dialect] | None = None
    for file in files_of(path):
        names, each = _settled(file, dialect)
        if first is not None and names != first[0]:
            raise DataError(f"{path!r}: the files have different columns; one table has one header")
        first = (names, each) if first is None else first
    if first is None:
        raise DataError(f"{path!r} does not exist")
    return first


def files_of(path: str) -> list[str]:
    """Return the files of a path with wildcards, or of a folder of Parquet files."""
    if Path(path).is_dir():
        return sorted(glob.glob(os.path.join(glob.escape(path), "*.parquet")))
    return sorted(glob.glob(path)) if not Path(path).exists() else [path]


def _settled(path: str, dialect: Dialect) -> tuple[tuple[str, ...], Dialect]:
    try:
        with _unpacked(path) as file:
            start = bytearray(_HEADER)
            del start[file.readinto(start) :]  # Arrow's read never frees the bytes of a file that is damaged
        marks = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
        encoding = dialect.encoding or next((name for mark, name in marks if start.startswith(mark)), "utf-8")
        decoder = codecs.getincrementaldecoder(encoding)()
        text = decoder.decode(start).removeprefix("\ufeff")
    except (UnicodeError, OSError, EOFError, zipfile.BadZipFile, lzma.LZMAError, pa.ArrowException):
        encoding = "UTF-8" if dialect.encoding is None else dialect.encoding
        raise DataError(
            f"{path!r} is not {encoding} text with a header row; declare another encoding: Dialect(encoding='latin-1') "
            "(--encoding latin-1 on the command line)"
        ) from None
    decoded = replace(dialect, encoding=encoding)
    if dialect.names is not None:
        return dialect.names, replace(decoded, delimiter=dialect.delimiter or ",")
    expected = "\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ","
    headers = {mark: _header(text, mark, dialect.quote) for mark in ([dialect.delimiter] if dialect.delimiter else _DELIMITERS)}
    delimiter = max(headers, key=lambda mark: (len(headers[mark]), mark == expected))
    if not headers[delimiter]:
        raise DataError(f"{path!r} is empty; a table has a header row")
    return headers[delimiter], replace(decoded, delimiter=delimiter)


def _header(text: str, delimiter: str, quote: str) -> tuple[str, ...]:
    try:
        return tuple(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote), ()))
    except csv.Error:
        return ()


@contextmanager
def _unpacked(path: str) -> Iterator[Any]:
    lower = path.lower()
    with ExitStack() as stack:
        if lower.endswith(".zip"):
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = [name for name in archive.namelist() if not name.endswith("/")]
            if len(members) != 1:
                raise DataError(f"{path!r}: an archive must hold one file, the table")
            yield stack.enter_context(archive.open(members[0]))
        elif lower.endswith(".xz"):
            yield stack.enter_context(lzma.open(path))
        else:
            yield stack.enter_context(pa.input_stream(path, compression="detect"))


class Unscanned(Exception):
    """The next row is one that the kernel does not read."""


def csv_batches(
    path: str, dialect: Dialect, columns: Sequence[str], names: Sequence[str], coded: Container[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names` of text files with these `columns`; `coded` columns may be dictionaries.

    Rows that one parser does not support are read by the next: the kernel supports neither doubled quotes nor other encodings,
    and Arrow no row longer than a block.
    """
    readers: list[Callable[..., Iterator[pa.RecordBatch]]] = [
        partial(_csv_batches, block=_BLOCK),
        partial(_csv_batches, block=_LARGE_BLOCK),
    ]
    kernels = active() if any(name in coded for name in names) else None
    if kernels is not None and _is_plain(dialect) and len(names) <= MAX_COLUMNS:
        readers.insert(0, partial(scanned, kernels=kernels, coded=coded))
    for file in files_of(path):
        seen = 0
        for read in readers:
            passed, is_misread = 0, False
            try:
                for batch in read(file, dialect, columns, names):
                    passed += batch.num_rows
                    if passed > seen:
                        yield batch.slice(batch.num_rows - (passed - seen))
                        seen = passed
                break
            except Unscanned:
                continue
            except pa.ArrowInvalid as problem:
                is_misread = "straddling" not in str(problem)
            if is_misread:  # outside of the handler, since the library's message quotes the row
                _refuse_width(file, dialect, len(columns))
                raise DataError(f"{Path(file).name!r} cannot be read as a table of {len(columns)} columns")


def _refuse_width(file: str, dialect: Dialect, width: int) -> None:
    """Raise an error that names the first line whose number of cells is not that of the header, if there is one."""
    with _unpacked(file) as stream, suppress(csv.Error, UnicodeError):
        lines = codecs.getreader(dialect.encoding or "utf-8")(stream)
        reader = csv.reader(lines, delimiter=dialect.delimiter or ",", quotechar=dialect.quote)
        start = 1
        for row in reader:
            if row and len(row) != width:
                raise DataError(
                    f"line {start} of {Path(file).name!r} has {len(row)} cells, and the table has {width} columns; delete "
                    "titles above the header, quote a cell that contains the delimiter, or name another one: "
                    "Dialect(delimiter=';') (--delimiter ';' on the command line)"
                )
            start = reader.line_num + 1


def _is_plain(dialect: Dialect) -> bool:
    marks = (dialect.delimiter or ",") + dialect.quote
    return codecs.lookup(dialect.encoding or "utf-8").name == "utf-8" and marks.isascii() and not set(marks) & set("\r\n")


def scanned(
    file: str, dialect: Dialect, columns: Sequence[str], names: Sequence[str], kernels: Kernels, coded: Container[str]
) -> Iterator[pa.RecordBatch]:
    """Read rows with the kernel. Columns in `coded` become dictionaries while they have few distinct cells."""
    marks = f"{dialect.delimiter or ','}\n{dialect.quote}\r".encode()
    wanted, plain = [columns.index(name) for name in names], [name not in coded for name in names]
    scanner = CellScanner(kernels, marks, len(columns), wanted, plain, BATCH, 0 if dialect.names is not None else 1)
    known: dict[int, pa.Array] = {}
    text, left = bytearray(_BLOCK + PADDING), 0
    with _unpacked(file) as stream:
        new = stream.readinto(memoryview(text)[:-PADDING])
        start = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
        while new or left:
            if not new:
                text[left] = ord("\n")  # the last row may have no end
            stop, why = left + (new or 1), Stop.ROWS
            while why != Stop.MORE:
                read, why = scanner.scan(text, start, stop)
                start += read
                if why == Stop.ODD or (why == Stop.ROWS and not scanner.rows):
                    raise Unscanned
                if why != Stop.MORE:
                    yield from _taken(scanner, names, known)
            left = stop - start
            if left and (not new or left > _LARGE_BLOCK):
                raise Unscanned
            text[:left] = text[start:stop]
            if 2 * left > len(text):
                text = text + bytes(len(text))  # a row that is longer than a block
            start, new = 0, stream.readinto(memoryview(text)[left:-PADDING])
    if not (scanner.rows or known):
        raise Unscanned  # perhaps there is not even a header
    yield from _taken(scanner, names, known)


def _taken(scanner: CellScanner, names: Sequence[str], known: dict[int, pa.Array]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a scanner and clear it; `known` caches distinct values, which are checked once."""
    columns = []
    for place in range(len(names) if scanner.rows else 0):
        codes = scanner.codes(place)
        texts = known.get(place)
        if codes is None or texts is None or len(texts) < scanner.size(place):
            ends, data = map(pa.py_buffer, scanner.texts(place))
            texts = pa.StringArray.from_buffers(scanner.size(place), ends, data)
            texts.validate(full=True)
            texts = known[place] = _without_empty(texts)
        columns.append(texts if codes is None else pa.DictionaryArray.from_arrays(pa.array(codes), texts, safe=False))
    scanner.clear()
    if columns:
        yield pa.record_batch(columns, list(names))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches, whose calls per column would dominate, and turn empty cells into missing ones."""
    pending: list[pa.RecordBatch] = []
    for batch in itertools.chain(batches, [None]):
        pending += [] if batch is None else [batch]
        if pending and (batch is None or sum(each.num_rows for each in pending) >= BATCH):
            whole = pa.concat_batches(pending)
            yield pa.record_batch([_without_empty(column) for column in whole.columns], schema=whole.schema)
            pending = []


def _without_empty(column: pa.Array) -> pa.Array:
    """Turn empty cells of a column of texts into missing ones, at less cost than in Arrow's parser."""
    places = np.frombuffer(column.buffers()[1] or bytes(4), np.int32)[column.offset : column.offset + len(column) + 1]
    if len(column) and not np.diff(places).min():
        return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def _csv_batches(
    file: str, dialect: Dialect, columns: Sequence[str], names: Sequence[str], block: int
) -> Iterator[pa.RecordBatch]:
    with _unpacked(file) as stream:
        batches = pacsv.open_csv(
            stream,
            pacsv.ReadOptions(
                block_size=block,
                encoding=dialect.encoding or "utf-8",
                column_names=list(columns),
                skip_rows_after_names=0 if dialect.names is not None else 1,
            ),
            pacsv.ParseOptions(
                delimiter=dialect.delimiter or ",",
                quote_char=dialect.quote,
                double_quote=True,
                newlines_in_values=True,
                ignore_empty_lines=len(columns) > 1,  # of one column, an empty line is a row
            ),
            pacsv.ConvertOptions(
                column_types={name: pa.string() for name in columns}, include_columns=list(names), strings_can_be_null=False
            ),
        )
        yield from _gathered(batches)


def parquet_batches(path: str, names: Sequence[str], coded: Container[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield rows of Parquet files; a column whose type differs between files becomes text, which means the same.

    One missing cell turns whole numbers of a file into floats, and engines use the types of the first batch for all. Texts of
    `coded` columns are dictionaries if the file stores them so.
    """
    files = files_of(path)
    facts = [pq.read_metadata(file) for file in files]
    kinds = [each.schema.to_arrow_schema() for each in facts]
    mixed = {name for name in names if len({each.field(name).type for each in kinds}) > 1}
    for file, known, schema in zip(files, facts, kinds, strict=True):
        if not known.num_rows:  # of no rows, the types
            yield _plain(pa.record_batch([pa.array([], schema.field(name).type) for name in names], list(names)), mixed)
        texts = [name for name in names if name in coded and name not in mixed and pa.types.is_string(schema.field(name).type)]
        short = _short(next(_parquet_rows(file, known, texts, texts), None)) if texts else []
        for batch in _parquet_rows(file, known, names, short):
            yield _plain(batch.select(list(names)), mixed)


def _parquet_rows(file: str, known: pq.FileMetaData, names: Sequence[str], short: Sequence[str]) -> Iterator[pa.RecordBatch]:
    # Arrow would read all row groups ahead. Its threads would take 7% more processor time, and 20 MB.
    with pq.ParquetFile(file, metadata=known, buffer_size=_BLOCK, pre_buffer=False, read_dictionary=list(short)) as opened:
        yield from opened.iter_batches(BATCH, columns=list(names), use_threads=False)


def _short(batch: pa.RecordBatch | None) -> list[str]:
    """Return the columns whose distinct texts take at most 2 bytes per row, as codes do.

    The file's metadata say so without reading, but Arrow ends the process where those of a column are damaged or encrypted.
    """
    if batch is None:
        return []
    limit = 2 * batch.num_rows + _BLOCK // 16
    return [name for name, column in zip(batch.schema.names, batch.columns, strict=True) if column.dictionary.nbytes <= limit]


def _plain(batch: pa.RecordBatch, mixed: Container[str]) -> pa.RecordBatch:
    return pa.record_batch(
        {name: _texts(batch.column(name)) if name in mixed else batch.column(name) for name in batch.schema.names}
    )


def _texts(column: pa.Array) -> pa.Array:
    try:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    except pa.ArrowNotImplementedError:  # lists, for example
        return pa.array([written_text(value) for value in column.to_pylist()], pa.string())
    return pa.array([written_text(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def parquet_columns(path: str) -> tuple[str, ...]:
    """Return the columns of Parquet files, which must be the same in each."""
    files = files_of(path)
    if not files:
        raise DataError(f"{path!r} holds no Parquet file")
    schemas = [tuple(pq.read_schema(file).names) for file in files]
    if any(set(names) != set(schemas[0]) for names in schemas):
        raise DataError(f"{path!r}: the files have different columns; one table has one schema")
    return schemas[0]


def excel_table(path: str, sheet: str | None, names: tuple[str, ...] | None) -> pa.Table:
    """Return a sheet of a workbook with each cell as the text that a CSV would hold: 3, true, 2024-12-31."""
    calamine = need("python_calamine")
    with calamine.load_workbook(path) as book:
        if sheet is not None and sheet not in book.sheet_names:
            raise DataError(f"{path!r} has no sheet {sheet!r}; it has {', '.join(map(repr, book.sheet_names))}")
        rows = book.get_sheet_by_name(sheet or book.sheet_names[0]).to_python(skip_empty_area=False)
    if names is None:
        if not rows:
            raise DataError(f"{path!r} is empty; a table has a header row")
        names, rows = tuple(str(cell) for cell in rows[0]), rows[1:]
        if names.count("") > 1:  # one may be the index of a frame
            sheets = ", ".join(map(repr, book.sheet_names))
            raise DataError(
                f"{path!r}: the first row of a sheet is its header, and has {names.count('')} empty cells here: delete the "
                f"titles above the header and columns without a name, or choose another sheet (--sheet): {sheets}"
            )
    cells = [[(written_text(row[i]) or None) if i < len(row) else None for row in rows] for i in range(len(names))]
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, cells, strict=True)})
