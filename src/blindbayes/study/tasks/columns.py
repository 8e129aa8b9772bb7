"""Shared parts of tasks over columns: who holds what, a party's own table, and its local computations."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource
from blindbayes.data.identifiers import recipe_of
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.parameters import Parameters, estimate
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.study import JoinStudy, Study
from blindbayes.study.tasks.checked_table import CheckedTable
from blindbayes.study.tasks.task import BatchColumns, DryRun, StudyTask


def keys_of(study: Study) -> tuple[str, ...]:
    """Return the identifier columns that a table may have: those of the study, or of the codebook's recipe."""
    if not isinstance(study, JoinStudy):
        return ()
    return tuple(part.column for part in recipe_of(study.codebook, study.key or None).parts)


def require_own(agreement: Agreement, name: str, columns: Collection[str], *, ignore_others: bool = False) -> None:
    """Raise if a table lacks what the study says a party holds, or has more."""
    holdings, study = agreement.holdings, agreement.study
    wanted = {*holdings.holds[name], *keys_of(study), *((study.codebook.target,) if name in holdings.labelled else ())}
    if missing := sorted(wanted - set(columns)):
        raise DataError(f"the rows lack column {missing[0]!r}, which the study says this site holds; add it")
    extra = [column for column in columns if column not in wanted]
    if extra and not ignore_others:
        raise DataError(
            f"column {extra[0]!r} is not what the study says this site holds; drop it, or leave it unread: "
            'extra_columns = "ignore" under [rows] in site.toml'
        )


def holdings_of(tables: Mapping[str, ColumnSource], rows: int | None = None) -> Holdings:
    """Return who holds what, from the tables."""
    holds = {name: tuple(feature.name for feature in table.features) for name, table in tables.items()}
    return Holdings(holds, tuple(name for name, table in tables.items() if table.labelled), rows)


def line_up(tables: Mapping[str, ColumnSource], *, known: bool = True) -> Holdings:
    """Return the holdings of tables with one number of rows, which is `known` to all or not."""
    sizes = {table.rows for table in tables.values()}
    if len(sizes) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first, or make a JoinStudy")
    if not (rows := sizes.pop()):
        raise DataError("the tables are empty")
    return holdings_of(tables, rows if known else None)


def require_learner(reveal_to: str, parties: Collection[str]) -> None:
    """Raise unless all parties, or one, learn the class."""
    if reveal_to != "all" and reveal_to not in parties:
        raise ConfigError(f"reveal_to is 'all' or a party of the study; {reveal_to!r} is not one")


def require_record(study: Study) -> None:
    """Raise unless noise protects one record."""
    if study.privacy.unit != "record":
        raise PrivacyError("over columns epsilon protects one record: leave the unit at 'record'")


def describe_holdings(agreement: Agreement) -> list[str]:
    """Return who holds what, for the author of the study."""
    holdings, study = agreement.holdings, agreement.study
    lines = [f"{agreement.title}: columns of {', '.join(agreement.names)}, by {study.protocol}."]
    for name in agreement.names:
        own = [*holdings.holds[name], *([agreement.book.target] if name in holdings.labelled else [])]
        lines.append(f"  {name} holds {', '.join(own) or 'nothing'}.")
    return lines


def describe_coalitions(columns: ColumnsSetup, *, compare_all: bool) -> str:
    """Describe what coalitions of three or more parties could learn by pooling their shares."""
    if compare_all:
        return "All parties compare the scores together: no coalition short of all but one learns more than the class."
    return (
        f"With more than one attribute holder, {columns.class_holder} and {columns.holders[0]} together can see what another "
        "holder's attributes add to the scores of an instance."
    )


def describe_queries(queries: int | None) -> str:
    """Describe how often a model in shares may be asked, and why that matters."""
    limit = f"At most {queries} instances may be classified." if queries else "The number of queries is not limited."
    return f"{limit} Repeated queries let the model be read off; limit them."


