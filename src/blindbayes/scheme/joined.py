"""One party's part in a study over columns whose identifiers do not line up: training, and joint classification.

A part knows its party's table and the public facts (`Join`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.keys import read_digests, recipe_of, rows_at
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.ledger import Entry, Ledger
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.chance import spendable
from blindbayes.privacy.column_noise import ColumnNoise
from blindbayes.privacy.overlap import OverlapNoise
from blindbayes.protocol import joined as roles
from blindbayes.protocol import transfer
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.joined import Join, Joined, Links
from blindbayes.protocol.joined_sums import LEAST, MOST, Entries, merge, one_hot
from blindbayes.scheme.aligned import ColumnScoring, count_local, require_held
from blindbayes.scheme.audits import audit_rate_of, audit_words, kept_commitments
from blindbayes.scheme.guards import (
    UNIT,
    charge_noise,
    counted,
    guard_local,
    guard_words,
    guarded_join,
    noise_of,
    require_record,
)
from blindbayes.scheme.part import Steady
from blindbayes.statistics import Block
from blindbayes.study.study import Study
from blindbayes.wire import Words

OPTIONS = ("audit_rate", "bounds", "join", "min_overlap", "multiplicity", "overlap_epsilon", "queries", "reveal", "together")
BATCH = 1 << 14  # instances classified at once: bounds memory
Digests = list[bytes | None]


# -- what is public ----------------------------------------------------------------------------------------------------------


def options_of(study: Study) -> dict[str, Any]:
    """The options of joined_sums, checked, with their defaults."""
    if unknown := sorted(set(study.options) - set(OPTIONS)):
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(OPTIONS)}")
    most = 4 if study.duplicates == "join" else 1
    found: dict[str, Any] = {"bounds": {}, "join": None, "min_overlap": 0, "multiplicity": most, "overlap_epsilon": None}
    found |= {"queries": None, "reveal": "nothing", "together": False, **study.options}
    found["audit_rate"] = audit_rate_of(study)
    if found["reveal"] not in ("nothing", "matching"):
        raise ConfigError("the option reveal is 'nothing' or 'matching'")
    for name in ("min_overlap", "multiplicity"):
        if type(found[name]) is not int:
            raise ConfigError(f"the option {name} is a whole number")
    epsilon = found["overlap_epsilon"]
    if epsilon is not None and not (type(epsilon) in (int, float) and math.isfinite(epsilon) and epsilon > 0):
        raise PrivacyError("the option overlap_epsilon is a positive number, or left out: then no estimate is opened")
    if found["queries"] is not None and (type(found["queries"]) is not int or found["queries"] < 1):
        raise ConfigError("the option queries is the number of instances that may be classified")
    if not isinstance(found["together"], bool):
        raise ConfigError("the option together is true or false")
    if found["join"] not in (None, "inner", "left"):
        raise ConfigError("the option join is 'inner' or 'left'")
    bounds = found["bounds"]
    if not isinstance(bounds, Mapping) or any(
        type(bound) is not int or not LEAST <= bound <= MOST for bound in bounds.values()
    ):
        raise ConfigError(
            f"the option bounds gives each party the number that its identifiers are padded to, {LEAST:,} to {MOST:,}"
        )
    return found


def key_of(study: Study) -> tuple[str, ...]:
    """The identifier columns that the study names, where the codebook has no recipe."""
    if study.codebook.identifier is not None:
        return ()
    return tuple(part.column for part in recipe_of(study.codebook, study.key).parts)


def join_of(study: Study, owners: Mapping[str, tuple[str, ...]], class_holder: str, bounds: Mapping[str, int]) -> Join:
    """What is public about the join: the study's options, who holds which features, what identifiers are padded to."""
    options = options_of(study)
    inner = len(owners) == 2 if options["join"] is None else options["join"] == "inner"
    if inner and options["together"]:
        raise ConfigError("an inner join has two parties, who compare together anyway; leave the option together out")
    if missing := [name for name in owners if name not in bounds]:
        raise ConfigError(f"bounds give no number for {missing[0]}: say what its identifiers are padded to")
    if unknown := sorted(set(bounds) - set(owners)):
        raise ConfigError(f"bounds name {unknown[0]!r}, who is no party")
    agreed = Join(
        study.codebook,
        dict(owners),
        class_holder,
        {name: bounds[name] for name in owners},
        inner,
        study.duplicates,
        options["multiplicity"],
        options["min_overlap"],
        study.alpha,
        key_of(study),
        None if options["overlap_epsilon"] is None else float(options["overlap_epsilon"]),
    )
    return guarded_join(study, replace(agreed, audit_rate=options["audit_rate"]))


