"""Bring a table in: choose its source, compare its columns with a study's codebook, preview, check, save.

Staff send the settings of `[rows]` as a form has them. A source is named by what it is (`file:visits.csv` in the data folder,
`duckdb:rows.duckdb`, `postgres:` with its parts, or `current`), never by a path or a URL: the console cannot read other files
of the machine, nor connect to servers that site.toml does not list. All functions read files or databases: run them in a
thread.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from blindbayes.agent.config import Rows, expanded
from blindbayes.agent.site_file import change_settings, raw_settings, require_plain, version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.tables import Tables
from blindbayes.agent.table_rules import complete, rule_form
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import BlindbayesError, ConfigError, DataError
from blindbayes.io import typed
from blindbayes.study.file import StudyFile

_PART = re.compile(r"[\w.$-]{1,63}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DIALECT = ("delimiter", "quote", "encoding", "decimal", "thousands", "missing", "extra_columns", "table")
_MAX_SHOWN = 40  # columns of a preview
MAX_RULES = 400


class TableSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table and how it is read. `map` is that of site.toml; `show` names columns of the table for a preview."""

    study: str = ""
    source: str = "current"
    table: str | None = None
    server: str = ""
    database: str = ""
    user: str = ""
    password: str = ""
    delimiter: str | None = None
    quote: str = '"'
    encoding: str | None = None
    decimal: Literal[".", ","] = "."
    thousands: str = ""
    missing: tuple[str, ...] = ()
    extra_columns: Literal["refuse", "ignore"] = "refuse"
    map: dict[str, Any] = {}
    show: tuple[str, ...] = ()
    version: str = ""


def current_settings(home: SiteFolder) -> TableSettings:
    """Return how the present table is read."""
    rows = home.config.rows
    if rows is None:
        return TableSettings(source="", version=version_of(home.folder))
    facts = {name: getattr(rows, name) for name in (*_DIALECT, "map")}
    return typed.convert({**facts, "version": version_of(home.folder)}, TableSettings)


def describe_source(home: SiteFolder) -> str:
    """Return the present source without credentials, as it is written in site.toml."""
    rows = raw_settings(home.folder).get("rows")
    source = str(rows.get("source", "")) if isinstance(rows, dict) else ""
    if "://" not in source:
        return source
    scheme, _, place = source.partition("://")  # a password may contain any sign, even @ and /
    return f"{scheme}://{re.split('[?#]', place.rpartition('@')[2])[0]}"


def raw_source(home: SiteFolder, given: TableSettings) -> str | None:
    """Return the source for site.toml, with a reference in place of a password; None keeps the present one."""
    kind, _, name = given.source.partition(":")
    if given.source == "current":
        if home.config.rows is None:
            raise ConfigError("this site has no table yet: choose a file, upload one, or name a database")
        return None
    if kind == "file":
        return _relative(home, home.data.require(name))
    if kind == "duckdb":
        if not given.table or not name.lower().endswith(".duckdb"):
            raise ConfigError("a DuckDB file ends in .duckdb, and its table has a name: fill in both")
        return f"duckdb://{quote(str(home.data.require(name).resolve()))}"
    if kind == "postgres":
        return _postgres(home, given)
    raise ConfigError("choose a file of the data folder, or name a database")


def _relative(home: SiteFolder, path: Path) -> str:
    return str(path.relative_to(home.folder)) if path.is_relative_to(home.folder) else str(path)


def _postgres(home: SiteFolder, given: TableSettings) -> str:
    if given.server not in home.config.console.databases:
        raise ConfigError(
            "that database server is not one that this site may be connected to: the operator lists it under databases in "
            "[console] of site.toml"
        )
    for name in ("user", "database"):
        if not _PART.fullmatch(getattr(given, name)):
            raise ConfigError(f"the {name} of the database has at most 63 letters, digits and . _ $ -")
    if not given.table or not all(map(_PART.fullmatch, given.table.split(".", 1))):
        raise ConfigError("name the table of the database, such as visits or ward.visits")
    if given.password and given.password not in secret_names(home):
        raise ConfigError("choose the password by the name of a file in the folder secrets/ of the site")
    password = f":${{file:secrets/{given.password}}}" if given.password else ""
    return f"postgres://{given.user}{password}@{given.server}/{given.database}"


def secret_names(home: SiteFolder) -> list[str]:
    """Return the names of the files in `secrets/`; their contents are read only when the database is opened."""
    folder = home.folder / "secrets"
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path.name for path in paths if _SECRET.fullmatch(path.name) and path.is_file() and not path.is_symlink()]


