"""Studies that are being written at a site: `drafts/<id>.json`, until one becomes a study file in the inbox.

A draft holds the texts of a form and a codebook. Nothing of it leaves the site before people make the study and send it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.store.inbox import store_study
from blindbayes.codebook import DEFAULT_MAX_ROWS, Categorical, Codebook, Feature, Numeric
from blindbayes.codebook.importers import OpenQuestions, Question, answers_in, import_codebook
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import make_private_folder, write_whole
from blindbayes.io.untrusted import convert, read_json, read_limited, read_toml
from blindbayes.net.identity import Card, Identity
from blindbayes.study.file import StudyFile
from blindbayes.study.form import fields_of, protocols_of, read_fields, typed_number
from blindbayes.study.roster import Party
from blindbayes.study.writing import Draft, problems_of

MAX_DRAFTS = 50
MAX_SAMPLE = 200_000  # rows of this site's table that a codebook is drafted from
FLOOR = 10  # rows that each value and each bound of such a draft rests on
_ID = re.compile("[0-9a-f]{16}")
_NUMBER_IN_TEXT = re.compile(r"[A-Za-z].*[0-9]{4}")  # of a telephone, a file or a street

Source = Literal["file", "dictionary", "table"]


class WrittenDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A study that is being written."""

    title: str
    kind: Literal["rows", "columns", "join"] = "rows"
    source: Source = "file"  # of the codebook
    codebook: str = ""  # TOML
    notes: tuple[str, ...] = ()  # on how the codebook was drafted
    texts: dict[str, str] = {}  # of the form, by field
    curve: dict[str, Any] | None = None  # the accuracy forecast
    who: str = ""


