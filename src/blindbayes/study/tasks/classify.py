"""One party's side of classifying instances that all parties bring in one order."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.data.columns import ColumnSource
from blindbayes.errors import ConfigError, DataError, LocalProtocolError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols import joint_circuit, link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.private_join import joined as joined_roles
from blindbayes.protocols.private_join.joined import JoinSetup, Links
from blindbayes.protocols.shared_inference.query import Labelled, SharedArgmaxSetup
from blindbayes.protocols.shared_rows import shares
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup
from blindbayes.protocols.shared_training import columns as column_roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import CodedRows
from blindbayes.study.tasks.audits import answers
from blindbayes.study.tasks.checked_table import CheckedTable
from blindbayes.study.tasks.columns import class_counts_of, local_parameters, require_held
from blindbayes.study.tasks.public import columns_of, public_of, setup_of
from blindbayes.study.tasks.result import SHARES_CONCLUSIONS
from blindbayes.study.tasks.task import BatchColumns

Classes = npt.NDArray[np.int64]
BATCH = 1 << 14  # instances classified at once: bounds memory; kinds of messages are the same in each


class Scoring(ABC):
    """One party's side of one joint classification, the setup of transfers included."""

    protocols: ClassVar[tuple[str, ...]] = ("transfer", "shared_argmax")  # for the leak report
    count: int  # instances
    _tally = False  # True if totals by true and predicted class are opened, and no class

    @property
    def charged(self) -> int:
        """The charge to the query budget: instances, and other answers that a party could get."""
        return self.count

    @property
    def tallied(self) -> int:
        """The number of instances that totals are over."""
        return self.count

    @abstractmethod
    def digest(self, key: bytes) -> bytes:
        """Return the keyed digest of the coded instances."""

    def max_bytes(self) -> int | None:
        """Return how many bytes one party may send another; None: the journal's quota applies."""
        return None

    @abstractmethod
    def role(self, run: Run, coins: Coins) -> Role[Classes | None]:
        """Return the party's role: class indices for a learner, None for another. Works in batches of bounded size."""

    def conclusions(self) -> tuple[str, ...]:
        """Return what can be concluded from the classes."""
        return SHARES_CONCLUSIONS

    def statement(self, batch: str, to: str) -> str:
        """Return what the classification of a batch promises."""
        learners = "every party" if to == "all" else to
        opened = "The number of instances by true and predicted class" if self._tally else "The class of each instance"
        return "\n\n".join(
            (
                f"{batch}: {self.count} instances.",
                f"{opened} was opened, to {learners}, and nothing else. The query budget of every party's "
                "share was charged before anything was computed. Repeated queries let the model be read off.",
                "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer.",
            )
        )


L = TypeVar("L")  # what a classification sets up with the other parties before its batches


class LinedUpScoring(Scoring, Generic[L]):
    """Classification batch after batch, on transfers that are set up first."""

    def __init__(self, share: ModelShare, columns: BatchColumns, source: ColumnSource | int) -> None:
        share.require_alive()
        self.share, self.party = share, share.party
        self._table: CheckedTable | None = None
        if isinstance(source, int):
            if columns.owners[self.party]:
                raise ConfigError(f"{self.party} holds columns: it brings rows, not only their number")
            self.count = source
        else:
            require_held(columns, self.party, source)
            self._table, self.count = CheckedTable(source, training=source.labelled, size=BATCH), source.rows
        if self.count < 1:
            raise DataError("a batch has at least one instance")

    def digest(self, key: bytes) -> bytes:
        return bytes(32) if self._table is None else self._table.digest(key)

    def role(self, run: Run, coins: Coins) -> Role[Classes | None]:
        sessions, links = yield from self._connect(run, coins.derive("transfers"))
        learned: list[Classes] = []
        for at, block in enumerate(self._batches()):
            part = transfer.standing(run, sessions, f"batch {at}")
            classes = yield from self._batch(part, block, links, coins.derive(f"batch {at}"))
            if classes is not None:
                learned.append(classes)
        return np.concatenate(learned) if learned else None

    def _batches(self) -> Iterator[CodedRows]:
        if self._table is not None:
            yield from self._table.blocks()
            return
        for low in range(0, self.count, BATCH):
            yield CodedRows(None, {}, min(BATCH, self.count - low))

    @abstractmethod
    def _connect(self, run: Run, coins: Coins) -> Role[tuple[Mapping[str, bytes], L]]:
        """Agree on what is public about this classification, then set up the transfers; return the sessions and links."""

    @abstractmethod
    def _batch(self, run: Run, block: CodedRows, links: L, coins: Coins) -> Role[Classes | None]:
        """Return the classes of one batch, for a learner."""


