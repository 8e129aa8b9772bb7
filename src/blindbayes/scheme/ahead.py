"""Material for classifications that is made before the instances come: what a party may make, the job that makes it, and what
a site owes it.

A *pack* is one party's half of what it and one other party made together, for at most so many instances of one model. Both
know it by one name, a hash of all that passed between them while they made it. It is used in one run and in no other: whoever
keeps packs burns one, durably, before a run gets it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.softspoken import OtReceiver, OtSender
from blindbayes.protocol.columns import ColumnsSetup
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.joined import JoinSetup
from blindbayes.protocol.shared_argmax import ahead
from blindbayes.protocol.shared_argmax.comparing import and_gates
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup
from blindbayes.protocol.shared_argmax.ready import Material, ReadyReceiver, ReadySender, Records, Shape
from blindbayes.protocol.transfer import roles as transfer
from blindbayes.scheme.aligned import columns_of
from blindbayes.scheme.job import AnsweringSite
from blindbayes.transport.journal import code_version
from blindbayes.transport.memory import Outcome

BATCH = 1 << 14  # instances classified at once: bounds memory; kinds of messages are the same in each
MOST = 1 << 20  # instances of one pack
_MODEL, _SIZE, _NONCE = 32, 6, 16  # digits of a run's id


@dataclass(frozen=True, slots=True)
class Spent:
    """What it cost this party to make a pack."""

    cpu_seconds: float = 0.0
    bytes: int = 0


class Draft(Protocol):
    """A pack that is being made."""

    def write(self, record: bytes) -> None:
        """One record more."""

    def keep(self, name: bytes) -> None:
        """It is whole: from now on runs may use it."""


class Shelf(Protocol):
    """Where a site keeps packs."""

    def draft(self, run_id: str, other: str, facts: bytes, most_bytes: int) -> Draft:
        """A new pack, if there is room for it. What an earlier draft of that name left is gone."""

    def note(self, run_id: str, spent: Spent) -> None:
        """What making the packs of a run cost."""

    def offered(self, run_id: str, other: str, facts: bytes, count: int) -> list[bytes]:
        """Names of packs for so many instances, the best first; held for the run. The same whenever the run asks again."""

    def take(self, run_id: str, other: str, name: bytes) -> tuple[str, Records, Spent]:
        """Burn a pack for all other runs, durably, and open it for this one: the run that made it, and its records."""


def ahead_run(model: str, size: int, coins: Coins) -> str:
    """The id of a run that makes packs for a model."""
    if not 1 <= size <= MOST:
        raise ConfigError(f"material is made for 1 to {MOST} instances at once")
    return f"{model}{size:0{_SIZE}x}{coins.bytes(_NONCE // 2).hex()}"


def ahead_of(run_id: str) -> tuple[str, int] | None:
    """Model and instances of a run that makes packs; None: it is none."""
    if len(run_id) != _MODEL + _SIZE + _NONCE:
        return None
    size = int(run_id[_MODEL : _MODEL + _SIZE], 16)
    return (run_id[:_MODEL], size) if 1 <= size <= MOST else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one party can make ahead for classifications with a model over columns, and with whom."""

    study: str
    party: str
    columns: ColumnsSetup
    reveal_to: str
    compare_all: bool

    @classmethod
    def of(cls, share: ModelShare, reveal_to: str, *, compare_all: bool) -> Plan:
        """From a share; refused where classifications use nothing that is made ahead."""
        if "rows_of" in share.public or ("join" in share.public and JoinSetup.from_dict(share.public).inner):
            raise ConfigError("for models over whole rows or an inner join nothing is made ahead")
        return cls(share.study, share.party, columns_of(share.public), reveal_to, compare_all)

    @property
    def others(self) -> tuple[str, ...]:
        """With whom."""
        holder = self.columns.class_holder
        return self.columns.holders if self.party == holder else (holder,)

    def shape(self, other: str, size: int) -> Shape:
        """How much, for so many instances."""
        holder = self.party if other == self.columns.class_holder else other
        batches = [min(BATCH, size - low) for low in range(0, size, BATCH)]
        queries: dict[int, SharedArgmaxSetup] = {
            count: self.columns.query(count, self.reveal_to, compare_all=self.compare_all, whole=size) for count in set(batches)
        }
        return Shape.of([queries[count] for count in batches], holder)

    def facts(self, other: str) -> bytes:
        """What a pack is good for, and for nothing else: study, pair, model, who learns, and the software."""
        pair = sorted((self.party, other))
        public = [self.study, pair, self.columns.to_dict(), self.reveal_to, self.compare_all, code_version()]
        return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).digest()

    def most_bytes(self, other: str, size: int) -> int:
        """What a pack takes on disk, or its making on the wire, at most."""
        shape = self.shape(other, size)
        return shape.most_bytes(and_gates(shape.query) if shape.blocks else 0)

    def make(self, run: Run, size: int, drafts: Mapping[str, Draft], coins: Coins) -> Role[dict[str, bytes]]:
        """This party's role with each other party in turn: the names."""
        names = {}
        for other in self.others:
            shape, keep = self.shape(other, size), drafts[other].write
            if self.party == self.columns.class_holder:
                names[other] = yield from ahead.make_as_sender(run, other, shape, keep, coins)
            else:
                names[other] = yield from ahead.make_as_chooser(run, other, shape, keep, coins, and_gates(shape.query))
        return names