class Drafts:
    """Drafts of studies, stored in the folder `drafts/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> dict[str, WrittenDraft]:
        """Return the drafts by id, the newest first; one that cannot be read is left out."""
        drafts = {}
        for path in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)[:MAX_DRAFTS]:
            if (draft := self.read(path.stem)) is not None:
                drafts[path.stem] = draft
        return drafts

    def read(self, draft: str) -> WrittenDraft | None:
        if not _ID.fullmatch(draft):
            return None
        try:
            return convert(read_json(read_limited(self._folder / f"{draft}.json"), "the draft"), WrittenDraft, "the draft")
        except (OSError, ConfigError):
            return None

    def write(self, draft: str, content: WrittenDraft) -> None:
        write_whole(make_private_folder(self._folder) / f"{draft}.json", json.dumps(msgspec.to_builtins(content)).encode())

    def add(self, content: WrittenDraft) -> str:
        """Store a new draft and return its id."""
        if len(list(self._folder.glob("*.json"))) >= MAX_DRAFTS:
            raise ConfigError(f"there are {MAX_DRAFTS} drafts of studies here already: delete some first")
        draft = Coins.system().bytes(8).hex()
        self.write(draft, content)
        return draft

    def remove(self, draft: str) -> None:
        if _ID.fullmatch(draft):
            (self._folder / f"{draft}.json").unlink(missing_ok=True)


# -- codebooks --------------------------------------------------------------------------------------------------------------


def read_codebook(text: str) -> Codebook:
    """Parse the text of a codebook file."""
    return Codebook.from_dict(read_toml(text, "the codebook", wide=True))


def codebook_from_dictionary(text: str, format: str, target: str, answers: str) -> tuple[str, tuple[str, ...]]:
    """Return the codebook file made from a data dictionary, and notes. `answers` holds flags as the questions print them."""
    given = {**answers_in(answers), **({"target": target} if target else {})}
    made = import_codebook(format, text.encode(), given)
    notes = [f"{name} was left out: {why}" for name, why in made.left_out.items()]
    return made.codebook.to_toml(), (*notes, *(each.text for each in made.open))


def open_questions(text: str, format: str, target: str, answers: str) -> tuple[Question, ...] | None:
    """Return what a data dictionary and its answers leave open, or None if they are wrong in another way."""
    try:
        codebook_from_dictionary(text, format, target, answers)
    except OpenQuestions as error:
        return error.questions
    except ConfigError:
        return None
    return ()


def codebook_from_table(home: SiteFolder, target: str) -> tuple[str, tuple[str, ...]]:
    """Draft a codebook from this site's own table; return its file and notes.

    Its values and bounds come from rows, though from `FLOOR` of them or more each: people check it before it is sent.
    """
    from blindbayes.data.infer import draft_codebook
    from blindbayes.data.sources import read_public

    rows = home.config.rows
    if rows is None:
        raise ConfigError("this site has no table yet: bring one in first, on the page Table")
    source = home.tables.open_batch(rows.source, rows.table, partly=False)
    table, missing = read_public(source, text=(target,), max_rows=MAX_SAMPLE)
    made = draft_codebook(table, target, max_rows=DEFAULT_MAX_ROWS, missing=missing, floor=FLOOR)
    listed = (each for each in made.codebook.features if isinstance(each, Categorical))
    wordy = [each.name for each in listed if any(map(is_wordy, each.values))]
    notes = [*made.notes, *(f"{name} was left out: {why}" for name, why in made.left_out.items())]
    return made.to_toml(), (*notes, *(f"{name}: look at its values, some read like free text" for name in wordy))


def is_wordy(value: str) -> bool:
    """Return True for a value that reads like free text."""
    return len(value.split()) > 4 or _NUMBER_IN_TEXT.search(value) is not None


def columns_of(book: Codebook) -> list[dict[str, Any]]:
    """Return the columns of a codebook as rows of the form that `edited_codebook` reads."""
    rows = []
    for feature in book.features:
        row: dict[str, Any] = {"name": feature.name, "kind": type(feature).__name__.lower()}
        row["description"] = feature.description
        if isinstance(feature, Categorical):
            row["listed"] = list(feature.values)
            row["meanings"] = [feature.named(value) for value in feature.values if value in feature.labels]
        elif isinstance(feature, Numeric):
            row |= {
                end: f"{bound:g}" if float(f"{bound:g}") == bound else repr(bound)
                for end, bound in (("low", feature.low), ("high", feature.high))
            }
        rows.append(row)
    return rows


def edited_codebook(text: str, fields: Mapping[str, str]) -> str:
    """Apply the form of columns to a codebook file: which columns stay, their values or bounds, and one new column.

    A file in which nothing changes keeps its comments. Raises `ConfigError` that names the column.
    """
    book, features = read_codebook(text), []
    for place, feature in enumerate(book.features):
        stem = f"column__{place}__"
        if fields.get(stem + "keep") == "yes":
            features.append(_edited(feature, stem, fields))
    if name := fields.get("added__name", "").strip():
        features.append(_added(name, fields))
    if not features:
        raise ConfigError("the codebook has no column left to predict from: keep one")
    classes = _lines(fields.get("classes", "")) or book.classes
    made = msgspec.structs.replace(book, features=tuple(features), classes=classes)
    return text if made == book else made.to_toml()


def _edited(feature: Feature, stem: str, fields: Mapping[str, str]) -> Feature:
    if isinstance(feature, Categorical) and stem + "values" in fields:
        values = _lines(fields[stem + "values"])
        return msgspec.structs.replace(feature, values=values, other=feature.other if feature.other in values else None)
    if isinstance(feature, Numeric) and stem + "low" in fields:
        low, high = (typed_number(fields.get(stem + end, ""), f"{feature.name}, {end}") for end in ("low", "high"))
        return msgspec.structs.replace(feature, low=low, high=high)
    return feature


def _added(name: str, fields: Mapping[str, str]) -> Feature:
    if values := _lines(fields.get("added__values", "")):
        return Categorical(name, values)
    if not (fields.get("added__low") and fields.get("added__high")):
        raise ConfigError(f"{name}: list its values, one per line, or its smallest and its largest number")
    low, high = (typed_number(fields[f"added__{end}"], f"{name}, {end}") for end in ("low", "high"))
    return Numeric(name, low, high)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.splitlines())))


# -- from a form to a study ---------------------------------------------------------------------------------------------------


def cards_of(home: SiteFolder, identity: Identity) -> list[Card]:
    """Return the cards that a study can name: this site's own and the pinned ones, by name."""
    return sorted([identity.card, *home.peers().values()], key=lambda card: card.name)