class ArgmaxScoring(LinedUpScoring[L]):
    """Classification by shared_argmax."""

    def __init__(self, share: ModelShare, columns: BatchColumns, source: ColumnSource | int) -> None:
        self._query(1)  # a wrong name is noticed here
        super().__init__(share, columns, source)

    def _queries(self) -> Iterator[SharedArgmaxSetup]:
        return (self._query(min(BATCH, self.count - low)) for low in range(0, self.count, BATCH))

    @abstractmethod
    def _query(self, rows: int) -> SharedArgmaxSetup:
        """Return the setup of one batch."""


@dataclass(slots=True)
class Transfers:
    """The links that the setup of transfers leaves a party."""

    ot_senders: dict[str, OtSender] = field(default_factory=dict, repr=False)
    ot_receiver: OtReceiver | None = field(default=None, repr=False)
    mesh: Mesh | None = field(default=None, repr=False)


class ColumnScoring(ArgmaxScoring[Transfers]):
    """Classification with a model of class_sums, or of a left join: the class holder scores its own columns alone."""

    def __init__(
        self,
        share: ModelShare,
        columns: ColumnsSetup,
        source: ColumnSource | int,
        reveal_to: str,
        *,
        compare_all: bool = False,
        tally: bool = False,
    ) -> None:
        self.columns, self._reveal_to, self._compare_all, self._tally = columns, reveal_to, compare_all, tally
        super().__init__(share, columns, source)

    def _query(self, rows: int) -> SharedArgmaxSetup:
        return self.columns.query(rows, self._reveal_to, compare_all=self._compare_all, tally=self._tally)

    @property
    def charged(self) -> int:
        return answers(self.columns, self._queries())

    def max_bytes(self) -> int | None:
        return link_bytes.classification(
            self.columns, self.count, compare_all=self._compare_all, tally=self._tally, batch=BATCH
        )

    def _connect(self, run: Run, coins: Coins) -> Role[tuple[Mapping[str, bytes], Transfers]]:
        holder, links = self.columns.class_holder, Transfers()
        asked = [public_of(self.columns), self.count, self._reveal_to, self._compare_all, self._tally]
        facts = json.dumps(asked, sort_keys=True).encode()
        others = [name for name in (holder, *self.columns.holders) if name != self.party]
        sessions = yield from transfer.agree_all(run, dict.fromkeys(others, "classification"), facts, coins)
        part = transfer.standing(run, sessions, "transfers")
        for name in self.columns.holders if self.party == holder else (holder,):
            if self.party == holder:
                links.ot_senders[name] = yield from transfer.ot_sender(part, name, coins)
            else:
                links.ot_receiver = yield from transfer.ot_receiver(part, name, coins)
        if self._compare_all:
            links.mesh = yield from joint_circuit.connect(transfer.standing(run, sessions, "mesh"), coins)
        return sessions, links

    def _batch(self, run: Run, block: CodedRows, links: Transfers, coins: Coins) -> Role[Classes | None]:
        query = self._query(block.rows)
        local, tables = self._local_scores(block), self.share.tables
        if local is not None and self.party == self.columns.class_holder:
            play = column_roles.predict_class_holder
            entered = Labelled(local, block.known_labels) if self._tally else local
            return (yield from play(run, query, entered, tables, links.ot_senders, coins, links.mesh))
        if links.ot_receiver is None:
            raise LocalProtocolError("an attribute holder has planted its transfers")
        other = self.columns.class_holder
        own, references = tables.get(other, {}), self.share.references.get(other, b"")
        answer = column_roles.predict_attribute_holder
        part = column_roles.Instances(block.columns, local)
        return (yield from answer(run, query, own, part, links.ot_receiver, coins, links.mesh, references))

    def _local_scores(self, block: CodedRows) -> npt.NDArray[np.float64] | None:
        """Return the scores that a party that knows the class of its rows computes alone; None for another."""
        columns, party = self.columns, self.party
        if party not in columns.labelled:
            return None
        scores = np.zeros((block.rows, len(columns.codebook.classes)))
        if party == columns.class_holder:
            scores += column_roles.prior(class_counts_of(self.share.local), columns.plan)
        if columns.owners[party]:
            parameters = local_parameters(columns, party, self.share.local or {})
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores


