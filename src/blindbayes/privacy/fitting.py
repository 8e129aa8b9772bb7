"""What a private fit does, behind one face: a joint release, or one of the two reproductions (`smooth`, `global`).

release = plan_fit(codebook, epsilon=1.0, mechanism="auto")      # price and reasons; no data is read
statistics = count(source, release.codebook)
parameters, noisy, record = release.release(statistics, alpha, coins)  # the caller has charged `release.price`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import ConfigError
from blindbayes.model.parameters import Parameters
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.exact_events import Number
from blindbayes.privacy.intervals import record_of
from blindbayes.privacy.mechanisms import Price
from blindbayes.privacy.released import require_small_delta
from blindbayes.privacy.smooth import ParameterPlan, plan_parameters
from blindbayes.privacy.stages import StagedPlan, plan_stages
from blindbayes.privacy.statement import SIDE_CHANNELS, PrivacyStatement
from blindbayes.statistics import CodedRows, Statistics

Rows: TypeAlias = CodedRows | Callable[[], CodedRows] | None
Fitted: TypeAlias = tuple[Parameters, Statistics | None, dict[str, Any] | None]
ALONE = "No ledger was kept: the promise is about this release alone, and adds up with any other from the same table."
SMOOTH_SIDE_CHANNELS = (
    "Means, variances and the bounds on their sensitivity are computed in floating point, and a margin above its rounding is "
    "added to every bound; they lie on a public grid before exact noise is added. The time to count, to find the bounds and to "
    "draw noise of that width depends on the data and is not hidden."
)


@dataclass(frozen=True)
class PrivateFit(ABC):
    """A planned release: what `NaiveBayes.fit` needs of it. `name` and `price` are what a ledger charges."""

    plan: StagedPlan | ParameterPlan

    @property
    def name(self) -> str:
        """The mechanism, with what `auto` chose."""
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
    @abstractmethod
    def wants_rows(self) -> bool:
        """Whether `release` takes a block of coded rows instead of statistics."""

    @property
    def chooses(self) -> bool:
        """Whether `release` is to be given the rows beside the statistics, for a last choice."""
        return False

    @abstractmethod
    def release(self, exact: Statistics | CodedRows, alpha: float, coins: Coins, rows: Rows = None) -> Fitted:
        """The noise, once, and the model that follows from it, with the noisy statistics where they are released, and what
        was released verbatim, for intervals. `rows`, those of the statistics or what reads them, are for a last choice."""

    @abstractmethod
    def statement(
        self, composition: str | None = None, tuning: str | None = None, bounded: bool | None = None
    ) -> PrivacyStatement:
        """The promise; `composition` says what the ledger holds besides, `tuning` how settings were chosen, `bounded` whether
        the rows of a person were (None: the unit is a record)."""


def plan_fit(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float,
    mechanism: str,
    rows: int | None,
    rows_per_person: int,
    allocation: tuple[int, int] | None = None,
    gamma: Number | None = None,
    chooses: bool = False,
    most_read: int | None = None,
) -> PrivateFit:
    """The release that `mechanism` names, planned from public facts. `allocation` and `gamma` are for smooth and global;
    `chooses` says that rows will be handed over for a last choice (`privacy.stages`), if there are at most `most_read`."""
    require_small_delta(codebook, delta, rows)
    if mechanism in ("smooth", "global"):
        if delta:
            raise ConfigError(f"{mechanism} is purely epsilon-private; leave delta at 0")
        kind: Literal["smooth", "global"] = "smooth" if mechanism == "smooth" else "global"
        if gamma is not None and kind == "global":
            raise ConfigError("gamma is the exponent of the noise of smooth; global has none")
        weights = (2, 1) if allocation is None else tuple(allocation)
        if len(weights) != 2 or not all(type(weight) is int and weight >= 1 for weight in weights):
            raise ConfigError("allocation is two whole numbers: the weight of a numeric feature and of a categorical one")
        return ParameterFit(
            plan_parameters(
                codebook,
                epsilon=epsilon,
                mechanism=kind,
                allocation=(weights[0], weights[1]),
                gamma=2 if gamma is None else gamma,
                rows_per_unit=rows_per_person,
            )
        )
    if allocation is not None or gamma is not None:
        raise ConfigError("allocation and gamma are settings of the mechanisms smooth and global")
    return JointFit(
        plan_stages(
            codebook,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            rows=rows,
            rows_per_unit=rows_per_person,
            chooses=chooses,
            most_read=most_read,
        )
    )


@dataclass(frozen=True)
class JointFit(PrivateFit):
    """One joint release of all statistics, after the stages that plan it."""

    plan: StagedPlan

    @property
    def wants_rows(self) -> bool:
        """Statistics are enough."""
        return False

    @property
    def chooses(self) -> bool:
        """Where rows are enough, or their number is not known yet."""
        return self.plan.chooses and (self.plan.rows is None or self.plan.choice(self.plan.rows) is not None)

    def release(self, exact: Statistics | CodedRows, alpha: float, coins: Coins, rows: Rows = None) -> Fitted:
        """The noise, once, and the model that follows from it."""
        if not isinstance(exact, Statistics):
            raise ConfigError("a joint release is made from statistics")
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


@dataclass(frozen=True)
class ParameterFit(PrivateFit):
    """A release parameter by parameter: the literature's way, mended."""

    plan: ParameterPlan

    @property
    def wants_rows(self) -> bool:
        """The sensitivity hangs on the numbers of each class."""
        return True

    def release(self, exact: Statistics | CodedRows, alpha: float, coins: Coins, rows: Rows = None) -> Fitted:
        """Every parameter with its own noise; no statistics are released."""
        if not isinstance(exact, CodedRows):
            raise ConfigError("a release parameter by parameter is made from coded rows")
        return self.plan.fit(exact, coins, alpha=alpha), None, None

    def statement(
        self, composition: str | None = None, tuning: str | None = None, bounded: bool | None = None
    ) -> PrivacyStatement:
        """The promise; `composition` says what the ledger holds besides, `tuning` how settings were chosen, `bounded` whether
        the rows of a person were (None: the unit is a record)."""
        number, table = (float(each) for each in self.plan.budgets)
        sensitivity = (
            f"each mean and variance has epsilon {number:g} of its own, by a "
            f"{'smooth bound on its local' if self.name == 'smooth' else 'bound on its global'} sensitivity; each histogram "
            f"has epsilon {table:g}, one record moves one cell by 1"
        )
        return PrivacyStatement.of(
            self,
            sensitivity=sensitivity,
            codebook=self.codebook.sha256,
            data_domain=data_domain(self.codebook) + persons_domain(self.plan.rows_per_unit, bounded),
            composition=composition or ALONE,
            tuning=tuning,
            side_channels=SMOOTH_SIDE_CHANNELS if self.name == "smooth" else SIDE_CHANNELS,
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
