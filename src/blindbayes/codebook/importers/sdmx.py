"""SDMX code lists: structure messages in XML (2.1 and 3.0) or JSON.

With a data structure definition its dimensions, attributes and measures are the columns. Without one a person says which column
holds the codes of which list (`--column sex=CL_SEX`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from blindbayes.codebook.importers.neutral import (
    MAX_FILE,
    Choose,
    Column,
    Dictionary,
    File,
    categories,
    distinct,
    excluded,
    number,
)
from blindbayes.io.untrusted import Element, read_json_table, read_xml, shown

SPECIFICATION = "SDMX 2.1 and 3.0 structure message"
_COMPONENTS = ("Dimension", "MeasureDimension", "TimeDimension", "Attribute", "PrimaryMeasure", "Measure")
_WHOLE = ("Integer", "Long", "Short", "BigInteger", "Count")
_REAL = ("Decimal", "Double", "Float", "Numeric", "InclusiveValueRange")


@dataclass(frozen=True, slots=True)
class _Component:
    """A column of a data structure definition."""

    name: str
    where: str
    list: str = ""  # id of its code list
    form: Mapping[str, Any] = field(default_factory=dict)
    is_time: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class _List:
    codes: list[tuple[str, str]]
    where: str
    is_whole: bool = True


def read(file: File) -> Dictionary:
    is_json = file.raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    lists, components = _json(file) if is_json else _xml(file)
    if file.lists:
        columns = [_listed(name, id_, lists, file) for name, id_ in file.lists.items()]
    elif components:
        columns = [_column(each, lists, file) for each in components]
    elif lists:
        raise Choose("column NAME=LIST", f"{file.what} has code lists and no data structure; which column holds which?", lists)
    else:
        raise file.problem("line 1", "no code list and no data structure is in the message")
    return Dictionary(file.what, SPECIFICATION, distinct(columns, file))


def _listed(name: str, id_: str, lists: Mapping[str, _List], file: File, *, optional: bool = True) -> Column:
    if id_ not in lists:
        raise Choose("column NAME=LIST", f"{file.what} has no code list {shown(id_)!r}", lists)
    if not lists[id_].is_whole:
        raise file.problem(lists[id_].where, "is partial or extends another list: import the message with all of its codes")
    if not lists[id_].codes:
        raise file.problem(lists[id_].where, "the code list has no code")
    return Column(name, **categories(lists[id_].codes), optional=optional, where=lists[id_].where)


def _column(each: _Component, lists: Mapping[str, _List], file: File) -> Column:
    if each.is_time:
        return excluded(each.name, "dates: a map derives features from them ([rows.map])", where=each.where)
    if each.list:
        known = lists.get(each.list)
        if known is None or not known.is_whole or not known.codes:
            why = "is not in the message" if known is None else "is partial, empty or extends another one"
            return excluded(each.name, f"its code list {each.list} {why}: fetch it with references=all", where=each.where)
        return _listed(each.name, each.list, lists, file, optional=not each.required)
    kind = str(each.form.get("textType") or each.form.get("dataType") or "String")
    if kind not in (*_WHOLE, *_REAL) and not ("minValue" in each.form and "maxValue" in each.form):
        return excluded(each.name, "free text: it has no code list", where=each.where)
    ends = {"low": each.form.get("minValue"), "high": each.form.get("maxValue")}
    bounds: dict[str, Any] = {side: number(end, file, f"{each.where}, {side}") for side, end in ends.items() if end is not None}
    digits = each.form.get("decimals")
    step = (
        1.0
        if kind in _WHOLE
        else None
        if digits is None
        else 10.0 ** -max(0, min(9, int(number(digits, file, f"{each.where}, decimals"))))
    )
    return Column(each.name, "number", precision=step, optional=not each.required, where=each.where, **bounds)


# -- XML ---------------------------------------------------------------------------------------------------------------


def _xml(file: File) -> tuple[dict[str, _List], list[_Component]]:
    root = read_xml(file.raw, file.what, max_bytes=MAX_FILE)
    if root.name != "Structure":
        raise file.problem(f"line {root.line}", "the root of a structure message is Structure")
    lists = {}
    for each in (*root.named("Codelist"), *root.named("ValueList")):
        if "id" in each.attributes:  # else a reference
            codes = [*each.all("Code"), *each.all("ValueItem")]
            whole = each.attributes.get("isPartial") != "true" and each.first("CodelistExtension") is None
            pairs = [(code.attributes.get("id", ""), _name(code)) for code in codes]
            lists[each.attributes["id"]] = _List(pairs, f"line {each.line}, code list {each.attributes['id']!r}", whole)
    return lists, [each for definition in root.named("DataStructure")[:1] for each in _parts(definition)]


def _parts(definition: Element) -> list[_Component]:
    elements = [each for name in _COMPONENTS for each in definition.named(name) if each.first("ConceptIdentity") is not None]
    return [_component(each) for each in sorted(elements, key=lambda each: each.line)]  # others are references


def _component(element: Element) -> _Component:
    name = element.attributes.get("id", "OBS_VALUE")
    form = element.first("LocalRepresentation", "TextFormat")
    listed = element.first("LocalRepresentation", "Enumeration")
    id_ = ""
    if listed is not None:
        ref = listed.first("Ref")
        id_ = ref.attributes.get("id", "") if ref is not None else _id_of(listed.text or _urn(listed))
    required = element.name == "Dimension" or "mandatory" in (
        element.attributes.get("assignmentStatus", "").lower(),
        element.attributes.get("usage", "").lower(),
    )
    facts = form.attributes if form is not None else {}
    is_time = element.name == "TimeDimension"
    if element.name == "PrimaryMeasure" and not facts and not id_:
        facts = {"textType": "Double"}
    return _Component(name, f"line {element.line}, field {name!r}", id_, facts, is_time, required)


def _urn(element: Element) -> str:
    urn = element.first("URN")
    return urn.text if urn is not None else ""


def _id_of(urn: str) -> str:
    """Return the id in a URN such as urn:sdmx:org.sdmx.infomodel.codelist.Codelist=ECB:CL_FREQ(1.0)."""
    return urn.rpartition("=")[2].rpartition(":")[2].partition("(")[0]


def _name(element: Element) -> str:
    names = element.all("Name")
    english = [name for name in names if name.attributes.get("lang", "en") == "en"]
    return next((name.text for name in (*english, *names)), "")


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json(file: File) -> tuple[dict[str, _List], list[_Component]]:
    document = read_json_table(file.raw, file.what)
    data = document.get("data", document)
    lists: dict[str, _List] = {}
    for kind, items in (("codelists", "codes"), ("valueLists", "valueItems")):
        for at, each in _tables(data, kind, file):
            pairs = [(str(code.get("id", "")), _label(code)) for _, code in _tables(each, items, file)]
            whole = each.get("isPartial") is not True and not each.get("codelistExtensions")
            lists[str(each.get("id", at))] = _List(pairs, f"{kind}[{at}] {str(each.get('id', ''))!r}", whole)
    components: list[_Component] = []
    for _, definition in list(_tables(data, "dataStructures", file))[:1]:
        parts = definition.get("dataStructureComponents") or {}
        if not isinstance(parts, Mapping):
            raise file.problem("dataStructures[0]", "dataStructureComponents must be a table")
        for group, kinds in _GROUPS.items():
            inner = parts.get(group) or {}
            for kind in kinds:
                components += [_json_component(each, kind, at, file) for at, each in _tables(inner, kind, file)]
    return lists, components


_GROUPS = {
    "dimensionList": ("dimensions", "timeDimensions", "timeDimension"),
    "measureList": ("measures", "primaryMeasure"),
    "attributeList": ("attributes",),
}


def _tables(parent: Any, name: str, file: File) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = parent.get(name) if isinstance(parent, Mapping) else None
    listed = [] if listed is None else listed if isinstance(listed, list) else [listed]
    for at, each in enumerate(listed):
        if not isinstance(each, Mapping):
            raise file.problem(f"{name}[{at}]", "must be a table")
        yield at, each


def _label(item: Mapping[str, Any]) -> str:
    names = item.get("names")
    english = names.get("en") or next(iter(names.values()), "") if isinstance(names, Mapping) else None
    return str(item.get("name") or english or "")


def _json_component(each: Mapping[str, Any], kind: str, at: int, file: File) -> _Component:
    name = str(each.get("id", ""))
    where = f"{kind}[{at}] {name!r}"
    form = each.get("localRepresentation") or {}
    if not name or not isinstance(form, Mapping):
        raise file.problem(where, "a component has an id, and localRepresentation is a table")
    facts = form.get("textFormat") or form.get("format") or {}
    facts = facts if isinstance(facts, Mapping) else {}
    required = kind == "dimensions" or "mandatory" in (
        str(each.get("assignmentStatus")).lower(),
        str(each.get("usage")).lower(),
    )
    urn = str(form.get("enumeration") or "")
    return _Component(name, where, _id_of(urn), facts, kind.startswith("time"), required)
