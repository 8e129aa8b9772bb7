"""What a private fit does: one joint release, planned before any data is read.

release = plan_fit(codebook, epsilon=1.0, delta=0.0, rows=None, rows_per_person=1)      # price and reasons; no data is read
statistics = count(source, release.codebook)
parameters, noisy, record = release.release(statistics, alpha, coins)  # the caller has charged `release.price`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.dp.noise.exact_events import Number
from blindbayes.dp.noise.mechanisms import Price
from blindbayes.dp.release.intervals import record_of
from blindbayes.dp.release.release_plan import require_small_delta
from blindbayes.dp.release.staged import StagedPlan, plan_stages
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Parameters

Rows: TypeAlias = CodedRows | Callable[[], CodedRows] | None
Fitted: TypeAlias = tuple[Parameters, Statistics | None, dict[str, Any]]
ALONE = "No ledger was kept: the promise is about this release alone, and adds up with any other from the same table."


def plan_fit(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float,
    rows: int | None,
    rows_per_person: int,
    chooses: bool = False,
    most_read: int | None = None,
) -> PrivateFit:
    """Plan the release from public facts.

    `chooses` says that rows will be handed over for a last choice (`privacy.stages`), if there are at most `most_read`.
    """
    require_small_delta(codebook, delta, rows)
    return PrivateFit(
        plan_stages(
            codebook,
            epsilon=epsilon,
            delta=delta,
            rows=rows,
            rows_per_unit=rows_per_person,
            chooses=chooses,
            most_read=most_read,
        )
    )


@dataclass(frozen=True)
class PrivateFit:
    """A planned joint release of all statistics. A ledger charges `name` and `price`."""

    plan: StagedPlan

    @property
    def name(self) -> str:
        """The mechanism that the plan chose."""
        return self.plan.mechanism

    @property
    def price(self) -> Price:
        """What the release costs."""
        return self.plan.price

    @property
    def codebook(self) -> Codebook:
        """The codebook to count or code rows with."""
        return self.plan.codebook

    @property
    def sampler(self) -> str:
        """How the noise is drawn."""
        return str(self.plan.describe()["sampler"])

    def facts(self) -> dict[str, Any]:
        """Public facts for the model file."""
        return self.plan.describe()

    @property
    def chooses(self) -> bool:
        """Where rows are enough, or their number is not known yet."""
        return self.plan.chooses and (self.plan.rows is None or self.plan.choice(self.plan.rows) is not None)

    def release(self, exact: Statistics, alpha: float, coins: Coins, rows: Rows = None) -> Fitted:
        """Draw the noise, once; return the model that follows from it, the noisy statistics, and the record for intervals.

        `rows`, those of the statistics or what reads them, are for a last choice.
        """
        parameters, noisy = self.plan.fit(exact, rows, coins, alpha)
        last = noisy.plan.describe()
        told = {key: last[key] for key in ("features", "groups", "reasons", "sampler")}  # as it turned out
        told["stages"] = {name: float(epsilon) for name, epsilon in noisy.plan.stages}
        return parameters, noisy.statistics, {**record_of(noisy), "facts": told}

    def statement(
        self, composition: str | None = None, tuning: str | None = None, bounded: bool | None = None
    ) -> PrivacyStatement:
        """The promise; `composition` says what the ledger holds besides, `tuning` how settings were chosen, `bounded` whether
        the rows of a person were (None: the unit is a record)."""
        sensitivity = (
            f"{self.plan.unit} touches one class count, in a first look at the numbers (where one is taken) one cell of each, "
            "and in each released table one cell of one class; in every stage noise is calibrated to all of them moving at "
            "once; features, how far the model is believed, and rules that mend it or take its place, are chosen (where they "
            "are) by scores that a record moves by at most one; a gradient by which features are weighed (where they are) has "
            "one number per feature and class, each moved at most by its bound; and the epsilons of the stages add up to the "
            "price"
        )
        return PrivacyStatement.of(
            self,
            sensitivity=sensitivity,
            codebook=self.plan.declared.sha256,
            data_domain=data_domain(self.plan.declared) + persons_domain(self.plan.rows_per_unit, bounded),
            composition=composition or ALONE,
            tuning=tuning,
        )


def data_domain(codebook: Codebook) -> str:
    """Which tables the promise is about, in words."""
    numeric = sum(isinstance(feature, Numeric) for feature in codebook.features)
    return (
        f"Tables with a class column of {len(codebook.classes)} labels, {len(codebook.features) - numeric} categorical and "
        f"{numeric} numeric features, within the domains that the codebook declares, each column of one type that was not read "
        f"off its rows, of at most {codebook.max_rows} rows"
    )


def persons_domain(most: int, bounded: bool | None) -> str:
    """What is known of the rows of a person, in words."""
    if bounded is None:
        return ""
    if bounded:
        return (
            f". Of each person, by the codebook's identifier, at most {most} row(s) count, drawn at random, and no row "
            "without an identifier"
        )
    return f". That no person has more than {most} row(s) was declared, not checked"