class Ready:
    """What one run uses: packs that both parties of a pair have."""

    def __init__(self, plan: Plan, count: int, shelf: Shelf | None) -> None:
        self._plan, self._count, self._shelf = plan, count, shelf
        self._taken: dict[str, Material] = {}
        self.packs: dict[str, str] = {}  # by party, the run that made it
        self.spent = Spent()

    def agree(self, run: Run, others: Sequence[str], facts: bytes, coins: Coins) -> Role[dict[str, bytes]]:
        """Agree with the others on what is public about the classification, and take what both have: the sessions."""
        names: dict[str, list[bytes]] = {other: [] for other in self._plan.others}
        if self._shelf is not None:
            for other in names:
                names[other] = self._shelf.offered(run.run_id, other, self._plan.facts(other), self._count)
        steps = dict.fromkeys(others, "classification")
        sessions = yield from transfer.agree_all(run, steps, facts, coins, ahead.offers(names))
        chosen = yield from ahead.choose(names)
        for other, name in chosen.items():
            if self._shelf is None:
                raise LocalProtocolError("nothing was offered")
            made, records, spent = self._shelf.take(run.run_id, other, name)
            found = ahead_of(made)
            if found is None:
                raise LocalProtocolError("a pack of no size")
            is_sender = self._plan.party == self._plan.columns.class_holder
            self._taken[other] = Material(self._plan.shape(other, found[1]), records, other, has_choices=not is_sender)
            self.packs[other] = made
            self.spent = Spent(self.spent.cpu_seconds + spent.cpu_seconds, self.spent.bytes + spent.bytes)
        return sessions

    def sender(self, other: str) -> OtSender | None:
        """The class holder's transfers, if they were made ahead."""
        return ReadySender(self._taken[other]) if other in self._taken else None

    def receiver(self, other: str) -> OtReceiver | None:
        """An attribute holder's."""
        return ReadyReceiver(self._taken[other]) if other in self._taken else None


class AheadJob:
    """See `job.Job`: packs for one model. Nothing of anybody's rows enters, and nothing is opened or charged."""

    kind = "ahead"

    def __init__(self, site: AnsweringSite, run_id: str, parties: int, reveal_to: str, *, compare_all: bool) -> None:
        found = ahead_of(run_id)
        if found is None:
            raise ConfigError("the id is not that of a run that makes material ahead")
        (self._model, self.size), self.site, self.run_id, self.required = found, site, run_id, parties
        self._terms, self._drafts = (reveal_to, compare_all), dict[str, Draft]()
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """What is made; refused where nothing can be."""
        if self._plan is None:
            reveal_to, compare_all = self._terms
            self._plan = Plan.of(cast(ModelShare, self.site.share_of(self._model)), reveal_to, compare_all=compare_all)
        return self._plan

    def read(self) -> None:
        """See that there is room."""
        if self.site.shelf is None:
            raise ConfigError("this site makes nothing ahead: raise ahead_mb in site.toml")
        for other in self.plan.others:
            facts, most = self.plan.facts(other), self.plan.most_bytes(other, self.size)
            self._drafts[other] = self.site.shelf.draft(self.run_id, other, facts, most)

    def digest(self, seat: str) -> bytes:
        """No row enters."""
        return bytes(32)

    def most_bytes(self) -> int:
        """What one party may send another."""
        return 2 * max(self.plan.most_bytes(other, self.size) for other in self.plan.others) + (1 << 20)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        return self.plan.make(run, self.size, self._drafts, coins)

    def authorise_and_charge(self, seat: str) -> None:
        """Nothing depends on rows; the share is still there."""
        self.site.share_of(self._model)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        for other, name in outputs[self.site.name].items():
            self._drafts[other].keep(name)

    def result(self, outcome: Outcome) -> Any:
        """Nothing for a release; what it cost stays with the packs."""
        cost = outcome.cost.parties[self.site.name]
        if self.site.shelf is not None:
            self.site.shelf.note(self.run_id, Spent(cost.seconds, cost.sent_bytes + cost.received_bytes))
        return None