def rows_of(home: SiteFolder, given: TableSettings, *, with_map: bool = True) -> Rows:
    """Return `[rows]` as the settings would make it, without writing anything."""
    typed = {name: getattr(given, name) for name in _DIALECT}
    require_plain([*typed.values(), given.map])
    if len(given.map) > MAX_RULES:
        raise ConfigError(f"at most {MAX_RULES} columns are mapped here; write more into [rows.map] of site.toml")
    source, present = raw_source(home, given), home.config.rows
    made = Rows("") if present is None else present
    if source is not None:
        typed |= {"source": expanded(source, home.folder), "omop": None}
    elif made.omop is not None:
        raise ConfigError(
            "the present table is an OMOP database, whose columns the study declares: nothing is set here. Check it on the "
            "page Data check, or choose another table"
        )
    return msgspec.structs.replace(made, **typed, map=dict(given.map) if with_map else {})


def wanted_columns(study: StudyFile, name: str) -> dict[str, dict[str, Any]]:
    """Return what the study asks of this site's table: columns in the codebook's order, with their kind in words."""
    book, split = study.book, study.columns
    own = None if split is None else {*split.holds.get(name, ()), *([book.target] if name in split.labelled else ())}
    wanted = {book.target: {"kind": "class", "about": _listed(book.classes), "optional": False, "description": ""}}
    for feature in book.features:
        about = ""
        if isinstance(feature, Categorical):
            about = _listed(tuple(map(feature.named, feature.values)))
        elif isinstance(feature, Numeric):
            about = f"number from {feature.low:g} to {feature.high:g}"
        facts = {"kind": type(feature).__name__.lower(), "about": about, "optional": feature.optional}
        wanted[feature.name] = {**facts, "description": feature.description}
    keys = {} if book.identifier is None else {part.column: None for part in book.identifier.parts}
    chosen = {each: facts for each, facts in wanted.items() if own is None or each in own}
    for key in keys:
        chosen.setdefault(
            key, {"kind": "identifier", "about": "part of the identifier", "optional": split is None, "description": ""}
        )
    return chosen


def _listed(values: tuple[str, ...]) -> str:
    return ", ".join(values[:6]) + (f" and {len(values) - 6} more" if len(values) > 6 else "")


def compare_columns(home: SiteFolder, given: TableSettings, study: StudyFile | None, name: str) -> dict[str, Any]:
    """Return the table's columns beside those of the codebook: matched, mapped, missing, extra, and their types."""
    from blindbayes.data.first_rows import kinds_of

    rows = rows_of(home, given, with_map=False)
    with _opened(home, rows) as source:
        kinds, dialect = kinds_of(source), source.dialect
    wanted = {} if study is None else wanted_columns(study, name)
    columns = tuple(kinds)
    folded = {each.casefold().strip(): each for each in columns}
    lines = []
    for each, facts in wanted.items():
        form = rule_form(given.map[each]) if each in given.map else None
        near = folded.get(each.casefold()) or next(iter(difflib.get_close_matches(each, columns, n=1)), "")
        state = "mapped" if form is not None else "matched" if each in columns else "missing"
        source_column = form.column if form is not None else each if each in columns else ""
        kind = kinds.get(source_column, "")
        problem = _misfit(facts["kind"], kind, "" if form is None else form.reading, is_text_file=dialect is not None)
        lines.append({"name": each, **facts, "state": state, "near": near, "type": kind, "form": form, "problem": problem})
    used = _used_columns(given, wanted, columns)
    return {
        "columns": [{"name": each, "type": kinds[each], "extra": each not in used} for each in columns],
        "wanted": lines,
        "extra": [each for each in columns if each not in used] if wanted else [],
        "missing": [each["name"] for each in lines if each["state"] == "missing"],
        "dialect": "" if dialect is None else str(dialect),
    }


def _used_columns(given: TableSettings, wanted: dict[str, Any], columns: tuple[str, ...]) -> set[str]:
    from blindbayes.data.mapping import Rule

    used = {each for each in columns if each in wanted}
    for name, rule in given.map.items():
        try:
            used |= Rule.parse(name, rule).columns
        except ConfigError:
            continue
    return used


def _misfit(wanted: str, kind: str, reading: str, *, is_text_file: bool) -> str:
    if kind == "date" and not reading:
        return "a date: choose a part of it, such as the month, or the years between two dates"
    if kind == "other":
        return "a type that is neither text, number, truth value nor date"
    if (wanted, kind, reading) == ("numeric", "text", "") and not is_text_file:
        return "text where numbers are expected: choose number"
    return ""


def _opened(home: SiteFolder, rows: Rows) -> Any:
    return Tables(home.folder, rows).open_batch(rows.source, rows.table, partly=True)


