"""`blindbayes settings`: document every setting of site.toml and study.toml."""

from __future__ import annotations

from typing import Any, Literal, get_args

import click
import msgspec
from msgspec.structs import FieldInfo, fields

from blindbayes.agent.config import SiteConfig
from blindbayes.study.file import StudyFile
from blindbayes.study.settings import SECTIONS, SETTINGS, option_lines
from blindbayes.study.study import JoinStudy, RowStudy, Study
from blindbayes.study.tasks import registry


def _tables(file: str, *kinds: type[msgspec.Struct]) -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of a file and of its tables, by section."""
    sections: dict[str, dict[str, FieldInfo]] = {file: {}}
    for field in (each for kind in kinds for each in fields(kind)):
        path = f"{file}.{field.name}"
        parts = [part for part in (field.type, *get_args(field.type)) if isinstance(part, type)]
        table = next((part for part in parts if issubclass(part, msgspec.Struct)), None)
        if table is None or path in SETTINGS:
            sections[file].setdefault(field.name, field)
        elif not issubclass(table, Study):
            sections[path] = {each.name: each for each in fields(table)}
    return sections


FIELDS = _tables("site", SiteConfig) | _tables("study", StudyFile, RowStudy, JoinStudy)
FIELDS["study"]["kind"] = FieldInfo("kind", "kind", Literal["rows", "columns", "join"], "rows")
_DEFAULTS = {"study.privacy.honest_fraction": "two thirds", "study.limits.quorum": "by protocol"}
_DEFAULTS |= {"study.hosts": "by `study init`", "study.signatures": "by `study sign`"}
_TABLE = ("| setting | default | |", "|---|---|---|")
_HEAD = """# Settings

This page lists every setting of site.toml and study.toml; `blindbayes settings` prints it. The fields of a codebook are in its
[JSON Schema](codebook.schema.json) (`blindbayes codebook schema`), parameters of studies and estimators in [Python](api.md).
Each site decides on its own site.toml; all parties sign study.toml.
"""


def page() -> str:
    parts = [_HEAD]
    for section, known in FIELDS.items():
        top, _, table = section.partition(".")
        title = f"### {f'[[{table}]]' if table == 'parties' else f'[{table}]'}" if table else f"## {top}.toml"
        rows = [
            f"| `{name}` | {_default(f'{section}.{name}', known[name])} | {setting.paragraph} |"
            for path, setting in SETTINGS.items()
            for own, _, name in (path.rpartition("."),)
            if own == section
        ]
        parts += [title, SECTIONS.get(section, ""), "\n".join((*_TABLE, *rows))]
    for protocol in registry.own_names():
        params = registry.task_class(protocol).params
        rows = [f"| `{each.name}` | {_default('', each)} | {option_lines(params)[each.name]} |" for each in fields(params)]
        parts += [f"### [options] of {protocol}", "\n".join((*_TABLE, *rows))] if rows else []
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _default(path: str, field: Any) -> str:
    if path in _DEFAULTS:
        return _DEFAULTS[path]
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "none" if value is None or value == {} else f"`{value}`"


@click.command(name="settings")
def command() -> None:
    """Print every setting of site.toml and study.toml, with its default and meaning.

    Example:
      blindbayes settings
    """
    click.echo(page(), nl=False)