def dry_run_columns(task: StudyTask, opened: list[str]) -> DryRun:
    """Return what a site would read, and whether its rows fit: the task reads them, as in a run."""
    agreement, study, site = task.agreement, task.study, task.site
    table = site.columns(agreement)
    try:
        problems = task.refused_reading()
    finally:
        site.close()
    reads = [
        *(() if study.aligned else keys_of(study)),
        *(feature.name for feature in table.features),
        *([agreement.book.target] if table.labelled else []),
    ]
    opens = task.disclosure
    facts: dict[str, Json] = {"reads": reads, "leaves_as": list(opens.messages), "opened": list(opens.opened)}
    facts["opened_to"] = list(opens.learners)
    if opens.answers is not None:
        facts["opened_per_classified_instance"] = ["class"]
    lines = f"This site would read {', '.join(reads)}.", *(f"  {line}" for line in opens.messages), *opened
    return DryRun(facts, (*lines, "Nothing has left."), problems)


# -- a party's table, and what it computes alone ------------------------------------------------------------------------------


def require_held(columns: BatchColumns, party: str, source: ColumnSource) -> None:
    """Raise unless the table holds what the study says this party holds."""
    names = {feature.name for feature in source.features}
    if missing := [name for name in columns.owners[party] if name not in names]:
        raise DataError(f"{party}: the table lacks column {missing[0]!r}, which the study says this party holds; add it")
    if extra := sorted(names - set(columns.owners[party])):
        raise DataError(f"{party}: the table holds column {extra[0]!r}, which the study gives to another party; drop it")


def require_bound(party: str, count: int, bound: int) -> None:
    """Raise if there are more identifiers than agreed."""
    if count > bound:
        raise DataError(f"{party}: more identifiers than the agreed bound of {bound}; agree on a larger one")


def keyed_digest(key: bytes, facts: bytes, arrays: list[npt.NDArray[Any]]) -> bytes:
    """Return the keyed digest of public facts and arrays, shapes included."""
    digest = hashlib.blake2b(key=key[:64], digest_size=32, person=b"blindbayes part")
    digest.update(len(facts).to_bytes(8, "big") + facts)
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def class_counts_of(local: Mapping[str, Any] | None) -> npt.NDArray[np.int64]:
    """Return the class counts that the class holder stores with its share."""
    if local is None:
        raise LocalProtocolError("the class holder knows the class counts")
    return np.array(local["class_counts"], dtype=np.int64)


def _sub_codebook(columns: ColumnsSetup, party: str) -> Codebook:
    return columns.codebook.with_features(columns.features(party))


def count_local(columns: ColumnsSetup, party: str, source: ColumnSource | CheckedTable) -> dict[str, Any]:
    """Count a party's own columns, which it does alone because it knows the class."""
    classes = len(columns.codebook.classes)
    counts = np.zeros(classes, dtype=np.int64)
    total: Statistics | None = None
    layout = Layout(_sub_codebook(columns, party)) if columns.owners[party] else None
    for block in source.blocks():
        if block.labels is None:
            raise LocalProtocolError("a labelled party has the class column")
        counts += np.bincount(block.labels, minlength=classes)
        if layout is not None:
            part = count_block(layout, block)
            total = part if total is None else total + part
    named = total.by_name() if total is not None else {}
    return {"class_counts": [int(value) for value in counts], "statistics": named}


def local_parameters(columns: ColumnsSetup, party: str, local: Mapping[str, Any]) -> Parameters:
    units = columns.guard.units  # that counts are in
    book = msgspec.structs.replace(_sub_codebook(columns, party), max_rows=min(columns.codebook.max_rows * units, 1 << 48))
    statistics = Statistics.from_names(book, local["statistics"])
    return estimate(statistics, alpha=columns.alpha * units)


def whole_block(source: ColumnSource) -> CodedRows:
    blocks = list(source.blocks(training=False))
    if not blocks:
        return CodedRows(None, {feature.name: np.zeros(0, dtype=np.int64) for feature in source.features}, 0)
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return CodedRows(None, columns, sum(block.rows for block in blocks))
