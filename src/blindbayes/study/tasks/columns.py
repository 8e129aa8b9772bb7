"""What the schemes over columns have in common: tables that line up, what a site would read, who holds what in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from blindbayes.data.columns import ColumnSource
from blindbayes.data.keys import recipe_of
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.study.agreement import Agreement, Holdings
from blindbayes.study.study import JoinStudy, Study
from blindbayes.study.tasks.job import Site, refused_reading


def keys_of(study: Study) -> tuple[str, ...]:
    """Identifier columns that a table may have: those of the study, or of the codebook's recipe."""
    if not isinstance(study, JoinStudy):
        return ()
    return tuple(part.column for part in recipe_of(study.codebook, study.key or None).parts)


def require_own(agreement: Agreement, name: str, columns: Collection[str], *, ignore_others: bool = False) -> None:
    """Refuse a table without what the study says a party holds, or with more."""
    held, study = agreement.holdings, agreement.study
    wanted = {*held.holds[name], *keys_of(study), *((study.codebook.target,) if name in held.labelled else ())}
    if missing := sorted(wanted - set(columns)):
        raise DataError(f"the rows lack column {missing[0]!r}, which the study says this site holds; add it")
    extra = [column for column in columns if column not in wanted]
    if extra and not ignore_others:
        raise DataError(
            f"column {extra[0]!r} is not what the study says this site holds; drop it, or leave it unread: "
            'extra_columns = "ignore" under [rows] in site.toml'
        )


def holdings_of(tables: Mapping[str, ColumnSource], rows: int | None = None) -> Holdings:
    """Who holds what, seen from the tables."""
    holds = {name: tuple(feature.name for feature in table.features) for name, table in tables.items()}
    return Holdings(holds, tuple(name for name, table in tables.items() if table.labelled), rows)


def line_up(tables: Mapping[str, ColumnSource], *, known: bool = True) -> Holdings:
    """Tables of one number of rows, which is `known` to all or not."""
    sizes = {table.rows for table in tables.values()}
    if len(sizes) != 1:
        raise DataError("the parties' tables have different numbers of rows; line them up by key first, or make a JoinStudy")
    if not (rows := sizes.pop()):
        raise DataError("the tables are empty")
    return holdings_of(tables, rows if known else None)


def require_learner(reveal_to: str, parties: Any) -> None:
    """Who learns the class is everybody or a party."""
    if reveal_to != "all" and reveal_to not in parties:
        raise ConfigError(f"reveal_to is 'all' or a party of the study; {reveal_to!r} is not one")


def require_record(study: Study) -> None:
    """Over columns noise protects one record, and how it is drawn is settled."""
    if study.privacy.unit != "record":
        raise PrivacyError("over columns epsilon protects one record: leave the unit at 'record'")


def tell_holdings(agreement: Agreement) -> list[str]:
    """Who holds what, for who wrote the study."""
    held, study = agreement.holdings, agreement.study
    lines = [f"{agreement.title}: columns of {', '.join(agreement.names)}, by {study.protocol}."]
    for name in agreement.names:
        own = [*held.holds[name], *([agreement.book.target] if name in held.labelled else [])]
        lines.append(f"  {name} holds {', '.join(own) or 'nothing'}.")
    return lines


def describe_coalitions(columns: ColumnsSetup, *, compare_all: bool) -> str:
    """With three or more parties: who could pool what."""
    if compare_all:
        return "All parties compare the scores together: no coalition short of all but one learns more than the class."
    return (
        f"With more than one attribute holder, {columns.class_holder} and {columns.holders[0]} together can see what another "
        "holder's attributes add to the scores of an instance."
    )


def describe_queries(queries: int | None) -> str:
    """How often a model in shares may be asked, and why that counts."""
    limit = f"At most {queries} instances may be classified." if queries else "The number of queries is not limited."
    return f"{limit} Repeated queries let the model be read off; limit them."


def dry_run_columns(agreement: Agreement, site: Site, opened: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What a site would read, and whether its rows fit: its job reads them, as in a run."""
    study, scheme = agreement.study, agreement.study.scheme
    table = site.columns(agreement)
    try:
        problems = refused_reading(scheme.job(agreement, site, "0" * 32))
    finally:
        site.close()
    reads = [
        *(() if study.aligned else keys_of(study)),
        *(feature.name for feature in table.features),
        *([agreement.book.target] if table.labelled else []),
    ]
    said = scheme.shown(agreement)
    facts: dict[str, Any] = {"reads": reads, "leaves_as": list(scheme.facts.leaves), "opened": said["opened"]}
    facts |= {"opened_to": said["learners"], "refused_because": problems}
    if "opened_per_classified_instance" in said:
        facts["opened_per_classified_instance"] = said["opened_per_classified_instance"]
    lines = [f"This site would read {', '.join(reads)}.", *(f"  {line}" for line in scheme.facts.leaves), *opened]
    return facts, [*lines, "Nothing has left."]
