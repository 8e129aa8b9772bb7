"""A study and its parties: everything that is public about its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError

if TYPE_CHECKING:
    from blindbayes.study.study import Study
    from blindbayes.study.tasks.task import StudyTask


class Holdings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Columns that each party holds. The first of `labelled` provides the class."""

    holds: dict[str, tuple[str, ...]]  # party -> its features
    labelled: tuple[str, ...]  # parties that have the class column
    n_rows: int | None = None  # aligned only: the number of rows, which is public


@dataclass(frozen=True)
class Agreement:
    """A study and the parties of its runs, from a study file or, in `simulate`, from the given tables."""

    study: Study
    sha256: str  # identifies the study everywhere
    names: tuple[str, ...]  # every party, in order
    contributors: tuple[str, ...]  # those that bring rows or columns
    hosts: Mapping[str, str] = field(default_factory=dict)  # a role that no contributor fills -> the party that runs it
    columns: Holdings | None = None
    title: str = ""
    identities: Mapping[str, str] = field(default_factory=dict)  # party -> public key; empty in one process
    roster: str = ""  # hash of the newest roster, to which keys and signatures are bound; empty: the study's
    founders: tuple[str, ...] = ()  # the first contributors, if the roster may change
    steps: tuple[tuple[str, bool], ...] = ()  # contributors that left (False) or came (True) since, in order

    @property
    def bound_to(self) -> str:
        """The hash that every key and signature of a run is bound to."""
        return self.roster or self.sha256

    @property
    def book(self) -> Codebook:
        return self.study.codebook

    @property
    def holdings(self) -> Holdings:
        if self.columns is None:
            raise ConfigError("this is not a study over columns")
        return self.columns

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """The features of each party, in the codebook's order."""
        holds = self.holdings.holds
        return {name: tuple(each for each in self.book.names if each in holds.get(name, ())) for name in self.names}

    @cached_property
    def task(self) -> StudyTask:
        """The task of the study's protocol, not yet at a site. Raises what the parties cannot agree on."""
        return self.study.task_class(self)

    @property
    def roles(self) -> tuple[str, ...]:
        """Every role of a run: the contributors under their own names, then the others."""
        return self.task.roles

    def host(self, role: str) -> str:
        """Return the party that runs a role."""
        return self.hosts.get(role, role)
