"""A site's rows: opened and counted, never stored."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from blindbayes.agent.config import Rows
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.statistics import Statistics
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.columns import require_own

if TYPE_CHECKING:
    from blindbayes.data.columns import ColumnSource
    from blindbayes.data.persons import PersonRows
    from blindbayes.data.sources import Source
    from blindbayes.data.split import Reading
    from blindbayes.statistics.drift import Drift
    from blindbayes.statistics.evaluation import Evaluation
    from blindbayes.statistics.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that `[rows]` of site.toml names; relative paths start at the site's folder."""

    folder: Path
    rows: Rows | None

    def count(self, reading: Reading) -> Statistics:
        """Count this site's rows."""
        from blindbayes.data import count_table

        rows, lenient = self._named(), reading.lenient
        with self._open(reading.codebook) as source:
            bound, split, extra = reading.bound, reading.split, rows.extra_columns
            return count_table(source, reading.codebook, lenient=lenient, extra_columns=extra, bound=bound, split=split)

    def persons(self, reading: Reading) -> PersonRows:
        """Read this site's rows by person, into memory."""
        from blindbayes.data.persons import read_persons

        rows = self._named()
        with self._open(reading.codebook) as source:
            return read_persons(source, reading, extra_columns=rows.extra_columns)

    def evaluate(self, reading: Reading, models: Sequence[Parameters], bins: int) -> list[Evaluation]:
        """Return the evaluation of each model on this site's rows."""
        from blindbayes.data.table import evaluate_table

        rows = self._named()
        with self._open(reading.codebook) as source:
            return evaluate_table(source, reading, models, bins, extra_columns=rows.extra_columns)

    def drift(self, model: Path) -> Drift:
        """Compare this site's rows, as they are now, with a model file."""
        from blindbayes.naive_bayes import load
        from blindbayes.naive_bayes.drift import measure_drift

        rows, fitted = self._named(), load.load(model)
        with self._open(fitted._parameters().codebook) as source:
            return measure_drift(fitted, source, extra_columns=rows.extra_columns)

    def digest(self, key: bytes) -> str:
        """Return a keyed digest of the rows of the source, before values are mapped and missing values are marked."""
        from blindbayes.data.digest import rows_digest

        rows = self._named()
        if rows.omop is not None:
            from blindbayes.data.omop import Cdm

            with Cdm(rows.source, rows.omop) as database:
                return database.digest(key)
        plain = replace(self, rows=msgspec.structs.replace(rows, map={}, missing=()))
        with plain.open_batch(rows.source, rows.table) as source:
            return rows_digest(source, key)

    def stamp(self) -> list[tuple[int, ...]] | None:
        """Return sizes and times of the files, which differ after a change; None for a database."""
        path = self.folder / self._named().source
        if not path.exists():
            return None
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        facts = [each.stat() for each in files]
        return [(each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in facts]

    @property
    def name(self) -> str:
        return self._named().name

    def check(self, study: StudyFile, name: str) -> dict[str, Any]:
        """Compare this site's table with a study's codebook: numbers of rows by column, for its own staff."""
        from blindbayes.data import check

        rows, book = self._named(), study.book
        with self._open(book) as source:
            only = None
            if (split := study.columns) is not None:
                only = {*split.holds.get(name, ()), *([book.target] if name in split.labelled else ())}
            report = check(source, book, extra_columns=rows.extra_columns, only=only).to_dict()
        omop = self.omop_report(study)
        return {**report, "omop": omop} if omop is not None else report

    def omop_report(self, study: StudyFile) -> dict[str, Any] | None:
        """Count what this site's OMOP database has and lacks of a study's declaration. Returns None for a table."""
        rows = self.rows
        if rows is None or rows.omop is None or study.book.omop is None:
            return None
        from blindbayes.data.omop import Cdm

        with Cdm(rows.source, rows.omop) as database:
            return database.report(study.book).to_dict()

    def _open(self, codebook: Codebook) -> Source:
        """Open this site's rows: a table, or what a codebook declares on an OMOP database. The caller closes it."""
        rows = self._named()
        if (rows.omop is None) != (codebook.omop is None):
            raise ConfigError(
                "the codebook declares its columns on an OMOP database: name its schema, omop = ..., under [rows] in site.toml"
                if rows.omop is None
                else "omop under [rows] in site.toml is for studies whose codebook has [omop]; name a table for this one"
            )
        if rows.omop is None:
            return self.open_batch(rows.source, rows.table, partly=False)
        from blindbayes.data.omop import open_omop

        return open_omop(rows.source, codebook, rows.omop)

    def open_columns(self, study: StudyFile, name: str) -> tuple[Source, ColumnSource]:
        """Return the source, which the caller closes, and this site's columns of a study."""
        from blindbayes.data.columns import ColumnSource, open_columns

        rows, holdings, book = self._named(), study.holdings, study.book
        if rows.omop is not None or book.omop is not None:
            raise ConfigError("an OMOP database is a source for studies over rows; name a table for a study over columns")
        source = self.open_batch(rows.source, rows.table, partly=False)
        try:
            require_own(study.agreement, name, source.columns, ignore_others=rows.extra_columns == "ignore")
            columns = open_columns(source, book, ignore=source.columns)
            features = tuple(feature for feature in columns.features if feature.name in holdings.holds[name])
            return source, ColumnSource(book, features, name in holdings.labelled, columns.rows, source)
        except BaseException:
            source.close()
            raise

    def open_batch(self, where: str, table: str | None = None, *, partly: bool = True) -> Source:
        """Open a table by path or URL, read as `[rows]` says. The caller closes it.

        With `partly`, rules of `[rows.map]` whose columns the table lacks, such as the class, are skipped.
        """
        from blindbayes.data import Dialect, open_table

        if "://" not in where and not os.path.isabs(where):
            where = str(self.folder / where)
        if (rows := self.rows) is None:
            return open_table(where, table=table)
        dialect = Dialect(
            rows.delimiter, rows.quote, rows.encoding, rows.decimal, rows.names, thousands=rows.thousands, missing=rows.missing
        )
        return open_table(where, map=rows.map, dialect=dialect, table=table, partly=partly, spark=rows.spark)

    def _named(self) -> Rows:
        if self.rows is None:
            raise ConfigError("site.toml names no rows; add [rows] source = ...")
        return self.rows
