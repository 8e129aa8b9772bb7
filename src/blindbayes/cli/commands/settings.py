"""`blindbayes settings`: every setting of the files that people write; and the options of commands that set one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from blindbayes.agent.config import SiteConfig
from blindbayes.study.file import StudyFile
from blindbayes.study.settings import SECTIONS, SETTINGS


def _tables(file: str, kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The struct of a file, and those of its tables."""
    found = {file: kind}
    for field in msgspec.structs.fields(kind):
        for part in (field.type, *get_args(field.type)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct) and f"{file}.{field.name}" not in SETTINGS:
                found[f"{file}.{field.name}"] = part
    return found


STRUCTS = _tables("site", SiteConfig) | _tables("study", StudyFile)
_SAID = {"study.privacy.gamma": "two thirds", "study.thresholds.quorum": "by protocol"}
_SAID |= {"study.hosts": "by `study init`", "study.signatures": "by `study sign`"}
_HEAD = """# Settings

Every setting of the three files that people write, made by `blindbayes settings`. The fields of a codebook are listed in its
[JSON Schema](codebook.schema.json) (`blindbayes codebook schema`); the settings of `Study` and `NaiveBayes` stand in
[Python](api.md). What stands in site.toml the site decides alone; what stands in study.toml all parties sign.
"""


def option(path: str, *names: str, **more: Any) -> Callable[[Any], Any]:
    """An option of a command that sets this: type, default and help are the setting's."""
    section, _, name = path.rpartition(".")
    kind = get_type_hints(STRUCTS[section]).get(name) if section in STRUCTS else None
    if kind is not None and not more:
        field = next(each for each in msgspec.structs.fields(STRUCTS[section]) if each.name == name)
        default = None if field.default is msgspec.NODEFAULT else field.default
        plain = next((each for each in get_args(kind) if each is not type(None)), kind) if default is None else kind
        more = {"type": click.Choice(get_args(plain)) if get_origin(plain) is Literal else plain}
        more |= {} if default is None else {"default": default, "show_default": True}
    flags = names or ("--" + name.replace("_", "-"),)
    return click.option(*flags, **more, help=SETTINGS[path].sentence)


def page() -> str:
    """The settings page."""
    parts = [_HEAD]
    for section in STRUCTS:
        top, _, table = section.partition(".")
        title = f"### {f'[[{table}]]' if table == 'parties' else f'[{table}]'}" if table else f"## {top}.toml"
        fields = {each.name: each for each in msgspec.structs.fields(STRUCTS[section])}
        rows = [
            f"| `{name}` | {_default(f'{section}.{name}', fields[name])} | {found.paragraph} |"
            for path, found in SETTINGS.items()
            for own, _, name in (path.rpartition("."),)
            if own == section
        ]
        parts += [title, SECTIONS.get(section, ""), "\n".join(("| setting | default | |", "|---|---|---|", *rows))]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _default(path: str, field: Any) -> str:
    if path in _SAID:
        return _SAID[path]
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
    """Every setting of site.toml and study.toml, with its default and what it does.

    Example:
      blindbayes settings
    """
    click.echo(page(), nl=False)