def compose(draft: WrittenDraft, cards: Sequence[Card]) -> tuple[Draft | None, dict[str, list[str]]]:
    """Return the study that a form describes, and everything that is wrong with it, by field; "" stands for the whole form."""
    errors: dict[str, list[str]] = {}
    texts = {name: text.strip() for name, text in draft.texts.items()}
    protocol = texts.get("protocol") or None
    if protocol is not None and protocol not in protocols_of(draft.kind):
        errors["protocol"] = [f"the protocols of this kind of study are {', '.join(protocols_of(draft.kind))}"]
        protocol = None
    values, wrong = read_fields(fields_of(draft.kind, protocol), texts)
    errors |= {name: [error] for name, error in wrong.items()}
    book = None
    try:
        book = read_codebook(draft.codebook)
        if draft.source == "table":
            confirmed = texts.get("public") == "yes"
            book = msgspec.structs.replace(book, provenance="declared" if confirmed else "inferred")
            if not confirmed:
                errors["public"] = ["read the codebook, change what is not public, and confirm it: every site will see it"]
    except BlindbayesError as error:
        errors["codebook"] = [str(error)]
    chosen = [card for card in cards if texts.get(f"party__{card.name}") == "yes"]
    if not draft.title.strip():
        errors["title"] = ["say what the study is for, in a few words: every site sees it as the title"]
    if book is None:
        return None, errors
    given = dict(values) | ({} if protocol is None else {"protocol": protocol})
    if draft.kind == "rows":
        given |= _named("without_rows", tuple(card.name for card in chosen if texts.get(f"rows__{card.name}") == "no"))
    else:
        given |= _holdings(texts, book, chosen)
    given |= _named("hosts", _hosts(texts))
    parties = [Party(card.name, card.identity.hex(), True, card.key) for card in chosen]
    written = Draft(draft.title.strip(), book, parties, draft.kind, given)
    for problem in problems_of(written):
        for name in problem.settings[:1] or ("",):
            errors.setdefault(name, []).append(str(problem.error))
    return written, {name: list(dict.fromkeys(each)) for name, each in errors.items()}


def _named(name: str, value: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value} if value else {}


def _holdings(texts: Mapping[str, str], book: Codebook, chosen: Sequence[Card]) -> dict[str, Any]:
    """Return who holds which feature (`holder__0`, by the feature's place in the codebook) and who has the class."""
    holders = {name: texts.get(f"holder__{place}", "") for place, name in enumerate(book.names)}
    holds = tuple((card.name, ",".join(name for name in book.names if holders[name] == card.name)) for card in chosen)
    labelled = texts.get("columns__labelled", "")
    return {"holds": holds} | _named("columns__labelled", (labelled,) if labelled else ())


def _hosts(texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = ((name.removeprefix("host__"), site) for name, site in texts.items() if name.startswith("host__"))
    return tuple((role, site) for role, site in pairs if site)


def make_study(draft: WrittenDraft, cards: Sequence[Card]) -> StudyFile:
    """Return the study of a draft, as `blindbayes study init` makes it. Raises if anything is wrong with it."""
    written, errors = compose(draft, cards)
    if errors or written is None:
        wrong = sum(map(len, errors.values()))
        raise ConfigError(f"the study has {wrong} problem{'s' * (wrong != 1)}: mend the fields that are marked below")
    return written.study()


def keep_study(home: SiteFolder, identity: Identity, study: StudyFile, *, sign: bool, who: str) -> StudyFile:
    """Store a study that was written here; with `sign`, signed by this site. This does not approve it."""
    if identity.name not in study.names:
        raise ConfigError("this site is not a party of the study: choose it under Sites")
    if sign:
        study = study.sign(identity.name, identity.signing)
    store_study(home, study)
    home.audit.append("study written", study=study.sha256, title=study.title[:80], signed=sign, who=who)
    return study
