"""The cover sheet of a release: title, owner, date, software, and the fields of the data protection officer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blindbayes import __version__
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.untrusted import read_json, read_toml

OFFICER = {
    "controller": "who decides why and how the data are used, with contact",
    "joint controllers": "arrangement between those who decide together (Art. 26 GDPR): who informs, who answers requests",
    "processors": "hosts of a server or relay that are not parties, and the contract (Art. 28 GDPR)",
    "officer": "data protection officer, with contact",
    "purpose": "what the model is for, and what it must not be used for",
    "legal basis": "for example Art. 6(1)(e) and Art. 9(2)(j) GDPR, or a statute",
    "people": "whose data: patients, customers, households, and about how many",
    "data": "categories of data, special categories named",
    "recipients": "who gets this release",
    "transfers": "recipients outside the European Economic Area, and the ground (Art. 44 to 49 GDPR)",
    "retention": "how long the release, the ledger, the audit log and the table are kept",
    "requests": "who answers people who ask for access or erasure, or object, and within which time",
    "risks": "what could go wrong for the people, and what is done about it beyond the statement",
    "decision": "who signed off, when, until when it holds",
}
_GIVEN = {"title", "owner", "date"}


@dataclass(frozen=True, kw_only=True)
class Cover:
    """Title, owner and date of a release, and the officer's fields (a record of processing, an impact assessment)."""

    title: str
    owner: str = ""
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d", time.gmtime()))
    officer: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.title.strip():
            raise ConfigError("a release needs a title")
        if unknown := sorted(set(self.officer) - set(OFFICER)):
            raise ConfigError(f"the cover has no field {unknown[0]!r}; it has {', '.join(OFFICER)}")

    @classmethod
    def from_toml(cls, content: bytes, name: str, **given: str | None) -> Cover:
        """Return the cover of a filled-in `cover_template`; `given` takes precedence."""
        table: dict[str, Any] = dict(read_toml(content, name)) if content.strip() else {}
        officer = table.pop("officer", {})
        texts = [*table.values(), *(officer.values() if isinstance(officer, dict) else [None])]
        if set(table) - _GIVEN or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{name}: a cover has {', '.join(sorted(_GIVEN))} and a table [officer], all of them text")
        known = {**table, **{key: value for key, value in given.items() if value is not None}}
        if "title" not in known:
            raise ConfigError("a release needs a title: --title, or `title` in the cover file")
        return cls(**{key: value for key, value in known.items() if value}, officer={k: v for k, v in officer.items() if v})

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Cover:
        """Return the cover of a run's release, with the title of its study."""
        for name in ("run.json", "statement.json"):
            if name in files:
                table = read_json(files[name], name, error=DataError)
                if isinstance(table, dict) and table.get("title"):
                    return cls(title=str(table["title"]))
        return cls(title="Release of a run")

    @property
    def facts(self) -> dict[str, str]:
        return {
            "title": self.title,
            "owner": self.owner or "not stated",
            "date": self.date,
            "made with": f"blindbayes {__version__}",
        }


def cover_template() -> str:
    """Return a cover file to fill in."""
    lines = [
        'title = ""',
        'owner = ""  # the organisation that answers for this release',
        "",
        "[officer]  # all fields are optional",
    ]
    lines += [f'{json.dumps(name) if " " in name else name} = ""  # {why}' for name, why in OFFICER.items()]
    return "\n".join(lines) + "\n"
