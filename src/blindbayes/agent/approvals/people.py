"""The people who may decide at a site: `people.toml`, each by name and role.

As long as nobody was ever named, every account that can write the folder may decide, and the log names that account. Once
people were named, the file must name a steward. The names serve the log and rules such as two stewards for one approval. They
are no access control: an account that can write the folder can claim any name. The console asks for a secret. A person who
signed in by the organisation (`[sign_in]`) is a `Subject`: the provider's claim decides the role, not this file.
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

from blindbayes.disclosure.audit_log import AuditLog, Subject
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io.files import write_whole
from blindbayes.io.untrusted import convert, read_toml, require_seen

PersonRole = Literal["steward", "officer", "analyst"]
Act = Literal["approve", "refuse", "revoke", "run", "stop", "check", "preview", "manage"]
ROLES: tuple[str, ...] = get_args(PersonRole)
MAY: dict[Act, tuple[str, ...]] = {
    "approve": ("steward",),
    "refuse": ("steward", "officer"),
    "revoke": ("steward", "officer"),
    "run": ("steward", "analyst"),
    "stop": ROLES,
    "check": ("steward", "officer"),  # comparing the table with a codebook counts rows
    "preview": ("steward",),  # the first rows of the table
    "manage": ("steward",),  # settings, pins, people
}
_MAX_NAME = 80


class Person(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A person of the site. `secret` is a salted hash that only the console reads."""

    name: str
    role: PersonRole
    account: str | None = None
    secret: str | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    people: tuple[Person, ...] = ()


def account() -> str:
    """Return the operating system account of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True)
class People:
    """The file `people.toml`."""

    path: Path
    audit: AuditLog

    def all(self) -> tuple[Person, ...]:
        """Return the people in the file; an empty tuple without a file.

        Raises `ConfigError` if the file names no steward although the log knows of people: the last steward cannot be removed,
        so the file was emptied or lost, and everybody could decide.
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
        """Return a name for the log: the one given, else that of the person with this account, else the account's."""
        own = account()
        return require_name(next((each.name for each in self.all() if each.account == own), own) if name is None else name)

    def require(self, act: Act, name: str | None = None) -> str:
        """Return the name for the log (see `name_of`). Raises unless the person may do this."""
        if isinstance(name, Subject):
            if not name.roles & set(MAY[act]):
                raise PrivacyError(
                    f"{name} is {' and '.join(sorted(name.roles))} here; to {act} takes a {' or '.join(MAY[act])}"
                )
            return name
        people, name = self.all(), self.name_of(name)
        if not people:
            return name
        person = next((each for each in people if each.name == name), None)
        if person is None:
            raise PrivacyError(
                f"{name!r} is not in this site's people.toml: say who you are with --as, or let a steward add you "
                "(`blindbayes site people`)"
            )
        if person.role not in MAY[act]:
            raise PrivacyError(f"{name} is {person.role} here; to {act} takes a {' or '.join(MAY[act])}")
        return name

    def require_eyes(self, number: int) -> None:
        """Raise unless the site has this number of stewards."""
        if number > 1 and sum(each.role == "steward" for each in self.all()) < number:
            raise ConfigError(
                f"the policy asks for {number} stewards (approvers), and the site's people.toml names fewer: "
                "`blindbayes site people --add NAME --role steward`"
            )

    def add(self, person: Person, *, who: str | None = None) -> None:
        """Add a person, or change their role. Anybody may add the first steward to an empty file."""
        by = self.require("manage", who)
        require_name(person.name)
        if not self.all() and person.role != "steward":
            raise ConfigError("the first of a site's people is a steward: others could add nobody")
        self._write((*(each for each in self.all() if each.name != person.name), person))
        self.audit.append("person added", person=person.name, role=person.role, who=by)

    def remove(self, name: str, *, who: str | None = None) -> None:
        """Remove a person. The last steward cannot be removed."""
        by = self.require("manage", who)
        remaining = tuple(each for each in self.all() if each.name != name)
        if len(remaining) == len(self.all()):
            raise ConfigError(f"{name!r} is not in this site's people.toml")
        if not any(each.role == "steward" for each in remaining):
            raise ConfigError(f"{name} is the last steward here: add another first")
        self._write(remaining)
        self.audit.append("person removed", person=name, who=by)

    def _write(self, people: tuple[Person, ...]) -> None:
        write_whole(self.path, tomlkit.dumps(msgspec.to_builtins(_File(people))).encode())


def require_name(name: str) -> str:
    """Return a person's name. Raises `ConfigError` unless it is fit for a log and a screen."""
    if isinstance(name, Subject):  # checked when they signed in
        return name
    if not 0 < len(name.strip()) <= _MAX_NAME or "\n" in name:
        raise ConfigError(f"a person's name has 1 to {_MAX_NAME} characters")
    return require_seen(name.strip(), "a person's name")


def require_reason(why: str) -> str:
    """Return the reason of a decision, on one line. Raises `ConfigError` if it is empty."""
    if not why.strip():
        raise ConfigError("a reason is needed: readers of the log have nothing else")
    return require_seen(" ".join(why.split())[:500], "a reason")
