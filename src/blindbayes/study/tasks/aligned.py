"""The task of studies over columns whose rows line up: training by class_sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.value import Leaving
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup, Trained
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.audits import ScoringParams, asks_references, describe_audits
from blindbayes.study.tasks.checked_table import CheckedTable
from blindbayes.study.tasks.columns import (
    class_counts_of,
    count_local,
    describe_coalitions,
    describe_queries,
    line_up,
    require_held,
    require_learner,
)
from blindbayes.study.tasks.guards import counted, describe_guard, guard_local, guarded, noise_of
from blindbayes.study.tasks.labels import require_randomised
from blindbayes.study.tasks.public import public_of
from blindbayes.study.tasks.shared import ShareTask
from blindbayes.study.tasks.task import LocalSite
from blindbayes.study.tasks.traits import Support


class ClassSumsParams(ScoringParams, frozen=True, forbid_unknown_fields=True):
    """Options of class_sums."""


def columns_for(study: Study, rows: int, owners: Mapping[str, tuple[str, ...]], labelled: tuple[str, ...]) -> ColumnsSetup:
    """Return what is public about a study whose rows line up, noise and minimum cells included."""
    agreed = guarded(study, ColumnsSetup(study.codebook, rows, owners, labelled, study.estimation.alpha))
    rate = float(study.options.get("audit_rate", 0.0))
    return replace(agreed, audit_rate=rate, weights=study.weights)


class AlignedTask(ShareTask[Trained]):
    """Training by class_sums: row i of every party is the same entity."""

    name = "class_sums"
    description = "shares of all sums by oblivious transfer. Nobody gets the model; a classification opens the class."
    params = ClassSumsParams
    protocols = ("transfer", "class_sums", "shared_model")
    supports = frozenset({Support.WORDS, Support.MIN_CELL, Support.LABEL_EPSILON, Support.CLASS_WEIGHT})
    leaving = Leaving.ENCRYPTED
    messages = (
        "the class holder sends transfer choices that hide the class of each row",
        "an attribute holder sends its rows under pads of which the class holder can take off one per row, and not tell which",
        "garbled circuits and masked shares turn sums into shares of scores",
    )
    setup: ColumnsSetup

    @classmethod
    def agree_locally(cls, study: Study, sites: Mapping[str, LocalSite]) -> Agreement:
        holdings = line_up({name: site.table(study) for name, site in sites.items()})
        return Agreement(study, study.sha256, tuple(sites), tuple(sites), columns=holdings)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.setup = self._agree()
        self.setup.plan  # noqa: B018 - raises unless scores fit and have a minimum variance
        self._party = ""
        self._table: CheckedTable | None = None
        self._local: dict[str, Any] | None = None  # statistics of the party's own columns, if it knows the class

    def _agree(self) -> ColumnsSetup:
        agreement, holdings, study = self.agreement, self.agreement.holdings, self.study
        if holdings.n_rows is None:
            raise ConfigError("how many rows do the tables have? All parties know it: [columns] n_rows = ...")
        if not 1 <= holdings.n_rows <= agreement.book.max_rows:
            raise ConfigError(f"[columns] n_rows lies between 1 and the codebook's max_rows = {agreement.book.max_rows}")
        require_learner(learner_of(study), agreement.names)
        return columns_for(study, holdings.n_rows, agreement.owners, holdings.labelled)

    def max_bytes(self) -> int | None:
        return link_bytes.training(self.setup)

    def bring(self, party: str, source: ColumnSource) -> None:
        columns, study = self.setup, self.study
        require_held(columns, party, source)
        if (party in columns.labelled) and not source.labelled:
            raise DataError(f"{party}: the table lacks the class column {columns.codebook.target!r}")
        if source.rows != columns.rows:
            raise DataError(f"{party}: the table has another number of rows than the study, which says {columns.rows}")
        if columns.rows < study.limits.min_rows:
            raise PrivacyError(f"the study asks for at least {study.limits.min_rows} rows per party")
        if party == columns.class_holder:
            require_randomised(study, source)
        self._party, self._table = party, CheckedTable(counted(study, columns, source), training=True)

    def input_digest(self, key: bytes) -> bytes:
        return self._read_table().digest(key)

    def _read_table(self) -> CheckedTable:
        if self._table is None:
            raise LocalProtocolError("the rows were not read")
        return self._table

    def role(self, name: str, run: Run, coins: Coins) -> Role[Trained]:
        columns, table, noise = self.setup, self._read_table(), noise_of(self.study, self.setup)
        own_noise = None if noise is None else noise.draw(self._party, coins.derive("noise in the shares"))
        tables = None if own_noise is None else own_noise.tables
        if self._party in columns.labelled:
            self._local = count_local(columns, self._party, table)
            if columns.guard.acts:
                self._local = guard_local(self._local, columns, own_noise)
        if self._party != columns.class_holder:
            return (yield from roles.train_attribute_holder(run, columns, table.blocks(), coins, tables))
        counts = class_counts_of(self._local)
        return (yield from roles.train_class_holder(run, columns, counts, table.labels, coins, tables))

    def share(self, trained: Trained) -> ModelShare:
        public, queries = public_of(replace(self.setup, training=trained.training)), self.study.options.get("queries")
        sha256 = self.agreement.sha256
        return ModelShare(sha256, self._party, public, trained.tables, trained.sums, self._local, queries, trained.references)

    # -- for people ----------------------------------------------------------------------------------------------------

    def security(self) -> tuple[str, str]:
        return (
            "Security: parties that follow the protocol and look at what they received (semi-honest), no dealer, "
            "computational.",
            "A party that deviates cannot read the other's rows, since transfers and the training circuit are checked; it can "
            "spoil the result; what else it can bend stands in the threat model.",
        )

    def statement(self, overlaps: Mapping[str, int]) -> str:
        study, columns, plan = self.study, self.setup, self.setup.plan
        compare_all = bool(study.options.get("compare_all", False))
        shared = [name for name in columns.holders if columns.shared(name)]
        plain = "plain classification by the guarded counts" if columns.guard.acts else "pooled classification"
        lines = [
            f"Study {self.agreement.sha256}",
            f"Codebook {study.codebook.sha256}",
            f"Protocols class_sums, shared_model, shared_argmax. Class holder: {columns.class_holder}. "
            f"Shared with it: {', '.join(shared) or 'nobody (all parties know the class)'}.",
            ("Training opened audited_classes, see below." if asks_references(columns) else "Training opened nothing.")
            + " The model exists only as shares, one per party; a share alone is uniform.",
            f"A classification opens the class, to {learner_of(study)}. " + describe_queries(study.options.get("queries")),
            *describe_guard(study, columns),
            *describe_audits(columns, compare_all=compare_all),
            f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of {plain} wherever "
            f"the two best scores differ by more than {plan.tie_bound:.3g}.",
            " ".join((*self.security(), "The number of rows and of instances is public.")),
        ]
        if compare_all or len(columns.holders) > 1:
            lines.append(describe_coalitions(columns, compare_all=compare_all))
        return "\n\n".join(lines)


TASK = AlignedTask
