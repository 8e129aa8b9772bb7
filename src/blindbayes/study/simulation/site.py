"""A site in memory: its table, and if it has them a ledger, a policy and a log of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.data.columns import ColumnSource, open_columns
from blindbayes.data.persons import PersonRows, read_persons
from blindbayes.data.split import Reading
from blindbayes.data.table import evaluate_table
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.checks import require_answers
from blindbayes.disclosure.policy import Policy, require_cost, require_matches_revealed, require_rows, require_totals
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import LocalProtocolError
from blindbayes.naive_bayes.shares import KeptShare
from blindbayes.statistics import Statistics
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.parameters import Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.columns import keys_of, require_own
from blindbayes.study.tasks.prediction import Request
from blindbayes.study.tasks.result import PreviousTotal
from blindbayes.study.tasks.task import BatchColumns, Computation, State, Vector

OPEN = Policy(
    min_rows=0,
    exact_sums=True,
    max_epsilon_per_run=float("inf"),
    max_delta_per_run=1.0,
    reveal_matches=True,
    site_figures="each",
)
"""The policy of a site that allows what the study says."""
_KEY = Coins.fresh_seed()  # a site in memory lasts as long as the process


def key_of(coins: Coins) -> bytes:
    """Return the standing key of sites: the process's, or with seeded coins their own, to repeat a simulation."""
    return coins.derive("sites in memory").bytes(32) if coins.is_seeded else _KEY


def _counted(source: Any, reading: Reading) -> Statistics:
    return count_table(source, reading.codebook, lenient=reading.lenient, bound=reading.bound, split=reading.split)


@dataclass
class MemorySite:
    """A `Site` and an `AnsweringSite` in memory, without records of earlier runs."""

    name: str
    source: Any = field(default=None, repr=False)
    taken_back: Any = field(default=None, repr=False)
    ledger: str | os.PathLike[str] | None = None
    policy: Policy = OPEN
    previous: PreviousTotal | None = field(default=None, repr=False)  # the total that the run adds to
    log: list[dict[str, Any]] = field(default_factory=list)
    share: KeptShare | None = field(default=None, repr=False)
    key: bytes = field(default_factory=lambda: _KEY, repr=False)  # of digests and of labels' coins, in all runs
    _table: ColumnSource | None = field(default=None, repr=False)

    @property
    def split_key(self) -> bytes:
        """The key of held-out rows: no secret, so that another process evaluates a model on rows that did not train it."""
        return hashlib.sha256(f"held-out rows of a site in memory\n{self.name}".encode()).digest()

    def count(self, reading: Reading) -> Statistics:
        return _counted(self.source, reading)

    def persons(self, reading: Reading) -> PersonRows:
        return read_persons(self.source, reading)

    def evaluate(self, reading: Reading, models: Sequence[Parameters], bins: int) -> list[Evaluation]:
        return evaluate_table(self.source, reading, models, bins)

    def removed(self, reading: Reading) -> Statistics | None:
        return None if self.taken_back is None else _counted(self.taken_back, reading)

    def previous_total(self, codebook: Codebook) -> tuple[PreviousTotal | None, bool]:
        return self.previous, False

    def keep_total(self, result: PreviousTotal) -> None:
        """Store nothing: the caller of `simulate` has the result."""

    def table(self, study: Study) -> ColumnSource:
        if self._table is None:
            self._table = open_columns(self.source, study.codebook, ignore=keys_of(study))
        return self._table

    def columns(self, agreement: Agreement) -> ColumnSource:
        table = self.table(agreement.study)
        labels = (agreement.book.target,) if table.labelled else ()
        require_own(agreement, self.name, (*(feature.name for feature in table.features), *labels, *keys_of(agreement.study)))
        return table

    def require_rows(self, agreement: Agreement, rows: int) -> None:
        require_rows(self.policy, agreement.study.limits.min_rows, rows)

    def require_cost(self, charge: Charge | None) -> None:
        require_cost(self.policy, None if charge is None else charge.spend)

    def state(self, counted: Vector) -> State:
        return State(hashlib.sha256(counted.words.tobytes()).hexdigest())

    def authorise_and_charge(self, asked: Computation) -> None:
        """Pay and log. There is no past, so there is nothing to compare with."""
        agreement, run_id = asked.agreement, asked.run_id
        require_answers(agreement.study.options.get("queries"), asked.answers)
        if asked.charge is not None and self.ledger is not None:
            purpose = f"study {(agreement.title or agreement.study.protocol)[:80]}"
            asked.charge.pay(Ledger(self.ledger), purpose, run=run_id, study=agreement.sha256)
        self.log.append({"event": "computing", "run": run_id, "study": agreement.sha256, "exact": asked.exact})

    def opened(self, agreement: Agreement, run_id: str, included: Sequence[str]) -> None:
        self.log.append({"event": "opened", "run": run_id, "study": agreement.sha256, "included": included})

    def keep_share(self, run_id: str, share: KeptShare) -> None:
        self.share = share

    def share_of(self, model: str) -> KeptShare:
        if self.share is None:
            raise LocalProtocolError("training leaves a share at every site", party=self.name)
        return self.share

    def instances(self, request: Request, columns: BatchColumns) -> ColumnSource | int:
        instances: ColumnSource | int = self.source
        return instances

    def beside(self, names: Sequence[str], rows: int) -> dict[str, Any]:
        return {}

    def require_matches_revealed(self) -> None:
        require_matches_revealed(self.policy)

    def require_queries(self, share: KeptShare, run_id: str, count: int) -> None:
        share.require_budget(count, run_id)

    def require_totals(self, model: str, run_id: str, rows: int, labelled: str) -> None:
        require_totals(self.policy, rows, again=False)

    def charge_queries(self, study: str, model: str, run_id: str, count: int, labelled: str = "") -> None:
        self.share_of(model).charge(count, run_id)
        self.log.append({"event": "classifying", "run": run_id, "study": study, "model": model, "instances": count})

    def close(self) -> None:
        """Close nothing: the sources are the caller's."""