def overlap_noise(join: Join, party: str) -> OverlapNoise | None:
    """The noise of a party's estimates of joined identifiers; its `price` is what the party's ledger pays. None if the study
    has no estimate."""
    if join.overlap_epsilon is None:
        return None
    joins = len(join.holders) if party == join.class_holder else 1
    return OverlapNoise(spendable(join.overlap_epsilon, "overlap_epsilon"), joins)


def charge_overlap(ledger: Ledger, join: Join, party: str, **facts: Any) -> Entry | None:
    """Pay for a party's estimates, before its part of training sends anything; None if the study has none.

    Raises `PrivacyError`, and writes nothing, if the budget does not suffice. `facts` are public facts to keep (study, run).
    """
    law = overlap_noise(join, party)
    if law is None:
        return None
    unit = ledger.balance().unit
    if not unit.startswith(("one record", "one person")):  # one identifier with all its rows is both
        raise PrivacyError(f"the ledger protects {unit}; an estimate of the overlap protects one record, or one person")
    spend = Spend.of(law)
    return ledger.charge(spend, purpose=f"joined_sums {law.name}", unit=unit, mechanism=law.name, **facts)


def charge_training(ledger: Ledger, promised: Study, agreed: Columns | Join, party: str, **facts: Any) -> Entry | None:
    """Pay for a party's part of a training over columns, noise in the shares and estimates of the overlap, in one entry;
    None if it costs nothing."""
    noise = noise_of(promised, agreed)
    law = None if isinstance(agreed, Columns) else overlap_noise(agreed, party)
    if noise is None or law is None:
        if isinstance(agreed, Columns) or noise is not None:
            return charge_noise(ledger, promised, agreed, **facts)
        return charge_overlap(ledger, agreed, party, **facts)
    require_record(ledger)
    first, second = Spend.of(noise), Spend.of(law)
    spend = Spend(first.epsilon + second.epsilon, first.delta + second.delta)
    return ledger.charge(spend, purpose="training over columns", unit=UNIT, mechanism=f"{noise.name}, {law.name}", **facts)


# -- training ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedTraining:
    """One party's part of training over a join."""

    party: str
    rows: int
    join: Join = field(repr=False)
    first: Entries = field(repr=False)  # the class holder's labels, or another's rows
    second: Entries | None = field(repr=False)  # the class holder's own columns class by class, or another's counts
    local: Mapping[str, Any] | None = field(repr=False)  # statistics that the class holder keeps to itself in a left join
    queries: int | None = None
    noise: ColumnNoise | None = field(default=None, repr=False)

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded input."""
        arrays = [self.first.items, self.first.words]
        if self.second is not None:
            arrays += [self.second.items, self.second.words]
        facts = json.dumps(self.local, sort_keys=True).encode() + self.join.facts()
        return keyed_digest(key, facts, arrays)

    def role(self, run: Run, coins: Coins) -> Role[Joined]:
        """The party's role."""
        is_holder = self.party == self.join.class_holder
        law, noise = overlap_noise(self.join, self.party), None
        if law is not None:
            others = self.join.holders if is_holder else (self.join.class_holder,)
            noise = {name: law.draw(coins.derive(f"noise on the overlap with {name}")) for name in others}
        drawn = None if self.noise is None else self.noise.draw(self.party, coins.derive("noise in the shares"))
        if is_holder:
            trained = yield from roles.train_class_holder(run, self.join, self.first, self.second, coins, noise, drawn)
            if self.local is not None and self.join.guard.acts:
                trained.local = guard_local(self.local, self.join.columns, drawn, self.join.bounds[self.party])
            return trained
        if self.second is None:
            raise LocalProtocolError("an attribute holder counts its rows")
        return (yield from roles.train_attribute_holder(run, self.join, self.first, self.second, coins, noise, drawn))

    def share(self, trained: Joined, study: str) -> ModelShare:
        """What the party keeps."""
        public = replace(self.join, training=trained.training).to_dict()
        local = trained.local if self.join.guard.acts else self.local
        return ModelShare(
            study, self.party, public, trained.tables, trained.sums, local, self.queries, kept_commitments(trained)
        )


