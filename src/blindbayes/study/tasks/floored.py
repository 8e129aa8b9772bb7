"""The task of an exact sum over rows with `min_cell`: cells below the floor stay suppressed, and training imputes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, cast

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.value import Disclosure, Output, RowSum, Withstood
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.floored_sum.roles import LABEL, FlooredSetup, FlooredTotal, role
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.secure_sum.keys import SERVER
from blindbayes.statistics import Layout
from blindbayes.statistics.floor import FlooredTable, impute, require_floor
from blindbayes.statistics.parameters import estimate
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import ContributorResult, Result, about_run, csv_of, leakage_of, report_run, texts
from blindbayes.study.tasks.sums import SumTask, weighed

if TYPE_CHECKING:
    from blindbayes.naive_bayes import load as estimators
    from blindbayes.naive_bayes.base import BaseNaiveBayes
    from blindbayes.statistics import recomputed
else:
    estimators = lazy("blindbayes.naive_bayes.load")
    recomputed = lazy("blindbayes.statistics.recomputed")  # loads a solver

PROTOCOL = "floored_sum"


@dataclass(frozen=True)
class FlooredResult(Result):
    """The result of an exact sum with a floor: the model, and the table as far as it was opened."""

    table: FlooredTable | None = field(default=None, repr=False)

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return the release, with every cell of the table or the word `suppressed`."""
        if self.table is None:
            raise LocalProtocolError("a floored result has its table")
        lines = self.table.cells
        named = {name: texts([str(line[name]) for line in lines]) for name in lines[0]}
        return {**super().files(deployment), "cells.csv": csv_of(named)}


class FlooredSumTask(SumTask):
    """A sum of which only cells that reach `min_cell` are opened."""

    @classmethod
    def default_quorum(cls, parties: int) -> int | None:
        return None  # every site: the masker and the referee are among them

    @classmethod
    def check(cls, study: Study) -> None:
        if cls.name != "masked_sum":
            raise ConfigError("an exact sum with min_cell runs by masked_sum only; choose it, set epsilon, or min_cell = 0")
        require_floor(Layout(study.codebook), study.limits.min_cell)
        if study.estimation.held_out or study.estimation.folds:
            raise ConfigError("an evaluation opens small cells, of held-out rows or folds: with min_cell leave both out")

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.floored = FlooredSetup.make(
            self.setting, Layout(self.counting), self.study.limits.min_cell, agreement.host(SERVER)
        )

    def max_bytes(self) -> int | None:
        masked = link_bytes.secure_sum(self.name, len(self.setting.contributors), lambda: self.setting.length)
        return None if masked is None else masked + self.floored.max_link_bytes

    def read(self) -> None:
        base, is_missing = self.site.previous_total(self.counting)
        if base is not None or is_missing:
            raise PrivacyError("changes to an earlier total are small cells: a study with min_cell runs without a base")
        super().read()

    def role(self, name: str, run: Run, coins: Coins) -> Role[FlooredTotal]:
        vector = None
        if name == self.site.name and self.statistics is not None:
            vector = self.sum.contribution(self.statistics, coins.derive("contribution"), None, self.site.name)
        return role(run, self.floored, vector, coins.derive("role"))

    def store(self, outputs: Mapping[str, object]) -> None:
        for total in list(outputs.values())[:1]:
            if isinstance(total, FlooredTotal):
                self.site.opened(self.agreement, self.run_id, total.included)

    def result(self, outcome: Outcome) -> Result | ContributorResult:
        totals: list[FlooredTotal] = [each for each in outcome.outputs.values() if each is not None]
        if not totals:
            raise PeerProtocolError("nobody learned the table")
        table, included = totals[0].table, totals[0].included
        if any(each.table.cells != table.cells for each in totals[1:]):
            raise PeerProtocolError("two roles learned different tables")
        if any(each.is_determined for each in recomputed.recompute(table)):
            raise LocalProtocolError("a suppressed cell follows from the opened ones: nothing of this run may be published")
        study, sha256, floor = self.study, self.agreement.sha256, table.floor
        cells = f"{table.suppressed} of {len(table.cells)} cells are suppressed"
        lines = [
            f"Study {sha256}",
            f"Protocol {self.name} with {PROTOCOL}; all {len(included)} contributors are in the sum.",
            f"Opened: the cells of the sum that are 0 or at least {floor}, where no smaller one follows from them; {cells}.",
            f"Codebook {study.codebook.sha256}",
            self._promise(),
        ]
        report = report_run(
            (self.name, PROTOCOL),
            len(included),
            outcome,
            self.disclosure.conclusions,
            about_run(self.agreement, self.run_id),
        )
        facts: dict[str, Json] = {"study": sha256, "protocol": self.name, "opened": LABEL, "min_cell": floor}
        facts["suppressed cells"] = cells
        model = floored_model(study, table)
        leakage, cost, text = leakage_of(outcome), outcome.cost, "\n\n".join(lines)
        return FlooredResult(model, None, leakage, cost, text, included, (0.0, 0.0), report, facts=facts, table=table)

    def _promise(self) -> str:
        server, setup = self.agreement.host(SERVER), self.floored
        return (
            f"Cells of 1 to {setup.floor - 1} rows of the sum over all sites are suppressed, with others from which they would "
            f"follow, before anything is opened. This holds if all parties follow the protocol and no two of {server}, "
            f"{setup.masker} and {setup.referee} collude. There is no noise: this is no differential privacy. A site can "
            "take its own rows off every opened cell, and one that enters rows it does not have can lift others' cells over "
            "the floor."
        )

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        plain, setup = super().disclosure, self.floored
        row_sum = RowSum(plain.row_sum.form, plain.row_sum.quorum_size, setup.floor) if plain.row_sum else None
        output = Output(f"{LABEL}: cells of 0 or at least {setup.floor} rows", plain.learners)
        promise = self._promise()
        return replace(
            plain,
            outputs=(output,),
            row_sum=row_sum,
            deviation=(*plain.deviation, promise),
            conclusions=(promise,),
            withstands=Withstood(1, len(self.agreement.contributors), deviating=False),
        )


@cache
def floored_class(plain: type[SumTask]) -> type[SumTask]:
    """Return the task class of a protocol's sums with a floor."""
    line = "masks that cancel. Every site learns the cells that reach min_cell, and no site may drop out."
    made = type("FlooredSumTask", (FlooredSumTask, plain), {"__module__": __name__, "description": line})
    return cast("type[SumTask]", made)


def floored_model(study: Study, table: FlooredTable) -> BaseNaiveBayes:
    """Return the model of a study from a table with suppressed cells; it holds no statistics, which would show imputed ones."""
    alpha, smoothing = study.estimation.alpha, study.estimation.var_smoothing
    parameters = estimate(impute(table), alpha=alpha, var_smoothing=smoothing)
    settings = ModelSettings(alpha=alpha, var_smoothing=smoothing)
    return weighed(study, estimators.from_record(ModelRecord(parameters, None, "text", settings, None)))