def preview(home: SiteFolder, given: TableSettings, study: StudyFile | None, name: str) -> dict[str, Any]:
    """Return the first rows: the requested columns as they stand in the table, and the study's columns as they are read."""
    from blindbayes.data.first_rows import first_rows

    number = home.config.console.preview_rows
    if not number:
        raise ConfigError("previews are off at this site (preview_rows under [console] in site.toml)")
    if not given.show:
        raise ConfigError("tick the columns that you want to see")
    if len(given.show) > _MAX_SHOWN:
        raise ConfigError(f"a preview shows at most {_MAX_SHOWN} columns: tick fewer")
    rows = rows_of(home, given)
    with _opened(home, msgspec.structs.replace(rows, map={}, missing=())) as source:
        if unknown := [each for each in given.show if each not in source.columns]:
            raise DataError(f"the table has {len(unknown)} of the ticked columns no longer: read its columns again")
        plain = {"columns": list(given.show), "rows": first_rows(source, given.show, number)}
    if study is None:
        return {"plain": plain, "read": None}
    chosen, problem = wanted_columns(study, name), ""
    read: dict[str, Any] = {"columns": [], "rows": [], "notes": []}
    try:
        with _opened(home, rows) as source:
            shown = {*given.show, *(each for each, rule in given.map.items() if _uses(each, rule, given.show))}
            names = [each for each in chosen if each in source.columns and each in shown][:_MAX_SHOWN]
            if names:
                dates = source.unreadable_dates(study.book).items()
                notes = [f"{each}: {unreadable}; it counts as missing" for each, unreadable in dates if each in names]
                read = {"columns": names, "rows": first_rows(source, names, number, study.book), "notes": notes}
    except BlindbayesError as error:
        problem = str(error)
    return {"plain": plain, "read": read, "problem": problem}


def _uses(name: str, rule: Any, shown: tuple[str, ...]) -> bool:
    from blindbayes.data.mapping import Rule

    return bool(Rule.parse(name, rule).columns & {*shown})


def check(home: SiteFolder, given: TableSettings, study: StudyFile, name: str) -> dict[str, Any]:
    """Check the rows against the codebook under unsaved settings. Returns numbers of rows by column."""
    return Tables(home.folder, rows_of(home, given)).check(study, name)


def save(home: SiteFolder, given: TableSettings, who: str) -> list[str]:
    """Write `[rows]` to site.toml and an entry to the audit log. Return the names of the settings that changed.

    The table must be readable. The caller reloads the agent's settings.
    """
    rows = rows_of(home, given)
    Tables(home.folder, rows).open_batch(rows.source, rows.table, partly=False).close()
    source, default = raw_source(home, given), Rows("")
    present = raw_settings(home.folder).get("rows", {})
    changes: dict[str, Any] = {} if source is None else {"rows.source": source, "rows.omop": None}
    for key in (*_DIALECT, "map"):
        value = getattr(rows, key)
        is_default = value == getattr(default, key)
        changes[f"rows.{key}"] = None if is_default else list(value) if isinstance(value, tuple) else value
        if is_default and key in present and key != "map" and value is not None:
            changes[f"rows.{key}"] = list(value) if isinstance(value, tuple) else value
    changed = change_settings(home.folder, changes, given.version)
    if changed:
        home.audit.append("table set", keys=changed, table=rows.name, who=who)
    return changed


def completed(home: SiteFolder, given: TableSettings, study: StudyFile | None, name: str) -> TableSettings:
    """Return the settings, with rules completed as in `table_rules.complete`."""
    if study is None or not given.map:
        return given
    with _opened(home, rows_of(home, given, with_map=False)) as source:
        columns = source.columns
    wanted = dict.fromkeys(wanted_columns(study, name))
    return msgspec.structs.replace(given, map=complete(given.map, wanted, columns))


def is_complete(home: SiteFolder, given: TableSettings, study: StudyFile, name: str) -> bool:
    """Return True if the table has every column that the study asks for, and no other that would be refused."""
    compared = compare_columns(home, given, study, name)
    missing = [each for each in compared["wanted"] if each["state"] == "missing" and not each["optional"]]
    return not missing and (given.extra_columns == "ignore" or not compared["extra"])


def exact_sums(home: SiteFolder, identity: str) -> list[str]:
    """Return the sites with which the present table took part in exact sums, possibly empty."""
    if home.config.rows is None:
        return []
    sums = home.history.binding().sums_of(identity, home.config.rows.name)
    names = {card.identity.hex(): name for name, card in home.peers().items()}
    return sorted({names.get(site, f"a site ({site[:8]})") for each in sums for site in each.sites - {identity}})
