"""Ask for facts that a dictionary lacks, and make a codebook from the dictionary and the answers."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import msgspec

from blindbayes.codebook.codebook import MAX_FEATURES, Codebook, Origin
from blindbayes.codebook.features import Feature, Numeric
from blindbayes.codebook.importers.neutral import Column, Dictionary, cleaned
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import convert, shown

MAX_ANSWERS = 20_000  # characters
_SHOWN_CODES = 10  # labelled codes of a number, in a question
_STEPS = 1000  # grid steps of a number whose precision is not stated, at least


class Answers(TypedDict, total=False):
    """A person's answers to the questions of a dictionary; each is a flag of `blindbayes codebook import`.

    `target` is the class column. `bounds` (name: (low, high)), `precision` (name: step of the grid) and `units` complete
    numbers; `values` (name: list) gives a closed list, `bounds` of a column with codes makes it a number. `keep` takes a column
    in that was left out, `drop` leaves one out. `missing` lists texts that stand for a missing value in every column. `table`
    chooses one of several tables, `columns` (column: code list) says which column holds which code list.
    """

    target: str | None
    bounds: Mapping[str, tuple[float, float]]
    precision: Mapping[str, float]
    units: Mapping[str, str]
    values: Mapping[str, Collection[str]]
    keep: Collection[str]
    drop: Collection[str]
    missing: Collection[str]
    max_rows: int | None
    table: str | None
    columns: Mapping[str, str]


def answers_of(flags: Iterable[tuple[str, str]]) -> Answers:
    """Return the answers of flags and their texts: ("bound", "age=0:120")."""
    given: dict[str, Any] = {}
    for flag, text in flags:
        if flag in ("target", "table"):
            given[flag] = text
        elif flag in ("keep", "drop", "missing"):
            given.setdefault(flag, []).append(text)
        elif flag in _PAIRS:
            answer, form, example, read = _PAIRS[flag]
            # a name may contain = if its answer does not
            name, equals, value = text.partition("=") if flag == "values" else text.rpartition("=")
            if not (name and equals and value):
                raise ConfigError(f"--{flag}: write NAME={form}, for example {example}")
            given.setdefault(answer, {})[name] = read(flag, name, value)
        else:
            known = ", ".join(["target", "table", "keep", "drop", "missing", *_PAIRS])
            raise ConfigError(f"--{shown(flag)} answers no question of a dictionary; known: {known}")
    return given  # type: ignore[return-value]


def answers_in(text: str) -> Answers:
    """Parse the flags in a text, as the questions print them, into answers."""
    try:
        parts = shlex.split(text) if len(text) <= MAX_ANSWERS else []
    except ValueError:
        raise ConfigError("the answers have a quote without its end") from None
    flags = parts[::2]
    if len(text) > MAX_ANSWERS or len(parts) % 2 or not all(flag.startswith("--") for flag in flags):
        raise ConfigError(
            f"answers are written as the questions show them, such as --bound age=0:120, in at most {MAX_ANSWERS:,} characters"
        )
    return answers_of((flag[2:], value) for flag, value in zip(flags, parts[1::2], strict=True))


def _bounds(flag: str, name: str, text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    if not colon:
        raise ConfigError(f"--{flag} {shown(name)}: write {shown(name)}=LOW:HIGH, for example {shown(name)}=0:120")
    return _number(flag, name, low), _number(flag, name, high)


def _number(flag: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--{flag} {shown(name)}: {shown(text)!r} is not a number") from None


_PAIRS: dict[str, tuple[str, str, str, Callable[[str, str, str], Any]]] = {  # flag: answer, form, example, reader
    "bound": ("bounds", "LOW:HIGH", "age=0:120", _bounds),
    "precision": ("precision", "STEP", "height=0.1", _number),
    "unit": ("units", "UNIT", "height=cm", lambda _flag, _name, text: text),
    "values": ("values", "A|B", "'ward=north|south'", lambda _flag, _name, text: text.split("|")),
    "column": ("columns", "LIST", "sex=CL_SEX", lambda _flag, _name, text: text),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A fact that a dictionary lacks. `flag` is the answer to paste, with its blanks in capitals."""

    text: str
    flag: str
    needed: bool = True


class OpenQuestions(ConfigError):
    """Raised if a dictionary lacks facts that a codebook needs; `questions` lists all of them."""

    def __init__(self, what: str, questions: list[Question]) -> None:
        self.questions = tuple(questions)
        lines = [f"  {shown(each.text)}\n    {shown(each.flag)}" for each in questions]
        number = f"{len(questions)} question{'s' * (len(questions) != 1)}"
        super().__init__(
            "\n".join([f"{what} leaves {number} open; add these flags, with the parts in capitals replaced:", *lines])
        )


@dataclass(frozen=True, slots=True)
class Imported:
    """A codebook made from a dictionary, why columns were left out, and questions that need no answer."""

    codebook: Codebook
    left_out: Mapping[str, str]
    open: tuple[Question, ...]


