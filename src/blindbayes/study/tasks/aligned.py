"""One party's part in a study over columns whose rows line up: training, and joint classification.

A part knows its party's table and the public facts (`ColumnsSetup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.dp.distributed.column_noise import ColumnNoise
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.io.untrusted import read_json_table, well_formed
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup, Trained
from blindbayes.protocols.shared_training.shared_model import NO_GUARD, Guard
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.parameters import Parameters, estimate
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.audits import ScoringParams, asks_references, describe_audits, kept_commitments
from blindbayes.study.tasks.columns import describe_coalitions, describe_queries, line_up, require_learner
from blindbayes.study.tasks.guards import counted, describe_guard, guard_local, guarded, noise_of
from blindbayes.study.tasks.labels import require_randomised
from blindbayes.study.tasks.part import CheckedTable, Training
from blindbayes.study.tasks.shared import ShareScheme


class ClassSumsParams(ScoringParams, frozen=True, forbid_unknown_fields=True):
    """Options of class_sums."""


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
        return self._table.rows

    def digest(self, key: bytes) -> bytes:
        return self._table.digest(key)

    def max_bytes(self) -> int:
        """What one party may send another."""
        return link_bytes.training(self.columns)

    def role(self, run: Run, coins: Coins) -> Role[Trained]:
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
    if columns.rows < study.limits.min_rows:
        raise PrivacyError(f"the study asks for at least {study.limits.min_rows} rows per party")
    if party == columns.class_holder:
        require_randomised(study, source)
    source = counted(study, columns, source)
    return ColumnTraining(columns, party, source, study.options.get("queries"), noise_of(study, columns))


def columns_for(study: Study, rows: int, owners: Mapping[str, tuple[str, ...]], labelled: tuple[str, ...]) -> ColumnsSetup:
    """What is public about a study whose rows line up: noise and least cells included."""
    agreed = guarded(study, ColumnsSetup(study.codebook, rows, owners, labelled, study.estimation.alpha))
    rate = float(study.options.get("audit_rate", 0.0))
    return replace(agreed, audit_rate=rate, weights=study.weights)


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
        tuple(map(float, public.get("weights", ()))),
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
    units = columns.guard.units  # that counts are in
    book = msgspec.structs.replace(_sub_codebook(columns, party), max_rows=min(columns.codebook.max_rows * units, 1 << 48))
    statistics = Statistics.from_names(book, local["statistics"])
    return estimate(statistics, alpha=columns.alpha * units)


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
    plain = "plain classification by the guarded counts" if columns.guard.acts else "pooled classification"
    lines = [
        f"Study {sha256}",
        f"Codebook {study.codebook.sha256}",
        f"Protocols class_sums, shared_model, shared_argmax. Class holder: {columns.class_holder}. "
        f"Shared with it: {', '.join(shared) or 'nobody (all parties know the class)'}.",
        ("Training opened audited_classes, see below." if asks_references(columns) else "Training opened nothing.")
        + " The model exists only as shares, one per party; a share alone is uniform.",
        f"A classification opens the class, to {learner_of(study)}. " + describe_queries(queries),
        *describe_guard(study, columns),
        *describe_audits(columns, compare_all=bool(compare_all)),
        f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of {plain} wherever "
        f"the two best scores differ by more than {plan.tie_bound:.3g}.",
        "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, computational. "
        "A party that deviates cannot read the other's rows, since transfers and the training circuit are checked; it can "
        "spoil the result; what else it can bend stands in the threat model. The number of rows and of instances is public.",
    ]
    if compare_all or len(columns.holders) > 1:
        lines.append(describe_coalitions(columns, compare_all=compare_all))
    return "\n\n".join(lines)


# -- the scheme --------------------------------------------------------------------------------------------------------------


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
        randomises=True,
        weighs=True,
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
        require_learner(learner_of(study), agreement.names)
        agreed = columns_for(study, held.n_rows, agreement.owners, held.labelled)
        agreed.plan  # noqa: B018 - whether scores fit, and have a least variance, is known now
        return agreed

    def meet(self, study: Study, sites: Mapping[str, Any]) -> Agreement:
        held = line_up({name: site.table(study) for name, site in sites.items()})
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), held=held)

    def columns(self, agreement: Agreement) -> ColumnsSetup:
        found: ColumnsSetup = agreement.public
        return found

    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> Training:
        return training(agreement.study, self.columns(agreement), party, source)

    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        return training_statement(agreement.study, self.columns(agreement), agreement.sha256)


SCHEME = AlignedScheme()
