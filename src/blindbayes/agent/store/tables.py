"""A site's rows: opened, counted, never kept."""

from __future__ import annotations

import os
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
    from blindbayes.data.contribution_bound import ContributionBound
    from blindbayes.data.sources import Source


@dataclass(frozen=True, slots=True)
class Tables:
    """What `[rows]` of site.toml names; relative paths start at the site's folder."""

    folder: Path
    rows: Rows | None

    def count(self, codebook: Codebook, *, lenient: bool, bound: ContributionBound | None) -> Statistics:
        """The exact statistics of this site's rows; `bound` limits the rows of one person."""
        from blindbayes.data import count_table

        rows = self._named()
        with self.open_batch(rows.source, rows.table, partly=False) as source:
            return count_table(source, codebook, lenient=lenient, extra_columns=rows.extra_columns, bound=bound)

    def digest(self, key: bytes) -> str:
        """A keyed digest of the rows as they lie in the source, before any map."""
        from blindbayes.data.digest import rows_digest

        rows = self._named()
        with replace(self, rows=msgspec.structs.replace(rows, map={})).open_batch(rows.source, rows.table) as source:
            return rows_digest(source, key)

    def stamp(self) -> list[tuple[int, ...]] | None:
        """Return what the file system says of a file or folder of files: another one after a change. None for a database."""
        path = self.folder / self._named().source
        if not path.exists():
            return None
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        facts = [each.stat() for each in files]
        return [(each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in facts]

    @property
    def name(self) -> str:
        """What the site calls its rows."""
        return self._named().name

    def check(self, study: StudyFile, name: str) -> dict[str, Any]:
        """What of this site's table does not fit a study's codebook: numbers of rows by column, for its own people."""
        from blindbayes.data import check

        rows, book = self._named(), study.book
        with self.open_batch(rows.source, rows.table, partly=False) as source:
            only = None
            if (held := study.columns) is not None:
                only = {*held.holds.get(name, ()), *([book.target] if name in held.labelled else ())}
            return check(source, book, extra_columns=rows.extra_columns, only=only).to_dict()

    def open_columns(self, study: StudyFile, name: str) -> tuple[Source, ColumnSource]:
        """This site's columns of a study, and the source to close."""
        from blindbayes.data.columns import ColumnSource, open_columns

        rows, held, book = self._named(), study.holdings, study.book
        source = self.open_batch(rows.source, rows.table, partly=False)
        try:
            require_own(study.agreement, name, source.columns, ignore_others=rows.extra_columns == "ignore")
            found = open_columns(source, book, ignore=source.columns)
            features = tuple(feature for feature in found.features if feature.name in held.holds[name])
            return source, ColumnSource(book, features, name in held.labelled, found.rows, source)
        except BaseException:
            source.close()
            raise

    def open_batch(self, where: str, table: str | None = None, *, partly: bool = True) -> Source:
        """A table by path (relative to the site's folder) or URL, read as `[rows]` says. Close it.

        With `partly` a rule of `[rows.map]` is left out where the table lacks what it reads, such as the class.
        """
        from blindbayes.data.sources import open_table

        if "://" not in where and not os.path.isabs(where):
            where = str(self.folder / where)
        if (rows := self.rows) is None:
            return open_table(where, table=table)
        return open_table(
            where,
            map=rows.map,
            delimiter=rows.delimiter,
            quote=rows.quote,
            encoding=rows.encoding,
            decimal=rows.decimal,
            names=rows.names,
            table=table,
            partly=partly,
            spark=rows.spark,
        )

    def _named(self) -> Rows:
        if self.rows is None:
            raise ConfigError("site.toml names no rows; add [rows] source = ...")
        return self.rows
