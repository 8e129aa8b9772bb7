"""One party's part in a study over columns whose rows line up: training, and joint classification.

A part knows its party's table and the public facts (`ColumnsSetup`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.foreign import read_json_table, well_formed
from blindbayes.model.parameters import Parameters, estimate
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.softspoken import OtReceiver, OtSender
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.column_noise import ColumnNoise
from blindbayes.protocol import columns as roles
from blindbayes.protocol import shared_argmax, transfer
from blindbayes.protocol.columns import ColumnsSetup, Trained
from blindbayes.protocol.core import Role, Run
from blindbayes.protocol.shared_argmax import Mesh
from blindbayes.protocol.shared_model import NO_GUARD, Guard
from blindbayes.scheme.audits import commitments_of, describe_audits, kept_commitments, require_audit
from blindbayes.scheme.columns import dry_run_columns, line_up, require_learner, require_record, tell_holdings
from blindbayes.scheme.guards import UNIT, counted, describe_guard, guard_local, guarded, noise_of
from blindbayes.scheme.job import Charge, Site
from blindbayes.scheme.part import CheckedTable, Training
from blindbayes.scheme.result import JointResult, Learned, about_run, column_report, leakage_of
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Exposure, Facts
from blindbayes.study.study import Study
from blindbayes.transport.memory import Outcome

_BATCH = 1 << 14  # instances classified at once: bounds memory; kinds of messages are the same in each


class ClassSumsParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of class_sums."""

    audit_rate: float = 0.0  # share of dummies among look-ups and comparisons, which catch whoever answers them otherwise
    queries: int | None = None  # how many instances may be classified, ever; None: no limit
    compare_all: bool = False  # all parties compare the scores together, so that no two of them can see a third's part

    def __post_init__(self) -> None:
        if self.queries is not None and self.queries < 1:
            raise ConfigError("the option queries is the number of instances that may be classified")


# -- training ------------------------------------------------------------------------------------------------------------


def require_held(columns: ColumnsSetup, party: str, source: ColumnSource) -> None:
    """Refuse a table that does not hold what the study says this party holds."""
    found = {feature.name for feature in source.features}
    if missing := [name for name in columns.owners[party] if name not in found]:
        raise DataError(f"{party}: the table lacks column {missing[0]!r}, which the study says this party holds; add it")
    if extra := sorted(found - set(columns.owners[party])):
        raise DataError(f"{party}: the table holds column {extra[0]!r}, which the study gives to another party; drop it")


class ColumnTraining:
    """One party's part of training by class_sums. See `part.Training`."""

    def __init__(
        self, columns: ColumnsSetup, party: str, source: ColumnSource, queries: int | None, noise: ColumnNoise | None = None
    ) -> None:
        self.columns, self.party = columns, party
        self._noise = noise
        self._table = CheckedTable(source, training=True)
        self._queries = queries
        self._local: dict[str, Any] | None = None

    @property
    def rows(self) -> int:
        """Rows of this party."""
        return self._table.rows

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded rows."""
        return self._table.digest(key)

    def role(self, run: Run, coins: Coins) -> Role[Trained]:
        """The class holder's role, or an attribute holder's."""
        drawn = None if self._noise is None else self._noise.draw(self.party, coins.derive("noise in the shares"))
        tables = None if drawn is None else drawn.tables
        if self.party in self.columns.labelled:
            self._local = count_local(self.columns, self.party, self._table)
            if self.columns.guard.acts:
                self._local = guard_local(self._local, self.columns, drawn)
        if self.party != self.columns.class_holder:
            return (yield from roles.train_attribute_holder(run, self.columns, self._table.blocks(), coins, tables))
        counts = class_counts_of(self._local)
        return (yield from roles.train_class_holder(run, self.columns, counts, self._table.labels, coins, tables))

    def share(self, trained: Trained, study: str) -> ModelShare:
        """What this party keeps."""
        public = replace(self.columns, training=trained.training).to_dict()
        return ModelShare(
            study, self.party, public, trained.tables, trained.sums, self._local, self._queries, kept_commitments(trained)
        )


def training(study: Study, columns: ColumnsSetup, party: str, source: ColumnSource) -> ColumnTraining:
    """A party's part of training, its table checked against what is agreed."""
    require_held(columns, party, source)
    if (party in columns.labelled) and not source.labelled:
        raise DataError(f"{party}: the table lacks the class column {columns.codebook.target!r}")
    if source.rows != columns.rows:
        raise DataError(f"{party}: the table has another number of rows than the study, which says {columns.rows}")
    if columns.rows < study.min_rows:
        raise PrivacyError(f"the study asks for at least {study.min_rows} rows per party")
    source = counted(study, columns, source)
    return ColumnTraining(columns, party, source, study.options.get("queries"), noise_of(study, columns))


