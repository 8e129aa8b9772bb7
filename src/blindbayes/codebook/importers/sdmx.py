"""SDMX code lists: structure messages in XML (2.1 and 3.0) or JSON.

With a data structure definition its dimensions, attributes and measures are the columns; what a component does not say of its
representation or id, its concept says. Without one a person says which column holds the codes of which list
(`--column sex=CL_SEX`). An artefact is known by `AGENCY:ID(VERSION)`, as in a URN: a message may hold two versions of a list.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

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
    one_of,
    place,
)
from blindbayes.io.untrusted import Element, read_json_table, read_xml, shown

SPECIFICATION = "SDMX 2.1 and 3.0 structure message"
_COMPONENTS = ("Dimension", "MeasureDimension", "TimeDimension", "Attribute", "PrimaryMeasure", "Measure")
_WHOLE = ("Integer", "Long", "Short", "BigInteger", "Count")
_REFERENCE = re.compile(r"(?:(?P<agency>.*):)?(?P<id>[^:(]*)(?:\((?P<version>.*)\))?")
_Artefact = TypeVar("_Artefact")
_REAL = ("Decimal", "Double", "Float", "Numeric", "InclusiveValueRange")


@dataclass(frozen=True, slots=True)
class _Component:
    """A column of a data structure definition."""

    name: str
    where: str
    list: str = ""  # reference to its code list
    form: Mapping[str, Any] = field(default_factory=dict)
    is_time: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class _List:
    ref: str
    codes: list[tuple[str, str]]
    where: str
    is_whole: bool = True


class _Lists:
    """Code lists by name, and by every reference that names one of them."""

    def __init__(self, by_name: Mapping[str, _List]) -> None:
        self.by_name = by_name
        self._known: dict[tuple[str, str | None, str | None], list[_List]] = defaultdict(list)
        for each in by_name.values():
            known = _parts_of(each.ref)
            for agency, version in product({known["agency"], None}, {known["version"], None}):
                self._known[known["id"], agency, version].append(each)

    def resolved(self, ref: str) -> _List | None:
        """Return the only list that matches a reference. A missing version or an SDMX 3.0 wildcard matches any version."""
        wanted = _parts_of(ref)
        agency, version = wanted["agency"], "" if re.search(r"[*+]", wanted["version"]) else wanted["version"]
        places = product((agency, "") if agency else (None,), (version, "") if version else (None,))
        hits = [each for place in places for each in self._known.get((wanted["id"], *place), ())]
        return hits[0] if len(hits) == 1 else None


def read(file: File) -> Dictionary:
    is_json = file.raw.lstrip()[:1] == b"{"
    named, components = _json(file) if is_json else _xml(file)
    lists = _Lists(named)
    if file.lists:
        columns = [_listed(name, id_, lists, file) for name, id_ in file.lists.items()]
    elif components:
        columns = [_column(each, lists, file) for each in components]
    elif named:
        raise Choose("column NAME=LIST", f"{file.what} has code lists and no data structure; which column holds which?", named)
    else:
        raise file.problem("line 1", "no code list and no data structure is in the message")
    return Dictionary(file.what, SPECIFICATION, distinct(columns, file))


def _listed(name: str, id_: str, lists: _Lists, file: File, *, optional: bool = True) -> Column:
    known = lists.resolved(id_)
    if known is None:
        raise Choose("column NAME=LIST", f"{file.what} has no code list {shown(id_)!r}, or several", lists.by_name)
    if not known.is_whole:
        raise file.problem(known.where, "is partial or extends another list: import the message with all of its codes")
    if not known.codes:
        raise file.problem(known.where, "the code list has no code")
    return Column(name, **categories(known.codes), optional=optional, where=known.where)


def _parts_of(ref: str) -> dict[str, str]:
    parts = _REFERENCE.fullmatch(ref)
    return parts.groupdict("") if parts is not None else {"agency": "", "id": ref, "version": ""}


def _by_name(artefacts: Iterable[tuple[str, _Artefact]]) -> dict[str, _Artefact]:
    """Return artefacts by id, or by their full references where several have one id."""
    listed = dict(artefacts)
    times = Counter(_parts_of(ref)["id"] for ref in listed)
    return {ref if times[_parts_of(ref)["id"]] > 1 else _parts_of(ref)["id"]: each for ref, each in listed.items()}


def _column(each: _Component, lists: _Lists, file: File) -> Column:
    if each.is_time:
        return excluded(each.name, "dates: a map derives features from them ([rows.map])", where=each.where)
    if each.list:
        known = lists.resolved(each.list)
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
    if root.first("CodeLists") is not None or root.first("KeyFamilies") is not None:
        raise file.problem(f"line {root.line}", "is a message of SDMX 2.0: ask for version 2.1 or later")
    lists = []
    for each in (*root.named("Codelist"), *root.named("ValueList")):
        if "id" in each.attributes:  # else a reference
            codes = [*each.all("Code"), *each.all("ValueItem")]
            whole = each.attributes.get("isPartial") != "true" and each.first("CodelistExtension") is None
            pairs = [(code.attributes.get("id", ""), _name(code)) for code in codes]
            where = f"line {each.line}, code list {each.attributes['id']!r}"
            lists.append((ref := _ref(each.attributes), _List(ref, pairs, where, whole)))
    concepts = {
        f"{_ref(scheme.attributes)}.{concept.attributes.get('id')}": concept.first("CoreRepresentation")
        for scheme in root.named("ConceptScheme")
        for concept in scheme.all("Concept")
    }
    definitions = _by_name((_ref(each.attributes), each) for each in root.named("DataStructure") if "id" in each.attributes)
    chosen = one_of(definitions, file, "data structure") if definitions and not file.lists else None
    return _by_name(lists), [] if chosen is None else list(_parts(chosen, concepts))


def _parts(definition: Element, concepts: Mapping[str, Element | None]) -> Iterator[_Component]:
    elements = [each for name in _COMPONENTS for each in definition.named(name) if each.first("ConceptIdentity") is not None]
    for each in sorted(elements, key=lambda each: each.line):  # others are references
        identity = _referred(each.first("ConceptIdentity"))
        yield _component(each, identity, each.first("LocalRepresentation") or concepts.get(identity))


def _component(element: Element, identity: str, representation: Element | None) -> _Component:
    name = element.attributes.get("id") or _NAMED.get(element.name) or identity.rpartition(".")[2]
    form = None if representation is None else representation.first("TextFormat")
    id_ = "" if representation is None else _referred(representation.first("Enumeration"))
    required = element.name == "Dimension" or "mandatory" in (
        element.attributes.get("assignmentStatus", "").lower(),
        element.attributes.get("usage", "").lower(),
    )
    facts = form.attributes if form is not None else {}
    is_time = element.name == "TimeDimension"
    if element.name == "PrimaryMeasure" and not facts and not id_:
        facts = {"textType": "Double"}
    return _Component(name, f"line {element.line}, field {name!r}", id_, facts, is_time, required)


_NAMED = {"TimeDimension": "TIME_PERIOD", "PrimaryMeasure": "OBS_VALUE"}  # fixed in version 2.1


def _ref(facts: Mapping[str, Any], prefix: str = "id", version: str = "version") -> str:
    return f"{facts.get('agencyID', '')}:{facts.get(prefix, '')}({facts.get(version, '1.0')})"


def _referred(element: Element | None) -> str:
    """Return the reference of an element: by attributes (Ref), by a URN in an element, or by a URN as text."""
    if element is None:
        return ""
    ref, urn = element.first("Ref"), element.first("URN")
    if ref is None:
        return _reference_in(element.text or (urn.text if urn is not None else ""))
    if "maintainableParentID" in ref.attributes:
        return f"{_ref(ref.attributes, 'maintainableParentID', 'maintainableParentVersion')}.{ref.attributes.get('id')}"
    return _ref(ref.attributes)


def _reference_in(urn: str) -> str:
    """Return the reference in a URN such as urn:sdmx:org.sdmx.infomodel.codelist.Codelist=ECB:CL_FREQ(1.0)."""
    return urn.rpartition("=")[2]


def _name(element: Element) -> str:
    names = element.all("Name")
    english = [name for name in names if name.attributes.get("lang", "en") == "en"]
    return next((name.text for name in (*english, *names)), "")


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json(file: File) -> tuple[dict[str, _List], list[_Component]]:
    document = read_json_table(file.raw, file.what, located=True)
    data = document.get("data", document)
    lists = []
    for kind, items in (("codelists", "codes"), ("valueLists", "valueItems")):
        for at, each in _tables(data, kind, file):
            pairs = [(str(code.get("id", "")), _label(code)) for _, code in _tables(each, items, file)]
            whole = each.get("isPartial") is not True and not each.get("codelistExtensions")
            where = place(each, f"{kind}[{at}] {str(each.get('id', ''))!r}")
            lists.append((ref := _ref({"id": at, **each}), _List(ref, pairs, where, whole)))
    concepts = {
        f"{_ref(scheme)}.{concept.get('id')}": concept.get("coreRepresentation")
        for _, scheme in _tables(data, "conceptSchemes", file)
        for _, concept in _tables(scheme, "concepts", file)
    }
    definitions = _by_name((_ref({"id": at, **each}), each) for at, each in _tables(data, "dataStructures", file))
    if not definitions or file.lists:
        return _by_name(lists), []
    parts = one_of(definitions, file, "data structure").get("dataStructureComponents") or {}
    if not isinstance(parts, Mapping):
        raise file.problem("dataStructures", "dataStructureComponents must be a table")
    components: list[_Component] = []
    for group, kinds in _GROUPS.items():
        inner = parts.get(group) or {}
        for kind in kinds:
            components += [_json_component(each, kind, at, concepts, file) for at, each in _tables(inner, kind, file)]
    return _by_name(lists), components


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
            raise file.problem(place(parent, f"{name}[{at}]"), "must be a table")
        yield at, each


def _label(item: Mapping[str, Any]) -> str:
    names = item.get("names")
    english = names.get("en") or next(iter(names.values()), "") if isinstance(names, Mapping) else None
    return str(item.get("name") or english or "")


def _json_component(each: Mapping[str, Any], kind: str, at: int, concepts: Mapping[str, Any], file: File) -> _Component:
    identity = _reference_in(str(each.get("conceptIdentity") or ""))
    name = str(each.get("id") or identity.rpartition(".")[2])
    where = place(each, f"{kind}[{at}] {name!r}")
    form = each.get("localRepresentation") or concepts.get(identity) or {}
    if not name or not isinstance(form, Mapping):
        raise file.problem(where, "a component has an id, and its representation is a table")
    facts = form.get("textFormat") or form.get("format") or {}
    facts = facts if isinstance(facts, Mapping) else {}
    required = kind == "dimensions" or "mandatory" in (
        str(each.get("assignmentStatus")).lower(),
        str(each.get("usage")).lower(),
    )
    ref = _reference_in(str(form.get("enumeration") or ""))
    return _Component(name, where, ref, facts, kind.startswith("time"), required)