def training(study: Study, join: Join, party: str, source: ColumnSource) -> JoinedTraining:
    """A party's part of training. Everything about its table is checked here, before anything leaves."""
    return training_of(study, join, party, source, digests_of(study, source))


def training_of(study: Study, join: Join, party: str, source: ColumnSource, digests: Digests) -> JoinedTraining:
    """`training` of a table whose identifiers are read already."""
    require_held(join.columns, party, source)
    is_holder = party == join.class_holder
    if source.labelled != is_holder:
        raise ConfigError(
            f"one party, and only one, must have the class column {study.codebook.target!r} where identifiers do not line up"
        )
    if source.rows < study.min_rows:
        raise PrivacyError(f"{party}: the study asks for at least {study.min_rows} rows per party")
    source = counted(study, join, source)
    first, second = _entries(join, party, source, digests)
    require_bound(party, len(first), join.bounds[party])
    local = count_local(join.columns, party, _counted(join, source, digests)) if is_holder and not join.inner else None
    queries, noise = options_of(study)["queries"], noise_of(study, join)
    return JoinedTraining(party, source.rows, join, first, second, local, queries, noise)


def _counted(join: Join, source: ColumnSource, digests: Digests) -> ColumnSource:
    """The class holder's rows that count in a left join: all, or under `first` without further rows of an identifier."""
    if join.duplicates != "first":
        return source
    seen: set[bytes] = set()
    kept: list[int] = []
    for at, digest in enumerate(digests):
        if digest is None or digest not in seen:
            kept.append(at)
        if digest is not None:
            seen.add(digest)
    if len(kept) == len(digests):
        return source
    return replace(open_columns(rows_at(source, np.array(kept, dtype=np.int64)), source.codebook), total=source.total)


def digests_of(study: Study, source: ColumnSource) -> Digests:
    """Keyed digests of a table's identifiers, row by row."""
    return read_digests(source, recipe_of(study.codebook, study.key), bytes.fromhex(study.sha256))


def require_bound(party: str, count: int, bound: int) -> None:
    """Refuse more identifiers than were agreed."""
    if count > bound:
        raise DataError(f"{party}: more identifiers than the agreed bound of {bound}; agree on a larger one")


