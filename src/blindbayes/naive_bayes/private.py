"""`PrivateNaiveBayes`: Naive Bayes from one differentially private release of a table."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table, encode
from blindbayes.data.contribution_bound import ContributionBound, require_rows_per_person, sample_rows
from blindbayes.data.frames import eager
from blindbayes.data.sources import is_source
from blindbayes.data.table import read_block, take
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.dp.noise.exact_events import as_decimal
from blindbayes.dp.noise.mechanisms import Priced
from blindbayes.dp.release.forecast import noisy_accuracy, score_price
from blindbayes.dp.release.intervals import noise_interval
from blindbayes.dp.release.private_fit import MAX_READ, FitPlan, Rows, plan_fit, plan_for_rho
from blindbayes.dp.release.release_plan import NoisyStatistics, require_small_delta
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.naive_bayes.base import BaseNaiveBayes, default_title
from blindbayes.naive_bayes.explain import Explanation
from blindbayes.naive_bayes.inputs import (
    by_label,
    caller,
    first_name,
    is_loose,
    labels_apart,
    listed_kind,
    private_columns,
    private_labels,
    require_alone,
)
from blindbayes.naive_bayes.model_file import ModelRecord
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.intervals import NoiseInterval
from blindbayes.statistics.parameters import FloatArray, Parameters, require_alpha

_EXACT_SCORE = (
    "an exact score is a function of private rows: under a ledger set score_epsilon, leave scoring and sample_weight out, or "
    "choose settings by `private_forecast` (Python) or `blindbayes plan` (command line)"
)


_NOISE_ALONE = 3.0  # standard deviations


class PrivateNaiveBayes(BaseNaiveBayes):
    """Naive Bayes with differential privacy: every `fit` is one release of the table, paid for before it is made.

    Parameters
    ----------
    codebook : Codebook
        Public facts about the columns, declared and not inferred from the rows.
    epsilon : float, default=None
        Privacy loss of a fit.
    delta : float, default=0.0
        Second privacy parameter; 0 means pure differential privacy.
    rho : float, default=None
        In place of `epsilon`: zero-concentrated privacy loss of a fit, which buys the largest epsilon that costs no more.
    allow_large_delta : bool, default=False
        Agree to a delta above a tenth of one over the declared rows.
    ledger : path, default=None
        File that records the privacy loss spent on this table; charged before anything is released.
    purpose : str, default=None
        What the release is for, as the ledger records it. By default it names the class column, as the title of `release` does.
    score_epsilon : float, default=None
        With `ledger`: privacy loss of each `score`. Without it `score` is refused under a ledger, since an exact score is a
        function of private rows.
    rows_per_person : int, default=None
        Contribution bound. None protects a record; a number protects a person with at most that many rows. If the codebook
        has an identifier and the table its columns, that many rows of each person are sampled, and rows without an
        identifier are dropped; otherwise the caller declares the bound, and the statement says that it was not checked.
    expected_rows : int, default=None
        Public or guessed size of the table, by default the codebook's `expected_rows`. It decides how fine the release is;
        the true number of rows is private and is not used.
    tuning_note : str, default=None
        For the statement: how settings were chosen. By default it says that this is assumed, not checked.
    alpha : float, default=1.0
        Laplace smoothing.
    priors, class_weight, extra_columns
        As in `NaiveBayes`.

    Attributes
    ----------
    codebook_ : Codebook
        The codebook in force, with the cells of the release.
    statistics_ : Statistics
        The noisy integer statistics.
    classes_, class_count_, class_log_prior_, n_features_in_, feature_names_in_
        As in scikit-learn; counts and class shares are noisy.
    class_log_offset_ : array
        What rules and feature weights add to the score of each class, beside its share.
    parameters_ : Parameters
        Log-probabilities, means and variances by feature.
    privacy_ : dict
        What was released and how, in public facts.
    statement_ : PrivacyStatement
        The guarantee, for the privacy officer.
    """

    codebook: Codebook
    privacy_: dict[str, Any]

    def __init__(
        self,
        codebook: Codebook,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        rho: float | None = None,
        allow_large_delta: bool = False,
        ledger: str | os.PathLike[str] | None = None,
        purpose: str | None = None,
        score_epsilon: float | None = None,
        rows_per_person: int | None = None,
        expected_rows: int | None = None,
        tuning_note: str | None = None,
        alpha: float = 1.0,
        priors: Mapping[Any, float] | Sequence[float] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        extra_columns: str = "refuse",
    ) -> None:
        self.codebook = codebook
        self.epsilon = epsilon
        self.delta = delta
        self.rho = rho
        self.allow_large_delta = allow_large_delta
        self.ledger = ledger
        self.purpose = purpose
        self.score_epsilon = score_epsilon
        self.rows_per_person = rows_per_person
        self.expected_rows = expected_rows
        self.tuning_note = tuning_note
        self.alpha = alpha
        self.priors = priors
        self.class_weight = class_weight
        self.extra_columns = extra_columns

    def fit(self, X: Any, y: Any = None) -> Self:
        """Make one release: plan and price it from public facts, count, charge the ledger, add noise.

        `X` and `y` are as in `NaiveBayes.fit`. No row is an error: values outside the codebook count as missing.
        """
        self._forget()
        with self._restoring():
            return self._fit(X, y)

    def _fit(self, X: Any, y: Any) -> Self:
        codebook = self._declared_codebook(X)
        require_small_delta(codebook, self.delta, self.expected_rows, allow_large=self.allow_large_delta)
        plan_at = partial(
            plan_fit,
            codebook,
            delta=self.delta,
            rows=self.expected_rows,
            rows_per_unit=self._unit_rows,
            # With weights or priors, the number of right answers does not say which model is meant.
            select_model=self.class_weight is None and self.priors is None,
            # A large source is counted where it is stored, and its rows are not read again.
            max_read=MAX_READ if is_source(X) else None,
        )
        if self.epsilon is not None and self.rho is None:
            plan = plan_at(epsilon=self.epsilon)
        elif self.rho is not None and self.epsilon is None:
            plan = plan_for_rho(self.rho, lambda each: plan_at(epsilon=each))
        else:
            raise ConfigError("the price of a fit is epsilon or rho: pass one of them")
        statistics, rows = self._count(X, y, plan)
        balance = self._charge(plan, codebook)
        outcome = plan.fit(statistics, rows, Coins.system(), self.alpha)
        statement = plan.statement(outcome.stages, balance, self.tuning_note, self._bounded(X))
        self.privacy_ = {**plan.describe(), "statement": statement.to_dict(), **outcome.facts()}
        _warn_of_noise(outcome.noisy)
        return self._publish(outcome.parameters, outcome.noisy.statistics)

    def _count(self, X: Any, y: Any, plan: FitPlan) -> tuple[Statistics, Rows]:
        """Return the exact statistics, and the rows or a function that reads them; None where the plan does not need them."""
        if not is_source(X):
            rows = self._private_block(X, y, plan.codebook)
            return count_block(Layout(plan.codebook), rows), rows
        require_alone(y, None)
        self._adopt_source(plan.codebook)
        bound = self._contribution_bound(plan.codebook)
        read = partial(read_block, X, plan.codebook, lenient=True, extra_columns=self.extra_columns, bound=bound)
        if plan.needs_rows and plan.rows is not None:
            rows = read()
            return count_block(Layout(plan.codebook), rows), rows
        statistics = count_table(X, plan.codebook, lenient=True, extra_columns=self.extra_columns, bound=bound)
        return statistics, read if plan.needs_rows else None  # noise decides whether rows are read again

    def _declared_codebook(self, X: Any) -> Codebook:
        """Return the codebook. Raises `PrivacyError` if it was not declared from public knowledge."""
        codebook: Any = self.codebook
        if codebook is not None and not isinstance(codebook, Codebook):
            raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
        if codebook is None or codebook.provenance == "inferred":
            raise PrivacyError(
                f"column {first_name(X)!r} has no declared domain: epsilon needs a codebook made from public knowledge "
                "(bounds, categories, class labels); write one and pass it as codebook="
            )
        return codebook

    def _private_block(self, X: Any, y: Any, codebook: Codebook) -> CodedRows:
        """Encode rows for a fit or a score: every cell is read by itself, and no value is an error."""
        X = eager(X)
        names, columns = private_columns(X, codebook)
        inside = y is None and names is not None and codebook.target in names
        names, columns, y = labels_apart(names, columns, y, codebook)
        labels, label_kind = private_labels(y, codebook)
        if inside and is_loose(X[codebook.target]):
            label_kind = listed_kind(codebook)
        check_consistent_length(*[*columns.values()][:1], labels)
        if names is not None and self._is_bounded(names) and (bound := self._contribution_bound(codebook)) is not None:
            places = sample_rows(X, codebook, bound)
            columns = {name: take(column, places) for name, column in columns.items()}
            labels = take(labels, places)
        columns = self._adopt_columns(names, columns, codebook, label_kind)
        return encode(columns, codebook, training=True, labels=labels, lenient=True)

    # -- the unit of privacy and its price -----------------------------------------------------------------------------

    @property
    def _unit_rows(self) -> int:
        if self.rows_per_person is None:
            return 1
        require_rows_per_person(self.rows_per_person)
        return self.rows_per_person

    def _is_bounded(self, names: Sequence[Any] | None) -> bool:
        """Return whether a table with these columns (None: a source) identifies the persons whose rows are bounded."""
        if self.rows_per_person is None or self.codebook.identifier is None:
            return False
        return names is None or {part.column for part in self.codebook.identifier.parts} <= set(names)

    def _bounded(self, X: Any) -> bool | None:
        """Return whether the rows of a person are bounded in X; None if the unit is a record."""
        if self.rows_per_person is None:
            return None
        arrow = isinstance(X, pa.Table | pa.RecordBatch)
        names = None if is_source(X) else list(X.schema.names if arrow else getattr(eager(X), "columns", ()))
        return self._is_bounded(names)

    def _contribution_bound(self, codebook: Codebook) -> ContributionBound | None:
        if codebook.identifier is None or self.rows_per_person is None:
            return None
        return ContributionBound(self._unit_rows, Coins.system().bytes(32))

    def _charge(self, release: Priced, codebook: Codebook) -> str | None:
        """Charge the ledger, if there is one, and return its balance as text; refuse first what would fail after it."""
        self._require_settings(codebook)
        if self.ledger is None:
            return None
        ledger = Ledger(self.ledger)
        ledger.charge(release, purpose=self.purpose or default_title(codebook), codebook=codebook.sha256)
        return str(ledger.balance())

    def _require_settings(self, codebook: Codebook) -> None:
        """Refuse an alpha, priors or class weights that no model of this codebook can have."""
        require_alpha(self.alpha)
        classes = len(codebook.classes)
        Parameters(codebook, np.full(classes, -math.log(classes)), {}).weighed(
            by_label(self.priors), by_label(self.class_weight)
        )

    # -- what differs after the fit ------------------------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on these rows. Under a ledger this is a release: noisy, and paid for by `score_epsilon`.

        The noise is that of `private_forecast`: on the numbers of right and of wrong answers, of which a row is in one.
        Rows are read and bounded as in `fit`.
        """
        if self.ledger is None:
            return float(super().score(X, y, sample_weight))
        if self.score_epsilon is None or sample_weight is not None:
            raise PrivacyError(_EXACT_SCORE)
        if is_source(X):
            raise ConfigError("under a ledger a score takes a frame, whose rows are bounded as in fit: read the table into one")
        parameters = self._parameters()
        block = self._private_block(X, y, parameters.codebook)
        right = int((parameters.joint_log_likelihood(block).argmax(axis=1) == block.labels).sum())
        price = score_price(self.score_epsilon, self._unit_rows)
        spend = Spend(as_decimal(price.epsilon))
        purpose = f"score of {self.purpose or default_title(parameters.codebook)}"
        Ledger(self.ledger).charge(spend, purpose=purpose, unit=price.unit)
        return noisy_accuracy(right, block.rows, self.score_epsilon, self._unit_rows, Coins.system())

    def _scores(self, X: Any) -> Iterator[FloatArray]:
        if self.ledger is not None and _is_scored():
            raise PrivacyError(_EXACT_SCORE)
        return super()._scores(X)

    @property
    def statement_(self) -> PrivacyStatement:
        """The guarantee of the fit, for the privacy officer."""
        check_is_fitted(self, "privacy_")
        return PrivacyStatement.from_dict(self.privacy_.get("statement"))

    @property
    def approved_codebook_(self) -> str:
        """SHA-256 of the codebook as it was agreed on, before the release joined its cells."""
        return str(self.privacy_.get("statement", {}).get("codebook", super().approved_codebook_))

    def explain(self, X: Any) -> Explanation:
        """Return what the prior, the offset and each feature add to class scores by row, with intervals for privacy noise."""
        check_is_fitted(self, "parameters_")
        return self._explanation(X, noise=self._noise_interval, log_prior=self.class_log_prior_)

    def _noise_interval(self) -> NoiseInterval | None:
        interval = noise_interval(self.privacy_, self._parameters(), self.alpha)
        if interval is None or (self.priors is None and self.class_weight is None):
            return interval
        declared = np.broadcast_to(self._parameters().log_prior, interval.log_prior.shape)  # without noise
        return replace(interval, log_prior=declared)

    def _publish(self, parameters: Parameters, statistics: Statistics | None) -> Self:
        super()._publish(parameters, statistics)
        if statistics is not None and self.priors is None and self.class_weight is None:
            counts = np.maximum(self.class_count_, 0.5)
            self.class_log_prior_ = np.log(counts / counts.sum())
        self.class_log_offset_ = self.parameters_.log_prior - self.class_log_prior_
        return self

    def _restore(self, record: ModelRecord) -> Self:
        self.privacy_ = dict(record.privacy or {})
        return super()._restore(record)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "ledger": None if self.ledger is None else os.fspath(self.ledger)}


def _warn_of_noise(noisy: NoisyStatistics) -> None:
    """Warn, by the noisy counts alone, if the release may hold nothing but noise."""
    rows, noise = float(noisy.class_counts.sum()), noisy.class_deviation * math.sqrt(len(noisy.class_counts))
    if rows < _NOISE_ALONE * noise:
        text = (
            "the noisy counts are no larger than their noise: the table is too small for this epsilon, or hardly a row has a "
            "class that the codebook lists; `blindbayes codebook check CODEBOOK --data TABLE` counts rows that do not fit"
        )
        warnings.warn(text, UserWarning, stacklevel=caller())


def _is_scored() -> bool:
    """Return whether a scorer of scikit-learn is on the call stack."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.metrics._scorer":
            return True
        frame = frame.f_back
    return False