def imported(dictionary: Dictionary, answers: Answers, origin: Origin | None) -> Imported:
    """Make a codebook from a dictionary and a person's answers. Raises `OpenQuestions` with everything that is missing."""
    columns = {column.name: column for column in dictionary.columns}
    target = answers.get("target") or dictionary.book.get("target")
    _require_known(dictionary, answers, columns, target)
    chosen = {name: _answered(column, answers, is_target=name == target) for name, column in columns.items()}
    if sum(column.kind != "excluded" and column.name != target for column in chosen.values()) > MAX_FEATURES:
        raise ConfigError(f"{dictionary.what} describes more than {MAX_FEATURES:,} features; choose those that matter")
    shared = _shared_markers(dictionary, chosen, answers)
    asked, left_out, features = [], {}, []
    classes: tuple[str, ...] = ()
    for column in chosen.values():
        if column.name == target:
            classes = tuple(value for value in column.values if value not in shared)
            if not classes and not dictionary.book.get("classes"):
                text = f"{column.name!r} is the class column: which labels does it hold?"
                asked.append(Question(text, _flag("values", column.name, "A|B")))
            elif classes:
                _feature(replace(column, kind="categories"), shared, dictionary.what)  # for errors that name its place
        elif column.kind == "excluded":
            left_out[column.name] = column.why
        elif open_ := _open(column):
            asked += open_
        else:
            features.append(_feature(column, shared, dictionary.what))
    if target is None:
        asked.insert(0, _which_target(chosen))
    if asked:
        raise OpenQuestions(dictionary.what, asked)
    if not features:
        raise ConfigError(
            f"{dictionary.what} leaves no column to predict from; --keep NAME takes in a column that was left out, "
            "--values and --bound say what it holds"
        )
    book: dict[str, Any] = {"missing": list(shared)}
    book = {**book, "classes": list(classes), **dictionary.book, "target": target, "features": features}
    if not (dictionary.is_codebook and not any(answers.values())):  # else as it was exported: its own origin, or none
        book.pop("origin", None)
        book |= {"provenance": "data dictionary", **({"origin": msgspec.to_builtins(origin)} if origin else {})}
    overruled: dict[str, Any] = {"classes": list(classes)} if target in (answers.get("values") or {}) else {}
    overruled |= {"missing": list(shared)} if answers.get("missing") else {}
    overruled |= {"max_rows": answers["max_rows"]} if answers.get("max_rows") is not None else {}
    try:
        codebook = Codebook.from_dict({**book, **overruled})
    except ConfigError as problem:
        raise ConfigError(f"{dictionary.what}: {problem}") from None
    return Imported(codebook, left_out, tuple(_unasked(codebook, chosen)))


def read_features(dictionary: Dictionary) -> dict[str, dict[str, Any]]:
    """Return the fields of every feature that a dictionary describes completely, as an exporter compares them."""
    chosen = {column.name: column for column in dictionary.columns if column.kind != "excluded"}
    shared = _shared_markers(dictionary, chosen, {})
    return {name: _fields(column, shared) for name, column in chosen.items() if not _open(column)}


def _require_known(dictionary: Dictionary, answers: Answers, columns: Mapping[str, Column], target: str | None) -> None:
    flags: dict[str, Collection[str] | None] = {
        "bound": answers.get("bounds"),
        "precision": answers.get("precision"),
        "unit": answers.get("units"),
    }
    flags |= {"values": answers.get("values"), "keep": answers.get("keep"), "drop": answers.get("drop")}
    for flag, names in {"target": [target] if target else [], **flags}.items():
        if unknown := sorted(set(names or ()) - set(columns)):
            raise ConfigError(
                f"{dictionary.what} describes no column {shown(unknown[0])!r}, which --{flag} names; it describes "
                f"{', '.join(shown(name) for name in list(columns)[:30])}{', ...' * (len(columns) > 30)}"
            )


def _answered(column: Column, answers: Answers, *, is_target: bool) -> Column:
    """Return a column completed by a person's answers."""
    name = column.name
    if name in (answers.get("drop") or ()):
        return replace(column, kind="excluded", why="as asked for")
    if values := (answers.get("values") or {}).get(name):
        labels = {code: label for code, label in column.labels.items() if code in values}
        column = replace(column, kind="categories", values=tuple(values), labels=labels)
    elif bounds := (answers.get("bounds") or {}).get(name):
        column = replace(column, kind="number", low=bounds[0], high=bounds[1])
    elif column.kind == "excluded" and (is_target or name in (answers.get("keep") or ())):
        column = replace(column, kind="categories" if column.values else "number")
    if (step := (answers.get("precision") or {}).get(name)) is not None:
        column = replace(column, precision=step)
    return replace(column, unit=(answers.get("units") or {}).get(name, column.unit))


