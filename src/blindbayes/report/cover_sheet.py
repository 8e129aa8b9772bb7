"""The cover of a release: whose it is, when and with which software it was made, and what an officer fills in."""

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
    "officer": "data protection officer, with contact",
    "purpose": "what the model is for, and what it must not be used for",
    "legal basis": "for example Art. 6(1)(e) and Art. 9(2)(j) GDPR, or a statute",
    "people": "whose data: patients, customers, households, and about how many",
    "data": "categories of data, special categories named",
    "recipients": "who gets this release",
    "retention": "how long the release, the ledger and the table are kept",
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
        """From what `cover_template` shows, filled in; what is given besides goes before."""
        found: dict[str, Any] = dict(read_toml(content, name)) if content.strip() else {}
        officer = found.pop("officer", {})
        texts = [*found.values(), *(officer.values() if isinstance(officer, dict) else [None])]
        if set(found) - _GIVEN or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{name}: a cover has {', '.join(sorted(_GIVEN))} and a table [officer], all of them text")
        known = {**found, **{key: value for key, value in given.items() if value is not None}}
        if "title" not in known:
            raise ConfigError("a release needs a title: --title, or `title` in the cover file")
        return cls(**{key: value for key, value in known.items() if value}, officer={k: v for k, v in officer.items() if v})

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Cover:
        """For a run whose folder says what it is: the study's title."""
        for name in ("run.json", "statement.json"):
            if name in files:
                found = read_json(files[name], name, error=DataError)
                if isinstance(found, dict) and found.get("title"):
                    return cls(title=str(found["title"]))
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
    """A cover file to be filled in."""
    lines = [
        'title = ""',
        'owner = ""  # the organisation that answers for this release',
        "",
        "[officer]  # all may stay empty",
    ]
    lines += [f'{json.dumps(name) if " " in name else name} = ""  # {why}' for name, why in OFFICER.items()]
    return "\n".join(lines) + "\n"
