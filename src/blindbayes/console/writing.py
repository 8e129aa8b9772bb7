"""Pages on which a study is written: purpose and codebook first, then sites, roles, privacy and limits, with all errors."""

from __future__ import annotations

import asyncio
import re
import shlex
from base64 import b64decode, b64encode
from functools import partial
from typing import Any, Literal

import msgspec

from blindbayes.agent import writing
from blindbayes.agent.writing import Drafts, WrittenDraft
from blindbayes.console.calls import Context, Missing
from blindbayes.console.strings import plain
from blindbayes.disclosure.plain import plain_words
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.study.curve import accuracy_curve
from blindbayes.study.fields import Privacy
from blindbayes.study.form import Field, fields_of, protocols_of, read_fields
from blindbayes.study.settings import KIND_SENTENCES
from blindbayes.study.writing import Draft

_FIRST = {  # what most studies set; the rest is behind a fold
    "rows": (
        "privacy__epsilon",
        "privacy__expected_rows",
        "privacy__delta",
        "privacy__rows_per_person",
        "privacy__sites_per_person",
        "limits__min_parties",
        "limits__min_rows",
        "limits__min_cell",
    ),
    "columns": ("columns__n_rows", "options__queries", "study__reveal_to", "privacy__epsilon", "limits__min_cell"),
    "join": (
        "study__key",
        "options__bounds",
        "options__queries",
        "study__reveal_to",
        "options__min_overlap",
        "privacy__epsilon",
        "limits__min_cell",
    ),
}
_PLACED = {"title", "kind", "codebook", "public", "parties", "without_rows", "holds", "columns__labelled", "protocol", "hosts"}
_FORMATS = {
    "dictionary": "CSV with name, kind, values, low, high",
    "redcap": "REDCap data dictionary (CSV)",
    "frictionless": "Frictionless Table Schema or Data Package (JSON)",
    "csvw": "CSV on the Web metadata (JSON)",
    "ddi": "DDI-Codebook (XML)",
    "sdmx": "SDMX structure message (XML or JSON)",
}
_ELSEWHERE = {"title", "kind", "codebook", "columns", "classes"}  # fields that are no texts of the draft
_BOOK_FIELDS = ("column__", "added__")
_MAX_LISTED = 150  # features with a field of their own
_MAX_TEXT = 2000
_MAX_ASKED = 30  # questions of a dictionary on one page; the next ones follow
_MAX_EARLIER = 700_000  # bytes of a file that a form keeps: its base64 fits the form
_ASKED = re.compile("ask-[0-9]{1,4}")


def _drafts(context: Context) -> Drafts:
    return Drafts(context.agent.home.folder / "drafts")


def _read(context: Context, draft: str) -> WrittenDraft:
    if (written := _drafts(context).read(draft)) is None:
        raise Missing("there is no such draft of a study here")
    if written.source == "table" and written.texts.get("public") != "yes":  # categories and bounds from rows
        context.agent.home.people.require("check", context.who)
    return written


def start(context: Context) -> dict[str, Any]:
    """Studies that are being written, and what a new one needs first."""
    home = context.agent.home
    drafts = [
        {"draft": key, "title": each.title, "kind": each.kind, "who": each.who} for key, each in _drafts(context).all().items()
    ]
    return {
        "drafts": drafts,
        "kinds": KIND_SENTENCES,
        "formats": _FORMATS,
        "has_table": home.config.rows is not None,
        "pinned": sorted(home.peers()),
        "asked": [],
        "earlier": "",
    }


def from_form(fields: dict[str, str]) -> dict[str, Any]:
    """Turn the fields that answer a question (`ask-3` is `bound age`, `ask-3-low` 0) into lines of `answers`.

    `earlier` is the file of an earlier attempt, in base64: as plain text a browser would change its line ends, and so its hash.
    """
    lines = [fields.get("answers", ""), *filter(None, map(partial(_answer, fields), filter(_ASKED.fullmatch, fields)))]
    given = {name: text for name, text in fields.items() if name != "earlier" and not name.startswith("ask-")}
    try:
        text = fields.get("text") or b64decode(fields.get("earlier", "")).decode()
    except ValueError:
        text = ""
    return given | {"text": text, "answers": "\n".join(lines).strip()}


def _answer(fields: dict[str, str], asked: str) -> str:
    flag, _, name = fields[asked].partition(" ")
    if flag == "bound":
        ends = [fields.get(f"{asked}-{end}", "").strip() for end in ("low", "high")]
        answer = ":".join(ends) if all(ends) else ""
    else:
        answer = "|".join(filter(None, map(str.strip, fields.get(f"{asked}-values", "").splitlines())))
    return f"--{flag} {shlex.quote(f'{name}={answer}')}" if answer else ""