def keyed_digest(key: bytes, facts: bytes, arrays: list[npt.NDArray[Any]]) -> bytes:
    """Of public facts and arrays, shapes included."""
    digest = hashlib.blake2b(key=key[:64], digest_size=32, person=b"blindbayes part")
    digest.update(len(facts).to_bytes(8, "big") + facts)
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def _entries(join: Join, party: str, source: ColumnSource, digests: Digests) -> tuple[Entries, Entries | None]:
    """What a party brings: the class holder its labels and its own columns, class by class; another its rows and counts."""
    classes = len(join.codebook.classes)
    if party != join.class_holder:
        layout = join.columns.layout(party)
        counted = [
            np.concatenate([layout.encode(block), np.ones((block.rows, 1), dtype=np.uint64)], axis=1)
            for block in source.blocks()
        ]
        found = merge(digests, _stack(counted, layout.words + 1), join.duplicates, join.most)
        return found, Entries(found.items, np.ascontiguousarray(found.words[:, -1:]))
    own = join.own_layout
    labels: list[Words] = []
    rows: list[Words] = []
    for block in source.blocks():
        hot = one_hot(block.known_labels, classes)
        labels.append(hot)
        if own is not None:
            rows.append((hot[:, :, None] * own.encode(block)[:, None, :]).reshape(block.rows, -1))
    first = merge(digests, _stack(labels, classes), join.duplicates, join.most)
    if own is None:
        return first, None
    return first, merge(digests, _stack(rows, classes * own.words), join.duplicates, join.most)


def _stack(parts: list[Words], width: int) -> Words:
    return np.concatenate(parts) if parts else np.zeros((0, width), dtype=np.uint64)


# -- the same instances in one order ---------------------------------------------------------------------------------------