def _shared_markers(dictionary: Dictionary, columns: Mapping[str, Column], answers: Answers) -> tuple[str, ...]:
    """Return the missing markers that hold for every column; a class column has no others."""
    used = [column for column in columns.values() if column.kind != "excluded"]
    target = answers.get("target") or dictionary.book.get("target")
    times = Counter(marker for column in used for marker in dict.fromkeys(column.missing))
    common = [marker for marker, number in times.items() if number == len(used)]
    own = [marker for column in used if column.name == target for marker in column.missing]
    return tuple(dict.fromkeys([*common, *own, *(answers.get("missing") or ())]))


def _open(column: Column) -> list[Question]:
    """Return the questions about a feature without which there is no codebook."""
    if column.kind == "number" and (column.low is None or column.high is None):
        known = f" It says {'low' if column.high is None else 'high'} {_plain(column)}." if _plain(column) else ""
        bound = f"{'LOW' if column.low is None else f'{column.low:g}'}:{'HIGH' if column.high is None else f'{column.high:g}'}"
        text = f"{column.name!r} is a number: between which public bounds, low and high, does it lie?{known}{_remarks(column)}"
        return [Question(text, _flag("bound", column.name, bound))]
    if column.kind == "categories" and not column.values and not column.more.get("values"):
        return [Question(f"{column.name!r} has categories: which?", _flag("values", column.name, "A|B"))]
    return []


def _remarks(column: Column) -> str:
    """Return what a person should know before giving bounds: the codes that the dictionary labels, and its own note."""
    listed = [f"{code} ({label})" for code, label in list(column.labels.items())[:_SHOWN_CODES]]
    more = ", ..." * (len(column.labels) > _SHOWN_CODES)
    codes = (
        f" It labels the codes {', '.join(listed)}{more}: --values makes categories of them, --missing 9 says that 9 is none."
        if listed
        else ""
    )
    return codes + (f" {column.note}" if column.note else "")


def _plain(column: Column) -> str:
    known = column.high if column.low is None else column.low
    return "" if known is None else f"{known:g}"


def _which_target(columns: Mapping[str, Column]) -> Question:
    candidates = [column.name for column in columns.values() if column.kind == "categories"]
    named = f" With categories: {', '.join(candidates[:20])}{', ...' * (len(candidates) > 20)}." if candidates else ""
    return Question(f"which column is the class, to be predicted?{named}", "--target NAME")


def _unasked(codebook: Codebook, columns: Mapping[str, Column]) -> Iterator[Question]:
    """Yield questions about a feature that may stay unanswered."""
    for feature in codebook.features:
        if isinstance(feature, Numeric):
            if columns[feature.name].precision is None and "precision" not in columns[feature.name].more:
                text = f"precision of {feature.name!r} is not stated: {feature.precision:g} is taken"
                yield Question(text, _flag("precision", feature.name, "STEP"), needed=False)
            if not feature.unit:
                yield Question(f"unit of {feature.name!r} is not stated", _flag("unit", feature.name, "UNIT"), needed=False)


def _flag(flag: str, name: str, answer: str) -> str:
    return f"--{flag} {shlex.quote(f'{name}={answer}')}"


def _feature(column: Column, shared: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return the fields of a feature, checked, with errors that name its place in the dictionary."""
    fields = _fields(column, shared)
    try:
        convert(fields, Feature, f"field {column.name!r}")  # type: ignore[arg-type]
    except ConfigError as problem:
        raise ConfigError(f"{what}, {shown(column.where or f'field {column.name!r}')}: {problem}") from None
    return fields


def _fields(column: Column, shared: tuple[str, ...]) -> dict[str, Any]:
    markers = [marker for marker in column.missing if marker not in shared]
    fields: dict[str, Any] = {"name": column.name, "optional": column.optional, "missing": markers}
    if column.kind == "categories":
        absent = {*column.missing, *shared}
        values = [value for value in column.values if value not in absent]
        labels = {code: label for code, label in column.labels.items() if code not in absent}
        fields |= {"kind": "categorical", "values": values, "labels": labels}
    elif column.kind == "number":
        step = column.precision if column.precision is not None else _step(column.low or 0.0, column.high or 0.0)
        fields |= {"kind": "numeric", "low": column.low, "high": column.high, "precision": step, "unit": cleaned(column.unit)}
    else:
        fields |= {"kind": "text"}
    fields |= {"description": cleaned(column.description), **column.more}
    return {name: value for name, value in fields.items() if (isinstance(value, int | float) and value is not False) or value}


def _step(low: float, high: float) -> float:
    """Return the largest power of ten, at most 1, that divides a range into at least a thousand steps."""
    spread = (high - low) / _STEPS
    if not 1e-100 < spread < 1:
        return 1.0
    return float(f"1e{math.floor(math.log10(spread))}")