def columns_for(study: Study, rows: int, owners: Mapping[str, tuple[str, ...]], labelled: tuple[str, ...]) -> ColumnsSetup:
    """What is public about a study whose rows line up: noise and least cells included."""
    agreed = guarded(study, ColumnsSetup(study.codebook, rows, owners, labelled, study.alpha))
    return replace(agreed, audit_rate=float(study.options.get("audit_rate", 0.0)))


# -- prediction ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Transfers:
    """What a party keeps of the setup of transfers."""

    ot_senders: dict[str, OtSender] = field(default_factory=dict, repr=False)
    ot_receiver: OtReceiver | None = field(default=None, repr=False)
    mesh: Mesh | None = field(default=None, repr=False)

    @classmethod
    def of(cls, trained: Trained) -> Transfers:
        """Those of training."""
        return cls(dict(trained.ot_senders), trained.ot_receiver)


class ColumnScoring:
    """One party's part of a joint classification. See `part.Scoring`."""

    def __init__(
        self, share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", compare_all: bool = False
    ) -> None:
        self.share, self.party, self.columns = share, share.party, columns_of(share.public)
        self._reveal_to, self._compare_all = reveal_to, compare_all
        self.kept: Transfers | None = None  # transfers from before; None: the role sets them up
        if isinstance(source, int):
            if self.columns.owners[self.party]:
                raise ConfigError(f"{self.party} holds columns: it brings rows, not only their number")
            self._table, self.count = None, source
        else:
            require_held(self.columns, self.party, source)
            self._table, self.count = CheckedTable(source, training=False, size=_BATCH), source.rows
        if self.count < 1:
            raise DataError("a batch has at least one instance")

    def digest(self, key: bytes) -> bytes:
        """Keyed digest of the coded instances."""
        return bytes(32) if self._table is None else self._table.digest(key)

    def role(self, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        """Batch after batch, on transfers that are set up first."""
        kept = self.kept
        if kept is None:
            kept = yield from self.connect(run, coins.derive("transfers"))
        learned: list[npt.NDArray[np.int64]] = []
        for at, block in enumerate(self._batches()):
            found = yield from self._batch(run, block, kept, coins.derive(f"batch {at}"))
            if found is not None:
                learned.append(found)
        return np.concatenate(learned) if learned else None

    def connect(self, run: Run, coins: Coins) -> Role[Transfers]:
        """Agree on what is public about this classification, then set up the transfers."""
        holder, kept = self.columns.class_holder, Transfers()
        facts = json.dumps([self.columns.to_dict(), self.count, self._reveal_to, self._compare_all], sort_keys=True).encode()
        others = self.columns.holders if self.party == holder else (holder,)
        for name in others:
            yield from transfer.agree(run, name, "classification", facts, coins)
        for name in others:
            if self.party == holder:
                kept.ot_senders[name] = yield from transfer.ot_sender(run, name, coins)
            else:
                kept.ot_receiver = yield from transfer.ot_receiver(run, name, coins)
        if self._compare_all:
            kept.mesh = yield from shared_argmax.connect(run, coins)
        return kept

    def _batches(self) -> Iterator[CodedRows]:
        if self._table is not None:
            yield from self._table.blocks()
            return
        for low in range(0, self.count, _BATCH):
            yield CodedRows(None, {}, min(_BATCH, self.count - low))

    def _batch(self, run: Run, block: CodedRows, kept: Transfers, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        query = self.columns.query(block.rows, self._reveal_to, compare_all=self._compare_all)
        local, tables = self._local_scores(block), self.share.tables
        if local is not None and self.party == self.columns.class_holder:
            mine = commitments_of(self.share)
            return (yield from roles.predict_class_holder(run, query, local, tables, kept.ot_senders, coins, kept.mesh, mine))
        if kept.ot_receiver is None:
            raise LocalProtocolError("an attribute holder has planted its transfers")
        own, committed = tables.get(self.columns.class_holder, {}), commitments_of(self.share).get(self.columns.class_holder)
        return (
            yield from roles.predict_attribute_holder(
                run, query, local, own, block.columns, kept.ot_receiver, coins, kept.mesh, committed
            )
        )

    def _local_scores(self, block: CodedRows) -> npt.NDArray[np.float64] | None:
        """What a party that knows the class of its rows computes alone."""
        columns, party = self.columns, self.party
        if party not in columns.labelled:
            return None
        scores = np.zeros((block.rows, len(columns.codebook.classes)))
        if party == columns.class_holder:
            scores += roles.prior(class_counts_of(self.share.local), columns.plan)
        if columns.owners[party]:
            parameters = local_parameters(columns, party, self.share.local or {})
            for name, term in parameters.terms.items():
                scores += parameters.score(name, term, block.columns[name])
        return scores


def scoring(share: ModelShare, source: ColumnSource | int, reveal_to: str = "all", compare_all: bool = False) -> ColumnScoring:
    """A party's part of a classification, from its share alone; a party without columns brings the number of instances."""
    return ColumnScoring(share, source, reveal_to, compare_all=compare_all)


@well_formed("the share file")
def columns_of(public: Mapping[str, Any]) -> ColumnsSetup:
    """What is public about a study, from a share file."""
    book = Codebook.from_dict(read_json_table(public["codebook"], "the codebook of a share"))
    owners = {party: tuple(names) for party, names in public["owners"].items()}
    guard = Guard.from_dict(public["guard"]) if "guard" in public else NO_GUARD
    return ColumnsSetup(
        book,
        public["rows"],
        owners,
        tuple(public["labelled"]),
        public["alpha"],
        public["training"],
        guard,
        float(public.get("audit_rate", 0.0)),
    )


def class_counts_of(local: Mapping[str, Any] | None) -> npt.NDArray[np.int64]:
    """The class counts that the class holder keeps with its share."""
    if local is None:
        raise LocalProtocolError("the class holder knows the class counts")
    return np.array(local["class_counts"], dtype=np.int64)


# -- what a party computes alone, and in words -----------------------------------------------------------------------------


def _sub_codebook(columns: ColumnsSetup, party: str) -> Codebook:
    return columns.codebook.with_features(columns.features(party))


def count_local(columns: ColumnsSetup, party: str, source: ColumnSource | CheckedTable) -> dict[str, Any]:
    """Statistics of a party's own columns, which it computes alone because it knows the class."""
    classes = len(columns.codebook.classes)
    counts = np.zeros(classes, dtype=np.int64)
    total: Statistics | None = None
    layout = Layout(_sub_codebook(columns, party)) if columns.owners[party] else None
    for block in source.blocks():
        if block.labels is None:
            raise LocalProtocolError("a labelled party has the class column")
        counts += np.bincount(block.labels, minlength=classes)
        if layout is not None:
            part = count_block(layout, block)
            total = part if total is None else total + part
    named = total.by_name() if total is not None else {}
    return {"class_counts": [int(value) for value in counts], "statistics": named}


def local_parameters(columns: ColumnsSetup, party: str, local: Mapping[str, Any]) -> Parameters:
    statistics = Statistics.from_names(_sub_codebook(columns, party), local["statistics"])
    return estimate(statistics, alpha=columns.alpha)


def whole_block(source: ColumnSource) -> CodedRows:
    blocks = list(source.blocks(training=False))
    if not blocks:
        return CodedRows(None, {feature.name: np.zeros(0, dtype=np.int64) for feature in source.features}, 0)
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return CodedRows(None, columns, sum(block.rows for block in blocks))


def training_statement(study: Study, columns: ColumnsSetup, sha256: str) -> str:
    """What training promises, in words; `sha256` is the hash that the parties agreed on."""
    plan, queries, compare_all = columns.plan, study.options.get("queries"), study.options.get("compare_all", False)
    shared = [name for name in columns.holders if columns.shared(name)]
    asked = columns.audit_rate > 0 and not columns.guard.noise_bits and bool(shared)
    plain = "plain classification by the guarded counts" if columns.guard.acts else "pooled classification"
    lines = [
        f"Study {sha256}",
        f"Codebook {study.codebook.sha256}",
        f"Protocols class_sums, shared_model, shared_argmax. Class holder: {columns.class_holder}. "
        f"Shared with it: {', '.join(shared) or 'nobody (all parties know the class)'}.",
        ("Training opened audited_classes, see below." if asked else "Training opened nothing.")
        + " The model exists only as shares, one per party; a share alone is uniform.",
        f"A classification opens the class, to {study.reveal_to}. "
        + (f"At most {queries} instances may be classified." if queries else "The number of queries is not limited.")
        + " Repeated queries let the model be read off; limit them.",
        *describe_guard(study, columns),
        *describe_audits(columns, compare_all=bool(compare_all)),
        f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of {plain} wherever "
        f"the two best scores differ by more than {plan.tie_bound:.3g}.",
        "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, computational. "
        "A party that deviates cannot read the other's rows, since transfers and the training circuit are checked; it can "
        "spoil the result; what else it can bend stands in the threat model. The number of rows and of instances is public.",
    ]
    if compare_all:
        lines.append("All parties compare the scores together: no coalition short of all but one learns more than the class.")
    elif len(columns.holders) > 1:
        lines.append(
            f"With more than one attribute holder, {columns.class_holder} and {columns.holders[0]} together can see what "
            "another holder's attributes add to the scores of an instance."
        )
    return "\n\n".join(lines)


# -- the scheme --------------------------------------------------------------------------------------------------------------


class TrainingJob:
    """See `job.Job`: training ends in a share, which this site keeps."""

    kind = "training"

    def __init__(self, agreement: Agreement, site: Site, run_id: str) -> None:
        self.agreement, self.site, self.run_id = agreement, site, run_id
        self.part: Training | None = None
        self._digest = b""

    @property
    def scheme(self) -> ShareScheme:
        """The study's."""
        found: Any = self.agreement.study.scheme
        return cast(ShareScheme, found)

    @property
    def required(self) -> int:
        """Everybody."""
        return len(self.agreement.seats)

    def read(self) -> None:
        """Open this site's columns and look that they are what the study says."""
        source = self.site.columns(self.agreement)
        self.site.require_rows(self.agreement, source.rows)
        self.site.require_price(self.scheme.price(self.agreement, self.site.name))
        self.part = self.scheme.training(self.agreement, self.site.name, source)
        self._digest = self.part.digest(self.site.key)

    def digest(self, seat: str) -> bytes:
        """Of the coded rows."""
        return self._digest

    def _part(self) -> Training:
        if self.part is None:
            raise LocalProtocolError("the rows were not read")
        return self.part

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """This party's role."""
        return self._part().role(run, coins)

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, bits about the overlap, ledger; once per run."""
        name = self.site.name
        partners, charge = self.scheme.told_bit(self.agreement, name), self.scheme.price(self.agreement, name)
        self.site.authorise_and_charge(self.agreement, self.run_id, charge, overlap_with=partners)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """The share."""
        self.site.keep_share(self.run_id, self._part().share(outputs[self.site.name], self.agreement.sha256))

    def result(self, outcome: Any) -> Any:
        """The report of training."""
        return self.scheme.result(self.agreement, outcome, run=self.run_id)


class ShareScheme(ABC):
    """What the schemes have in common that end in shares of a model. See `study.schemes.Scheme`."""

    name: str
    facts: Facts
    params: type[msgspec.Struct]
    protocols: tuple[str, ...]  # of training, for its leak report

    def check(self, study: Study) -> None:
        """Noise goes into the shares."""
        require_record(study)
        require_audit(study)

    def quorum(self, parties: int) -> int | None:
        """Everybody."""
        return None

    def apart(self) -> tuple[tuple[str, ...], ...]:
        """Every role is a party's own."""
        return ()

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        """The parties."""
        return agreement.names

    def require_runnable(self, agreement: Agreement) -> None:
        """What is agreed can run."""
        agreement.public  # noqa: B018 - refused there

    def learners(self, agreement: Agreement) -> tuple[str, ...]:
        """All: each keeps a share."""
        return agreement.names

    def job(self, agreement: Agreement, site: Site, run_id: str) -> TrainingJob:
        """Training."""
        return TrainingJob(agreement, site, run_id)

    @abstractmethod
    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> Training:
        """A party's part, its table checked against what is agreed."""

    @abstractmethod
    def columns(self, agreement: Agreement) -> ColumnsSetup:
        """Who holds what, as the protocols see it."""

    def price(self, agreement: Agreement, party: str) -> Charge | None:
        """What a party pays for training: the noise in the shares, if there is any. Answers cost nothing more."""
        noise = noise_of(agreement.study, agreement.public)
        return None if noise is None else Charge(Spend.of(noise), UNIT, mechanism=noise.name)

    def told_bit(self, agreement: Agreement, party: str) -> tuple[str, ...]:
        """The parties with whom training opens one bit: that enough identifiers joined."""
        return ()

    @abstractmethod
    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        """What training promises, in words."""

    def follows(self, agreement: Agreement) -> tuple[str, ...]:
        """What each way of classifying will tell, beyond what follows from shares."""
        return ()

    def result(
        self, agreement: Agreement, outcome: Outcome, *, run: str = "", model: Any = None, **_: Any
    ) -> JointResult | Learned:
        """The reports; the model too where all shares are in one place."""
        overlaps = next((found for found in map(overlaps_of, self._holder_first(agreement, outcome)) if found), {})
        parties, about = len(agreement.names), about_run(agreement, run)
        report = column_report(self.protocols, outcome, parties, about, self.follows(agreement))
        leakage, statement = leakage_of(outcome), self.statement(agreement, overlaps)
        if model is None:
            return Learned(leakage, outcome.cost, statement, report, {"included": list(agreement.names)})
        return JointResult(model, leakage, outcome.cost, statement, agreement.names, report, overlaps)

    def _holder_first(self, agreement: Agreement, outcome: Outcome) -> list[Any]:
        holder = self.columns(agreement).class_holder
        return [outcome.outputs[name] for name in (holder, *agreement.names) if name in outcome.outputs]

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Nothing but classifications, whose number is limited."""
        study = agreement.study
        return Exposure(
            shares=True,
            queries=study.options.get("queries"),
            epsilon=study.epsilon or 0.0,
            delta=study.delta,
            audit_rate=float(study.options.get("audit_rate", 0.0)),
        )

    def opened(self, agreement: Agreement) -> list[str]:
        """What training opens, in words."""
        return ["nothing"]

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        """For `study check`."""
        held, study = agreement.holdings, agreement.study
        return {
            "partition": "columns, " + ("rows line up" if self.facts.aligned else "rows are matched by an identifier"),
            "holds": [f"{name}: {', '.join(held.holds[name]) or 'the class alone'}" for name in agreement.names],
            "class_holder": held.labelled[0],
            "labelled": list(held.labelled),
            **self.guards(agreement),
            **self.sizes(agreement),
            "opened": self.opened(agreement),
            "model": "exists only as shares, one per party",
            "opened_per_classified_instance": ["class"],
            "learners": list(agreement.names) if study.reveal_to == "all" else [study.reveal_to],
            "queries": study.options.get("queries", "not limited: sites refuse such a study by policy"),
        }

    def guards(self, agreement: Agreement) -> dict[str, Any]:
        """Noise and least cells."""
        study = agreement.study
        facts: dict[str, Any] = {}
        if study.epsilon is not None:
            facts |= {"epsilon": study.epsilon, "delta": study.delta, "noise": "of every party, in the shares"}
        return facts | ({"min_cell": study.min_cell} if study.min_cell else {})

    def sizes(self, agreement: Agreement) -> dict[str, Any]:
        """What is public about the tables' sizes."""
        return {"rows": agreement.holdings.n_rows}

    def told(self, agreement: Agreement) -> list[str]:
        """For the wizard."""
        study = agreement.study
        to = "every site" if study.reveal_to == "all" else study.reveal_to
        return [
            *tell_holdings(agreement),
            f"  Opened in training: {'; '.join(self.opened(agreement))}. Each site ends with a share of the model.",
            f"  Opened in scoring: the class, to {to}; at most {study.options['queries']} people.",
        ]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        """What the site would read, and that its rows fit."""
        said = self.shown(agreement)
        lines = [
            f"Opened in training: {'; '.join(said['opened'])}. The model {said['model']}.",
            f"Opened per classified instance, which your own people must ask for: the class, to {', '.join(said['learners'])}.",
        ]
        return dry_run_columns(agreement, site, lines)


def overlaps_of(trained: Any) -> Mapping[str, int]:
    """Noisy numbers of joined identifiers that training opened to a party, if it did."""
    found: Mapping[str, int] = getattr(trained, "overlaps", {})
    return found


class AlignedScheme(ShareScheme):
    """class_sums: row i of every party is the same entity."""

    name = "class_sums"
    params = ClassSumsParams
    protocols = ("transfer", "class_sums", "shared_model")
    facts = Facts(
        partitions=("columns",),
        line="shares of all sums by oblivious transfer. Nobody gets the model; a classification opens the class.",
        shares=True,
        small_cells=True,
        leaves=(
            "the class holder sends transfer choices that hide the class of each row",
            "an attribute holder sends its rows under pads of which the class holder can take off one per row, and not tell "
            "which",
            "garbled circuits and masked shares turn sums into shares of scores",
        ),
    )

    def agree(self, agreement: Agreement) -> ColumnsSetup:
        """Who holds what of how many rows."""
        held, study = agreement.holdings, agreement.study
        if held.n_rows is None:
            raise ConfigError("how many rows do the tables have? All parties know it: [columns] rows = ...")
        if not 1 <= held.n_rows <= agreement.book.max_rows:
            raise ConfigError(f"[columns] rows lies between 1 and the codebook's max_rows = {agreement.book.max_rows}")
        require_learner(study.reveal_to, agreement.names)
        agreed = columns_for(study, held.n_rows, agreement.owners, held.labelled)
        agreed.plan  # noqa: B018 - whether scores fit, and have a least variance, is known now
        return agreed

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        """Tables that line up."""
        held = line_up({name: site.table(study) for name, site in sites.items()})
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), held=held)

    def columns(self, agreement: Agreement) -> ColumnsSetup:
        """The public facts themselves."""
        found: ColumnsSetup = agreement.public
        return found

    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> Training:
        """See `training`."""
        return training(agreement.study, self.columns(agreement), party, source)

    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        """See `training_statement`."""
        return training_statement(agreement.study, self.columns(agreement), agreement.sha256)


SCHEME = AlignedScheme()


def scheme(name: str) -> AlignedScheme:
    """The scheme of class_sums."""
    return SCHEME