async def start_again(context: Context, fields: dict[str, Any]) -> dict[str, Any]:
    """The facts of `start` with what was typed, the file too, and the questions of a dictionary as fields."""
    typed = from_form(fields)
    limits = {**dict.fromkeys(("title", "kind", "source", "format", "target"), 200), "answers": 20_000, "text": _MAX_EARLIER}
    given = {name: str(typed[name])[:limit] for name, limit in limits.items() if name in typed}
    asked = await asyncio.to_thread(_open, given) if given.get("source") == "dictionary" else ()
    if asked is None:  # an answer is wrong: its question is asked again, with what was typed
        given["answers"] = str(fields.get("answers", ""))[:20_000]
        asked = await asyncio.to_thread(_open, given) or ()
    lines = [_asked(f"ask-{place}", question, fields) for place, question in enumerate(asked[:_MAX_ASKED])]
    earlier = b64encode(typed["text"].encode()).decode() if len(typed["text"].encode()) <= _MAX_EARLIER else ""
    return {**await asyncio.to_thread(start, context), "given": given, "asked": lines, "earlier": earlier}


def _open(given: dict[str, str]) -> tuple[Any, ...] | None:
    return writing.open_questions(*(given.get(name, "") for name in ("text", "format", "target", "answers")))


def _asked(stem: str, question: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a question as the page shows it: with fields of its own for bounds and for a list of values."""
    flag, answer = shlex.split(question.flag)
    name, _, blank = answer.rpartition("=")
    low, _, high = blank.partition(":")
    before = next((each for each, asked in fields.items() if asked == f"{flag[2:]} {name}" and _ASKED.fullmatch(each)), stem)
    return {
        "stem": stem,
        "text": question.text,
        "flag": question.flag,
        "kind": flag[2:],
        "name": name,
        "low": fields.get(f"{before}-low", "" if low == "LOW" else low),
        "high": fields.get(f"{before}-high", "" if high == "HIGH" else high),
    }


class NewStudy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Purpose and codebook of a study: a codebook file, a data dictionary, or a draft from this site's table."""

    title: str
    kind: Literal["rows", "columns", "join"] = "rows"
    source: writing.Source = "file"
    text: str = ""
    format: str = "dictionary"
    target: str = ""
    answers: str = ""


async def begin(context: Context, request: NewStudy) -> dict[str, Any]:
    """Begin to write a study"""
    home = context.agent.home
    who = home.people.require("run", context.who)
    notes: tuple[str, ...] = ()
    if request.source == "table" and not request.target.strip():
        raise ConfigError("name the class column: what the model predicts")
    if request.source == "table":
        home.people.require("check", context.who)  # the draft holds values from rows
        book, notes = await asyncio.to_thread(writing.codebook_from_table, home, request.target.strip())
        home.audit.append("codebook drafted", who=who)
    elif not request.text.strip():
        raise ConfigError("choose the file of the codebook or of the data dictionary")
    elif request.source == "dictionary":
        given = request.text, request.format, request.target.strip(), request.answers
        book, notes = await asyncio.to_thread(writing.codebook_from_dictionary, *given)
    else:
        book = request.text
        await asyncio.to_thread(writing.read_codebook, book)
    texts = {f"party__{card.name}": "yes" for card in writing.cards_of(home, context.agent.identity)}
    made = WrittenDraft(
        title=request.title, kind=request.kind, source=request.source, codebook=book, notes=notes, texts=texts, who=str(who)
    )
    return {"draft": _drafts(context).add(made)}


async def draft(context: Context, draft: str) -> dict[str, Any]:
    """A study that is being written, with everything that is wrong with it, by field."""
    written = _read(context, draft)
    cards = writing.cards_of(context.agent.home, context.agent.identity)
    composed, errors = await asyncio.to_thread(writing.compose, written, cards)
    texts, book = written.texts, None if composed is None else composed.book
    fields = fields_of(written.kind, texts.get("protocol") if texts.get("protocol") in protocols_of(written.kind) else None)
    first = [name for name in _FIRST[written.kind] if name in fields]
    shown = {*fields, *_PLACED}
    names = [] if book is None else list(book.names)
    return {
        "draft": draft,
        "title": written.title,
        "kind": written.kind,
        "kinds": KIND_SENTENCES,
        "source": written.source,
        "codebook": written.codebook,
        "notes": list(written.notes),
        "texts": texts,
        "target": "" if book is None else book.target,
        "features": names if len(names) <= _MAX_LISTED else [],
        "many": len(names) if len(names) > _MAX_LISTED else 0,
        "sites": [{"name": card.name, "mine": card.name == context.agent.name} for card in cards],
        "protocols": list(protocols_of(written.kind)),
        "first": [_shown(fields[name]) for name in first],
        "more": [_shown(field) for name, field in fields.items() if name not in first],
        "hosts": {} if composed is None or errors else dict(composed.study().hosts),
        "columns": [] if book is None or len(names) > _MAX_LISTED else writing.columns_of(book),
        "classes": [] if book is None else list(book.classes),
        "errors": errors,
        "unplaced_names": [name for name in errors if name not in shown],
        "problems": sum(map(len, errors.values())),
        "curve": written.curve,
        "may_sign": not context.user.roles or "steward" in context.user.roles,
        "summary": "" if composed is None or errors else _summary(composed),
    }


def _shown(field: Field) -> dict[str, Any]:
    default = "" if field.default in (None, (), {}) else str(field.default).lower() if field.choices else plain(field.default)
    return {"name": field.name, "label": field.label, "sentence": field.sentence, "choices": field.choices, "default": default}


def _summary(composed: Draft) -> str:
    return plain_words(composed.study().task.disclosure).learns[0]


def _saved(written: WrittenDraft, fields: dict[str, str]) -> WrittenDraft:
    """Return the draft with the fields of its form; a checkbox that is not ticked is not sent."""
    texts = {
        name: text[:_MAX_TEXT] for name, text in fields.items() if name not in _ELSEWHERE and not name.startswith(_BOOK_FIELDS)
    }
    kind = fields.get("kind", written.kind)
    if kind not in KIND_SENTENCES:
        raise ConfigError(f"the kind of a study is one of {', '.join(KIND_SENTENCES)}")
    book = fields.get("codebook", written.codebook).replace("\r\n", "\n") or written.codebook
    content = msgspec.structs.replace(written, title=fields.get("title", written.title), kind=kind, codebook=book, texts=texts)
    return content if book == written.codebook and kind == written.kind else msgspec.structs.replace(content, curve=None)


def gathered(fields: dict[str, str]) -> dict[str, Any]:
    """Return the fields of a form whose names depend on sites and columns, as one mapping."""
    return {"fields": fields}


def save(context: Context, draft: str, fields: dict[str, str]) -> dict[str, Any]:
    """Store the fields of a study that is being written"""
    context.agent.home.people.require("run", context.who)
    before = _read(context, draft)
    written = _saved(before, fields)
    _drafts(context).write(draft, written)
    if "columns" in fields and written.codebook == before.codebook:  # a file that was edited as a text counts as it is
        book = writing.edited_codebook(written.codebook, fields)
        if book != written.codebook:
            _drafts(context).write(draft, msgspec.structs.replace(written, codebook=book, curve=None))
    return {"draft": draft}


async def forecast(context: Context, draft: str, fields: dict[str, str]) -> dict[str, Any]:
    """Forecast the accuracy by epsilon on a made-up table, for a study that is being written; costs nothing"""
    save(context, draft, fields)
    written = _read(context, draft)
    try:
        book = await asyncio.to_thread(writing.read_codebook, written.codebook)
    except BlindbayesError as error:
        raise ConfigError(f"the forecast needs a codebook without errors. {error}") from None
    given, _ = read_fields(fields_of("rows"), written.texts)
    bounds: dict[str, Any] = {name: given.get(f"privacy__{name}") for name in ("rows_per_person", "sites_per_person")}
    asked = {"rows": given.get("privacy__expected_rows"), "rows_per_person": Privacy(epsilon=1.0, **bounds).person_rows}
    curve = await asyncio.to_thread(lambda: accuracy_curve(book, delta=given.get("privacy__delta", 0.0), **asked))
    _drafts(context).write(draft, msgspec.structs.replace(_read(context, draft), curve=curve))
    return {"draft": draft}


async def make(context: Context, draft: str, fields: dict[str, str]) -> dict[str, Any]:
    """Make the study file from a draft and add it to this site's inbox; nothing is approved or sent"""
    home, agent = context.agent.home, context.agent
    who = home.people.require("run", context.who)
    sign = fields.pop("sign", "") == "yes"
    if sign:
        home.people.require("approve", context.who)
    save(context, draft, fields)
    cards = writing.cards_of(home, agent.identity)
    study = await asyncio.to_thread(writing.make_study, _read(context, draft), cards)
    made = await asyncio.to_thread(writing.keep_study, home, agent.identity, study, sign=sign, who=who)
    _drafts(context).remove(draft)
    agent.notices.wake()
    return {"study": made.sha256, "title": made.title}


def discard(context: Context, draft: str) -> dict[str, Any]:
    """Delete a study that is being written"""
    context.agent.home.people.require("run", context.who)
    _drafts(context).remove(draft)
    return {"draft": draft}
