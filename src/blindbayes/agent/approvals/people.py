"""Who may decide at a site: `people.toml`, each by name and role. Where nobody was ever named, every account that can write
the folder may decide, and the log names that account. Once people were named, the file must name a steward.

The names are for the log and for rules such as two stewards for one approval. They keep nobody out who can write the folder:
whoever can do that can be anybody. The console asks for a secret; the command line takes the account's word.
"""

from __future__ import annotations

import contextlib
import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import msgspec
import tomlkit

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io.files import write_whole
from blindbayes.io.untrusted import convert, read_toml, require_seen

PersonRole = Literal["steward", "officer", "analyst"]
Act = Literal["approve", "refuse", "revoke", "run", "stop", "check", "manage"]
ROLES: tuple[str, ...] = get_args(PersonRole)
MAY: dict[Act, tuple[str, ...]] = {
    "approve": ("steward",),
    "refuse": ("steward", "officer"),
    "revoke": ("steward", "officer"),
    "run": ("steward", "analyst"),
    "stop": ROLES,
    "check": ("steward", "officer"),  # hold the table against any study's codebook: it counts rows
    "manage": ("steward",),  # settings, pins, people
}
_MOST_NAME = 80


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of the site's people. `secret` is a salted hash that only the console reads."""

    name: str
    role: PersonRole
    account: str | None = None
    secret: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    people: tuple[Person, ...] = ()


def account() -> str:
    """The account of the operating system that this process runs under."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True)
class People:
    """See the module's docstring."""

    path: Path
    audit: AuditLog

    def all(self) -> tuple[Person, ...]:
        """Return the people in the file, none without one.

        Raises `ConfigError` for a file without a steward where the log knows that people were added: the last steward cannot
        be removed, so the file was emptied or lost, and everybody could decide.
        """
        people: tuple[Person, ...] = ()
        with contextlib.suppress(FileNotFoundError):
            people = convert(read_toml(self.path.read_bytes(), self.path.name), _File, self.path.name).people
        if not any(each.role == "steward" for each in people) and self.audit.where("event", "person added"):
            raise ConfigError(
                f"{self.path.name} names no steward, and the log knows that one was added: bring the file back from a backup, "
                "or write a steward into it"
            )
        return people

    def find(self, name: str) -> Person | None:
        return next((each for each in self.all() if each.name == name), None)

    def name_of(self, name: str | None = None) -> str:
        """Return a person's name for the log: the one given, or that of the person with this account, or the account's own."""
        own = account()
        return require_name(next((each.name for each in self.all() if each.account == own), own) if name is None else name)

    def require(self, act: Act, name: str | None = None) -> str:
        """Return the name that the log gets for this act (see `name_of`). Raises unless the person may do it."""
        people, name = self.all(), self.name_of(name)
        if not people:
            return name
        person = next((each for each in people if each.name == name), None)
        if person is None:
            raise PrivacyError(
                f"{name!r} is none of this site's people: say who you are with --as, or let a steward add you "
                "(`blindbayes site people`)"
            )
        if person.role not in MAY[act]:
            raise PrivacyError(f"{name} is {person.role} here; to {act} takes a {' or '.join(MAY[act])}")
        return name

    def require_eyes(self, number: int) -> None:
        """Enough stewards for a rule that asks for so many."""
        if number > 1 and sum(each.role == "steward" for each in self.all()) < number:
            raise ConfigError(
                f"the policy asks for {number} stewards (approvers), and the site's people.toml names fewer: "
                "`blindbayes site people --add NAME --role steward`"
            )

    def add(self, person: Person, *, who: str | None = None) -> None:
        """One more, or another role for one. Into an empty file anybody may write the first steward."""
        by = self.require("manage", who)
        require_name(person.name)
        if not self.all() and person.role != "steward":
            raise ConfigError("the first of a site's people is a steward: others could add nobody")
        self._write((*(each for each in self.all() if each.name != person.name), person))
        self.audit.append("person added", person=person.name, role=person.role, who=by)

    def remove(self, name: str, *, who: str | None = None) -> None:
        """One less. The last steward stays."""
        by = self.require("manage", who)
        left = tuple(each for each in self.all() if each.name != name)
        if len(left) == len(self.all()):
            raise ConfigError(f"{name!r} is none of this site's people")
        if not any(each.role == "steward" for each in left):
            raise ConfigError(f"{name} is the last steward here: add another first")
        self._write(left)
        self.audit.append("person removed", person=name, who=by)

    def _write(self, people: tuple[Person, ...]) -> None:
        write_whole(self.path, tomlkit.dumps(msgspec.to_builtins(_File(people))).encode())


def require_name(name: str) -> str:
    """A person's name, fit for a log and a screen."""
    if not 0 < len(name.strip()) <= _MOST_NAME or "\n" in name:
        raise ConfigError(f"a person's name has 1 to {_MOST_NAME} characters")
    return require_seen(name.strip(), "a person's name")


def require_reason(why: str) -> str:
    """Why people decided as they did, fit for a log."""
    if not why.strip():
        raise ConfigError("a reason is needed: whoever reads the log later has nothing else")
    return require_seen(" ".join(why.split())[:500], "a reason")