class JoinedScoring(ArgmaxScoring[Links]):
    """Classification with a model of an inner join: both sides' scores are shares."""

    def __init__(
        self, share: ModelShare, join: JoinSetup, source: ColumnSource | int, reveal_to: str, *, tally: bool = False
    ) -> None:
        self.join, self.columns, self._reveal_to, self._tally = join, join.columns, reveal_to, tally
        self._other = next(name for name in join.owners if name != share.party)
        super().__init__(share, join.columns, source)

    def _query(self, rows: int) -> SharedArgmaxSetup:
        return self.columns.query(rows, self._reveal_to, tally=self._tally)

    @property
    def charged(self) -> int:
        return answers(self.join, self._queries())

    def max_bytes(self) -> int | None:
        return link_bytes.classification(self.columns, self.count, tally=self._tally, batch=BATCH)

    def _connect(self, run: Run, coins: Coins) -> Role[tuple[Mapping[str, bytes], Links]]:
        facts = self.join.facts() + repr((self.count, self._reveal_to, self._tally)).encode()
        sessions = yield from transfer.agree_all(run, {self._other: "classification"}, facts, coins)
        part = transfer.standing(run, sessions, "transfers")
        return sessions, (yield from joined_roles.connect(part, self._other, coins))

    def _batch(self, run: Run, block: CodedRows, links: Links, coins: Coins) -> Role[Classes | None]:
        query = self._query(block.rows)
        tables, references = self.share.tables[self._other], self.share.references.get(self._other, b"")
        columns = dict(block.columns)
        if self._tally and block.labels is not None:
            columns[self.join.codebook.target] = block.labels
        return (yield from joined_roles.predict(run, self.join, query, tables, columns, links, coins, references))


@dataclass(frozen=True)
class RowsAsked:
    """A model of rows that several parties hold, as a classification sees it: one party brings whole instances."""

    rows: SharedRowsSetup
    asker: str
    class_holder: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.asker not in self.rows.parties:
            raise ConfigError(f"{self.asker!r} is no party of the study: name one whose instances are classified")

    @property
    def codebook(self) -> Codebook:
        return self.rows.codebook

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        names = tuple(self.rows.codebook.names)
        return {party: names if party == self.asker else () for party in self.rows.parties}


class RowScoring(LinedUpScoring[Mesh]):
    """Classification with a model of private_ratio: some parties hold shares, and any party asks about its own instances."""

    def __init__(self, share: ModelShare, asked: RowsAsked, source: ColumnSource | int) -> None:
        self._asked = asked
        super().__init__(share, asked, source)

    def _connect(self, run: Run, coins: Coins) -> Role[tuple[Mapping[str, bytes], Mesh]]:
        return {}, (yield from shares.connect(run, self._asked.rows, self.count, self._asked.asker, coins))

    def _batch(self, run: Run, block: CodedRows, links: Mesh, coins: Coins) -> Role[Classes | None]:
        asked, tables = self._asked, next(iter(self.share.tables.values()), {})
        play = shares.classify
        return (yield from play(run, asked.rows, block.rows, asked.asker, tables, block.columns, links, coins))


def asked_of(public: Mapping[str, Any], to: str | None) -> BatchColumns:
    """Return who brings what to a classification, from the public facts of a share."""
    setup = setup_of(public)
    if not isinstance(setup, SharedRowsSetup):
        return setup.columns if isinstance(setup, JoinSetup) else setup
    if to is None:
        raise ConfigError(
            "say with --to whose instances they are: that site names its table, the others their number (--count)"
        )
    return RowsAsked(setup, to)


def scoring(
    share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", *, compare_all: bool = False, tally: bool = False
) -> ColumnScoring | JoinedScoring:
    """Return a party's side, from its share alone; a party without columns brings the number of instances."""
    setup, columns = setup_of(share.public), columns_of(share.public)
    if tally and compare_all:
        raise ConfigError("with compare_all every class is opened as a whole: no evaluation opens totals alone")
    labelled = not isinstance(source, int) and source.labelled
    if tally and (labelled != (share.party == columns.class_holder)):
        raise DataError(f"for an evaluation {columns.class_holder} alone brings the class of each instance")
    if tally and not isinstance(source, int) and source.rows > BATCH:
        raise ConfigError(f"an evaluation opens its totals once: bring at most {BATCH:,} instances")
    if not isinstance(setup, JoinSetup) or not setup.inner:
        return ColumnScoring(share, columns, source, reveal_to, compare_all=compare_all, tally=tally)
    if compare_all:
        raise ConfigError("a model over an inner join has two parties, who compare together anyway")
    return JoinedScoring(share, setup, source, reveal_to, tally=tally)