class JoinedScoring:
    """One party's part of classifying instances that both bring in one order, with a model over an inner join."""

    def __init__(self, share: ModelShare, source: ColumnSource | int, reveal_to: str) -> None:
        share.require_alive()
        self.share, self.party, self.join = share, share.party, Join.from_dict(share.public)
        self._reveal_to = reveal_to
        self.kept: Links | None = None  # transfers from before; None: the role sets them up
        columns = self.join.columns
        columns.query(1, reveal_to)  # a wrong name is noticed here
        self._table: Steady | None = None
        if isinstance(source, int):
            if columns.owners[self.party]:
                raise ConfigError(f"{self.party} holds columns: it brings rows, not only their number")
            self.count = source
        else:
            require_held(columns, self.party, source)
            self._table, self.count = Steady(source, training=False, size=BATCH), source.rows
        if self.count < 1:
            raise DataError("a batch has at least one instance")

    @property
    def other(self) -> str:
        """The other party."""
        return next(name for name in self.join.owners if name != self.party)

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded instances."""
        return bytes(32) if self._table is None else self._table.digest(key)

    def connect(self, run: Run, coins: Coins) -> Role[Links]:
        """Agree on what is public about this classification, then set up the transfers."""
        facts = self.join.facts() + repr((self.count, self._reveal_to)).encode()
        yield from transfer.agree(run, self.other, "classification", facts, coins)
        return (yield from roles.connect(run, self.other, coins))

    def role(self, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        """Batch after batch, on transfers that are set up first."""
        kept = self.kept
        if kept is None:
            kept = yield from self.connect(run, coins.derive("transfers"))
        is_holder = self.party == self.join.class_holder
        play = roles.predict_class_holder if is_holder else roles.predict_attribute_holder
        learned = []
        for at, block in enumerate(self._batches()):
            query = self.join.columns.query(block.rows, self._reveal_to)
            tables, own = self.share.tables[self.other], coins.derive(f"batch {at}")
            found = yield from play(run, self.join, query, tables, block.columns, kept, own)
            if found is not None:
                learned.append(found)
        return np.concatenate(learned) if learned else None

    def _batches(self) -> Iterator[Block]:
        if self._table is not None:
            yield from self._table.blocks()
            return
        for low in range(0, self.count, BATCH):
            yield Block(None, {}, min(BATCH, self.count - low))


def scoring(
    share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", *, together: bool = False
) -> JoinedScoring | ColumnScoring:
    """A party's part of classifying instances that all bring in one order, from its share alone; a party without columns
    brings the number of instances."""
    if not Join.from_dict(share.public).inner:
        return ColumnScoring(share, source, reveal_to, together=together)
    if together:
        raise ConfigError("a model over an inner join has two parties, who compare together anyway")
    return JoinedScoring(share, source, reveal_to)


# -- in words --------------------------------------------------------------------------------------------------------------


def training_statement(study: Study, join: Join, sha256: str, overlaps: Mapping[str, int] | None = None) -> str:
    """What training promises, in words; `sha256` is the hash that the parties agreed on, `overlaps` the noisy numbers of
    joined identifiers that were opened, by the other party of the join."""
    plan, queries = join.columns.plan, study.options.get("queries")
    kind = (
        "Counted: the rows of the SQL inner join on the identifier, class counts and all columns; all of it stays in shares."
        if join.inner
        else "Counted: every row of the class holder (its class counts and own columns are known to it alone), and for each "
        "attribute holder the rows of its own SQL join with the class holder; elsewhere its columns are missing."
    )
    bounds = ", ".join(f"{name} {bound}" for name, bound in join.bounds.items())
    lines = [
        f"Study {sha256}",
        f"Codebook {study.codebook.sha256}",
        f"Protocols joined_sums, shared_model, shared_argmax. Class holder: {join.class_holder}.",
        kind,
        "Who is in the join, and how many, was not opened"
        + (
            f"; one bit was: that at least {join.min_overlap} identifiers joined (per pair of parties). Whoever knows of "
            f"{join.min_overlap - 1} matches learns from it about one more: limit how often such studies run."
            if join.min_overlap
            else ". No minimum was set (min_overlap): a party that brings few identifiers gets a model about those, and its "
            "classes tell who of them is shared and what the other knows of them."
        ),
        *_overlap_words(join, overlaps or {}),
        *guard_words(study, join),
        *audit_words(join.columns),
        f"Public: the numbers that identifiers are padded to ({bounds}), at most {join.most} rows per identifier and party, "
        f"duplicates: {join.duplicates}. Identifiers and their digests never left a site.",
        f"A classification opens the class, to {study.reveal_to}; where the parties bring the same instances in one order, "
        "each knows whom they score together; a party that brings nulls learns the number of instances alone. Scoring over the "
        "hidden join (joined_scores) names nobody: one party learns a class for each of its identifiers, and which of them are "
        "shared only if that is the scope; the others learn what it is padded to. "
        + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
        + " Repeated queries let the model be read off; limit them.",
        f"Scores: {plan.bits} bits, {plan.fraction} after the point.",
        "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, computational; "
        f"wrong results with probability below 2^-{join.failure_bits}.",
    ]
    if len(join.holders) > 1:
        lines.append(coalition_words(join, together=bool(study.options.get("together", False))))
    return "\n\n".join(lines)


def coalition_words(join: Join, *, together: bool) -> str:
    """With three or more parties: who could pool what."""
    if together:
        return "All parties compare the scores together: no coalition short of all but one learns more than the class."
    return (
        f"With more than one attribute holder, {join.class_holder} and {join.holders[0]} together can see what another "
        "holder's attributes add to the scores of an instance."
    )


def _overlap_words(join: Join, overlaps: Mapping[str, int]) -> list[str]:
    """The promise of the noisy estimate."""
    law, holder = overlap_noise(join, join.holders[0]), overlap_noise(join, join.class_holder)
    if law is None or holder is None:
        return []
    found = "; ".join(f"with {name} {count}" for name, count in overlaps.items())
    words = (
        "An estimate of the number of joined identifiers was opened to both parties of each join (noisy_overlap"
        f"{': ' if found else ''}{found}). Each party added discrete Laplace noise of its own, of scale {float(law.scale):g} "
        f"(standard deviation {law.deviation:.3g}), drawn exactly. So whatever the other party, or anybody, concludes from it "
        f"about one identifier of its table, with all rows of it, is {float(law.epsilon):g}-differentially private (add or "
        "remove; sensitivity 1), as far as joined_sums hides its inputs, that is computationally. Charged: epsilon = "
        f"{holder.price.epsilon:g} to the ledger of {join.class_holder}, {law.price.epsilon:g} to that of each other party."
    )
    if join.min_overlap:
        words += " The bit about the minimum is exact and is not covered by this epsilon."
    return [words]
