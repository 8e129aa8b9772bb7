"""The settings of a study as fields of a form: which ones a kind of study has, and how their texts are read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from blindbayes.errors import ConfigError
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Estimation, Limits, Privacy
from blindbayes.study.settings import SETTINGS, label_of, option_lines
from blindbayes.study.study import KINDS
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.writing import ANYWHERE, APPLIES

_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "privacy": Privacy,
    "limits": Limits,
    "columns": Holdings,
    "estimation": Estimation,
    "deadlines": Deadlines,
}
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII)
_COMMA = re.compile(r"\d+,\d+", re.ASCII)
_OWN = ("reveal_to", "key", "duplicates")
_ELSEWHERE = {"holds", "labelled", "candidates"}  # asked for in another way, or written in the file


@dataclass(frozen=True, slots=True)
class Field:
    """A setting: its name, such as `privacy__epsilon`, what it does, and its choices if it has a fixed list of them."""

    name: str
    sentence: str
    type: Any
    default: Any
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return label_of(self.name.replace("__", "."))

    def read(self, text: str) -> Any:
        """Parse a form field by its type. Raises `ConfigError` that says what was expected."""
        kind = plain_type(self.type)
        if self.choices:
            if text not in self.choices:
                raise ConfigError(f"{self.label} is one of {', '.join(self.choices)}")
            return text == "yes" if kind is bool else text
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if get_origin(kind) is tuple:
            return tuple(parts)
        if get_origin(kind) is dict:
            return tuple(self._pair(part) for part in parts)
        return typed_number(text, self.label, kind) if kind in (int, float) else _answer(text)

    def _pair(self, text: str) -> tuple[str, Any]:
        name, sign, value = text.partition("=")
        if not (name.strip() and sign and value.strip()):
            raise ConfigError(f"{self.label} is a list such as north = 4096, south = 4096")
        return name.strip(), _answer(value.strip())


def typed_number(text: str, label: str, kind: type[int] | type[float] = float) -> Any:
    """Return the number that a person typed. A comma is not guessed at: 0,5 and 1,000 mean different things by country."""
    words = text.strip()
    if _THOUSANDS.fullmatch(words):  # as pages show numbers
        words = words.replace(",", "")
    try:
        number = kind(words)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        example = f": {words.replace(',', '.')}" if _COMMA.fullmatch(words) else ", such as 0.5"
        what = "whole number, such as 1000" if kind is int else f"number with a decimal point{example}"
        raise ConfigError(f"{label}: write a {what}")
    return number


def plain_type(kind: Any) -> Any:
    """Return the type of a field without None and annotations; None if it has several types."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) in (Literal, dict, tuple):
        return bare
    types = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(bare) or (bare,)]
    types = [each for each in types if each is not type(None)]
    return types[0] if len(types) == 1 else None


def plain_value(text: str) -> Any:
    """Return a number, True, False or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _answer(text: str) -> Any:
    return {"yes": True, "no": False}.get(text, plain_value(text))


def _field(section: str, field: msgspec.structs.FieldInfo, sentence: str, kind: Any = None) -> Field:
    kind = kind or field.type
    plain = plain_type(kind)
    choices = tuple(map(str, get_args(plain))) if get_origin(plain) is Literal else ("yes", "no") if plain is bool else ()
    default = None if field.required or field.default_factory is not msgspec.NODEFAULT else field.default
    return Field(f"{section}__{field.name}", sentence, kind, default, choices)


def protocols_of(kind: str) -> tuple[str, ...]:
    """Return the protocols of this distribution for a kind of study, without those that a policy must allow by name."""
    study = KINDS[kind]
    offered = {name: tasks.task_class(name) for name in tasks.own_names()}
    fitting = {name: task for name, task in offered.items() if study.partition in task.partitions and not task.restricted}
    return tuple(name for name, task in fitting.items() if study.partition == "rows" or task.aligned == study.aligned)


def fields_of(kind: str, protocol: str | None = None) -> dict[str, Field]:
    """Return the fields of a kind of study and of its protocol, by name."""
    known: dict[str, Field] = {}
    study = {each.name: each for each in msgspec.structs.fields(KINDS[kind])}
    groups = [(section, each) for section, struct in _SECTIONS.items() for each in msgspec.structs.fields(struct)]
    for section, each in (*groups, *(("study", study[name]) for name in _OWN if name in study)):
        setting = SETTINGS.get(f"study.{each.name}" if section == "study" else f"study.{section}.{each.name}")
        if setting is not None and each.name not in _ELSEWHERE and setting.over in ANYWHERE | APPLIES[kind]:
            field = _field(section, each, setting.sentence)
            known[field.name] = field
    params = tasks.task_class(protocol or KINDS[kind].__struct_defaults__[0]).params
    hints, lines = get_type_hints(params, include_extras=True), option_lines(params)
    for each in msgspec.structs.fields(params):
        line = lines[each.name].replace("`", "")
        field = _field("options", each, line[:1].upper() + line[1:].rstrip(".") + ".", hints[each.name])
        known[field.name] = field
    return known


def read_fields(fields: Mapping[str, Field], texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Parse the texts that are not empty. Returns values by name, and errors by name."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, field in fields.items():
        if text := texts.get(name, "").strip():
            try:
                values[name] = field.read(text)
            except ConfigError as error:
                errors[name] = str(error)
    return {name: value for name, value in values.items() if value != ()}, errors
